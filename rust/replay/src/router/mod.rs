//! Which of several instances a request goes to.
//!
//! A [`Router`] gives every instance a score and takes the highest. Of equal ones it takes the
//! first that it looks at, and it begins with another one for each request, as vLLM does: equal
//! instances take turns.

mod load;
mod scores;
mod sessions;

pub use load::{Candidate, Load};
pub use scores::{ROUTINGS, Routing};

use crate::trace::Trace;
use sessions::sessions;

/// Chooses instances for the requests of a trace.
#[derive(Clone, Debug)]
pub struct Router {
    routing: Routing,
    num_instances: usize,
    /// The instance that it looks at first.
    turn: usize,
    /// The conversation of each request of the trace, if it decides.
    sessions: Vec<u64>,
}

impl Router {
    /// A router for a trace.
    pub fn new(routing: Routing, num_instances: usize, trace: &Trace) -> Self {
        let sessions = if routing == Routing::Session { sessions(trace) } else { Vec::new() };
        Self { routing, num_instances, turn: 0, sessions }
    }

    /// Whether it asks what of a request the instances have cached.
    pub fn asks_for_hits(&self) -> bool {
        matches!(self.routing, Routing::Prefix { .. } | Routing::Scored { .. })
    }

    /// The instance for a request with a prompt of so many tokens.
    pub fn choose(
        &mut self,
        request: usize,
        num_prompt_tokens: usize,
        candidates: &[Candidate],
    ) -> usize {
        let chosen = match self.routing {
            Routing::Session => (self.sessions[request] % self.num_instances as u64) as usize,
            routing => self.highest(&routing.scores(num_prompt_tokens, candidates)),
        };
        self.turn = (self.turn + 1) % self.num_instances;
        chosen
    }

    fn highest(&self, scores: &[f64]) -> usize {
        let others = (1..self.num_instances).map(|i| (self.turn + i) % self.num_instances);
        others
            .fold(self.turn, |best, other| if scores[other] > scores[best] { other } else { best })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_instances_take_turns() {
        let trace = Trace::default();
        let mut router = Router::new(Routing::LeastLoaded { pressure: 6.0 }, 3, &trace);
        let idle = [Candidate::default(); 3];
        let chosen: Vec<_> = (0..4).map(|request| router.choose(request, 10, &idle)).collect();
        assert_eq!(chosen, [0, 1, 2, 0]);
        let mut loads = idle;
        loads[1].load.running = 1;
        assert_eq!(router.choose(4, 10, &loads), 2);
    }
}

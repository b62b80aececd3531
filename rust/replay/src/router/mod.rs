//! Chooses an instance for each request.
//!
//! A [`Router`] scores every instance and chooses the instance with the highest score. For each
//! request it starts the comparison at another instance, as vLLM does. So instances with equal
//! scores take turns.

mod load;
mod scores;
mod sessions;

pub(crate) use load::{Candidate, Load};
pub use scores::Routing;

use kvoxide_core::Error;

use crate::trace::{Trace, TraceRequest};
use sessions::sessions;

/// Chooses instances for the requests of a trace.
#[derive(Clone, Debug)]
pub(crate) struct Router {
    routing: Routing,
    num_instances: usize,
    /// The instance that is compared first.
    first: usize,
    /// For each request, a number that decides alone if the routing uses it: a hash of the
    /// request's conversation, or the instance that served it.
    keys: Vec<u64>,
}

impl Router {
    /// Creates a router for a trace. Fails if the routing needs recorded instances and they are
    /// missing.
    pub fn new(routing: Routing, num_instances: usize, trace: &Trace) -> Result<Self, Error> {
        let keys = match routing {
            Routing::Session => sessions(trace),
            Routing::Recorded => recorded(trace)?,
            _ => Vec::new(),
        };
        Ok(Self { routing, num_instances, first: 0, keys })
    }

    /// Returns whether the routing depends on the hits of a request in each instance.
    pub fn needs_hits(&self) -> bool {
        matches!(self.routing, Routing::Prefix { .. } | Routing::Scored { .. })
    }

    /// Returns the instance for a request.
    pub fn choose(
        &mut self,
        request: usize,
        num_prompt_tokens: usize,
        candidates: &[Candidate],
    ) -> usize {
        let chosen = match self.routing {
            Routing::Session | Routing::Recorded => {
                (self.keys[request] % self.num_instances as u64) as usize
            }
            routing => self.highest(&routing.scores(num_prompt_tokens, candidates)),
        };
        self.first = (self.first + 1) % self.num_instances;
        chosen
    }

    fn highest(&self, scores: &[f64]) -> usize {
        let others = (1..self.num_instances).map(|i| (self.first + i) % self.num_instances);
        others
            .fold(self.first, |best, other| if scores[other] > scores[best] { other } else { best })
    }
}

/// Returns the recorded instance of each request.
fn recorded(trace: &Trace) -> Result<Vec<u64>, Error> {
    let instance = |(index, request): (usize, &TraceRequest)| {
        let missing = || {
            let message = "the router 'recorded' needs the recording of a server; request";
            Error::Config(format!("{message} {} names no instance", index + 1))
        };
        request.instance.map(u64::from).ok_or_else(missing)
    };
    trace.requests().iter().enumerate().map(instance).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_instances_take_turns() {
        let trace = Trace::default();
        let mut router =
            Router::new(Routing::LeastLoaded { pressure: 6.0 }, 3, &trace).expect("any trace");
        let idle = [Candidate::default(); 3];
        let chosen: Vec<_> = (0..4).map(|request| router.choose(request, 10, &idle)).collect();
        assert_eq!(chosen, [0, 1, 2, 0]);
        let mut loads = idle;
        loads[1].load.running = 1;
        assert_eq!(router.choose(4, 10, &loads), 2);
    }

    #[test]
    fn a_request_goes_where_it_was_recorded() {
        let mut trace = Trace::default();
        for instance in [2, 0, 1] {
            trace.start_part(0, Some(instance));
            trace.push(TraceRequest::of_tokens(vec![1], 1)).expect("tokens");
        }
        let chosen = |num_instances: usize| {
            let mut router =
                Router::new(Routing::Recorded, num_instances, &trace).expect("recorded");
            let idle = vec![Candidate::default(); num_instances];
            [0, 1, 2].map(|request| router.choose(request, 1, &idle))
        };
        assert_eq!((chosen(3), chosen(2)), ([2, 0, 1], [0, 0, 1]));
        let mut trace = Trace::default();
        trace.push(TraceRequest::of_tokens(vec![1], 1)).expect("tokens");
        let refused = Router::new(Routing::Recorded, 2, &trace).expect_err("not recorded");
        assert!(refused.to_string().contains("request 1 names no instance"));
    }
}

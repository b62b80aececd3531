//! The recorded resets of the prefix cache, for the instances of a replay.

use crate::router::Routing;
use crate::trace::{ResetBefore, Trace};

/// Resets that were not replayed yet. If the router is not the recorded one, every instance gets
/// the resets of the first recorded instance.
#[derive(Clone, Debug)]
pub(crate) struct Resets {
    left: Vec<ResetBefore>,
    is_of_all: bool,
    /// For each instance, whether it is reset before its next request, and whether this preempts
    /// requests.
    pending: Vec<Option<bool>>,
}

impl Resets {
    /// Returns the resets of a trace.
    pub fn new(routing: Routing, num_instances: usize, trace: &Trace) -> Self {
        let is_of_all = routing != Routing::Recorded;
        let mut left = trace.resets();
        if let Some(first) = left.iter().map(|reset| reset.instance).min().filter(|_| is_of_all) {
            left.retain(|reset| reset.instance == first);
        }
        left.sort_by_key(|reset| std::cmp::Reverse(reset.request));
        Self { left, is_of_all, pending: vec![None; num_instances] }
    }

    /// Notes that a request of the trace arrives. Requests arrive in the order of the trace.
    pub fn arrives(&mut self, request: usize) {
        while let Some(reset) = self.left.pop_if(|reset| reset.request <= request) {
            let instance = reset.instance as usize % self.pending.len();
            for (id, pending) in self.pending.iter_mut().enumerate() {
                if self.is_of_all || id == instance {
                    *pending = Some(pending.unwrap_or(false) | reset.preempts);
                }
            }
        }
    }

    /// Takes the reset before the next request of an instance.
    pub fn take(&mut self, instance: usize) -> Option<bool> {
        self.pending[instance].take()
    }
}

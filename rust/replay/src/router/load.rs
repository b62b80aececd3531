//! The state of an instance as a router sees it.

/// The load of an instance.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Waiting requests, preempted ones included.
    pub waiting: usize,
    /// Running requests.
    pub running: usize,
    /// Prompt tokens of these requests that are not computed yet.
    pub prefill_tokens: usize,
    /// Prompt and output tokens of these requests.
    pub active_tokens: usize,
    /// Share of the pool in use, from 0 to 1.
    pub usage: f64,
}

/// An instance as a candidate for one request.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Candidate {
    /// Its load.
    pub load: Load,
    /// Prompt tokens that the request would hit, if the routing needs them.
    pub hit: usize,
}

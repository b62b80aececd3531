//! The state of an instance, as a router sees it.

/// The load of an instance.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// The number of waiting requests, including preempted ones.
    pub waiting: usize,
    /// The number of running requests.
    pub running: usize,
    /// The number of prompt tokens of these requests that are not computed yet.
    pub prefill_tokens: usize,
    /// The number of prompt and output tokens of these requests.
    pub active_tokens: usize,
    /// The share of the pool that is in use, from 0 to 1.
    pub usage: f64,
}

/// An instance as a candidate for one request.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Candidate {
    /// The load of the instance.
    pub load: Load,
    /// The number of prompt tokens that the request would hit, if the routing needs it.
    pub hit: usize,
}

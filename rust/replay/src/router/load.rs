//! What a router sees of an instance.

/// How much an instance has to do.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Requests that wait for their first blocks, or again after a preemption.
    pub waiting: usize,
    /// Requests that hold blocks.
    pub running: usize,
    /// Prompt tokens still to be computed, of all these requests.
    pub prefill_tokens: usize,
    /// Tokens of all these requests.
    pub active_tokens: usize,
    /// Share of the pool in use, 0 to 1.
    pub usage: f64,
}

/// An instance as a candidate for one request.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Candidate {
    /// How much it has to do.
    pub load: Load,
    /// Prompt tokens of the request that it has cached, if the router asks.
    pub hit: usize,
}

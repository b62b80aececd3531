//! Requests of a trace while they wait or run.

use kvoxide_core::RequestView;

use crate::tokens::HashChain;
use crate::trace::TraceRequest;

/// A waiting or running request.
pub struct ActiveRequest {
    pub index: usize,
    pub chain: HashChain,
    pub num_prompt_tokens: usize,
    pub num_tokens: usize,
    pub num_computed_tokens: usize,
    pub shared_prefix_boundary: usize,
    pub is_waiting: bool,
    /// The tokens that the router expected it to hit.
    pub expected_hit: usize,
    /// Decode steps before this many computed tokens are no-ops.
    pub next_call: usize,
}

/// A request that arrives at an instance.
#[derive(Debug, Default)]
pub struct Arrival {
    /// Its index in the trace.
    pub request: usize,
    /// Its hashes, if the router computed them.
    pub chain: Option<HashChain>,
    /// The tokens that it would hit now, if the router looked them up.
    pub expected_hit: usize,
}

impl ActiveRequest {
    pub fn new(index: usize, request: &TraceRequest, chain: HashChain) -> Self {
        let num_prompt_tokens = request.prompt.len();
        Self {
            index,
            chain,
            num_prompt_tokens,
            num_tokens: num_prompt_tokens,
            num_computed_tokens: 0,
            shared_prefix_boundary: 0,
            is_waiting: true,
            expected_hit: 0,
            next_call: 0,
        }
    }

    pub fn view(&self) -> RequestView<'_> {
        RequestView {
            num_prompt_tokens: self.num_prompt_tokens,
            num_computed_tokens: self.num_computed_tokens,
            shared_prefix_boundary: self.shared_prefix_boundary,
            is_waiting: self.is_waiting,
            ..RequestView::new(self.index as u64, self.chain.window(), self.num_tokens)
        }
    }

    pub fn num_generated(&self) -> usize {
        self.num_tokens - self.num_prompt_tokens
    }
}

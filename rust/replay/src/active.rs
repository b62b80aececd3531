//! A request of a trace while it waits or runs.

use kvoxide_core::RequestView;

use crate::tokens::HashChain;
use crate::trace::TraceRequest;

/// A request that waits or runs.
pub struct Active {
    pub index: usize,
    pub chain: HashChain,
    pub num_prompt_tokens: usize,
    pub num_tokens: usize,
    pub num_computed_tokens: usize,
    pub shared_prefix_boundary: usize,
    pub is_waiting: bool,
    /// What a router took it to hit.
    pub expected_hit: usize,
    /// A decode step below so many computed tokens needs no call.
    pub next_call: usize,
}

/// A request that is brought to an instance.
#[derive(Debug, Default)]
pub struct Arrival {
    /// Its index in the trace.
    pub request: usize,
    /// Its hashes, if they are known.
    pub chain: Option<HashChain>,
    /// What it would hit now, if somebody asked.
    pub expected_hit: usize,
}

impl Active {
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

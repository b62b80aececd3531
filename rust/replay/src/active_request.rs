//! Requests of a trace that wait or run.

use kvoxide_core::RequestView;

use crate::tokens::{HashChain, HashSizes};
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
    /// The number of tokens that the router expected the request to hit.
    pub expected_hit: usize,
    /// Decode steps before this number of computed tokens are no-ops.
    pub next_call: usize,
    pub skips_reading: bool,
    /// Whether the blocks that were loaded for the request are cached.
    pub is_settled: bool,
    /// Whether the recorded server began the request's load and has not let it run since.
    pub only_loads: bool,
}

/// A request that arrives at an instance.
#[derive(Debug, Default)]
pub struct Arrival {
    /// The request's index in the trace.
    pub request: usize,
    /// The request's hashes, if the router computed them.
    pub chain: Option<HashChain>,
    /// The number of tokens that the request would hit now, if the router looked them up.
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
            skips_reading: request.skips_reading,
            is_settled: false,
            only_loads: false,
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

    /// Returns the request as one that reads the cache only if prefixes are cached.
    pub fn with_caching(self, enable_caching: bool) -> Self {
        Self { skips_reading: self.skips_reading || !enable_caching, ..self }
    }

    /// Adds the next token of a request. If the trace does not know it, adds a unique token.
    pub fn generate(&mut self, known: &TraceRequest, sizes: HashSizes, next_unique: &mut i64) {
        let width = sizes.tokens_per_id;
        if self.num_tokens < known.prompt.num_known(width) {
            self.chain.push(known.prompt.token(self.num_tokens, width));
        } else {
            self.chain.push(*next_unique);
            *next_unique -= 1;
        }
        self.num_tokens += 1;
    }

    pub fn num_generated(&self) -> usize {
        self.num_tokens - self.num_prompt_tokens
    }
}

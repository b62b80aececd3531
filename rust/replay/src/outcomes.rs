//! The outcomes of the tokens of a request's prompt. Each token has exactly one.

use serde::{Deserialize, Serialize};

/// The names of all outcomes, in the order of [`Outcomes::tokens`].
pub const OUTCOMES: [&str; 10] = [
    "hit_gpu",
    "hit_host",
    "hit_answer",
    "first_time",
    "below_block",
    "evicted_full",
    "evicted_tail",
    "never_cached",
    "other_salt_or_adapter",
    "not_cacheable",
];

/// The number of tokens of a prompt with each outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcomes {
    /// One number for each of [`OUTCOMES`].
    pub tokens: [u32; OUTCOMES.len()],
}

impl Outcomes {
    /// Returns the sum of all outcomes, which is the length of the prompt.
    pub fn num_tokens(&self) -> usize {
        self.tokens.iter().map(|&tokens| tokens as usize).sum()
    }
}

//! The outcomes of the tokens of a request's prompt. Each token has exactly one.

use kvoxide_core::Outcome;
use serde::{Deserialize, Serialize};

/// The number of tokens of a prompt with each outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcomes {
    /// One number for each of [`Outcome::ALL`].
    pub tokens: [u32; Outcome::ALL.len()],
}

impl Outcomes {
    /// Returns the sum of all outcomes, which is the length of the prompt.
    pub fn num_tokens(&self) -> usize {
        self.tokens.iter().map(|&tokens| tokens as usize).sum()
    }
}

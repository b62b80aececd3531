//! One request of a trace.

use kvoxide_core::RetentionPriority;
use serde::{Deserialize, Serialize};

use super::prompt::Prompt;
use crate::conversation::Conversation;

/// The longest prompt and output, in tokens.
pub const MAX_LENGTH: usize = 1 << 28;

/// One request of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceRequest {
    /// When it arrived, in microseconds, where the trace says it.
    pub arrival: Option<u64>,
    /// The conversation that it belongs to, where the trace says it.
    pub conversation: Option<Conversation>,
    /// Its prompt.
    pub prompt: Prompt,
    /// Tokens it generates.
    pub output_length: usize,
    /// What it asks for its blocks.
    pub claim: Option<RetentionPriority>,
    /// What its ids stand for, where its format says it.
    pub tokens_per_id: Option<usize>,
    /// The instance that served it, from 0, where it was recorded.
    pub instance: Option<u32>,
}

impl TraceRequest {
    /// A prompt that arrives at no special time.
    pub fn of_prompt(prompt: Prompt, output_length: usize) -> Self {
        Self {
            arrival: None,
            conversation: None,
            prompt,
            output_length,
            claim: None,
            tokens_per_id: None,
            instance: None,
        }
    }

    /// A prompt of tokens that arrives at no special time.
    pub fn of_tokens(tokens: Vec<i64>, output_length: usize) -> Self {
        Self::of_prompt(Prompt::Tokens(tokens), output_length)
    }

    /// Tokens that are known, of the prompt and of what it generates, where an id stands for
    /// `tokens_per_id`; others are like no other token.
    pub fn num_known_tokens(&self, tokens_per_id: usize) -> usize {
        self.prompt.num_known(tokens_per_id).min(self.prompt.len() + self.output_length)
    }
}

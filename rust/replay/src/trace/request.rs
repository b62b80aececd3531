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
    /// Time of arrival in microseconds, if the trace has it.
    pub arrival: Option<u64>,
    /// The conversation, if the trace has it.
    pub conversation: Option<Conversation>,
    /// The prompt.
    pub prompt: Prompt,
    /// Tokens of the output.
    pub output_length: usize,
    /// The priority of its blocks, if it sets one.
    pub priority: Option<RetentionPriority>,
    /// Tokens per id, if the format of the trace determines them.
    pub tokens_per_id: Option<usize>,
    /// The instance that served it, from 0, if that was recorded.
    pub instance: Option<u32>,
    /// What it waits for, in the place of a time of arrival.
    pub wait: Option<Box<Wait>>,
}

/// The wait of a request for earlier ones, whose answers it needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// The indices of the requests, at least one.
    pub after: Vec<u32>,
    /// Microseconds from the end of the last of them to its arrival.
    pub delay: u64,
}

impl Wait {
    /// Returns the wait for requests, if there are any.
    pub fn new(after: Vec<u32>, delay: u64) -> Option<Box<Self>> {
        (!after.is_empty()).then(|| Box::new(Self { after, delay }))
    }
}

impl TraceRequest {
    /// Returns a request without a time.
    pub fn of_prompt(prompt: Prompt, output_length: usize) -> Self {
        Self {
            arrival: None,
            conversation: None,
            prompt,
            output_length,
            priority: None,
            tokens_per_id: None,
            instance: None,
            wait: None,
        }
    }

    /// Returns a request with a prompt of tokens and without a time.
    pub fn of_tokens(tokens: Vec<i64>, output_length: usize) -> Self {
        Self::of_prompt(Prompt::of_tokens(tokens), output_length)
    }

    /// Returns the number of known prompt and output tokens. All other tokens are unique.
    pub fn num_known_tokens(&self, tokens_per_id: usize) -> usize {
        self.prompt.num_known(tokens_per_id).min(self.prompt.len() + self.output_length)
    }
}

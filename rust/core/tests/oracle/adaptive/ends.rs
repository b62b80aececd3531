//! What tails at the ends of prompts and of answers are worth, learnt from where requests resume.
//!
//! A tail at an end takes the room of c tokens of full-attention blocks. Keeping it pays as much as
//! keeping those if it regains as many tokens: those of the first request that resumes there,
//! against c tokens times the share of such blocks with one use that are used again while they are
//! cached. First resumes regain a share of the tokens before all ends of a sort that were computed;
//! an end is expected to bring that share of the tokens before it. Before anything is seen, ends
//! have the value of full-attention blocks. Ends at which a request has resumed are a sort of their
//! own, which later requests resume at.

use super::block::WORTHLESS;

/// The worth of tails at ends, in full-attention blocks: a part that is assumed, and so much for
/// each token before the end.
#[derive(Clone, Copy, Debug)]
pub struct Worth {
    pub assumed: f64,
    pub per_token: f64,
}

impl Default for Worth {
    fn default() -> Self {
        Self { assumed: 1.0, per_token: 0.0 }
    }
}

impl Worth {
    /// Returns the halvings that lead from the value of full-attention blocks to that of an end.
    pub fn halvings(self, num_tokens: usize) -> usize {
        let worth = self.assumed + self.per_token * num_tokens as f64;
        ((1.0 / worth).log2().round().max(0.0) as usize).min(WORTHLESS)
    }
}

/// The worth of ends of each sort.
#[derive(Clone, Copy, Debug, Default)]
pub struct EndWorths {
    pub prompt: Worth,
    pub answer: Worth,
    /// Of ends at which a request has resumed.
    pub resumed: Worth,
}

impl EndWorths {
    /// Whether the last tail of an answer is kept while its request runs.
    pub fn keep_answers(self, num_prompt_tokens: usize) -> bool {
        self.answer.halvings(num_prompt_tokens) <= 2
    }
}

/// Ends of one sort, the tokens before them, and those of first resumes there. All fade.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ends {
    num: f64,
    num_tokens: f64,
    num_resumed_tokens: f64,
}

impl Ends {
    const FADE: f64 = 1.0 - 1.0 / 1024.0;
    /// Ends with the value of full-attention blocks that are assumed at the start.
    const PRIOR: f64 = 16.0;

    pub fn note_end(&mut self, num_tokens: usize) {
        self.num = self.num * Self::FADE + 1.0;
        self.num_tokens = self.num_tokens * Self::FADE + num_tokens as f64;
        self.num_resumed_tokens *= Self::FADE;
    }

    pub fn note_resume(&mut self, num_tokens: usize) {
        self.num_resumed_tokens += num_tokens as f64;
    }

    /// Returns the worth. `reuse` is the share of full-attention blocks with one use that are used
    /// again.
    pub fn worth(&self, tail_cost: f64, reuse: f64) -> Worth {
        let Self { num, num_tokens, num_resumed_tokens } = *self;
        let share = if num_tokens > 0.0 { num_resumed_tokens / num_tokens } else { 0.0 };
        Worth {
            assumed: Self::PRIOR / (num + Self::PRIOR),
            per_token: num / (num + Self::PRIOR) * share / (tail_cost * reuse),
        }
    }
}

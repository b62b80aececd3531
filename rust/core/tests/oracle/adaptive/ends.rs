//! What tails at the ends of prompts and of answers are worth, learnt from where requests resume.
//!
//! A tail at an end takes the room of c tokens of full-attention blocks. Keeping it pays as much as
//! keeping those if it regains as many tokens: those of the first request that resumes there, on
//! average over all ends of its sort that were computed, against c tokens times the share of such blocks with one use
//! that are used again while they are cached. Before anything is seen, ends have the value of
//! full-attention blocks. Ends at which a request has resumed are a sort of their own, which later
//! requests resume at.

use super::block::WORTHLESS;

/// The halvings of the value of tails at ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndHalvings {
    pub prompt: usize,
    pub answer: usize,
    /// Of ends at which a request has resumed.
    pub resumed: usize,
}

impl EndHalvings {
    /// Whether the last tail of an answer is kept while its request runs.
    pub fn keep_answers(self) -> bool {
        self.answer <= 2
    }
}

/// Ends of one sort, and the tokens of first resumes there. Both fade.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ends {
    num: f64,
    num_resumed_tokens: f64,
}

impl Ends {
    const FADE: f64 = 1.0 - 1.0 / 1024.0;
    /// Ends with the value of full-attention blocks that are assumed at the start.
    const PRIOR: f64 = 16.0;

    pub fn note_end(&mut self) {
        self.num = self.num * Self::FADE + 1.0;
        self.num_resumed_tokens *= Self::FADE;
    }

    pub fn note_resume(&mut self, num_tokens: usize) {
        self.num_resumed_tokens += num_tokens as f64;
    }

    /// Returns the halvings of the value. `reuse` is the share of
    /// full-attention blocks with one use that are used again.
    pub fn halvings(&self, tail_cost: f64, reuse: f64) -> usize {
        let regained = self.num_resumed_tokens / (tail_cost * reuse);
        let worth = (regained + Self::PRIOR) / (self.num + Self::PRIOR);
        ((1.0 / worth).log2().round().max(0.0) as usize).min(WORTHLESS)
    }
}

//! The worth of tails at the ends of prompts and answers, learnt from the positions where requests
//! resume.
//!
//! A tail takes as much of the pool as full-attention blocks of c tokens. A share r of these
//! blocks, kept after one use, is used again. So they regain c * r tokens. The tail of an end after
//! L tokens regains L tokens if a request resumes there.
//!
//! So far, requests resumed for the first time at ends after a share s of all tokens before ends of
//! the same kind. A tail is expected to regain s * L tokens. Its worth is this number divided by
//! the tokens that full-attention blocks of the same size regain: s * L / (c * r). Until ends are
//! seen, their worth is 1.
//!
//! To evict only the tail costs s * L tokens for the space of c. To evict all L tokens with it
//! costs r * L tokens for the space of L + c. If the second costs no more for its space, tail and
//! full blocks must be evicted together, and the tail keeps 0.55 of its halvings. In this
//! comparison, a worth that is assumed counts three times.
//!
//! There are three kinds: ends of prompts, ends of answers, and ends where a request has resumed.
//! For the last kind, a resume counts only if the request continues past the end. If a request
//! repeats its prompt, the tail of the end is kept as the tail of a prompt.

use super::block::WORTHLESS;

/// The worth of tails at ends, in full-attention blocks: an assumed part, and a part per token
/// before the end.
#[derive(Clone, Copy, Debug)]
pub struct Worth {
    pub assumed: f64,
    pub per_token: f64,
    /// The number of full-attention tokens whose blocks take as much of the pool as a tail.
    pub tail_cost: f64,
}

impl Default for Worth {
    fn default() -> Self {
        Self { assumed: 1.0, per_token: 0.0, tail_cost: 0.0 }
    }
}

impl Worth {
    /// Returns how often the value of full-attention blocks must be halved to get the value of an
    /// end.
    pub fn halvings(self, num_tokens: usize) -> usize {
        let worth = self.assumed + self.per_token * num_tokens as f64;
        let halvings = (1.0 / worth).log2().max(0.0);
        let left = if self.goes_with_full_blocks(num_tokens) { 0.55 } else { 1.0 };
        ((halvings * left).round() as usize).min(WORTHLESS)
    }

    fn goes_with_full_blocks(self, num_tokens: usize) -> bool {
        3.0 * self.assumed + self.per_token * (num_tokens as f64 + self.tail_cost) >= 1.0
    }
}

/// The worth of each kind of end.
#[derive(Clone, Copy, Debug, Default)]
pub struct EndWorths {
    pub prompt: Worth,
    pub answer: Worth,
    /// The worth of ends where a request has resumed.
    pub resumed: Worth,
}

impl EndWorths {
    /// The most halvings of an answer's end whose last tail is kept while its request runs.
    const MAX_HALVINGS_OF_ANSWER: usize = 2;

    /// Returns whether the last tail of an answer is kept while its request runs.
    pub fn keep_answers(self, num_prompt_tokens: usize) -> bool {
        self.answer.halvings(num_prompt_tokens) <= Self::MAX_HALVINGS_OF_ANSWER
    }
}

/// Sums over the ends of one kind: their number, the tokens before them, and the tokens before ends
/// where a request resumed for the first time. All sums fade.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ends {
    num: f64,
    num_tokens: f64,
    num_resumed_tokens: f64,
}

impl Ends {
    /// The share of earlier ends that fades with each new end.
    const FADE: f64 = 1.0 / 1024.0;
    /// The number of tokens that a request must compute so that its ends count in full.
    const COMPUTED: f64 = 128.0;
    /// The number of assumed ends at the start. They have the value of full-attention blocks.
    const PRIOR: f64 = 16.0;

    /// Returns the weight of the ends of a request that computed `num_computed` tokens.
    pub fn weight(num_computed: usize) -> f64 {
        (num_computed as f64 / Self::COMPUTED).min(1.0)
    }

    pub fn note_end(&mut self, num_tokens: usize, weight: f64) {
        let left = 1.0 - weight * Self::FADE;
        self.num = self.num * left + weight;
        self.num_tokens = self.num_tokens * left + weight * num_tokens as f64;
        self.num_resumed_tokens *= left;
    }

    pub fn note_resume(&mut self, num_tokens: usize) {
        self.num_resumed_tokens += num_tokens as f64;
    }

    /// Returns the worth. `reuse` is the share of once-used full-attention blocks that are used
    /// again.
    pub fn worth(&self, tail_cost: f64, reuse: f64) -> Worth {
        let Self { num, num_tokens, num_resumed_tokens } = *self;
        let share = if num_tokens > 0.0 { num_resumed_tokens / num_tokens } else { 0.0 };
        Worth {
            assumed: Self::PRIOR / (num + Self::PRIOR),
            per_token: num / (num + Self::PRIOR) * share / (tail_cost * reuse),
            tail_cost,
        }
    }
}

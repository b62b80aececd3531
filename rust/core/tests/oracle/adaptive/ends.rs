//! What tails at the ends of prompts and of answers are worth, learnt from where requests resume.
//!
//! A tail takes the room of full-attention blocks of c tokens. Of those, kept after one use, a share
//! r is used again: they regain c * r tokens. The tail of an end behind L tokens regains L tokens if
//! a request resumes there. So far, requests resumed for the first time at ends behind a share s of
//! all tokens before ends of that sort. Its worth is what it is expected to regain, against what the
//! same room would regain: s * L / (c * r). Until ends are seen, their worth is 1.
//!
//! Who evicts that tail alone loses s * L tokens for the room of c; who evicts all L tokens with it,
//! r * L tokens for the room of L + c. Where the second loses no more for its room, tail and full
//! blocks are to go together, and 0.55 of the tail's halvings are left. Of a worth that is assumed,
//! three times as much is assumed here.
//!
//! There are three sorts: ends of prompts, ends of answers, and ends at which a request has resumed.
//! The last sort resumes only where a request goes on, not where one repeats its prompt: of such an
//! end, the tail is kept as that of a prompt.

use super::block::WORTHLESS;

/// The worth of tails at ends, in full-attention blocks: a part that is assumed, and so much for
/// each token before the end.
#[derive(Clone, Copy, Debug)]
pub struct Worth {
    pub assumed: f64,
    pub per_token: f64,
    /// Tokens of full attention that take the room of a tail.
    pub tail_cost: f64,
}

impl Default for Worth {
    fn default() -> Self {
        Self { assumed: 1.0, per_token: 0.0, tail_cost: 0.0 }
    }
}

impl Worth {
    /// Returns the halvings that lead from the value of full-attention blocks to that of an end.
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

/// The worth of ends of each sort.
#[derive(Clone, Copy, Debug, Default)]
pub struct EndWorths {
    pub prompt: Worth,
    pub answer: Worth,
    /// Of ends at which a request has resumed.
    pub resumed: Worth,
}

impl EndWorths {
    /// The most halvings of the end of an answer whose last tail is kept while its request runs.
    const MAX_HALVINGS_OF_ANSWER: usize = 2;

    /// Whether the last tail of an answer is kept while its request runs.
    pub fn keep_answers(self, num_prompt_tokens: usize) -> bool {
        self.answer.halvings(num_prompt_tokens) <= Self::MAX_HALVINGS_OF_ANSWER
    }
}

/// Ends of one sort: how many, the tokens before them, and the tokens before those at which a
/// request resumed for the first time. All fade.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ends {
    num: f64,
    num_tokens: f64,
    num_resumed_tokens: f64,
}

impl Ends {
    /// The part of earlier ends that fades with another one.
    const FADE: f64 = 1.0 / 1024.0;
    /// Tokens that a request computes from which on its ends count in full.
    const COMPUTED: f64 = 128.0;
    /// Ends with the value of full-attention blocks that are assumed at the start.
    const PRIOR: f64 = 16.0;

    /// Returns how much the ends of a request count that computed so many tokens.
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

    /// Returns the worth. `reuse` is the share of full-attention blocks with one use that are used
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

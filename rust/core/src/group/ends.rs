//! What the ends of prompts and of answers are worth to later requests, learnt from traffic.
//!
//! A tail at an end takes the room of `c` tokens of full-attention blocks. It is worth as much as
//! they are if it regains as many tokens: those of the request that resumes there first, against `c`
//! times the share of full-attention blocks with one use that are used again while they are cached.
//! The longer a sequence, the more there is to regain: first resumes regain a share of the tokens
//! before all ends, and an end is expected to bring that share of the tokens before it. An end at
//! which a request has resumed is worth what later requests regain there.

use std::f64::consts::FRAC_1_SQRT_2;

use super::doublings::doublings_to;
use crate::pool::{TUNING, ValueLevel};

/// The end of a part of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The end of the prompt.
    Prompt,
    /// The end of the answer.
    Answer,
    /// An end at which a request has resumed.
    Resumed,
}

/// The worth of a tail at an end, in full-attention blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EndWorth {
    /// The part that is assumed, the less the more ends were seen.
    pub assumed: f64,
    /// What each token before the end adds.
    pub per_token: f64,
}

impl Default for EndWorth {
    fn default() -> Self {
        Self { assumed: 1.0, per_token: 0.0 }
    }
}

impl EndWorth {
    /// Returns the value of a tail at an end behind so many tokens.
    pub(crate) fn behind(self, num_tokens: usize) -> ValueLevel {
        let worth = self.assumed + self.per_token * num_tokens as f64;
        // Rounded to the nearest halving.
        ValueLevel::new(doublings_to(FRAC_1_SQRT_2 / worth).max(0) as usize)
    }
}

/// The worth of tails at ends of each sort.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EndWorths {
    /// The worth at the end of a prompt.
    pub prompt: EndWorth,
    /// The worth at the end of an answer.
    pub answer: EndWorth,
    /// The worth of an end at which a request has resumed.
    pub resumed: EndWorth,
}

impl EndWorths {
    /// Whether the last tails of answers behind so many tokens are kept while their requests run.
    pub(crate) fn keep_answers(self, num_tokens: usize) -> bool {
        self.answer.behind(num_tokens).halvings() <= TUNING.lowest_answer_value
    }
}

/// What became of the ends of one sort. Old ends fade.
#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    num_ends: f64,
    num_tokens: f64,
    num_regained: f64,
}

impl Outcome {
    /// Returns the worth of ends. Full blocks that take a tail's room regain `regained_by_full` tokens.
    fn worth(self, regained_by_full: f64) -> EndWorth {
        let share = if self.num_tokens > 0.0 { self.num_regained / self.num_tokens } else { 0.0 };
        let num_known = self.num_ends + TUNING.prior_ends;
        EndWorth {
            assumed: TUNING.prior_ends / num_known,
            per_token: self.num_ends / num_known * share / regained_by_full,
        }
    }
}

/// What became of ends.
#[derive(Clone, Copy, Debug, Default)]
pub struct EndStatistics {
    prompt: Outcome,
    answer: Outcome,
    resumed: Outcome,
}

impl EndStatistics {
    fn of(&mut self, end: End) -> &mut Outcome {
        match end {
            End::Prompt => &mut self.prompt,
            End::Answer => &mut self.answer,
            End::Resumed => &mut self.resumed,
        }
    }

    /// Counts an end behind so many tokens.
    pub fn note_end(&mut self, end: End, num_tokens: usize) {
        let outcome = self.of(end);
        outcome.num_ends = outcome.num_ends * TUNING.end_fade + 1.0;
        outcome.num_tokens = outcome.num_tokens * TUNING.end_fade + num_tokens as f64;
        outcome.num_regained *= TUNING.end_fade;
    }

    /// Counts a request that resumes at an end, behind so many tokens. The first to do so makes it
    /// one of [`End::Resumed`].
    pub fn note_resume(&mut self, end: End, num_tokens: usize) {
        self.of(end).num_regained += num_tokens as f64;
        if end != End::Resumed {
            self.note_end(End::Resumed, num_tokens);
        }
    }

    /// Returns the worth of ends. `tail_cost` is that of
    /// [`ValueModel`](super::ValueModel::tail_cost), `reuse` the share of full-attention blocks with
    /// one use that are used again.
    pub fn worths(&self, tail_cost: f64, reuse: f64) -> EndWorths {
        let [prompt, answer, resumed] = [self.prompt, self.answer, self.resumed]
            .map(|outcome| outcome.worth(tail_cost * reuse));
        EndWorths { prompt, answer, resumed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers behind 400 tokens, at each of which a request regains so many.
    fn after(num_ends: usize, num_tokens: usize) -> EndWorths {
        let mut ends = EndStatistics::default();
        for _ in 0..num_ends {
            ends.note_end(End::Answer, 400);
            ends.note_resume(End::Answer, num_tokens);
        }
        ends.worths(100.0, 0.5)
    }

    #[test]
    fn ends_have_the_value_of_full_blocks_until_something_is_learnt() {
        let worths = EndStatistics::default().worths(100.0, 0.5);
        assert_eq!(worths, EndWorths::default());
        assert_eq!(worths.prompt.behind(9), ValueLevel::BEST);
    }

    #[test]
    fn an_end_that_regains_as_much_as_full_blocks_has_their_value() {
        for (num_tokens, halvings) in [(400, 0), (50, 0), (25, 1), (12, 2), (0, 5)] {
            let worths = after(1000, num_tokens);
            assert_eq!(worths.answer.behind(400), ValueLevel::new(halvings), "{num_tokens} tokens");
            assert_eq!(worths.prompt.behind(400), ValueLevel::BEST);
        }
    }

    #[test]
    fn an_end_behind_twice_the_tokens_is_worth_twice_as_much() {
        let answer = after(1000, 12).answer;
        let halvings =
            [200, 400, 800, 1600, 3200].map(|num_tokens| answer.behind(num_tokens).halvings());
        assert_eq!(halvings, [3, 2, 1, 0, 0]);
    }

    #[test]
    fn answers_are_kept_that_have_a_quarter_of_the_value() {
        assert!(after(1000, 12).keep_answers(400) && !after(1000, 4).keep_answers(400));
        assert!(after(1000, 4).keep_answers(1600));
    }
}

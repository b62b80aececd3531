//! What the ends of prompts and of answers are worth to later requests, learnt from traffic.
//!
//! A tail at an end takes the room of `c` tokens of full-attention blocks. It is worth as much as
//! they are if it regains as many tokens: those of the request that resumes there first, divided by
//! the ends that were made, against `c` times the share of full-attention blocks with one use that
//! are used again while they are cached. An end at which a request has resumed is worth what later
//! requests regain there.

use crate::pool::{EndValues, TUNING, ValueLevel};

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

/// What became of the ends of one sort. Old ends fade.
#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    num_ends: f64,
    num_resumed_tokens: f64,
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

    /// Counts an end.
    pub fn note_end(&mut self, end: End) {
        let outcome = self.of(end);
        outcome.num_ends = outcome.num_ends * TUNING.end_fade + 1.0;
        outcome.num_resumed_tokens *= TUNING.end_fade;
    }

    /// Counts a request that resumes at an end, behind so many tokens. The first to do so makes it
    /// one of [`End::Resumed`].
    pub fn note_resume(&mut self, end: End, num_tokens: usize) {
        self.of(end).num_resumed_tokens += num_tokens as f64;
        if end != End::Resumed {
            self.note_end(End::Resumed);
        }
    }

    /// Returns the values of ends. `tail_cost` is that of
    /// [`ValueModel`](super::ValueModel::tail_cost), `reuse` the share of full-attention blocks with
    /// one use that are used again.
    pub fn values(&self, tail_cost: f64, reuse: f64) -> EndValues {
        let value = |outcome: Outcome| {
            let regained = outcome.num_resumed_tokens / (tail_cost * reuse);
            let worth = (regained + TUNING.prior_ends) / (outcome.num_ends + TUNING.prior_ends);
            ValueLevel::new((1.0 / worth).log2().round().max(0.0) as usize)
        };
        EndValues {
            prompt: value(self.prompt),
            answer: value(self.answer),
            resumed: value(self.resumed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(num_ends: usize, num_tokens: usize) -> EndValues {
        let mut ends = EndStatistics::default();
        for _ in 0..num_ends {
            ends.note_end(End::Answer);
            ends.note_resume(End::Answer, num_tokens);
        }
        ends.values(100.0, 0.5)
    }

    #[test]
    fn ends_have_the_value_of_full_blocks_until_something_is_learnt() {
        assert_eq!(EndStatistics::default().values(100.0, 0.5), EndValues::default());
    }

    #[test]
    fn an_end_that_regains_as_much_as_full_blocks_has_their_value() {
        for (num_tokens, halvings) in [(500, 0), (50, 0), (25, 1), (12, 2), (0, 5)] {
            let values = after(1000, num_tokens);
            assert_eq!(values.answer, ValueLevel::new(halvings), "{num_tokens} tokens");
            assert_eq!(values.prompt, ValueLevel::BEST);
        }
    }

    #[test]
    fn answers_are_kept_that_have_a_quarter_of_the_value() {
        assert!(after(1000, 12).keeps_answers() && !after(1000, 4).keeps_answers());
    }
}

//! What the ends of prompts and of answers are worth to later requests, learnt from traffic.
//!
//! A tail at an end takes the room of full-attention blocks for `c` tokens. Those blocks regain `c`
//! times the share of once-used blocks that are used again; the tail regains the tokens of the
//! first request that resumes there. Its value is the ratio. The longer a sequence, the more there
//! is to regain: first resumes regain a share of the tokens before all ends, and an end is expected
//! to bring that share of the tokens before it. An end at which a request has resumed is worth what
//! later requests regain there that go on; who repeats the prompt needs its last tail alone.
//!
//! Full blocks regain nothing where no tail is left to hit at. If so much of their reuse is at the
//! end that evicting the tail alone would cost more per block than evicting the sequence with it,
//! the two are to be evicted together: the tail's value is raised to a power below 1.

use std::f64::consts::FRAC_1_SQRT_2;

use super::doublings::doublings_to;
use crate::pool::{ValueLevel, tuning};

/// The end of a part of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The end of the prompt.
    Prompt,
    /// The end of the answer.
    Answer,
    /// An end at which a request has resumed.
    Resumed,
}

/// The value of a tail at an end, in full-attention blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EndValue {
    /// The part that is assumed, the less the more ends were seen.
    pub assumed: f64,
    /// What each token before the end adds.
    pub per_token: f64,
    /// Tokens of full attention that take as many blocks as a tail.
    pub tail_cost: f64,
}

impl Default for EndValue {
    fn default() -> Self {
        Self { assumed: 1.0, per_token: 0.0, tail_cost: 0.0 }
    }
}

impl EndValue {
    /// Returns the value of a tail at an end behind so many tokens.
    pub(crate) fn behind(self, num_tokens: usize) -> ValueLevel {
        let value = self.assumed + self.per_token * num_tokens as f64;
        // A value of 1 or more is the best one without the power, which is slow to compute.
        let is_raised = value < 1.0 && self.goes_with_sequence(num_tokens);
        let value = if is_raised { value.powf(tuning::SEQUENCE_EXPONENT) } else { value };
        // Rounded to the nearest halving.
        ValueLevel::new(doublings_to(FRAC_1_SQRT_2 / value).max(0) as usize)
    }

    /// Whether evicting a tail behind L tokens alone costs at least as much per block, `s * L / c`, as
    /// evicting its sequence with it, `r * L / (L + c)`. Here s is the share of the tokens before ends
    /// that first resumes regain, and r that of once-used full blocks that are used again.
    fn goes_with_sequence(self, num_tokens: usize) -> bool {
        let known = self.per_token * (num_tokens as f64 + self.tail_cost);
        tuning::ASSUMED_AS_SEQUENCE * self.assumed + known >= 1.0
    }
}

/// The values of tails at ends of each sort.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EndValues {
    /// The value at the end of a prompt.
    pub prompt: EndValue,
    /// The value at the end of an answer.
    pub answer: EndValue,
    /// The value of an end at which a request has resumed.
    pub resumed: EndValue,
}

impl EndValues {
    /// Whether the last tails of answers behind so many tokens are kept while their requests run.
    pub(crate) fn keep_answers(self, num_tokens: usize) -> bool {
        self.answer.behind(num_tokens).halvings() <= tuning::LOWEST_ANSWER_VALUE
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
    /// Returns the value of ends, given the arguments of [`EndStatistics::values`].
    fn value(self, tail_cost: f64, reuse: f64) -> EndValue {
        let share = if self.num_tokens > 0.0 { self.num_regained / self.num_tokens } else { 0.0 };
        let num_known = self.num_ends + tuning::PRIOR_ENDS;
        EndValue {
            assumed: tuning::PRIOR_ENDS / num_known,
            per_token: self.num_ends / num_known * share / (tail_cost * reuse),
            tail_cost,
        }
    }
}

/// What became of ends, by [`End`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EndStatistics([Outcome; 3]);

impl EndStatistics {
    fn of(&mut self, end: End) -> &mut Outcome {
        &mut self.0[end as usize]
    }

    /// Returns the weight, from 0 to 1, of the ends of a request that computed so many tokens. A
    /// client that sends its prompt again for each token computes little each time, and its many
    /// ends must not decide what those of others are worth.
    pub(crate) fn weight(num_computed: usize) -> f64 {
        (num_computed as f64 / tuning::COMPUTED_TOKENS_OF_END).min(1.0)
    }

    /// Counts an end behind so many tokens.
    pub(crate) fn note_end(&mut self, end: End, num_tokens: usize, weight: f64) {
        let outcome = self.of(end);
        let kept = 1.0 - weight * tuning::END_FADE;
        outcome.num_ends = outcome.num_ends * kept + weight;
        outcome.num_tokens = outcome.num_tokens * kept + weight * num_tokens as f64;
        outcome.num_regained *= kept;
    }

    /// Counts a request that resumes at an end, behind so many tokens. The first to do so makes it
    /// one of [`End::Resumed`].
    pub(crate) fn note_resume(&mut self, end: End, num_tokens: usize) {
        self.of(end).num_regained += num_tokens as f64;
        if end != End::Resumed {
            self.note_end(End::Resumed, num_tokens, 1.0);
        }
    }

    /// Returns the values of ends. `tail_cost` is that of
    /// [`ValueModel`](super::ValueModel::tail_cost), `reuse` the share of full-attention blocks with
    /// one use that are used again.
    pub(crate) fn values(&self, tail_cost: f64, reuse: f64) -> EndValues {
        let [prompt, answer, resumed] = self.0.map(|outcome| outcome.value(tail_cost, reuse));
        EndValues { prompt, answer, resumed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers behind 400 tokens, at each of which a request regains so many.
    fn after(num_ends: usize, num_tokens: usize) -> EndValues {
        let mut ends = EndStatistics::default();
        for _ in 0..num_ends {
            ends.note_end(End::Answer, 400, 1.0);
            ends.note_resume(End::Answer, num_tokens);
        }
        ends.values(100.0, 0.5)
    }

    #[test]
    fn ends_have_the_value_of_full_blocks_until_something_is_learnt() {
        let EndValues { prompt, answer, resumed } = EndStatistics::default().values(100.0, 0.5);
        let values = [prompt, answer, resumed].map(|value| value.behind(9));
        assert_eq!(values, [ValueLevel::BEST; 3]);
    }

    #[test]
    fn an_end_that_regains_as_much_as_full_blocks_has_their_value() {
        for (num_tokens, halvings) in [(400, 0), (50, 0), (25, 1), (12, 2), (0, 5)] {
            let values = after(1000, num_tokens);
            assert_eq!(values.answer.behind(400), ValueLevel::new(halvings), "{num_tokens} tokens");
            assert_eq!(values.prompt.behind(400), ValueLevel::BEST);
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
    fn a_tail_that_the_reuse_of_its_sequence_needs_goes_with_it() {
        // A tail alone is worth a share of 0.3 or 0.36 of full blocks behind 50 tokens; it is
        // evicted with them from a third on.
        let halvings =
            [120, 144].map(|regained| after(1000, regained).answer.behind(50).halvings());
        assert_eq!(halvings, [2, 1]);
    }

    #[test]
    fn ends_of_requests_that_compute_little_say_little() {
        let [mut ends, mut both] = [EndStatistics::default(); 2];
        for _ in 0..1000 {
            for ends in [&mut ends, &mut both] {
                ends.note_end(End::Answer, 400, EndStatistics::weight(300));
                ends.note_resume(End::Answer, 50);
            }
            both.note_end(End::Answer, 400, EndStatistics::weight(16));
        }
        let [alone, both] = [ends, both].map(|ends| ends.values(100.0, 0.5).answer.behind(400));
        assert_eq!(alone, both);
    }

    #[test]
    fn answers_are_kept_that_have_a_quarter_of_the_value() {
        assert!(after(1000, 12).keep_answers(400) && !after(1000, 4).keep_answers(400));
        assert!(after(1000, 4).keep_answers(1600));
    }
}

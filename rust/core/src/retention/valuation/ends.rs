//! The values of the ends of prompts and answers for later requests, learnt from traffic.
//!
//! A tail at an end takes as much of the pool as full-attention blocks for `c` tokens. These blocks
//! regain `c` times the share of once-used blocks that are used again. The tail regains the tokens
//! of the first request that resumes there. Its value is the ratio of the two.
//!
//! A longer sequence can regain more. First resumes regain a share of the tokens before all ends.
//! An end is expected to regain the same share of the tokens before it.
//!
//! If a request has resumed at an end, the end's value is the tokens that later requests regain
//! there if they continue past it. A request that repeats the prompt needs only the prompt's last
//! tail.
//!
//! Full blocks regain nothing if no tail is left where they can be hit. Much of their reuse can be
//! at the end. Then evicting only the tail would cost more per block than evicting the tail with
//! its sequence. In this case both must be evicted together, so the tail's value is raised to a
//! power below 1.

use std::f64::consts::FRAC_1_SQRT_2;

use super::doublings::doublings_to;
use crate::pool::{ValueLevel, tuning};

/// The kind of an end in a sequence.
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
    /// The assumed part of the value. It falls with the number of ends that were seen.
    pub assumed: f64,
    /// The value that each token before the end adds.
    pub per_token: f64,
    /// The number of full-attention tokens whose blocks take as much of the pool as a tail.
    pub tail_cost: f64,
}

impl Default for EndValue {
    fn default() -> Self {
        Self { assumed: 1.0, per_token: 0.0, tail_cost: 0.0 }
    }
}

impl EndValue {
    /// Returns the value of a tail at an end after `num_tokens` tokens.
    pub(crate) fn behind(self, num_tokens: usize) -> ValueLevel {
        let value = self.assumed + self.per_token * num_tokens as f64;
        // A value of 1 or more is the best one even without the power, which is slow to compute.
        let is_raised = value < 1.0 && self.goes_with_sequence(num_tokens);
        let value = if is_raised { value.powf(tuning::SEQUENCE_EXPONENT) } else { value };
        // This rounds to the nearest halving.
        ValueLevel::new(doublings_to(FRAC_1_SQRT_2 / value).max(0) as usize)
    }

    /// Returns whether a tail after L tokens should be evicted together with its sequence. Evicting
    /// only the tail costs `s * L / c` per block. Evicting both costs `r * L / (L + c)` per block.
    /// The tail goes with its sequence if the first is at least as much as the second.
    ///
    /// Here s is the share of the tokens before ends that first resumes regain. r is the share of
    /// once-used full blocks that are used again.
    fn goes_with_sequence(self, num_tokens: usize) -> bool {
        let known = self.per_token * (num_tokens as f64 + self.tail_cost);
        tuning::ASSUMED_AS_SEQUENCE * self.assumed + known >= 1.0
    }
}

/// The values of tails at each kind of end.
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
    /// Returns whether the last tails of answers after `num_tokens` tokens are kept while their
    /// requests run.
    pub(crate) fn keep_answers(self, num_tokens: usize) -> bool {
        self.answer.behind(num_tokens).halvings() <= tuning::LOWEST_ANSWER_VALUE
    }
}

/// The observed outcome of all ends of one kind. Old ends fade.
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

/// The observed outcomes of ends, by [`End`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EndStatistics([Outcome; 3]);

impl EndStatistics {
    fn of(&mut self, end: End) -> &mut Outcome {
        &mut self.0[end as usize]
    }

    /// Returns the weight, from 0 to 1, of the ends of a request that computed `num_computed`
    /// tokens.
    ///
    /// A client that sends its prompt again for each token computes little each time. Its many ends
    /// must not determine the value of other clients' ends.
    pub(crate) fn weight(num_computed: usize) -> f64 {
        (num_computed as f64 / tuning::COMPUTED_TOKENS_OF_END).min(1.0)
    }

    /// Counts an end after `num_tokens` tokens.
    pub(crate) fn note_end(&mut self, end: End, num_tokens: usize, weight: f64) {
        let outcome = self.of(end);
        let kept = 1.0 - weight * tuning::END_FADE;
        outcome.num_ends = outcome.num_ends * kept + weight;
        outcome.num_tokens = outcome.num_tokens * kept + weight * num_tokens as f64;
        outcome.num_regained *= kept;
    }

    /// Counts a request that resumes at an end after `num_tokens` tokens. The first such request
    /// turns the end into an [`End::Resumed`].
    pub(crate) fn note_resume(&mut self, end: End, num_tokens: usize) {
        self.of(end).num_regained += num_tokens as f64;
        if end != End::Resumed {
            self.note_end(End::Resumed, num_tokens, 1.0);
        }
    }

    /// Returns the values of ends. `tail_cost` is the same as
    /// [`ValueModel::tail_cost`](super::ValueModel::tail_cost). `reuse` is the share of once-used
    /// full-attention blocks that are used again.
    pub(crate) fn values(&self, tail_cost: f64, reuse: f64) -> EndValues {
        let [prompt, answer, resumed] = self.0.map(|outcome| outcome.value(tail_cost, reuse));
        EndValues { prompt, answer, resumed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the values after `num_ends` answers that end after 400 tokens. At each end, a
    /// request regains `num_tokens` tokens.
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
        // After 50 tokens, a tail alone has 0.3 or 0.36 times the value of full blocks. From a
        // third on, it is evicted with them.
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

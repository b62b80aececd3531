//! The duration of a step. It is linear in the tokens that the step computes and reads.

use kvoxide_core::{Error, RequestView};

use super::Nanoseconds;

/// The work of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StepWork {
    /// The number of scheduled prompt tokens, plus the tokens that preempted requests compute
    /// again.
    pub prefill_tokens: usize,
    /// The number of tokens that the step's requests computed before and that attention reads.
    pub context_tokens: usize,
    /// The number of requests in the step.
    pub running: usize,
}

impl StepWork {
    /// Adds a request that schedules `num_new` tokens from `start` on.
    pub fn add(&mut self, request: &RequestView<'_>, start: usize, num_new: usize) {
        let decodes = num_new == 1 && start >= request.num_prompt_tokens;
        if !(decodes && start + 1 == request.num_tokens) {
            self.prefill_tokens += num_new;
        }
        self.context_tokens += start;
        self.running += 1;
    }

    /// Adds a request that computes `num_new` tokens from `start` on. After its prompt, up to
    /// `most_decoded` tokens are the next token and drafts.
    pub fn add_part(
        &mut self,
        num_prompt_tokens: usize,
        (start, num_new): (usize, usize),
        most_decoded: usize,
    ) {
        if start < num_prompt_tokens || num_new > most_decoded {
            self.prefill_tokens += num_new;
        }
        self.context_tokens += start;
        self.running += 1;
    }
}

/// The duration of a step in seconds, by its parts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepTime {
    /// The time of every step, for reading the weights and starting kernels.
    pub base: f64,
    /// The time per token of a prefill.
    pub prefill: f64,
    /// The time per token that attention reads.
    pub context: f64,
    /// The time per request.
    pub running: f64,
}

/// Round numbers for a dense model of 8 billion parameters in bfloat16, with 8 KV heads of 128 in
/// 32 layers, on one H200. They assume about 80 % of its memory's 4.8 TB/s and 60 % of its dense
/// 990 TFLOP/s. A step reads 16 GB of weights, a prefilled token takes 16 GFLOP, and a token of
/// context takes 128 KiB.
impl Default for StepTime {
    fn default() -> Self {
        Self { base: 4e-3, prefill: 27e-6, context: 34e-9, running: 10e-6 }
    }
}

impl StepTime {
    /// The most seconds of any part: one day.
    const MAX: f64 = 86_400.0;

    /// Checks the times.
    pub fn check(&self) -> Result<(), Error> {
        let Self { base, prefill, context, running } = *self;
        let named = [base, prefill, context, running].into_iter().zip(Self::NAMES);
        for (value, name) in named {
            if !(0.0..=Self::MAX).contains(&value) {
                let message = format!("{name} is {value} s; it can be 0 to {}", Self::MAX);
                return Err(Error::Config(format!("step_time: {message}")));
            }
        }
        if base + prefill == 0.0 {
            let message = "step_time: base and prefill are 0; at least one of them must be above 0";
            return Err(Error::Config(message.into()));
        }
        Ok(())
    }

    /// The names of the parts, in order.
    pub const NAMES: [&'static str; 4] = ["base", "prefill", "context", "running"];

    /// Returns the duration of a step; 0 for a step without requests.
    pub(crate) fn of(&self, work: &StepWork) -> Nanoseconds {
        if work.running == 0 {
            return 0;
        }
        let seconds = self.base
            + self.prefill * work.prefill_tokens as f64
            + self.context * work.context_tokens as f64
            + self.running * work.running as f64;
        (seconds * 1e9).round() as Nanoseconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(num_prompt_tokens: usize, num_tokens: usize) -> RequestView<'static> {
        RequestView { num_prompt_tokens, ..RequestView::new(1, &[][..], num_tokens) }
    }

    #[test]
    fn a_step_is_the_sum_of_its_parts() {
        let time = StepTime { base: 1e-3, prefill: 2e-6, context: 3e-9, running: 4e-6 };
        let work = StepWork { prefill_tokens: 100, context_tokens: 1000, running: 3 };
        assert_eq!(time.of(&work), 1_000_000 + 200_000 + 3_000 + 12_000);
        assert_eq!(time.of(&StepWork::default()), 0);
    }

    #[test]
    fn a_generated_token_is_no_prefill_unless_it_is_computed_again() {
        let mut work = StepWork::default();
        work.add(&view(10, 12), 11, 1);
        assert_eq!(work, StepWork { prefill_tokens: 0, context_tokens: 11, running: 1 });
        work.add(&view(10, 12), 10, 1);
        work.add(&view(10, 12), 4, 8);
        work.add(&view(10, 10), 9, 1);
        assert_eq!(work.prefill_tokens, 10);
    }

    #[test]
    fn impossible_times_are_refused_by_name() {
        let negative = StepTime { context: -1.0, ..StepTime::default() };
        let error = negative.check().expect_err("negative").to_string();
        assert!(error.contains("step_time: context is -1 s"), "{error}");
        assert!(StepTime { base: f64::NAN, ..StepTime::default() }.check().is_err());
        assert!(StepTime { base: 0.0, prefill: 0.0, ..StepTime::default() }.check().is_err());
        assert!(StepTime::default().check().is_ok());
    }
}

//! Measures the durations of the scheduling calls of a step.

use std::time::{Duration, Instant};

use kvoxide_core::Error;

use crate::report::Durations;

/// Sums the durations of the scheduling calls of a step.
#[derive(Default)]
pub struct StepClock {
    pub total: Duration,
}

impl StepClock {
    pub fn time<T>(
        &mut self,
        each: &mut Durations,
        call: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        let start = Instant::now();
        let result = call();
        let elapsed = start.elapsed();
        each.record(elapsed);
        self.total += elapsed;
        result
    }
}

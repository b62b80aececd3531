//! Modelled time: the durations of steps and the times of requests. Times are in nanoseconds since
//! the first arrival, so that sums are exact.

mod latencies;
mod step_time;
mod times;

pub use latencies::{Latencies, Quantiles};
pub use step_time::StepTime;
pub(crate) use step_time::StepWork;
pub use times::{RequestTimes, Times};

/// A time or a duration in nanoseconds.
pub type Nanoseconds = u64;

/// Returns a time in seconds.
pub fn seconds(time: Nanoseconds) -> f64 {
    time as f64 / 1e9
}

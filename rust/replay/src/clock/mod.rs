//! Modelled time: how long a step takes, and what the clock shows for each request. In
//! nanoseconds since the first request arrived, so that sums are exact.

mod latencies;
mod step_time;
mod times;

pub use latencies::{Latencies, Quantiles};
pub use step_time::{StepTime, StepWork};
pub use times::{RequestTimes, Times};

/// A moment, or a duration, in nanoseconds.
pub type Nanoseconds = u64;

/// In seconds.
pub fn seconds(time: Nanoseconds) -> f64 {
    time as f64 / 1e9
}

//! The clock that ends times to live.

use std::time::Instant;

use pyo3::prelude::*;

use crate::ffi::request_error;

/// A monotonic clock.
pub(super) enum Clock {
    /// The machine's clock.
    Monotonic(Instant),
    /// A Python function that returns seconds.
    Given(Py<PyAny>),
}

impl Clock {
    /// Returns the clock of a Python function, or the machine's.
    pub(super) fn new(given: Option<Py<PyAny>>) -> Self {
        given.map_or_else(|| Self::Monotonic(Instant::now()), Self::Given)
    }

    /// Returns the time in milliseconds.
    pub(super) fn now(&self, py: Python<'_>) -> PyResult<u64> {
        let clock = match self {
            Self::Monotonic(start) => return Ok(start.elapsed().as_millis() as u64),
            Self::Given(clock) => clock,
        };
        let seconds: f64 = clock.bind(py).call0()?.extract()?;
        if seconds.is_finite() && seconds >= 0.0 {
            return Ok((seconds * 1000.0) as u64);
        }
        let message = format!(
            "clock returned {seconds}; it must return seconds, 0 or more, as time.monotonic does"
        );
        Err(request_error(py, message))
    }
}

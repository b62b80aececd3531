//! The retention that a vLLM request asks for. It is in the `extra_args` of the sampling
//! parameters, which clients of the server set (`vllm_xargs`).

use std::time::Instant;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict};

use kvoxide_core::{Manager, Retention, RetentionPriority};

use super::errors::IntoVllmResult;

const PRIORITY: &str = "kvoxide_priority";
const TTL: &str = "kvoxide_ttl";

/// Reads the retention of requests if the policy uses it, and measures the time.
pub(super) struct PriorityReader {
    are_read: bool,
    has_warned: bool,
    start: Instant,
}

impl PriorityReader {
    /// Returns a reader for a new manager.
    pub(super) fn new(core: &Manager) -> Self {
        let are_read = core.config().policy.retention == Retention::Adaptive;
        Self { are_read, has_warned: false, start: Instant::now() }
    }

    /// Returns the retention that a request asks for. Clients set it, so an invalid value is logged
    /// once and ignored.
    pub(super) fn read(&mut self, request: &Bound<'_, PyAny>) -> Option<RetentionPriority> {
        if !self.are_read {
            return None;
        }
        priority_of(request).unwrap_or_else(|error| {
            self.warn(request.py(), &error);
            None
        })
    }

    #[cold]
    fn warn(&mut self, py: Python<'_>, error: &PyErr) {
        if std::mem::replace(&mut self.has_warned, true) {
            return;
        }
        // Serving continues even if the warning cannot be logged.
        let _ = py.import("kvoxide.vllm.environment.log").and_then(|log| {
            log.call_method1("log_ignored_priority", (error.value(py).to_string(),))
        });
    }

    /// Passes the time to the core if some block has a time to live.
    #[inline]
    pub(super) fn update_time(&self, core: &mut Manager, priority: Option<RetentionPriority>) {
        if core.has_times_to_live() || priority.is_some_and(RetentionPriority::has_end) {
            core.set_now(self.start.elapsed().as_millis() as u64);
        }
    }
}

fn priority_of(request: &Bound<'_, PyAny>) -> PyResult<Option<RetentionPriority>> {
    let py = request.py();
    let Some(params) = request.getattr_opt(intern!(py, "sampling_params"))? else {
        return Ok(None);
    };
    let Some(extra) = params.getattr_opt(intern!(py, "extra_args"))? else { return Ok(None) };
    let Ok(extra) = extra.cast::<PyDict>() else { return Ok(None) };
    let (priority, ttl) = (extra.get_item(PRIORITY)?, extra.get_item(TTL)?);
    if priority.is_none() && ttl.is_none() {
        return Ok(None);
    }
    let default = i64::from(RetentionPriority::DEFAULT_PRIORITY);
    let priority = priority
        .map_or(Ok(default), |value| number(PRIORITY, &value, "an integer from 0 to 100"))?;
    let ttl = ttl.map(|value| number(TTL, &value, "a number of seconds")).transpose()?;
    RetentionPriority::new(priority, ttl).map(Some).into_vllm(py)
}

fn number<'py, T: FromPyObjectOwned<'py>>(
    name: &str,
    value: &Bound<'py, PyAny>,
    expected: &str,
) -> PyResult<T> {
    let refused = || {
        let shown = value.repr().map_or_else(|_| "?".into(), |shown| shown.to_string());
        let shown: String = shown.chars().take(80).collect();
        pyo3::exceptions::PyValueError::new_err(format!("{name} is {shown}; it must be {expected}"))
    };
    if value.is_instance_of::<PyBool>() {
        return Err(refused());
    }
    value.extract().map_err(|_| refused())
}

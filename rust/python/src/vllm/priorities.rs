//! The retention that a vLLM request asks for. It is in the `extra_args` of the sampling
//! parameters, which clients of the server set (`vllm_xargs`).

use std::time::Instant;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict};

use kvoxide_core::{Manager, RequestRetention, Retention, RetentionPriority};

use super::errors::IntoVllmResult;

const PRIORITY: &str = "kvoxide_priority";
const TTL: &str = "kvoxide_ttl";

/// Reads the retention of requests if the policy uses it, and measures the time.
pub(super) struct PriorityReader {
    are_read: bool,
    /// The highest priority that a request may claim; 0 means that claims are ignored.
    max_priority: u8,
    logged: [bool; NUM_CLAIMS],
    start: Instant,
}

/// How a request's claim was handled.
#[derive(Clone, Copy)]
enum Claim {
    Accepted,
    Lowered,
    Ignored,
    Invalid,
}

const NUM_CLAIMS: usize = 4;

impl Claim {
    /// Returns the value of the counter's label `result`.
    fn label(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Lowered => "lowered",
            Self::Ignored => "ignored",
            Self::Invalid => "invalid",
        }
    }
}

impl PriorityReader {
    /// Returns a reader for a new manager.
    pub(super) fn new(core: &Manager, max_priority: u8) -> Self {
        let are_read = core.config().policy.retention == Retention::Adaptive;
        Self { are_read, max_priority, logged: [false; NUM_CLAIMS], start: Instant::now() }
    }

    /// Returns the retention that a request asks for, at most the highest allowed priority. Clients
    /// set it, so an invalid value is logged once and ignored.
    pub(super) fn read(&mut self, request: &Bound<'_, PyAny>) -> Option<RetentionPriority> {
        if !self.are_read {
            return None;
        }
        let py = request.py();
        let asked = match claimed_by(request) {
            Ok(None) => return None,
            Ok(Some(_)) if self.max_priority == 0 => {
                self.note(py, Claim::Ignored, String::new());
                return None;
            }
            Ok(Some(claimed)) => claimed.retention(py),
            Err(error) => Err(error),
        };
        match asked {
            Ok(asked) if asked.priority() > self.max_priority => {
                self.note(py, Claim::Lowered, asked.priority().to_string());
                Some(asked.lowered_to(self.max_priority))
            }
            Ok(asked) => {
                self.note(py, Claim::Accepted, String::new());
                Some(asked)
            }
            Err(error) => {
                self.note(py, Claim::Invalid, error.value(py).to_string());
                None
            }
        }
    }

    /// Counts a claim, and logs the first of its kind.
    #[cold]
    fn note(&mut self, py: Python<'_>, claim: Claim, details: String) {
        let is_first = !std::mem::replace(&mut self.logged[claim as usize], true);
        // Serving continues even if the claim cannot be counted or logged.
        let _ = py.import("kvoxide.vllm.environment.priority_claims").and_then(|claims| {
            claims.call_method1("note", (claim.label(), is_first, self.max_priority, details))
        });
    }

    /// Passes the time to the core if some block has a time to live.
    #[inline]
    pub(super) fn update_time(&self, core: &mut Manager, retention: Option<&RequestRetention>) {
        if core.has_times_to_live() || retention.is_some_and(RequestRetention::has_end) {
            core.set_now(self.start.elapsed().as_millis() as u64);
        }
    }
}

/// The entries of a request that claim a retention.
struct Claimed<'py> {
    priority: Option<Bound<'py, PyAny>>,
    ttl: Option<Bound<'py, PyAny>>,
}

impl Claimed<'_> {
    fn retention(self, py: Python<'_>) -> PyResult<RetentionPriority> {
        let default = i64::from(RetentionPriority::DEFAULT_PRIORITY);
        let priority = self
            .priority
            .map_or(Ok(default), |value| number(PRIORITY, &value, "an integer from 0 to 100"))?;
        let ttl = self.ttl.map(|value| number(TTL, &value, "a number of seconds")).transpose()?;
        RetentionPriority::new(priority, ttl).into_vllm(py)
    }
}

fn claimed_by<'py>(request: &Bound<'py, PyAny>) -> PyResult<Option<Claimed<'py>>> {
    let py = request.py();
    let Some(params) = request.getattr_opt(intern!(py, "sampling_params"))? else {
        return Ok(None);
    };
    let Some(extra) = params.getattr_opt(intern!(py, "extra_args"))? else { return Ok(None) };
    let Ok(extra) = extra.cast::<PyDict>() else { return Ok(None) };
    let (priority, ttl) = (extra.get_item(PRIORITY)?, extra.get_item(TTL)?);
    let is_claim = priority.is_some() || ttl.is_some();
    Ok(is_claim.then_some(Claimed { priority, ttl }))
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

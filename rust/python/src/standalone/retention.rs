//! The session and the hints of a request.

use std::hash::BuildHasher;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use kvoxide_core::{RequestRetention, RetentionPriority};

use crate::ffi::{IntoPyResult, NewArgs, new_args, request_error};

/// A retention priority and a time to live, for a range of tokens.
#[pyclass(module = "kvoxide", name = "Retention", frozen, eq, from_py_object)]
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct PyRetention {
    priority: RetentionPriority,
    #[pyo3(get)]
    ttl: Option<f64>,
    #[pyo3(get)]
    start: usize,
    #[pyo3(get)]
    end: Option<usize>,
}

#[pymethods]
impl PyRetention {
    #[new]
    #[pyo3(signature = (*, priority, ttl=None, start=0, end=None))]
    fn new(
        py: Python<'_>,
        priority: i64,
        ttl: Option<f64>,
        start: i64,
        end: Option<i64>,
    ) -> PyResult<Self> {
        let priority = RetentionPriority::new(priority, ttl).into_py(py)?;
        let (start, end) = token_range(py, start, end)?;
        Ok(Self { priority, ttl, start, end })
    }

    #[getter]
    fn priority(&self) -> u8 {
        self.priority.priority()
    }

    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> PyResult<NewArgs<'py, ()>> {
        let fields = [
            ("priority", self.priority().into_bound_py_any(py)?),
            ("ttl", self.ttl.into_bound_py_any(py)?),
            ("start", self.start.into_bound_py_any(py)?),
            ("end", self.end.into_bound_py_any(py)?),
        ];
        new_args(py, (), fields)
    }

    fn __repr__(&self) -> String {
        let ttl = self.ttl.map_or(String::new(), |ttl| format!(", ttl={ttl:?}"));
        let start = if self.start == 0 { String::new() } else { format!(", start={}", self.start) };
        let end = self.end.map_or(String::new(), |end| format!(", end={end}"));
        format!("Retention(priority={}{ttl}{start}{end})", self.priority.priority())
    }
}

impl PyRetention {
    /// Returns the range of tokens and its priority, as the core reads them.
    pub(crate) fn of_core(&self) -> (Range<usize>, RetentionPriority) {
        (range_of((self.start, self.end)), self.priority)
    }
}

/// A range of tokens; without an end it has all tokens from its start on.
type TokenRange = (usize, Option<usize>);

fn range_of((start, end): TokenRange) -> Range<usize> {
    start..end.unwrap_or(usize::MAX)
}

fn token_range(py: Python<'_>, start: i64, end: Option<i64>) -> PyResult<TokenRange> {
    let Ok(first) = usize::try_from(start) else {
        let message = format!("the range of tokens starts at {start}; it must start at 0 or later");
        return Err(request_error(py, message));
    };
    match end {
        Some(end) if end <= start => {
            let message = format!(
                "the range of tokens from {start} to {end} is empty; its end must be above its \
                 start"
            );
            Err(request_error(py, message))
        }
        end => Ok((first, end.map(|end| end as usize))),
    }
}

/// The session and the hints that a request was created with.
#[derive(Default)]
pub(super) struct Hints {
    retention: Vec<PyRetention>,
    release: Vec<TokenRange>,
    ends_session: bool,
    /// Everything of this that the core reads, if there is anything.
    requested: Option<Arc<RequestRetention>>,
}

impl Hints {
    /// Checks and stores hints.
    pub(super) fn new(
        py: Python<'_>,
        session: Option<&str>,
        retention: Option<&Bound<'_, PyAny>>,
        release: Vec<(i64, Option<i64>)>,
        ends_session: bool,
    ) -> PyResult<Self> {
        let retention = retention.map_or(Ok(Vec::new()), retentions)?;
        let release = release.into_iter().map(|(start, end)| token_range(py, start, end));
        let release: Vec<_> = release.collect::<PyResult<_>>()?;
        let mut hints = Self { retention, release, ends_session, requested: None };
        if session.is_some() || hints.are_given() {
            hints.requested = Some(Arc::new(hints.of_core(session)));
        }
        Ok(hints)
    }

    /// Checks that ranges begin in a prompt.
    pub(super) fn check_starts(&self, py: Python<'_>, num_prompt_tokens: usize) -> PyResult<()> {
        let starts = self.retention.iter().map(|it| it.start);
        let mut starts = starts.chain(self.release.iter().map(|it| it.0));
        match starts.find(|&start| start >= num_prompt_tokens) {
            None => Ok(()),
            Some(start) => {
                let message = format!(
                    "the range of tokens starts at {start}; the prompt has {num_prompt_tokens} \
                     tokens, so it must start below {num_prompt_tokens}"
                );
                Err(request_error(py, message))
            }
        }
    }

    /// Returns whether there is a hint. A session alone is none.
    pub(super) fn are_given(&self) -> bool {
        !self.retention.is_empty() || !self.release.is_empty() || self.ends_session
    }

    fn of_core(&self, session: Option<&str>) -> RequestRetention {
        let mut requested = RequestRetention::default();
        if let Some(session) = session {
            requested = requested.in_session(SESSION_HASHER.hash_one(session));
        }
        for (tokens, priority) in self.retention.iter().map(PyRetention::of_core) {
            requested = requested.with_priority(tokens, priority);
        }
        for &range in &self.release {
            requested = requested.giving_up(range_of(range));
        }
        if self.ends_session { requested.ending_session() } else { requested }
    }

    /// Returns the session and the hints as the core reads them.
    pub(super) fn requested(&self) -> Option<&Arc<RequestRetention>> {
        self.requested.as_ref()
    }

    /// Returns the retention: `None`, the only one, or a list.
    pub(super) fn retention<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self.retention[..] {
            [] => Ok(py.None().into_bound(py)),
            [only] => only.into_bound_py_any(py),
            _ => self.retention.clone().into_bound_py_any(py),
        }
    }

    pub(super) fn release(&self) -> Vec<TokenRange> {
        self.release.clone()
    }

    pub(super) fn ends_session(&self) -> bool {
        self.ends_session
    }
}

/// Hashes the ids of sessions, in the same way for all managers of this process.
static SESSION_HASHER: LazyLock<foldhash::quality::RandomState> =
    LazyLock::new(foldhash::quality::RandomState::default);

fn retentions(given: &Bound<'_, PyAny>) -> PyResult<Vec<PyRetention>> {
    if given.is_instance_of::<PyList>() || given.is_instance_of::<PyTuple>() {
        return given.extract();
    }
    Ok(vec![given.extract::<PyRetention>()?])
}

//! The outcomes of prompts, for Python.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use kvoxide_core::outcomes::ReuseGaps;
use kvoxide_core::{
    AllocateArgs, BlockId, Error, Manager, ObservedRequest, Outcome, OutcomeReport, PromptOutcomes,
    RequestView, Result,
};

use super::errors::IntoPyResult;
use super::owner::WithCore;

/// The new blocks of each group, and the outcomes of the prompt if they were observed.
pub(crate) type Observed = (Option<Vec<Vec<BlockId>>>, Option<Box<PromptOutcomes>>);

/// Allocates slots for a request. If `observed` is given, the request is admitted with it.
#[inline]
pub(crate) fn allocate(
    core: &mut Manager,
    request: &RequestView<'_>,
    args: &AllocateArgs<'_>,
    observed: Option<ObservedRequest<'_>>,
) -> Result<Observed> {
    let Some(observed) = observed else { return Ok((core.allocate_slots(request, args)?, None)) };
    Ok(match core.admit_observed(request, args, observed)? {
        Some(admission) => (Some(admission.blocks), admission.outcomes.map(Box::new)),
        None => (None, None),
    })
}

/// Returns a number for a salt and the name of an adapter; 0 for neither.
pub(crate) fn realm(salt: Option<&str>, adapter: Option<&str>) -> u64 {
    let salt = salt.filter(|salt| !salt.is_empty());
    if salt.is_none() && adapter.is_none() {
        return 0;
    }
    let mut hasher = DefaultHasher::new();
    (salt, adapter).hash(&mut hasher);
    hasher.finish() | 1
}

/// Passes the time to the core if it observes outcomes.
#[inline]
pub(crate) fn update_outcome_time(state: &mut impl WithCore, py: Python<'_>) -> PyResult<()> {
    if state.core().observes_outcomes() {
        let seconds = state.seconds(py)?;
        state.core_mut().set_outcome_time(seconds);
    }
    Ok(())
}

/// The outcomes of the latest prompts, by request.
#[derive(Default)]
pub(crate) struct OutcomeLog {
    is_kept: bool,
    prompts: VecDeque<(String, PromptOutcomes)>,
}

/// The name of a request and the outcomes of its prompt, in the order of [`Outcome::ALL`].
pub(crate) type NamedOutcomes<'py> = (String, Bound<'py, PyTuple>);

impl OutcomeLog {
    /// The most prompts in the log. If there are more, the oldest ones are dropped.
    const MAX_LEN: usize = 4096;

    /// Starts to keep the outcomes of each prompt.
    pub(crate) fn keep(&mut self) {
        self.is_kept = true;
    }

    /// Adds the outcomes of a prompt, if the log is kept.
    pub(crate) fn add(&mut self, name: &str, outcomes: &PromptOutcomes) {
        if !self.is_kept {
            return;
        }
        if self.prompts.len() == Self::MAX_LEN {
            self.prompts.pop_front();
        }
        self.prompts.push_back((name.to_owned(), *outcomes));
    }

    /// Returns the prompts since the last call. Returns an error if the log is not kept.
    pub(crate) fn take<'py>(&mut self, py: Python<'py>) -> PyResult<Vec<NamedOutcomes<'py>>> {
        if !self.is_kept {
            return Err(Error::Precondition(
                "the outcomes of single requests are not kept. Call \
                 observe_outcomes(per_request=True) before the first request"
                    .into(),
            ))
            .into_py(py);
        }
        let prompts = self.prompts.drain(..);
        prompts.map(|(name, outcomes)| Ok((name, PyTuple::new(py, outcomes.counts())?))).collect()
    }
}

/// Outcomes since observation started.
#[pyclass(module = "kvoxide", name = "OutcomeReport", frozen, eq, skip_from_py_object)]
#[derive(PartialEq)]
pub(crate) struct PyOutcomeReport {
    report: OutcomeReport,
}

impl PyOutcomeReport {
    /// Returns the report of a manager; `None` if it does not observe outcomes.
    pub(crate) fn of(manager: &Manager) -> Option<Self> {
        manager.outcome_report().map(|report| Self { report })
    }
}

#[pymethods]
impl PyOutcomeReport {
    #[getter]
    fn outcomes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let outcomes = PyDict::new(py);
        for outcome in Outcome::ALL {
            outcomes.set_item(outcome.name(), self.report.outcomes.of(outcome))?;
        }
        Ok(outcomes)
    }

    #[getter]
    fn evictions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let evictions = PyDict::new(py);
        evictions.set_item("full", self.report.evictions.full)?;
        evictions.set_item("tail", self.report.evictions.tail)?;
        Ok(evictions)
    }

    #[getter]
    fn reuse_gap_bounds(&self) -> Vec<f64> {
        ReuseGaps::bounds().to_vec()
    }

    #[getter]
    fn reuse_gap_counts(&self) -> Vec<u64> {
        self.report.reuse_gaps.counts().to_vec()
    }

    #[getter]
    fn reuse_gap_sum(&self) -> f64 {
        self.report.reuse_gaps.sum()
    }
}

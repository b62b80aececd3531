//! The report of adaptive retention, for Python.

use std::collections::BTreeMap;
use std::ffi::CStr;

use pyo3::exceptions::PyDeprecationWarning;
use pyo3::prelude::*;

use kvoxide_core::pool::ScoringFunction;
use kvoxide_core::{ByKind, Manager, RetentionReport};

/// Decisions of adaptive retention and their results.
#[pyclass(module = "kvoxide", name = "RetentionReport", frozen, get_all, skip_from_py_object)]
pub(crate) struct PyRetentionReport {
    scoring_function: &'static str,
    in_use_blocks: u64,
    full_blocks: u64,
    tail_blocks: u64,
    protected_blocks: u64,
    empty_blocks: u64,
    evicted_full_blocks: u64,
    evicted_tail_blocks: u64,
    prompt_tokens: u64,
    hit_tokens: u64,
    hit_prompt_tokens: u64,
    hit_answer_tokens: u64,
    sampled_blocks: u64,
    sampled_hits: u64,
    sampled_kept: BTreeMap<&'static str, u64>,
    default_hit_tokens: u64,
    is_default_hit_a_limit: bool,
}

impl PyRetentionReport {
    /// Returns the report of a manager; `None` without adaptive retention.
    pub fn of(manager: &Manager) -> Option<Self> {
        manager.pool().adaptive()?;
        let RetentionReport {
            scoring_function,
            in_use,
            evictable,
            protected,
            empty,
            evictions,
            admitted,
            sample,
            default_hits,
        } = manager.retention_report();
        let sample = sample?;
        let ByKind { full, tail } = evictable;
        Some(Self {
            scoring_function: scoring_function?.name(),
            in_use_blocks: in_use,
            full_blocks: full,
            tail_blocks: tail,
            protected_blocks: protected,
            empty_blocks: empty,
            evicted_full_blocks: evictions.full,
            evicted_tail_blocks: evictions.tail,
            prompt_tokens: admitted.prompt_tokens,
            hit_tokens: admitted.hit_tokens,
            hit_prompt_tokens: admitted.hit_tokens - admitted.hit_answer_tokens,
            hit_answer_tokens: admitted.hit_answer_tokens,
            sampled_blocks: sample.asked,
            sampled_hits: sample.hit,
            sampled_kept: ScoringFunction::ALL
                .into_iter()
                .map(ScoringFunction::name)
                .zip(sample.kept)
                .collect(),
            default_hit_tokens: default_hits.tokens,
            is_default_hit_a_limit: default_hits.is_upper_limit,
        })
    }
}

/// The names that fields had in version 0.2.0.
#[pymethods]
impl PyRetentionReport {
    #[getter]
    fn ordering(&self, py: Python<'_>) -> PyResult<&'static str> {
        warn_renamed(py, c"RetentionReport.ordering is now RetentionReport.scoring_function")?;
        Ok(self.scoring_function)
    }

    #[getter]
    fn held_blocks(&self, py: Python<'_>) -> PyResult<u64> {
        warn_renamed(py, c"RetentionReport.held_blocks is now RetentionReport.protected_blocks")?;
        Ok(self.protected_blocks)
    }
}

/// Warns that an attribute has a new name.
pub(crate) fn warn_renamed(py: Python<'_>, message: &CStr) -> PyResult<()> {
    PyErr::warn(py, &py.get_type::<PyDeprecationWarning>(), message, 1)
}

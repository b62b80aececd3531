//! Methods about the whole prefix cache: statistics, eviction, events.

use pyo3::prelude::*;
use pyo3::types::PyList;

use super::construction::PyManager;
use crate::ffi::{WithCore, count};
use crate::standalone::pool::{evict_blocks, take_events};
use crate::standalone::request::PyRequest;
use crate::standalone::stats::PrefixCacheStats;

#[pymethods]
impl PyManager {
    #[pyo3(name = "evict_blocks")]
    fn py_evict_blocks(&self, block_ids: &Bound<'_, PyAny>) -> PyResult<()> {
        evict_blocks(&self.cell, block_ids)
    }

    fn reset_prefix_cache(&self, py: Python<'_>) -> PyResult<bool> {
        self.cell.change(py, "reset_prefix_cache", |state| {
            let done = state.call(py, |core| Ok(core.reset_prefix_cache()))?;
            if let (true, Some(stats)) = (done, &mut state.stats) {
                stats.reset = true;
            }
            Ok(done)
        })
    }

    #[pyo3(name = "take_events")]
    fn py_take_events<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        take_events(&self.cell, py)
    }

    fn make_prefix_cache_stats(&self, py: Python<'_>) -> PyResult<Option<PrefixCacheStats>> {
        self.cell.change(py, "make_prefix_cache_stats", |state| {
            Ok(state.stats.as_mut().map(std::mem::take))
        })
    }

    fn prefix_cache_lookup_enabled(&self, py: Python<'_>, request: &PyRequest) -> PyResult<bool> {
        self.cell.read(py, |state| Ok(state.looks_up(request)))
    }

    fn record_prefix_cache_stats(
        &self,
        py: Python<'_>,
        request: &PyRequest,
        num_hits: i64,
    ) -> PyResult<()> {
        let num_hits = count(py, "num_hits", num_hits)?;
        self.cell.change(py, "record_prefix_cache_stats", |state| {
            if state.looks_up(request)
                && let Some(stats) = &mut state.stats
            {
                stats.record(request.num_tokens, num_hits, request.num_preemptions > 0);
            }
            Ok(())
        })
    }
}

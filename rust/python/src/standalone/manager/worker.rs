//! What the worker is to do before it runs a step.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use super::construction::PyManager;
use crate::crossing::{IntoPyResult, count};
use crate::standalone::request::PyRequest;

#[pymethods]
impl PyManager {
    fn take_new_block_ids<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.gate.take_new_block_ids(py)
    }

    fn record_blocks_for_zeroing(
        &self,
        py: Python<'_>,
        request_id: &str,
        start_token: i64,
    ) -> PyResult<()> {
        let start = count(py, "start_token", start_token)?;
        self.gate.change(py, "record_blocks_for_zeroing", |state| {
            let id = state.request_id(py, request_id)?;
            state.core.record_blocks_for_zeroing(id, start).into_py(py)
        })
    }

    /// Copies belong to recurrent-state groups; there are none.
    fn take_kv_cache_block_copies<'py>(
        &self,
        py: Python<'py>,
    ) -> (Bound<'py, PyList>, Bound<'py, PyList>) {
        (PyList::empty(py), PyList::empty(py))
    }

    fn take_boundary_state_offloads<'py>(&self, py: Python<'py>) -> Bound<'py, PyDict> {
        PyDict::new(py)
    }

    fn finalize_partial_tail_offloads<'py>(
        &self,
        py: Python<'py>,
        request: &PyRequest,
    ) -> Bound<'py, PyList> {
        let _ = request;
        PyList::empty(py)
    }

    fn new_step_starts(&self) {}
}

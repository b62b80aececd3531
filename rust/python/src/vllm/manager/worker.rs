//! What the worker is to do before it runs a step.

use pyo3::prelude::*;
use pyo3::types::PyList;

use kvoxide_core::Error;

use super::construction::VllmManager;
use crate::vllm::errors::IntoVllmResult;

#[pymethods]
impl VllmManager {
    fn take_new_block_ids<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.engine.gate.take_new_block_ids(py)
    }

    fn record_blocks_for_zeroing(
        &self,
        py: Python<'_>,
        request_id: &str,
        start_token: usize,
    ) -> PyResult<()> {
        // No request has the id 0: the start is checked even for a request that holds nothing.
        self.engine.gate.change(py, "record_blocks_for_zeroing", |state| {
            let id = state.id_of(request_id).unwrap_or(0);
            match state.core.record_blocks_for_zeroing(id, start_token) {
                Err(Error::UnknownRequest(_)) => Ok(()),
                recorded => recorded.into_vllm(py),
            }
        })
    }
}

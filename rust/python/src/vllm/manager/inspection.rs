//! Methods for operators and tests.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use kvoxide_core::Error;

use super::construction::VllmManager;
use crate::ffi::PyRetentionReport;
use crate::vllm::errors::IntoVllmResult;

#[pymethods]
impl VllmManager {
    /// Returns the report of adaptive retention; `None` under another policy.
    fn retention_report(&self, py: Python<'_>) -> PyResult<Option<PyRetentionReport>> {
        self.engine.cell.read(py, |state| Ok(PyRetentionReport::of(&state.core)))
    }

    /// Returns 32 bytes that depend on the state of the engine.
    fn state_digest<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.engine.cell.read(py, |state| Ok(PyBytes::new(py, &state.digest())))
    }

    fn check_invariants(&self, py: Python<'_>) -> PyResult<()> {
        self.engine.cell.read(py, |state| state.check().map_err(Error::Internal).into_vllm(py))
    }

    fn _panic_for_tests(&self, py: Python<'_>) -> PyResult<()> {
        self.engine.cell.panic_for_tests(py)
    }
}

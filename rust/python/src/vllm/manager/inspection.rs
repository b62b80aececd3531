//! What operators and tests look at.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use kvoxide_core::Error;

use super::construction::VllmManager;
use crate::crossing::PyRetentionReport;
use crate::vllm::errors::IntoVllmResult;

#[pymethods]
impl VllmManager {
    /// What adaptive retention decided; nothing without it.
    fn retention_report(&self, py: Python<'_>) -> PyResult<Option<PyRetentionReport>> {
        self.engine.gate.read(py, |state| Ok(PyRetentionReport::of(&state.core)))
    }

    /// 32 bytes that change with the state of the engine.
    fn state_digest<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.engine.gate.read(py, |state| Ok(PyBytes::new(py, &state.digest())))
    }

    fn check_invariants(&self, py: Python<'_>) -> PyResult<()> {
        self.engine.gate.read(py, |state| state.check().map_err(Error::Internal).into_vllm(py))
    }

    fn _panic_for_tests(&self, py: Python<'_>) -> PyResult<()> {
        self.engine.gate.panic_for_tests(py)
    }
}

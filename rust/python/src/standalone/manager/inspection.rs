//! Methods for operators and tests.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use kvoxide_core::{Error, check};

use super::construction::PyManager;
use crate::ffi::{IntoPyResult, PyRetentionReport, mixed_digest};

#[pymethods]
impl PyManager {
    fn retention_report(&self, py: Python<'_>) -> PyResult<Option<PyRetentionReport>> {
        self.cell.read(py, |state| Ok(PyRetentionReport::of(&state.core)))
    }

    fn check_invariants(&self, py: Python<'_>) -> PyResult<()> {
        self.cell.read(py, |state| check(&state.core).map_err(Error::Internal).into_py(py))
    }

    fn state_digest<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.cell.read(py, |state| {
            Ok(PyBytes::new(py, &mixed_digest(&state.core, &[state.events.len()])))
        })
    }

    fn _panic_for_tests(&self, py: Python<'_>) -> PyResult<()> {
        self.cell.panic_for_tests(py)
    }
}

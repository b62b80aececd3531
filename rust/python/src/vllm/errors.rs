//! Converts errors of the core into the exceptions that vLLM's own manager raises for the same
//! calls.

use pyo3::exceptions::{PyAssertionError, PyIndexError, PyKeyError, PyValueError};
use pyo3::prelude::*;

use kvoxide_core::Error;

use crate::ffi::to_py;

/// Converts the core's results into results of vLLM's manager.
pub(super) trait IntoVllmResult<T> {
    /// Returns the value, or the exception for the error.
    fn into_vllm(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> IntoVllmResult<T> for kvoxide_core::Result<T> {
    fn into_vllm(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| {
            let message = error.to_string();
            match error {
                Error::Request(_) | Error::Block(_) => PyValueError::new_err(message),
                Error::Precondition(_) => PyAssertionError::new_err(message),
                Error::BlockHash(_) | Error::OutOfRange(_) => PyIndexError::new_err(message),
                Error::UnknownRequest(_) => PyKeyError::new_err(message),
                Error::Config(_)
                | Error::UnsupportedGroup { .. }
                | Error::DuplicateRequest(_)
                | Error::Internal(_) => to_py(py, &error),
            }
        })
    }
}

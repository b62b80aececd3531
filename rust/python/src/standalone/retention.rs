//! The retention that a request asks for.

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;

use kvoxide_core::RetentionPriority;

use crate::ffi::{IntoPyResult, NewArgs, new_args};

/// A retention priority and a time to live.
#[pyclass(module = "kvoxide", name = "Retention", frozen, eq, from_py_object)]
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct PyRetention {
    pub(crate) priority: RetentionPriority,
    #[pyo3(get)]
    ttl: Option<f64>,
}

#[pymethods]
impl PyRetention {
    #[new]
    #[pyo3(signature = (*, priority, ttl=None))]
    fn new(py: Python<'_>, priority: i64, ttl: Option<f64>) -> PyResult<Self> {
        Ok(Self { priority: RetentionPriority::new(priority, ttl).into_py(py)?, ttl })
    }

    #[getter]
    fn priority(&self) -> u8 {
        self.priority.priority()
    }

    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> PyResult<NewArgs<'py, ()>> {
        let priority = self.priority().into_bound_py_any(py)?;
        new_args(py, (), [("priority", priority), ("ttl", self.ttl.into_bound_py_any(py)?)])
    }

    fn __repr__(&self) -> String {
        let ttl = self.ttl.map_or(String::new(), |ttl| format!(", ttl={ttl:?}"));
        format!("Retention(priority={}{ttl})", self.priority.priority())
    }
}

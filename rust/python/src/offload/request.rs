//! The keys of a tier that a request saw.

use pyo3::prelude::*;

use kvoxide_core::host::HostRequest;

/// The keys that a request saw.
#[pyclass(module = "kvoxide", name = "HostRequest")]
#[derive(Default)]
pub(crate) struct PyHostRequest {
    pub(super) request: HostRequest,
    /// Whether a look-up waited until the blocks are stored that the load takes from the pool.
    pub(super) has_waited_for_stores: bool,
}

#[pymethods]
impl PyHostRequest {
    #[new]
    fn new() -> Self {
        Self::default()
    }
}

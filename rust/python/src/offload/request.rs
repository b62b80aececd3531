//! The keys of a tier that a request saw.

use pyo3::prelude::*;

use kvoxide_core::host::{HostRequest, StoreWait};

/// The keys that a request saw.
#[pyclass(module = "kvoxide", name = "HostRequest")]
#[derive(Default)]
pub(crate) struct PyHostRequest {
    pub(super) request: HostRequest,
    /// How far look-ups have waited until the blocks are stored that the load takes from the pool.
    pub(super) store_wait: StoreWait,
}

#[pymethods]
impl PyHostRequest {
    #[new]
    fn new() -> Self {
        Self::default()
    }
}

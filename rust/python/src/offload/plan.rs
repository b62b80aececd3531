//! Results of a tier: plans of stores, and events.

use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;
use pyo3::types::PyList;

use kvoxide_core::host::{ChunkId, HostEvent, HostEventKind, StorePlan};

use super::hash_lengths::HashLengths;
use super::keys::{Keys, key_list};

/// A store.
#[pyclass(module = "kvoxide", name = "HostStorePlan", get_all, frozen)]
pub(crate) struct PyHostStorePlan {
    keys: Py<PyAny>,
    chunk_ids: Py<PyArray1<i32>>,
    evicted_keys: Py<PyList>,
}

impl PyHostStorePlan {
    /// Returns the plan for an offer of these keys.
    pub(super) fn new(
        py: Python<'_>,
        plan: StorePlan,
        offer: &Keys<'_>,
        hash_lengths: Option<HashLengths>,
    ) -> PyResult<Self> {
        Ok(Self {
            keys: offer.selected(py, &plan.stored)?.unbind(),
            chunk_ids: chunk_array(py, plan.chunks).unbind(),
            evicted_keys: key_list(py, &plan.evicted, hash_lengths)?.unbind(),
        })
    }
}

/// Something that happened to chunks.
#[pyclass(module = "kvoxide", name = "HostEvent", frozen)]
pub(crate) struct PyHostEvent {
    kind: HostEventKind,
    #[pyo3(get)]
    keys: Py<PyList>,
}

impl PyHostEvent {
    pub(super) fn new(
        py: Python<'_>,
        event: &HostEvent,
        hash_lengths: Option<HashLengths>,
    ) -> PyResult<Self> {
        Ok(Self { kind: event.kind, keys: key_list(py, &event.keys, hash_lengths)?.unbind() })
    }
}

#[pymethods]
impl PyHostEvent {
    #[getter]
    fn kind(&self) -> &'static str {
        match self.kind {
            HostEventKind::Stored => "stored",
            HostEventKind::Removed => "removed",
            HostEventKind::Failed => "failed",
        }
    }
}

/// Returns chunk ids as an int32 array.
pub(super) fn chunk_array(py: Python<'_>, chunks: Vec<ChunkId>) -> Bound<'_, PyArray1<i32>> {
    // Ids are below `MAX_CHUNKS`, so that none is negative.
    bytemuck::cast_vec::<u32, i32>(chunks).into_pyarray(py)
}

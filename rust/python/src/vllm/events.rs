//! Events of the engine, from which vLLM's are made.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use kvoxide_core::{BlockHash, Event, GroupId};

use crate::crossing::hash_bytes;

/// Blocks of a request entered the prefix cache, or were reused from it.
#[pyclass(module = "kvoxide._core_vllm", frozen, get_all)]
pub(crate) struct StoredEvent {
    group: GroupId,
    block_hashes: Py<PyList>,
    block_starts: Py<PyList>,
    parent: Option<Py<PyBytes>>,
    start_token: usize,
    end_token: usize,
    block_size: usize,
}

/// A block left the prefix cache.
#[pyclass(module = "kvoxide._core_vllm", frozen, get_all)]
pub(crate) struct RemovedEvent {
    group: GroupId,
    block_hash: Py<PyBytes>,
}

/// The prefix cache was reset.
#[pyclass(module = "kvoxide._core_vllm", frozen)]
pub(crate) struct ClearedEvent;

/// An event as Python gets it.
pub(super) fn py_event<'py>(
    py: Python<'py>,
    event: Event,
    hash_len: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let bytes = |hash: &BlockHash| hash_bytes(py, hash, hash_len).unbind();
    match event {
        Event::Stored(event) => {
            let stored = StoredEvent {
                group: event.group,
                block_hashes: PyList::new(py, event.block_hashes.iter().map(&bytes))?.unbind(),
                block_starts: PyList::new(py, event.block_starts)?.unbind(),
                parent: event.parent.as_ref().map(bytes),
                start_token: event.start_token,
                end_token: event.end_token,
                block_size: event.block_size,
            };
            Ok(Bound::new(py, stored)?.into_any())
        }
        Event::Removed { hash, group } => {
            Ok(Bound::new(py, RemovedEvent { group, block_hash: bytes(&hash) })?.into_any())
        }
        Event::Cleared => Ok(Bound::new(py, ClearedEvent)?.into_any()),
    }
}

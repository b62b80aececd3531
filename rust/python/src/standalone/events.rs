//! KV cache events, with vLLM's fields.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};

use kvoxide_core::group::declaration;
use kvoxide_core::{BlockHash, Event, GroupSpec, Size, StoredEvent};

use super::request::PyRequest;
use crate::ffi::hash_bytes;

const MEDIUM: &str = "GPU";

/// An event with the fields that it copies from its request.
#[derive(Clone)]
pub(super) enum PendingEvent {
    Stored(Box<Stored>),
    Removed { hash: BlockHash, group: u16 },
    Cleared,
}

/// Blocks that entered the cache.
#[derive(Clone)]
pub(super) struct Stored {
    event: StoredEvent,
    token_ids: Vec<i64>,
    lookahead_token_ids: Option<Vec<Vec<i64>>>,
    lora_name: Option<String>,
    extra_keys: Vec<Vec<String>>,
    session_id: Option<String>,
}

impl PendingEvent {
    /// Returns an event of a call about `request`.
    pub(super) fn new(
        event: Event,
        request: Option<&PyRequest>,
        num_lookahead_tokens: usize,
    ) -> Self {
        match (event, request) {
            (Event::Stored(event), Some(request)) => {
                Self::Stored(Box::new(Stored::new(event, request, num_lookahead_tokens)))
            }
            (Event::Removed { hash, group }, _) => Self::Removed { hash, group },
            (Event::Cleared | Event::Stored(_), _) => Self::Cleared,
        }
    }

    /// Returns the Python object.
    pub(super) fn into_py<'py>(
        self,
        py: Python<'py>,
        hash_len: usize,
        groups: &[GroupSpec],
    ) -> PyResult<Bound<'py, PyAny>> {
        let bytes = |hash: &BlockHash| hash_bytes(py, hash, hash_len).unbind();
        match self {
            Self::Stored(stored) => {
                let spec = &groups[usize::from(stored.event.group)];
                Ok(Bound::new(py, stored.into_event(py, bytes, spec)?)?.into_any())
            }
            Self::Removed { hash, group } => {
                let block_hashes = PyList::new(py, [bytes(&hash)])?.unbind();
                Ok(Bound::new(py, BlockRemoved { block_hashes, group_idx: Some(group) })?
                    .into_any())
            }
            Self::Cleared => Ok(Bound::new(py, AllBlocksCleared)?.into_any()),
        }
    }
}

impl Stored {
    fn new(event: StoredEvent, request: &PyRequest, num_lookahead_tokens: usize) -> Self {
        let tokens = |start: usize, end: usize| {
            let end = end.min(request.tokens.len());
            request.tokens[start.min(end)..end].to_vec()
        };
        let lookahead = |start: &usize| {
            let end = start + event.block_size;
            tokens(end, end + num_lookahead_tokens)
        };
        Self {
            token_ids: tokens(event.start_token, event.end_token),
            lookahead_token_ids: (num_lookahead_tokens > 0)
                .then(|| event.block_starts.iter().map(lookahead).collect()),
            lora_name: request.extra_keys.lora.as_ref().map(|(name, _)| name.clone()),
            extra_keys: event
                .block_starts
                .iter()
                .map(|&start| extra_keys_of_block(request, start))
                .collect(),
            session_id: request.session_id.clone(),
            event,
        }
    }

    fn into_event(
        self,
        py: Python<'_>,
        bytes: impl Fn(&BlockHash) -> Py<PyBytes>,
        spec: &GroupSpec,
    ) -> PyResult<BlockStored> {
        let Self { event, token_ids, lookahead_token_ids, lora_name, extra_keys, session_id } =
            self;
        Ok(BlockStored {
            block_hashes: PyList::new(py, event.block_hashes.iter().map(&bytes))?.unbind(),
            parent_block_hash: event.parent.as_ref().map(&bytes),
            token_ids: PyList::new(py, token_ids)?.unbind(),
            block_size: event.block_size,
            lora_id: None,
            medium: Some(PyString::intern(py, MEDIUM).unbind()),
            lora_name,
            extra_keys: extra_key_list(py, extra_keys)?,
            group_idx: Some(event.group),
            kv_cache_spec_kind: declaration(spec).ok().map(|kind| kind.event_name),
            kv_cache_spec_sliding_window: spec.size(Size::SlidingWindow),
            session_id,
            lookahead_token_ids: lookahead_token_ids
                .map(|ids| PyList::new(py, ids).map(Bound::unbind))
                .transpose()?,
        })
    }
}

/// Returns a block's extra keys in the form of events: the adapter's name and the salt without
/// their tuples.
fn extra_keys_of_block(request: &PyRequest, start_token: usize) -> Vec<String> {
    let keys = request.extra_keys.of_block(start_token);
    keys.into_iter().map(|key| key[1].to_owned()).collect()
}

/// Returns one tuple for each block, or None for a block without extra keys. Returns None for no
/// block.
fn extra_key_list(py: Python<'_>, keys: Vec<Vec<String>>) -> PyResult<Option<Py<PyList>>> {
    if keys.is_empty() {
        return Ok(None);
    }
    let of_block = |keys: Vec<String>| match keys.is_empty() {
        true => Ok(None),
        false => PyTuple::new(py, keys).map(Some),
    };
    let keys = keys.into_iter().map(of_block).collect::<PyResult<Vec<_>>>()?;
    PyList::new(py, keys).map(|list| Some(list.unbind()))
}

/// Blocks entered the prefix cache.
#[pyclass(module = "kvoxide", get_all, frozen)]
pub(crate) struct BlockStored {
    block_hashes: Py<PyList>,
    parent_block_hash: Option<Py<PyBytes>>,
    token_ids: Py<PyList>,
    block_size: usize,
    lora_id: Option<i64>,
    medium: Option<Py<PyString>>,
    lora_name: Option<String>,
    extra_keys: Option<Py<PyList>>,
    group_idx: Option<u16>,
    kv_cache_spec_kind: Option<&'static str>,
    kv_cache_spec_sliding_window: Option<usize>,
    session_id: Option<String>,
    lookahead_token_ids: Option<Py<PyList>>,
}

/// A block left the prefix cache.
#[pyclass(module = "kvoxide", frozen)]
pub(crate) struct BlockRemoved {
    #[pyo3(get)]
    block_hashes: Py<PyList>,
    #[pyo3(get)]
    group_idx: Option<u16>,
}

#[pymethods]
impl BlockRemoved {
    #[getter]
    fn medium(&self) -> Option<&'static str> {
        Some(MEDIUM)
    }
}

/// The prefix cache was reset.
#[pyclass(module = "kvoxide", frozen)]
pub(crate) struct AllBlocksCleared;

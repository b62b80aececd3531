//! KV cache events, as objects of vLLM's classes.

use std::iter::repeat_n;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PySlice, PyString};

use kvoxide_core::{BlockHash, Event, GroupId, StoredEvent};

use super::event_keys::{event_keys, first_feature, truthy};
use crate::ffi::hash_bytes;

/// vLLM's event classes, and the other objects of vLLM that decide the form of events.
#[pyclass(module = "kvoxide._core_vllm", frozen)]
pub(crate) struct VllmEventClasses {
    stored: Py<PyAny>,
    /// The class of removal events. It is called with the hashes, the medium and the group, in this
    /// order.
    removed: Py<PyAny>,
    cleared: Py<PyAny>,
    /// The module that decides whether hashes are published as numbers.
    envs: Py<PyAny>,
    /// The function that computes the extra keys of a request with prompt embeddings.
    embedded_keys: Py<PyAny>,
    /// Whether stored events have a field for lookahead tokens.
    has_lookahead: bool,
}

#[pymethods]
impl VllmEventClasses {
    #[new]
    #[pyo3(signature = (*, stored, removed, cleared, envs, embedded_keys))]
    fn new(
        stored: Bound<'_, PyAny>,
        removed: Py<PyAny>,
        cleared: Py<PyAny>,
        envs: Py<PyAny>,
        embedded_keys: Py<PyAny>,
    ) -> PyResult<Self> {
        let fields = stored.getattr(intern!(stored.py(), "__struct_fields__"))?;
        let has_lookahead = fields.contains(intern!(stored.py(), "lookahead_token_ids"))?;
        Ok(Self { stored: stored.unbind(), removed, cleared, envs, embedded_keys, has_lookahead })
    }
}

/// Events that were taken from the engine.
#[pyclass(module = "kvoxide._core_vllm", frozen)]
pub(crate) struct VllmEvents {
    events: Vec<Event>,
    hash_len: usize,
}

impl VllmEvents {
    /// Returns events whose hashes have `hash_len` bytes; `None` if there are no events.
    pub(super) fn of(events: Vec<Event>, hash_len: usize) -> Option<Self> {
        (!events.is_empty()).then_some(Self { events, hash_len })
    }
}

#[pymethods]
impl VllmEvents {
    /// Returns vLLM's events. Stored blocks belong to `request`.
    fn as_vllm<'py>(
        &self,
        classes: &Bound<'py, VllmEventClasses>,
        request: Bound<'py, PyAny>,
        medium: Bound<'py, PyAny>,
        num_lookahead_tokens: usize,
    ) -> PyResult<Bound<'py, PyList>> {
        let py = request.py();
        let has_hashes = self.events.iter().any(|event| !matches!(event, Event::Cleared));
        let envs = classes.get().envs.bind(py);
        let name = intern!(py, "VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES");
        let maker = Maker {
            classes: classes.get(),
            request,
            medium,
            num_lookahead_tokens,
            hash_len: self.hash_len,
            hashes_are_numbers: has_hashes && envs.getattr(name)?.is_truthy()?,
        };
        let made = self.events.iter().map(|event| maker.event(event));
        PyList::new(py, made.collect::<PyResult<Vec<_>>>()?)
    }
}

/// Creates the events of one call.
struct Maker<'a, 'py> {
    classes: &'a VllmEventClasses,
    request: Bound<'py, PyAny>,
    medium: Bound<'py, PyAny>,
    num_lookahead_tokens: usize,
    hash_len: usize,
    hashes_are_numbers: bool,
}

impl<'py> Maker<'_, 'py> {
    fn py(&self) -> Python<'py> {
        self.request.py()
    }

    fn event(&self, event: &Event) -> PyResult<Bound<'py, PyAny>> {
        match event {
            Event::Stored(event) => self.stored(event),
            Event::Removed { hash, group } => self.removed(hash, *group),
            Event::Cleared => self.classes.cleared.bind(self.py()).call0(),
        }
    }

    fn removed(&self, hash: &BlockHash, group: GroupId) -> PyResult<Bound<'py, PyAny>> {
        let hashes = PyList::new(self.py(), [self.hash(hash)?])?;
        self.classes.removed.bind(self.py()).call1((hashes, &self.medium, group))
    }

    fn stored(&self, event: &StoredEvent) -> PyResult<Bound<'py, PyAny>> {
        let (py, request) = (self.py(), &self.request);
        let fields = PyDict::new(py);
        let set = |name: &Bound<'py, PyString>, value| fields.set_item(name, value);
        let hashes = event.block_hashes.iter().map(|hash| self.hash(hash));
        let hashes = PyList::new(py, hashes.collect::<PyResult<Vec<_>>>()?)?;
        let parent = event.parent.as_ref().map(|hash| self.hash(hash)).transpose()?;
        set(intern!(py, "block_hashes"), Some(hashes.into_any()))?;
        set(intern!(py, "parent_block_hash"), parent)?;
        let tokens = self.tokens(event.start_token, event.end_token)?;
        set(intern!(py, "token_ids"), Some(tokens))?;
        fields.set_item(intern!(py, "block_size"), event.block_size)?;
        let lora = truthy(request.getattr(intern!(py, "lora_request"))?)?;
        let of_lora = |name| lora.as_ref().map(|lora| lora.getattr(name)).transpose();
        set(intern!(py, "lora_id"), of_lora(intern!(py, "adapter_id"))?)?;
        set(intern!(py, "medium"), Some(self.medium.clone()))?;
        set(intern!(py, "lora_name"), of_lora(intern!(py, "name"))?)?;
        set(intern!(py, "extra_keys"), self.extra_keys(event)?)?;
        fields.set_item(intern!(py, "group_idx"), event.group)?;
        fields.set_item(intern!(py, "session_id"), request.getattr(intern!(py, "session_id"))?)?;
        if self.classes.has_lookahead && self.num_lookahead_tokens > 0 {
            fields.set_item(intern!(py, "lookahead_token_ids"), self.lookahead(event)?)?;
        }
        self.classes.stored.bind(py).call((), Some(&fields))
    }

    fn hash(&self, hash: &BlockHash) -> PyResult<Bound<'py, PyAny>> {
        if !self.hashes_are_numbers {
            return Ok(hash_bytes(self.py(), hash, self.hash_len).into_any());
        }
        let bytes = &hash.to_bytes()[..self.hash_len];
        let low = &bytes[bytes.len().saturating_sub(size_of::<u64>())..];
        let number = low.iter().fold(0, |number: u64, &byte| number << 8 | u64::from(byte));
        Ok(number.into_pyobject(self.py())?.into_any())
    }

    /// Returns the tokens from `start` to `end` as a list.
    fn tokens(&self, start: usize, end: usize) -> PyResult<Bound<'py, PyAny>> {
        let tokens = self.request.getattr(intern!(self.py(), "all_token_ids"))?;
        tokens.get_item(PySlice::new(self.py(), start as isize, end as isize, 1))
    }

    /// Returns one entry for each block, or `None` if no block has keys.
    fn extra_keys(&self, event: &StoredEvent) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (py, request) = (self.py(), &self.request);
        let starts = &event.block_starts;
        if starts.is_empty() {
            return Ok(None);
        }
        if !request.getattr(intern!(py, "prompt_embeds"))?.is_none() {
            let first = first_feature(request, event)?;
            let arguments = (request, starts, event.block_size, self.num_lookahead_tokens, first);
            return self.classes.embedded_keys.bind(py).call1(arguments).map(Some);
        }
        let keys = event_keys(request, event, self.num_lookahead_tokens)?;
        let keys = match keys {
            Some(keys) => PyList::new(py, keys)?,
            None => PyList::new(py, repeat_n(None::<Bound<'_, PyAny>>, starts.len()))?,
        };
        Ok(Some(keys.into_any()))
    }

    /// Returns for each block the tokens after it that its hash covers.
    fn lookahead(&self, event: &StoredEvent) -> PyResult<Bound<'py, PyList>> {
        let py = self.py();
        let (Some(first), Some(last)) = (event.block_starts.first(), event.block_starts.last())
        else {
            return Ok(PyList::empty(py));
        };
        let first = first + event.block_size;
        let end = last + event.block_size + self.num_lookahead_tokens;
        let tokens = self.tokens(first, end)?;
        let tokens = tokens.cast::<PyList>()?;
        let of_block = |start: &usize| {
            let from = start + event.block_size - first;
            tokens.get_slice(from, from + self.num_lookahead_tokens)
        };
        PyList::new(py, event.block_starts.iter().map(of_block))
    }
}

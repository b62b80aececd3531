//! The block pool's own calls, for vLLM's pool interface.

use pyo3::exceptions::PyAssertionError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use kvoxide_core::block::CacheKey;
use kvoxide_core::pool::Observation;
use kvoxide_core::{BlockId, Event, GroupId, NULL_BLOCK, StoredEvent};

use super::errors::IntoVllmResult;
use super::manager::VllmManager;
use super::mirror::known_hash;
use super::state::VllmState;
use super::views::{VllmBlock, block_list, ids_of, known_key, packed_key};
use crate::tokens::hash_bytes;

#[pymethods]
impl VllmManager {
    #[getter]
    fn num_blocks(&self, py: Python<'_>) -> PyResult<usize> {
        self.gate.read(py, |state| Ok(state.core.pool().num_blocks()))
    }

    fn num_free_blocks(&self, py: Python<'_>) -> PyResult<usize> {
        self.gate.read(py, |state| Ok(state.core.pool().num_free_blocks()))
    }

    fn num_pinned_blocks(&self, py: Python<'_>) -> PyResult<usize> {
        self.gate.read(py, |state| Ok(state.core.pool().num_pinned_blocks()))
    }

    fn block(slf: &Bound<'_, Self>, index: i64) -> PyResult<VllmBlock> {
        let len = Self::num_blocks(slf.get(), slf.py())? as i64;
        let from_start = if index < 0 { index + len } else { index };
        if !(0..len).contains(&from_start) {
            return Err(pyo3::exceptions::PyIndexError::new_err("list index out of range"));
        }
        Ok(VllmBlock { manager: slf.clone().unbind(), id: from_start as BlockId })
    }

    fn get_cached_block<'py>(
        slf: &Bound<'py, Self>,
        hash: &Bound<'py, PyAny>,
        groups: Vec<GroupId>,
    ) -> PyResult<Option<Bound<'py, PyList>>> {
        let py = slf.py();
        slf.get().gate.read(py, |state| {
            let hash = known_hash(hash, state.hash_len)?;
            let find = |group| state.core.pool().find(&CacheKey { hash: hash?, group });
            let found = groups.into_iter().map(find).collect::<Option<Vec<_>>>();
            found.map(|ids| block_list(py, slf.as_unbound(), ids)).transpose()
        })
    }

    /// The block that serves a packed key, as an id.
    fn find_key(&self, key: &Bound<'_, PyBytes>) -> PyResult<Option<BlockId>> {
        self.gate.read(key.py(), |state| {
            let key = known_key(key, state.hash_len)?;
            Ok(key.and_then(|key| state.core.pool().find(&key)))
        })
    }

    fn block_has_key(&self, block: BlockId, key: &Bound<'_, PyBytes>) -> PyResult<bool> {
        self.gate.read(key.py(), |state| {
            state.core.check_ids(&[block]).into_vllm(key.py())?;
            let key = known_key(key, state.hash_len)?;
            Ok(key.is_some_and(|key| state.core.pool().has_key(block, &key)))
        })
    }

    /// Every packed key of a block, its own hash first.
    fn keys_of_block<'py>(&self, py: Python<'py>, block: BlockId) -> PyResult<Bound<'py, PyList>> {
        self.gate.read(py, |state| key_list(py, state, block))
    }

    /// Ids of the blocks that have further keys beside their own hash.
    fn blocks_with_extra_keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.gate.read(py, |state| {
            let pool = state.core.pool();
            let ids = 0..pool.num_blocks() as BlockId;
            let with_extra = ids.filter(|&block| pool.states().has_extra_keys(block));
            PyList::new(py, with_extra.collect::<Vec<_>>())
        })
    }

    fn insert_key(
        &self,
        block: BlockId,
        key: &Bound<'_, PyBytes>,
        num_tokens: Option<usize>,
    ) -> PyResult<()> {
        self.gate.edit(key.py(), "insert_key", |state| state.insert_key(block, key, num_tokens))
    }

    /// Takes every key of a block away without an event and hands the packed keys out.
    fn remove_keys<'py>(&self, py: Python<'py>, block: BlockId) -> PyResult<Bound<'py, PyList>> {
        self.gate.edit(py, "remove_keys", |state| {
            let keys = key_list(py, state, block)?;
            state.remove_keys(block);
            Ok(keys)
        })
    }

    fn num_keys(&self, py: Python<'_>) -> PyResult<usize> {
        self.gate.read(py, |state| Ok(state.core.pool().num_keys()))
    }

    fn get_new_blocks<'py>(
        slf: &Bound<'py, Self>,
        num_blocks: usize,
    ) -> PyResult<Bound<'py, PyList>> {
        let py = slf.py();
        let gate = &slf.get().gate;
        gate.change(py, "get_new_blocks", |state| {
            let mut ids = Vec::new();
            state.core.pool().check_free(num_blocks).into_vllm(py)?;
            state.core.pool_mut().take(num_blocks, &mut ids);
            gate.handed_out(py, block_list(py, slf.as_unbound(), ids))
        })
    }

    fn touch(slf: &Bound<'_, Self>, blocks: &Bound<'_, PyAny>) -> PyResult<()> {
        let ids = ids_of(blocks, slf)?;
        slf.get().gate.change(slf.py(), "touch", |state| {
            state.core.pool_mut().touch(&ids);
            Ok(())
        })
    }

    fn free_blocks(slf: &Bound<'_, Self>, blocks: &Bound<'_, PyAny>) -> PyResult<()> {
        let ids = ids_of(blocks, slf)?;
        slf.get().gate.change(slf.py(), "free_blocks", |state| {
            state.core.release_blocks(&ids).into_vllm(slf.py())
        })
    }

    /// Drops a reference to each block and puts those that lose their last at the queue's end.
    fn unpin_blocks(slf: &Bound<'_, Self>, blocks: &Bound<'_, PyAny>) -> PyResult<()> {
        let ids = ids_of(blocks, slf)?;
        if ids.contains(&NULL_BLOCK) {
            return Err(PyAssertionError::new_err("the null block is not held and not unpinned"));
        }
        slf.get().gate.change(slf.py(), "unpin_blocks", |state| {
            let unpinned = state.core.release_blocks_to_back(&ids);
            unpinned.map_err(|error| PyAssertionError::new_err(error.to_string()))
        })
    }

    fn evict_blocks(&self, py: Python<'_>, block_ids: Vec<i64>) -> PyResult<()> {
        self.gate.change(py, "evict_blocks", |state| {
            let num_blocks = state.core.pool().num_blocks();
            let id = |&id: &i64| {
                let inside = BlockId::try_from(id).ok().filter(|&id| (id as usize) < num_blocks);
                inside.ok_or_else(|| {
                    PyAssertionError::new_err(format!(
                        "block id {id} is outside the pool of {num_blocks} blocks; a connector \
                         reported a block that the scheduler never handed out"
                    ))
                })
            };
            state.core.pool_mut().evict(block_ids.iter().map(id).collect::<PyResult<Vec<_>>>()?);
            Ok(())
        })
    }

    fn reset_prefix_cache(&self, py: Python<'_>) -> PyResult<bool> {
        self.gate.change(py, "reset_prefix_cache", |state| Ok(state.core.reset_prefix_cache()))
    }

    fn free_block_ids<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.gate.read(py, |state| {
            let pool = state.core.pool();
            PyList::new(py, pool.free_blocks().chain(pool.pinned_blocks()).collect::<Vec<_>>())
        })
    }

    /// The events since the last call, as tuples: `("stored", request's group, hashes, starts,
    /// parent, start token, end token, block size)`, `("removed", hash, group)`, `("cleared",)`.
    fn take_events<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.gate.change(py, "take_events", |state| {
            let hash_len = state.hash_len();
            let events = state.core.take_events().into_iter();
            let tuples = events.map(|event| event_tuple(py, event, hash_len));
            let tuples = tuples.collect::<PyResult<Vec<_>>>();
            self.gate.handed_out(py, tuples.and_then(|tuples| PyList::new(py, tuples)))
        })
    }

    /// Starts to keep what befalls blocks.
    fn observe(&self, py: Python<'_>) -> PyResult<()> {
        self.gate.change(py, "observe", |state| {
            state.core.pool_mut().observe();
            Ok(())
        })
    }

    /// What befell blocks since the last call, in order: `("taken" | "touched" | "evicted", id)`,
    /// and `("taking", n)` before `n` blocks are taken at once.
    fn take_observations<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let pair = |observation| match observation {
            Observation::Taking(n) => ("taking", n as BlockId),
            Observation::Taken(id) => ("taken", id),
            Observation::Touched(id) => ("touched", id),
            Observation::Evicted(id) => ("evicted", id),
        };
        self.gate.change(py, "take_observations", |state| {
            let observations = state.core.pool_mut().take_observations().into_iter();
            self.gate.handed_out(py, PyList::new(py, observations.map(pair).collect::<Vec<_>>()))
        })
    }
}

/// Every packed key of a block.
fn key_list<'py>(
    py: Python<'py>,
    state: &VllmState,
    block: BlockId,
) -> PyResult<Bound<'py, PyList>> {
    state.core.check_ids(&[block]).into_vllm(py)?;
    let keys = state.core.pool().keys_of(block);
    PyList::new(py, keys.map(|key| packed_key(py, &key, state.hash_len())).collect::<Vec<_>>())
}

fn event_tuple<'py>(
    py: Python<'py>,
    event: Event,
    hash_len: usize,
) -> PyResult<Bound<'py, PyTuple>> {
    match event {
        Event::Stored(StoredEvent {
            group,
            block_hashes,
            block_starts,
            parent,
            start_token,
            end_token,
            block_size,
            ..
        }) => {
            let hashes: Vec<_> =
                block_hashes.iter().map(|hash| hash_bytes(py, hash, hash_len)).collect();
            let parent = parent.map(|parent| hash_bytes(py, &parent, hash_len));
            ("stored", group, hashes, block_starts, parent, start_token, end_token, block_size)
                .into_pyobject(py)
        }
        Event::Removed { hash, group } => {
            ("removed", hash_bytes(py, &hash, hash_len), group).into_pyobject(py)
        }
        Event::Cleared => ("cleared",).into_pyobject(py),
    }
}

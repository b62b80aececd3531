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
use super::views::{VllmBlock, block_list, ids_of, packed_key, unpacked_key};
use crate::tokens::hash_bytes;

#[pymethods]
impl VllmManager {
    #[getter]
    fn num_blocks(&self) -> usize {
        self.core.pool().num_blocks()
    }

    fn num_free_blocks(&self) -> usize {
        self.core.pool().num_free_blocks()
    }

    fn num_pinned_blocks(&self) -> usize {
        self.core.pool().num_pinned_blocks()
    }

    fn block(slf: &Bound<'_, Self>, index: i64) -> PyResult<VllmBlock> {
        let len = slf.try_borrow()?.core.pool().num_blocks() as i64;
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
        let found = {
            let this = slf.try_borrow()?;
            let hash = known_hash(hash, this.hash_len)?;
            let find = |group| this.core.pool().find(&CacheKey { hash: hash?, group });
            groups.into_iter().map(find).collect::<Option<Vec<_>>>()
        };
        found.map(|ids| block_list(slf.py(), &slf.clone().unbind(), ids)).transpose()
    }

    /// The block that serves a packed key, as an id.
    fn find_key(&mut self, key: &Bound<'_, PyBytes>) -> PyResult<Option<BlockId>> {
        let key = unpacked_key(key, &mut self.hash_len)?;
        Ok(self.core.pool().find(&key))
    }

    fn block_has_key(&mut self, block: BlockId, key: &Bound<'_, PyBytes>) -> PyResult<bool> {
        self.core.check_ids(&[block]).into_vllm(key.py())?;
        let key = unpacked_key(key, &mut self.hash_len)?;
        Ok(self.core.pool().has_key(block, &key))
    }

    /// Every packed key of a block, its own hash first.
    fn keys_of_block<'py>(&self, py: Python<'py>, block: BlockId) -> PyResult<Bound<'py, PyList>> {
        self.core.check_ids(&[block]).into_vllm(py)?;
        let keys = self.core.pool().keys_of(block);
        PyList::new(py, keys.map(|key| packed_key(py, &key, self.hash_len())).collect::<Vec<_>>())
    }

    /// Ids of the blocks that have further keys beside their own hash.
    fn blocks_with_extra_keys(&self) -> Vec<BlockId> {
        let pool = self.core.pool();
        let ids = 0..pool.num_blocks() as BlockId;
        ids.filter(|&block| pool.states().has_extra_keys(block)).collect()
    }

    #[pyo3(name = "insert_key")]
    fn py_insert_key(
        &mut self,
        block: BlockId,
        key: &Bound<'_, PyBytes>,
        num_tokens: Option<usize>,
    ) -> PyResult<()> {
        self.insert_key(block, key, num_tokens)
    }

    /// Takes every key of a block away without an event and hands the packed keys out.
    fn remove_keys<'py>(
        &mut self,
        py: Python<'py>,
        block: BlockId,
    ) -> PyResult<Bound<'py, PyList>> {
        let keys = self.keys_of_block(py, block)?;
        self.core.pool_mut().remove_keys_silently(block);
        Ok(keys)
    }

    fn num_keys(&self) -> usize {
        self.core.pool().num_keys()
    }

    fn get_new_blocks<'py>(
        slf: &Bound<'py, Self>,
        num_blocks: usize,
    ) -> PyResult<Bound<'py, PyList>> {
        let mut ids = Vec::new();
        {
            let mut this = slf.try_borrow_mut()?;
            this.core.pool().check_free(num_blocks).into_vllm(slf.py())?;
            this.core.pool_mut().take(num_blocks, &mut ids);
        }
        block_list(slf.py(), &slf.clone().unbind(), ids)
    }

    fn touch(slf: &Bound<'_, Self>, blocks: &Bound<'_, PyAny>) -> PyResult<()> {
        let ids = ids_of(blocks, slf)?;
        slf.try_borrow_mut()?.core.pool_mut().touch(ids);
        Ok(())
    }

    fn free_blocks(slf: &Bound<'_, Self>, blocks: &Bound<'_, PyAny>) -> PyResult<()> {
        let ids = ids_of(blocks, slf)?;
        slf.try_borrow_mut()?.core.release_blocks(&ids).into_vllm(slf.py())
    }

    /// Drops a reference to each block and puts those that lose their last at the queue's end.
    fn unpin_blocks(slf: &Bound<'_, Self>, blocks: &Bound<'_, PyAny>) -> PyResult<()> {
        let ids = ids_of(blocks, slf)?;
        if ids.contains(&NULL_BLOCK) {
            return Err(PyAssertionError::new_err("the null block is not held and not unpinned"));
        }
        let unpinned = slf.try_borrow_mut()?.core.release_blocks_to_back(&ids);
        unpinned.map_err(|error| PyAssertionError::new_err(error.to_string()))
    }

    fn evict_blocks(&mut self, block_ids: Vec<i64>) -> PyResult<()> {
        let num_blocks = self.core.pool().num_blocks();
        let id = |&id: &i64| {
            let inside = BlockId::try_from(id).ok().filter(|&id| (id as usize) < num_blocks);
            inside.ok_or_else(|| {
                PyAssertionError::new_err(format!(
                    "block id {id} is outside the pool of {num_blocks} blocks; a connector \
                     reported a block that the scheduler never handed out"
                ))
            })
        };
        self.core.pool_mut().evict(block_ids.iter().map(id).collect::<PyResult<Vec<_>>>()?);
        Ok(())
    }

    fn reset_prefix_cache(&mut self) -> bool {
        self.core.reset_prefix_cache()
    }

    fn free_block_ids(&self) -> Vec<BlockId> {
        let pool = self.core.pool();
        pool.free_blocks().chain(pool.pinned_blocks()).collect()
    }

    /// The events since the last call, as tuples: `("stored", request's group, hashes, starts,
    /// parent, start token, end token, block size)`, `("removed", hash, group)`, `("cleared",)`.
    fn take_events<'py>(&mut self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        let hash_len = self.hash_len();
        let events = self.core.take_events();
        events.into_iter().map(|event| event_tuple(py, event, hash_len)).collect()
    }

    /// Starts to keep what befalls blocks.
    fn observe(&mut self) {
        self.core.pool_mut().observe();
    }

    /// What befell blocks since the last call, in order: `("taken" | "touched" | "evicted", id)`,
    /// and `("taking", n)` before `n` blocks are taken at once.
    fn take_observations(&mut self) -> Vec<(&'static str, BlockId)> {
        let observations = self.core.pool_mut().take_observations().into_iter();
        let pair = |observation| match observation {
            Observation::Taking(n) => ("taking", n as BlockId),
            Observation::Taken(id) => ("taken", id),
            Observation::Touched(id) => ("touched", id),
            Observation::Evicted(id) => ("evicted", id),
        };
        observations.map(pair).collect()
    }
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

//! Calls of vLLM's block pool.

use pyo3::exceptions::{PyAssertionError, PyIndexError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use kvoxide_core::pool::Observation;
use kvoxide_core::{BlockId, GroupId, NULL_BLOCK};

use super::block::VllmBlock;
use super::errors::IntoVllmResult;
use super::events::VllmEvents;
use super::manager::VllmManager;
use super::sequence::VllmBlockSequence;
use super::state::VllmState;
use crate::ffi::{Owner, WithCore, found, known_hash, known_key, packed_key, place, pool_methods};

pool_methods!(VllmManager, engine);

#[pymethods]
impl VllmManager {
    #[getter]
    fn num_blocks(&self, py: Python<'_>) -> PyResult<usize> {
        self.engine.cell.ask(py, |core| core.pool().num_blocks())
    }

    fn set_num_free_blocks(&self, py: Python<'_>, n: usize) -> PyResult<()> {
        self.engine.cell.edit(py, "set_num_free_blocks", |state| {
            state.core.pool_mut().set_num_free_blocks(n).into_vllm(py)
        })
    }

    fn block<'py>(&self, py: Python<'py>, index: isize) -> PyResult<Bound<'py, PyAny>> {
        let outside = || PyIndexError::new_err("list index out of range");
        let id = place(index, self.num_blocks(py)?).ok_or_else(outside)?;
        VllmBlock::view_of(py, &self.engine, id as BlockId)
    }

    fn get_cached_block<'py>(
        &self,
        py: Python<'py>,
        hash: &Bound<'py, PyAny>,
        groups: Vec<GroupId>,
    ) -> PyResult<Option<Bound<'py, PyList>>> {
        self.engine.cell.read(py, |state| {
            let hash = known_hash(hash, state.hash_len)?;
            let found = found(&state.core, hash, groups);
            found.map(|ids| self.engine.objects(py, ids)).transpose()
        })
    }

    /// Returns every block.
    fn blocks(&self, py: Python<'_>) -> PyResult<VllmBlockSequence> {
        Ok(VllmBlockSequence::new(&self.engine, self.num_blocks(py)?))
    }

    /// Returns the block that serves a packed key.
    fn block_of_key<'py>(&self, key: &Bound<'py, PyBytes>) -> PyResult<Option<Bound<'py, PyAny>>> {
        if self.engine.is_replaced() {
            let map = self.engine.facade(key.py())?.getattr("cached_block_hash_to_block")?;
            // Other code may have wrapped the map's own method.
            let method = map.get_type().getattr("get_one_block")?;
            return method.call1((map, key)).map(Some);
        }
        let block = self.find_key(key)?;
        block.map(|block| VllmBlock::view_of(key.py(), &self.engine, block)).transpose()
    }

    /// Keeps a dictionary equal to the alias keys of blocks. The dictionary is empty when passed.
    fn sync_alias_keys(&self, keys: &Bound<'_, PyDict>) -> PyResult<()> {
        self.engine.cell.edit(keys.py(), "sync_alias_keys", |state| {
            state.core.pool_mut().index_mut().alias_keys_mut().track_changes();
            self.engine.synced(state).set_alias_keys(keys);
            state.update_synced(keys.py())
        })
    }

    /// Returns the id of the block that serves a packed key.
    fn find_key(&self, key: &Bound<'_, PyBytes>) -> PyResult<Option<BlockId>> {
        self.engine.cell.read(key.py(), |state| {
            let key = known_key(key, state.hash_len)?;
            Ok(key.and_then(|key| state.core.pool().find(&key)))
        })
    }

    fn block_has_key(&self, block: BlockId, key: &Bound<'_, PyBytes>) -> PyResult<bool> {
        self.engine.cell.read(key.py(), |state| {
            state.core.check_ids(&[block]).into_vllm(key.py())?;
            let key = known_key(key, state.hash_len)?;
            Ok(key.is_some_and(|key| {
                let pool = state.core.pool();
                pool.index().has_key(pool.blocks(), block, &key)
            }))
        })
    }

    /// Returns the ids of the blocks that have a packed key. The block that serves the key is
    /// first.
    fn blocks_of_key(&self, key: &Bound<'_, PyBytes>) -> PyResult<Vec<BlockId>> {
        self.engine.cell.read(key.py(), |state| {
            let key = known_key(key, state.hash_len)?;
            Ok(key.map_or_else(Vec::new, |key| {
                let pool = state.core.pool();
                pool.index().blocks_of(pool.blocks(), &key)
            }))
        })
    }

    /// Returns every packed key, in no particular order.
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.engine.cell.read(py, |state| {
            let pool = state.core.pool();
            let keys = pool.index().keys(pool.blocks());
            let packed = keys.map(|key| packed_key(py, &key, state.hash_len()));
            PyList::new(py, packed.collect::<Vec<_>>())
        })
    }

    /// Returns every packed key of a block, its own hash first.
    fn keys_of_block<'py>(&self, py: Python<'py>, block: BlockId) -> PyResult<Bound<'py, PyList>> {
        self.engine.cell.read(py, |state| key_list(py, state, block))
    }

    fn insert_key(
        &self,
        block: BlockId,
        key: &Bound<'_, PyBytes>,
        num_tokens: Option<usize>,
    ) -> PyResult<()> {
        self.engine.cell.edit(key.py(), "insert_key", |state| {
            state.insert_key(block, key, num_tokens)?;
            state.update_synced(key.py())
        })
    }

    /// Removes every key of a block without an event. Returns the packed keys.
    fn remove_keys<'py>(&self, py: Python<'py>, block: BlockId) -> PyResult<Bound<'py, PyList>> {
        self.engine.cell.edit(py, "remove_keys", |state| {
            let keys = key_list(py, state, block)?;
            state.remove_keys(block);
            state.update_synced(py)?;
            Ok(keys)
        })
    }

    fn num_keys(&self, py: Python<'_>) -> PyResult<usize> {
        self.engine.cell.ask(py, |core| core.pool().index().num_keys())
    }

    /// Removes a reference from each block. Blocks without references go to the back of the queue.
    fn unpin_blocks(&self, blocks: &Bound<'_, PyAny>) -> PyResult<()> {
        let ids = self.engine.ids_of(blocks)?;
        if ids.contains(&NULL_BLOCK) {
            return Err(PyAssertionError::new_err(
                "the null block cannot be unpinned; remove it from the list",
            ));
        }
        self.engine.cell.change(blocks.py(), "unpin_blocks", |state| {
            let unpinned = state.core.release_blocks_to_back(&ids);
            unpinned.map_err(|error| PyAssertionError::new_err(error.to_string()))
        })
    }

    fn evict_blocks(&self, py: Python<'_>, block_ids: Vec<i64>) -> PyResult<()> {
        self.engine.cell.change(py, "evict_blocks", |state| {
            let num_blocks = state.core.pool().num_blocks();
            let id = |&id: &i64| {
                let inside = BlockId::try_from(id).ok().filter(|&id| (id as usize) < num_blocks);
                inside.ok_or_else(|| {
                    PyAssertionError::new_err(format!(
                        "block id {id} is outside the pool of {num_blocks} blocks. A connector \
                         reported a block that the scheduler never handed out"
                    ))
                })
            };
            state.core.pool_mut().evict(block_ids.iter().map(id).collect::<PyResult<Vec<_>>>()?);
            Ok(())
        })
    }

    /// Returns the events since the last call; `None` if there were none.
    fn take_events(&self, py: Python<'_>) -> PyResult<Option<VllmEvents>> {
        self.engine.cell.change(py, "take_events", |state| {
            Ok(VllmEvents::of(state.core.take_events(), state.hash_len()))
        })
    }

    /// Starts to record observations of blocks.
    fn observe(&self, py: Python<'_>) -> PyResult<()> {
        self.engine.cell.change(py, "observe", |state| {
            state.core.pool_mut().observe();
            Ok(())
        })
    }

    /// Returns the observations since the last call, in order: `("taken" | "touched" | "evicted",
    /// id)`, and `("taking", n)` before `n` blocks are taken at once.
    fn take_observations<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let pair = |observation| match observation {
            Observation::Taking(n) => ("taking", n as BlockId),
            Observation::Taken(id) => ("taken", id),
            Observation::Touched(id) => ("touched", id),
            Observation::Evicted(id) => ("evicted", id),
        };
        self.engine.cell.change(py, "take_observations", |state| {
            let observations = state.core.pool_mut().take_observations().into_iter();
            self.engine
                .cell
                .or_poison(py, PyList::new(py, observations.map(pair).collect::<Vec<_>>()))
        })
    }
}

/// Returns every packed key of a block.
fn key_list<'py>(
    py: Python<'py>,
    state: &VllmState,
    block: BlockId,
) -> PyResult<Bound<'py, PyList>> {
    state.core.check_ids(&[block]).into_vllm(py)?;
    let keys = state.core.pool().keys_of(block);
    PyList::new(py, keys.map(|key| packed_key(py, &key, state.hash_len())).collect::<Vec<_>>())
}

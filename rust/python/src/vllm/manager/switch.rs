//! Returns the engine's state in vLLM's terms, and replaces the engine by vLLM's own objects.

use std::collections::HashMap;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use kvoxide_core::{BlockId, CacheKey, GroupId, RequestId};

use super::construction::VllmManager;
use crate::ffi::{WithCore, packed_key};
use crate::vllm::block_objects::VllmObjects;
use crate::vllm::state::VllmState;

/// A cached block: its id, the number of tokens that its hash covers, and its packed keys, its own
/// hash first.
type CachedBlock<'py> = (BlockId, Option<usize>, Vec<Bound<'py, PyBytes>>);

#[pymethods]
impl VllmManager {
    /// Returns whether vLLM's own objects replaced this engine.
    #[getter]
    fn is_replaced(&self) -> bool {
        self.engine.is_replaced()
    }

    /// Returns the free blocks in their order, and the reference count of every block.
    fn queue_for_vllm(&self, py: Python<'_>) -> PyResult<(Vec<BlockId>, Vec<i32>)> {
        self.engine.cell.ask(py, |core| {
            let pool = core.pool();
            let free = pool.blocks().free_from(pool.blocks().first_free()).collect();
            let counts = (0..pool.num_blocks()).map(|id| pool.ref_count(id as BlockId));
            (free, counts.collect())
        })
    }

    /// Returns every cached block.
    fn cached_for_vllm<'py>(&self, py: Python<'py>) -> PyResult<Vec<CachedBlock<'py>>> {
        self.engine.cell.read(py, |state| {
            let pool = state.core.pool();
            let ids = (0..pool.num_blocks()).map(|id| id as BlockId);
            let cached = ids.filter(|&id| pool.blocks().is_cached(id)).map(|id| {
                let keys = pool.keys_of(id).map(|key| packed_key(py, &key, state.hash_len()));
                (id, pool.blocks().hash_num_tokens(id), keys.collect())
            });
            Ok(cached.collect())
        })
    }

    /// Returns the data of a group by the names of vLLM's attributes. Blocks are ids.
    fn group_for_vllm<'py>(&self, py: Python<'py>, group: GroupId) -> PyResult<Bound<'py, PyDict>> {
        self.engine.cell.read(py, |state| {
            let memory = state.core.memory_of(group);
            let names: HashMap<_, _> = state.names().map(|(name, id)| (id, name)).collect();
            let name = |id: RequestId| names.get(&id).copied();
            let made = PyDict::new(py);
            made.set_item("req_to_blocks", tables(py, state, group)?)?;
            made.set_item("new_block_ids", memory.to_zero)?;
            made.set_item("_pending_cow_copies", memory.copies)?;
            let offloads = memory.offloads.iter().filter_map(|offload| {
                Some((name(offload.request)?, offload.group, offload.block, offload.num_tokens))
            });
            made.set_item("_pending_boundary_state_offloads", offloads.collect::<Vec<_>>())?;
            let cached = memory.cached_this_step.into_iter();
            let cached =
                cached.map(|hash| packed_key(py, &CacheKey { hash, group }, state.hash_len()));
            made.set_item("cached_blocks_this_step", cached.collect::<Vec<_>>())?;
            let [allocated, last, retired, checkpoints, shared, producers] =
                [(); 6].map(|()| PyDict::new(py));
            for (id, record) in &memory.records {
                let Some(name) = name(*id) else { continue };
                if record.is_allocated {
                    allocated.set_item(name, ())?;
                }
                if let Some(position) = record.last_state {
                    last.set_item(name, position)?;
                }
                if record.num_released > 0 {
                    retired.set_item(name, record.num_released)?;
                }
                if let Some(checkpoint) = record.checkpoint {
                    checkpoints.set_item(name, (checkpoint.num_tokens, checkpoint.position))?;
                }
                if let Some(tail) = record.shared_tail {
                    shared.set_item(name, (tail.position, tail.block))?;
                }
                if let Some(tail) = record.producer_tail {
                    producers.set_item(name, tail)?;
                }
            }
            made.set_item("_allocated_block_reqs", allocated.keys())?;
            made.set_item("last_state_block_idx", last)?;
            made.set_item("_num_retired_blocks", retired)?;
            made.set_item("_checkpoints", checkpoints)?;
            made.set_item("_partial_hit_reqs", shared)?;
            made.set_item("_producer_partial_tail_reqs", producers)?;
            Ok(made)
        })
    }

    /// Lets vLLM's `manager` continue with `blocks`, vLLM's objects for all blocks, and refuses
    /// every further call. Returns every block of the pool. A block that Python has seen is
    /// returned as its view, which passes all accesses to vLLM's object. Any other block is
    /// returned as vLLM's object.
    fn replace<'py>(
        &self,
        manager: &Bound<'py, PyAny>,
        blocks: Vec<Py<PyAny>>,
        ends: [Py<PyAny>; 2],
    ) -> PyResult<Bound<'py, PyList>> {
        let blocks = self.engine.replace(manager, VllmObjects { blocks, ends })?;
        PyList::new(manager.py(), blocks)
    }
}

/// Returns the blocks and the number of cached blocks of each request in a group. Blocks that a load
/// fills between cached ones count as cached, because vLLM caches no block between others.
fn tables<'py>(py: Python<'py>, state: &VllmState, group: GroupId) -> PyResult<Bound<'py, PyDict>> {
    let tables = PyDict::new(py);
    let mut known: Vec<_> = state.requests.iter().map(|(name, known)| (known.id, name)).collect();
    known.sort_unstable();
    for (id, name) in known {
        let Ok(held) = state.core.blocks_of(id) else { continue };
        let held = &held.groups[usize::from(group)];
        let ids: Vec<_> = held.blocks.iter().collect();
        let num_cached = held.num_cached_blocks.map(|num| num.max(held.hit_end));
        tables.set_item(name, (ids, num_cached))?;
    }
    Ok(tables)
}

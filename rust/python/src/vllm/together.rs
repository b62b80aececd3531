//! The manager as the planner of CPU memory sees it, which decides together with it.

use pyo3::prelude::*;

use kvoxide_core::host::{HashKeys, HostGroup, attached};
use kvoxide_core::joint::JointPool;
use kvoxide_core::pool::LeavingBlock;
use kvoxide_core::{BlockId, CacheKey, GroupBlocks, Manager, RequestView};

use super::engine::Engine;
use super::errors::IntoVllmResult;

impl Engine {
    /// Returns whether vLLM's own objects continue in place of this engine.
    pub(crate) fn has_ended(&self) -> bool {
        self.is_replaced()
    }

    /// Lets the manager decide together with CPU memory of `num_chunks` chunks.
    pub(crate) fn decide_with_host(
        &self,
        py: Python<'_>,
        groups: &[HostGroup],
        num_chunks: usize,
    ) -> PyResult<()> {
        self.cell.edit(py, "decide_with_host", |state| {
            JointPool::follow(&mut state.core, num_chunks).into_vllm(py)?;
            state.load_groups = Some(groups.into());
            Ok(())
        })
    }

    /// Lets the manager decide alone again.
    pub(crate) fn decide_alone(&self, py: Python<'_>) -> PyResult<()> {
        self.cell.edit(py, "decide_alone", |state| {
            state.core.set_follower(None);
            state.load_groups = None;
            Ok(())
        })
    }

    /// Makes a call that reads the manager. It gets the length of its hashes too, once there was one.
    pub(crate) fn with_manager<R>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&Manager, Option<usize>) -> PyResult<R>,
    ) -> PyResult<R> {
        self.cell.read(py, |state| call(&state.core, state.hash_len))
    }

    /// Returns the keys that are not kept in both memories any more since the last call, and the
    /// cached blocks that were allocated.
    pub(crate) fn take_given_up_and_evicted(
        &self,
        py: Python<'_>,
    ) -> PyResult<(Vec<CacheKey>, Vec<LeavingBlock>)> {
        self.cell.edit(py, "take_given_up_and_evicted", |state| {
            Ok((state.core.take_given_up(), state.core.take_evicted()))
        })
    }
}

/// Returns the keys of cached blocks.
pub(crate) fn keys_of_blocks<'a>(
    manager: &'a Manager,
    blocks: impl Iterator<Item = BlockId> + 'a,
) -> impl Iterator<Item = CacheKey> + 'a {
    let blocks_of_pool = manager.pool().blocks();
    blocks.filter_map(|block| blocks_of_pool.key(block))
}

/// Returns the tables of a hit with the blocks that a load attaches. The hit has `num_local` tokens,
/// and the load ends after `end` tokens.
#[cold]
pub(super) fn with_attached(
    core: &Manager,
    request: &RequestView<'_>,
    groups: &[HostGroup],
    hit: &[GroupBlocks],
    (num_local, end): (usize, usize),
) -> Vec<GroupBlocks> {
    let keys =
        groups.iter().map(|group| HashKeys::of(group, request.hashes, core.hash_block_size()));
    let keys: Vec<_> = keys.collect();
    let mut tables = hit.to_vec();
    tables.resize(core.groups().len(), GroupBlocks::default());
    attached(groups, &keys, core.pool(), tables, (num_local, end))
}

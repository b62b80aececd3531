//! Methods that the standalone manager and vLLM's have in common.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use kvoxide_core::{
    BlockHash, BlockId, CacheKey, GroupBlocks, GroupId, Manager, Offload, RequestBlocks, RequestId,
    Result, digest,
};

use super::guarded_cell::GuardedCell;
use super::owner::WithCore;
use super::panics::panic_midway;

impl<S: WithCore> GuardedCell<S> {
    /// Returns the blocks to be zeroed since the last call.
    pub(crate) fn take_new_block_ids<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.change(py, "take_new_block_ids", |state| {
            self.handed_out(py, PyList::new(py, state.core_mut().take_new_block_ids()))
        })
    }

    /// Panics with a block in use that no request has. It is part of the module because a separate
    /// build would test another module than the one that ships.
    pub(crate) fn panic_for_tests(&self, py: Python<'_>) -> PyResult<()> {
        self.change(py, "_panic_for_tests", |state| panic_midway(state.core_mut()))
    }
}

/// Returns 32 bytes that depend on the state of a core and on further numbers.
pub(crate) fn mixed_digest(core: &Manager, beside: &[usize]) -> [u8; 32] {
    let mut mixed = digest(core);
    let beside = beside.iter().copied().flat_map(usize::to_le_bytes);
    mixed.iter_mut().zip(beside).for_each(|(byte, own)| *byte ^= own);
    mixed
}

/// Returns the blocks that a connector may read, by request name: `(group, block, num_tokens)`.
pub(crate) fn offloads_by_name<'py, 'a>(
    py: Python<'py>,
    offloads: &[Offload],
    name_of: impl Fn(RequestId) -> Option<&'a str>,
) -> PyResult<Bound<'py, PyDict>> {
    let by_name = PyDict::new(py);
    for &Offload { request, group, block, num_tokens } in offloads {
        let Some(name) = name_of(request) else { continue };
        let offload = (group, block, num_tokens);
        match by_name.get_item(name)? {
            Some(list) => list.cast::<PyList>()?.append(offload)?,
            None => by_name.set_item(name, PyList::new(py, [offload])?)?,
        }
    }
    Ok(by_name)
}

/// Returns a copy of a request's block tables, a table for each group.
pub(crate) fn held_blocks(held: &RequestBlocks) -> Vec<GroupBlocks> {
    held.groups.iter().map(|group| group.blocks.clone()).collect()
}

/// Returns the block of each group that serves a hash; `None` unless every group has one, and for a
/// value that cannot be a hash of this manager.
pub(crate) fn found(
    core: &Manager,
    hash: Option<BlockHash>,
    groups: Vec<GroupId>,
) -> Option<Vec<BlockId>> {
    let find = |group| core.pool().find(&CacheKey { hash: hash?, group });
    groups.into_iter().map(find).collect()
}

/// Allocates blocks from the free queue.
pub(crate) fn take_blocks(core: &mut Manager, num_blocks: usize) -> Result<Vec<BlockId>> {
    let mut ids = Vec::new();
    core.pool().check_free(num_blocks)?;
    core.pool_mut().allocate(num_blocks, &mut ids);
    Ok(ids)
}

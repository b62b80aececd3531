//! What every manager answers in the same way.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use kvoxide_core::{
    BlockHash, BlockId, CacheKey, GroupBlocks, GroupId, Manager, Offload, RequestBlocks, RequestId,
    Result, digest,
};

use super::gate::Gate;
use super::owner::WithCore;
use super::panics::panic_midway;

impl<S: WithCore> Gate<S> {
    /// The blocks to be zeroed since the last call.
    pub(crate) fn take_new_block_ids<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.change(py, "take_new_block_ids", |state| {
            self.handed_out(py, PyList::new(py, state.core_mut().take_new_block_ids()))
        })
    }

    /// Panics with a block that nobody holds. A build of its own with such a method would test
    /// another module than the one that ships.
    pub(crate) fn panic_for_tests(&self, py: Python<'_>) -> PyResult<()> {
        self.change(py, "_panic_for_tests", |state| panic_midway(state.core_mut()))
    }
}

/// 32 bytes over the state of a core and numbers that are kept beside it.
pub(crate) fn mixed_digest(core: &Manager, beside: &[usize]) -> [u8; 32] {
    let mut mixed = digest(core);
    let beside = beside.iter().copied().flat_map(usize::to_le_bytes);
    mixed.iter_mut().zip(beside).for_each(|(byte, own)| *byte ^= own);
    mixed
}

/// What a connector may read, by the names of the requests: group, block, tokens that it is for.
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

/// A copy of what a request holds in each group.
pub(crate) fn held_blocks(held: &RequestBlocks) -> Vec<GroupBlocks> {
    held.groups.iter().map(|group| group.blocks.clone()).collect()
}

/// The blocks that have a hash in every one of these groups. One that cannot be a hash of this
/// manager is no block's.
pub(crate) fn found(
    core: &Manager,
    hash: Option<BlockHash>,
    groups: Vec<GroupId>,
) -> Option<Vec<BlockId>> {
    let find = |group| core.pool().find(&CacheKey { hash: hash?, group });
    groups.into_iter().map(find).collect()
}

/// Takes blocks from the free queue.
pub(crate) fn take_blocks(core: &mut Manager, num_blocks: usize) -> Result<Vec<BlockId>> {
    let mut ids = Vec::new();
    core.pool().check_free(num_blocks)?;
    core.pool_mut().take(num_blocks, &mut ids);
    Ok(ids)
}

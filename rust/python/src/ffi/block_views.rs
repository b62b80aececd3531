//! A view of one block: its id and the manager that it belongs to.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use kvoxide_core::BlockId;

use super::errors::foreign_blocks;
use super::hashes::packed_key;
use super::owner::{Owner, WithCore};

/// A view of one block of `owner`.
pub(crate) struct BlockView<O> {
    pub(crate) owner: Arc<O>,
    pub(crate) id: BlockId,
}

impl<O: Owner> BlockView<O> {
    pub(crate) fn new(owner: &Arc<O>, id: BlockId) -> Self {
        Self { owner: owner.clone(), id }
    }

    /// Returns the packed key, if the block is cached.
    pub(crate) fn block_hash<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        self.owner.cell().read(py, |state| {
            let key = state.core().pool().blocks().key(self.id);
            Ok(key.map(|key| packed_key(py, &key, state.hash_len())))
        })
    }

    /// Returns the number of tokens that the block's hash covers.
    pub(crate) fn hash_num_tokens(&self, py: Python<'_>) -> PyResult<Option<usize>> {
        self.owner.cell().ask(py, |core| core.pool().blocks().hash_num_tokens(self.id))
    }

    /// Returns whether both are views of the same block.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.id == other.id && Arc::ptr_eq(&self.owner, &other.owner)
    }

    /// Returns the id of a block, or a `BlockError` unless it belongs to `owner`.
    pub(crate) fn id_at(&self, py: Python<'_>, owner: &Arc<O>) -> PyResult<BlockId> {
        match Arc::ptr_eq(&self.owner, owner) {
            true => Ok(self.id),
            false => Err(foreign_blocks(py)),
        }
    }

    pub(crate) fn repr(&self, ref_count: impl std::fmt::Display) -> String {
        format!("KVCacheBlock(block_id={}, ref_cnt={ref_count})", self.id)
    }
}

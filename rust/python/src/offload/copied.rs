//! The blocks of a copy between the pool and the tier.

use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;
use pyo3::types::PyList;

use kvoxide_core::host::{ChunkId, LeavingStores};
use kvoxide_core::joint::LoadedBlock;
use kvoxide_core::{BlockId, BlockPool, CacheKey};

use super::hash_lengths::HashLengths;
use super::keys::key_list;
use super::plan::chunk_array;

/// The blocks of a copy between the pool and the tier, with their keys and chunks.
#[derive(Default)]
pub(super) struct CopiedBlocks {
    keys: Vec<CacheKey>,
    blocks: Vec<BlockId>,
    chunks: Vec<ChunkId>,
}

impl CopiedBlocks {
    /// Returns the blocks that a load fills.
    pub(super) fn of_load(filled: &[LoadedBlock], chunks: Vec<ChunkId>) -> Self {
        let keys = filled.iter().map(|it| it.key).collect();
        Self { keys, blocks: filled.iter().map(|it| it.block).collect(), chunks }
    }

    /// Returns the blocks of stores.
    pub(super) fn of_stores(stores: LeavingStores) -> Self {
        let keys = stores.stored.iter().map(|it| it.key).collect();
        let blocks = stores.stored.iter().map(|it| it.block).collect();
        Self { keys, blocks, chunks: stores.chunks }
    }

    /// Returns the blocks of stores, sorted by group.
    pub(super) fn of_sorted_stores(stores: LeavingStores) -> Self {
        let mut sorted: Vec<_> = stores.stored.into_iter().zip(stores.chunks).collect();
        sorted.sort_by_key(|(block, _)| block.key.group);
        let (stored, chunks) = sorted.into_iter().unzip();
        Self::of_stores(LeavingStores { stored, chunks, ..LeavingStores::default() })
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn keys(&self) -> impl ExactSizeIterator<Item = CacheKey> + '_ {
        self.keys.iter().copied()
    }

    /// Returns whether the pool has allocated a block again since it had its key.
    pub(super) fn is_overwritten(&self, pool: &BlockPool) -> bool {
        let mut blocks = self.blocks.iter().zip(&self.keys);
        blocks.any(|(&block, key)| pool.blocks().key(block) != Some(*key))
    }

    pub(super) fn key_list<'py>(
        &self,
        py: Python<'py>,
        hash_lengths: Option<HashLengths>,
    ) -> PyResult<Bound<'py, PyList>> {
        key_list(py, &self.keys, hash_lengths)
    }

    pub(super) fn block_ids<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i32>> {
        bytemuck::cast_slice::<u32, i32>(&self.blocks).to_vec().into_pyarray(py)
    }

    pub(super) fn chunk_ids<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i32>> {
        chunk_array(py, self.chunks.clone())
    }
}

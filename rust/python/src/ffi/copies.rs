//! Copies of blocks that the worker performs.

use pyo3::prelude::*;

use kvoxide_core::BlockId;

/// A block to copy before the next step.
#[pyclass(module = "kvoxide", name = "KVCacheBlockCopy", frozen, eq, hash, skip_from_py_object)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PyBlockCopy {
    #[pyo3(get)]
    src_block_id: BlockId,
    #[pyo3(get)]
    dst_block_id: BlockId,
}

impl From<(BlockId, BlockId)> for PyBlockCopy {
    fn from((src_block_id, dst_block_id): (BlockId, BlockId)) -> Self {
        Self { src_block_id, dst_block_id }
    }
}

#[pymethods]
impl PyBlockCopy {
    fn __repr__(&self) -> String {
        let Self { src_block_id, dst_block_id } = self;
        format!("KVCacheBlockCopy(src_block_id={src_block_id}, dst_block_id={dst_block_id})")
    }
}

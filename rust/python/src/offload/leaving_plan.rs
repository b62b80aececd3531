//! Stores of blocks that leave the pool soon, as vLLM's connector sees them.

use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::PyIterator;

use kvoxide_core::host::{HostGroup, LeavingStores};

use super::copied::CopiedBlocks;
use super::hash_lengths::HashLengths;

/// Stores of blocks that leave the pool soon, sorted by group.
#[pyclass(module = "kvoxide._core_vllm", name = "OffloadLeavingPlan", frozen)]
pub(crate) struct LeavingPlan {
    pub(super) copied: CopiedBlocks,
    #[pyo3(get)]
    group_sizes: Vec<usize>,
    hash_lengths: Option<HashLengths>,
}

impl LeavingPlan {
    /// Returns the plan of stores; `None` if there are none.
    pub(super) fn of(
        groups: &[HostGroup],
        stores: LeavingStores,
        hash_lengths: Option<HashLengths>,
    ) -> Option<Self> {
        if stores.stored.is_empty() {
            return None;
        }
        let mut group_sizes = vec![0; groups.len()];
        for block in &stores.stored {
            let is_its = |group: &HostGroup| group.group_idx == usize::from(block.key.group);
            let at = groups.iter().position(is_its);
            at.into_iter().for_each(|at| group_sizes[at] += 1);
        }
        Some(Self { copied: CopiedBlocks::of_sorted_stores(stores), group_sizes, hash_lengths })
    }
}

#[pymethods]
impl LeavingPlan {
    #[getter]
    fn chunk_ids<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i32>> {
        self.copied.chunk_ids(py)
    }

    #[getter]
    fn block_ids<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i32>> {
        self.copied.block_ids(py)
    }

    fn __len__(&self) -> usize {
        self.copied.len()
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.copied.key_list(py, self.hash_lengths)?.try_iter()
    }
}

//! The manager as the planner of CPU memory sees it, which decides together with it.

use pyo3::prelude::*;

use kvoxide_core::host::HostGroup;
use kvoxide_core::joint::JointPool;
use kvoxide_core::{BlockId, CacheKey, Manager};

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

    /// Makes a call that reads the manager.
    pub(crate) fn with_manager<R>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&Manager) -> PyResult<R>,
    ) -> PyResult<R> {
        self.cell.read(py, |state| call(&state.core))
    }

    /// Makes a call that decides what a step stores. It gets the length of the manager's hashes too,
    /// once there was one.
    pub(crate) fn decide_step<R>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut Manager, Option<usize>) -> PyResult<R>,
    ) -> PyResult<R> {
        self.cell.edit(py, "decide_step", |state| call(&mut state.core, state.hash_len))
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

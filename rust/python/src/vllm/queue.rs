//! vLLM's free queue: the order of its blocks, and writes to it.

use pyo3::exceptions::{PyAssertionError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyList;

use kvoxide_core::BlockId;
use kvoxide_core::pool::QueueEnd;

use super::block::{BACK, FRONT, VllmBlock};
use super::errors::IntoVllmResult;
use super::manager::VllmManager;
use super::queue_walk::VllmFreeWalk;
use crate::ffi::Owner;

#[pymethods]
impl VllmManager {
    /// Returns the sentinels at both ends of the queue, once a pool exists.
    fn queue_ends<'py>(&self, py: Python<'py>) -> Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let views = &self.engine.block_objects;
        Some((views.end(py, FRONT)?, views.end(py, BACK)?))
    }

    fn free_blocks_list<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let ids: Vec<BlockId> = self.engine.cell.ask(py, |core| {
            let blocks = core.pool().blocks();
            blocks.free_from(blocks.first_free()).collect()
        })?;
        self.engine.objects(py, ids)
    }

    /// Returns an iterator over the free blocks after a block, or over all free blocks.
    #[pyo3(signature = (block=None))]
    fn walk_free_blocks(&self, block: Option<&Bound<'_, VllmBlock>>) -> PyResult<VllmFreeWalk> {
        let last = block.map(|block| block.get().id_at(block.py(), &self.engine)).transpose()?;
        Ok(VllmFreeWalk::new(&self.engine, last))
    }

    /// Removes the first `n` blocks from the queue and returns them.
    fn unqueue_first<'py>(&self, py: Python<'py>, n: usize) -> PyResult<Bound<'py, PyList>> {
        let ids = self.engine.cell.edit(py, "unqueue_first", |state| {
            let pool = state.core.pool_mut();
            if !isize::try_from(n).is_ok_and(|n| n <= pool.num_free_blocks()) {
                return Err(PyAssertionError::new_err(format!(
                    "cannot take {n} blocks from the free queue; it has {}",
                    pool.num_free_blocks()
                )));
            }
            let blocks = pool.blocks();
            let ids: Vec<_> = blocks.free_from(blocks.first_free()).take(n).collect();
            ids.iter().for_each(|&block| _ = pool.unqueue(block));
            state.changes.add();
            Ok(ids)
        })?;
        self.engine.objects_or_poison(py, ids)
    }

    /// Removes the first block from the queue and returns it.
    fn unqueue_one<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if self.engine.cell.ask(py, |core| core.pool().num_free_blocks() <= 0)? {
            return Err(PyValueError::new_err("No free blocks available"));
        }
        self.unqueue_first(py, 1)?.get_item(0)
    }

    /// Removes a block from the queue.
    fn unqueue(&self, py: Python<'_>, block: &Bound<'_, PyAny>) -> PyResult<()> {
        let ids = self.engine.ids_of(PyList::new(py, [block])?.as_any())?;
        self.engine.cell.edit(py, "unqueue", |state| {
            if !state.core.pool_mut().unqueue(ids[0]) {
                return Err(PyRuntimeError::new_err(format!(
                    "block {} is not in the free queue and cannot be removed from it (invariant 2)",
                    ids[0]
                )));
            }
            state.changes.add();
            Ok(())
        })
    }

    /// Adds blocks to the queue that were removed from it or whose references were set to 0.
    fn enqueue(&self, py: Python<'_>, blocks: &Bound<'_, PyAny>, at_front: bool) -> PyResult<()> {
        let ids = self.engine.ids_of(blocks)?;
        let end = if at_front { QueueEnd::Front } else { QueueEnd::Back };
        self.engine.cell.edit(py, "enqueue", |state| {
            state.core.enqueue(&ids, end).into_vllm(py)?;
            state.changes.add();
            Ok(())
        })
    }
}

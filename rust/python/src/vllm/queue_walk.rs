//! The free queue for walks by vLLM's code: its two ends, and steps from block to block.

use std::sync::Arc;

use pyo3::intern;
use pyo3::prelude::*;

use kvoxide_core::BlockId;

use super::block::{BACK, FRONT, class_of_blocks, queued};
use super::engine::Engine;
use crate::ffi::Owner;

/// The sentinel before the first block of the free queue, or after the last one.
#[pyclass(module = "kvoxide._core_vllm", name = "VllmQueueEnd", frozen)]
pub(crate) struct VllmQueueEnd {
    engine: Arc<Engine>,
    is_front: bool,
}

impl VllmQueueEnd {
    /// Creates both sentinels and passes them to the views of the pool.
    pub(super) fn open(py: Python<'_>, engine: &Arc<Engine>) -> PyResult<()> {
        let end = |is_front| Py::new(py, Self { engine: engine.clone(), is_front });
        let ends: [Py<Self>; 2] = [end(true)?, end(false)?];
        engine.block_objects.open(ends.map(Py::into_any));
        Ok(())
    }

    fn end(&self) -> usize {
        if self.is_front { FRONT } else { BACK }
    }

    /// Returns vLLM's sentinel, once vLLM's queue has replaced the engine's queue.
    fn vllm_object<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        if self.engine.is_replaced() {
            self.engine.block_objects.vllm_end(py, self.end())
        } else {
            None
        }
    }

    /// Writes an attribute to vLLM's sentinel.
    fn write_to_vllm(&self, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = value.py();
        let object =
            self.engine.vllm_object_to_write(py, name, |views| views.vllm_end(py, self.end()));
        object?.setattr(name, value)
    }
}

#[pymethods]
impl VllmQueueEnd {
    #[getter(__class__)]
    fn class<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        class_of_blocks(slf.py(), || slf.get_type())
    }

    #[getter]
    fn next_free_block<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        if let Some(object) = self.vllm_object(py) {
            return object.getattr(intern!(py, "next_free_block")).map(Some);
        }
        if !self.is_front {
            return Ok(None);
        }
        let first = self.engine.cell.ask(py, |core| core.pool().blocks().first_free())?;
        queued(py, &self.engine, first, BACK)
    }

    #[setter]
    fn set_next_free_block(&self, block: &Bound<'_, PyAny>) -> PyResult<()> {
        self.write_to_vllm("next_free_block", block)
    }

    #[getter]
    fn prev_free_block<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        if let Some(object) = self.vllm_object(py) {
            return object.getattr(intern!(py, "prev_free_block")).map(Some);
        }
        if self.is_front {
            return Ok(None);
        }
        let last = self.engine.cell.ask(py, |core| core.pool().blocks().last_free())?;
        queued(py, &self.engine, last, FRONT)
    }

    #[setter]
    fn set_prev_free_block(&self, block: &Bound<'_, PyAny>) -> PyResult<()> {
        self.write_to_vllm("prev_free_block", block)
    }

    #[getter]
    fn block_id(&self) -> i32 {
        -1
    }

    #[getter]
    fn ref_cnt(&self) -> i32 {
        0
    }

    #[getter]
    fn is_null(&self) -> bool {
        false
    }

    #[getter]
    fn pool(&self) -> Option<Py<PyAny>> {
        None
    }

    #[getter]
    fn block_hash(&self) -> Option<Py<PyAny>> {
        None
    }

    #[getter]
    fn block_hash_num_tokens(&self) -> Option<usize> {
        None
    }

    fn __repr__(&self) -> &'static str {
        "KVCacheBlock(block_id=-1, ref_cnt=0)"
    }
}

/// An iterator over free blocks. If the queue changes between two steps, the walk continues after
/// the last block that it returned, if that block is still free.
#[pyclass(module = "kvoxide._core_vllm", name = "VllmFreeWalk")]
pub(crate) struct VllmFreeWalk {
    engine: Arc<Engine>,
    /// The block that was returned last; `None` at the front of the queue.
    last: Option<BlockId>,
    /// The blocks that come next unless the queue has changed, in reverse order.
    ahead: Vec<(BlockId, Py<PyAny>)>,
    batch: usize,
    seen_changes: u64,
    has_ended: bool,
}

/// The number of blocks that are listed at once: in the first batch, and in the largest one.
const BATCH: usize = 1 << 4;
const LARGEST_BATCH: usize = 1 << 9;

impl VllmFreeWalk {
    /// Returns a walk that starts after a block, or at the front.
    pub(super) fn new(engine: &Arc<Engine>, last: Option<BlockId>) -> Self {
        let engine = engine.clone();
        Self { engine, last, ahead: Vec::new(), batch: BATCH, seen_changes: 0, has_ended: false }
    }

    /// Returns the next block in vLLM's queue, which replaced the engine's queue.
    #[cold]
    fn next_in_vllm(&mut self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let views = &self.engine.block_objects;
        let last = match self.last {
            _ if self.has_ended => None,
            None => views.vllm_end(py, FRONT),
            Some(last) => views.vllm_object(py, last),
        };
        self.has_ended = true;
        let Some(last) = last else { return Ok(None) };
        let next = last.getattr(intern!(py, "next_free_block"))?;
        if next.is_none() {
            return Ok(None);
        }
        let Ok(id) = next.getattr(intern!(py, "block_id"))?.extract::<BlockId>() else {
            return Ok(None); // the sentinel's id is below zero
        };
        (self.last, self.has_ended) = (Some(id), false);
        Ok(Some(next.unbind()))
    }

    /// Lists the blocks that come next in the current queue.
    fn look_ahead(&mut self, py: Python<'_>) -> PyResult<()> {
        self.ahead.clear();
        self.seen_changes = self.engine.changes.count();
        let ids: Vec<BlockId> = self.engine.cell.ask(py, |core| {
            let blocks = core.pool().blocks();
            let first = match self.last {
                None => blocks.first_free(),
                Some(last) if blocks.is_free(last) => blocks.free_after(last),
                Some(_) => None,
            };
            blocks.free_from(first).take(self.batch).collect()
        })?;
        let views = self.engine.objects(py, ids.iter().copied())?;
        let views = views.iter().map(Bound::unbind);
        self.ahead.extend(ids.into_iter().zip(views));
        self.ahead.reverse();
        self.batch = (2 * self.batch).min(LARGEST_BATCH);
        Ok(())
    }
}

#[pymethods]
impl VllmFreeWalk {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&mut self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        if self.engine.is_replaced() {
            return self.next_in_vllm(py);
        }
        if self.ahead.is_empty() || self.seen_changes != self.engine.changes.count() {
            if self.has_ended {
                return Ok(None);
            }
            self.look_ahead(py)?;
        }
        let Some((block, view)) = self.ahead.pop() else {
            self.has_ended = true;
            return Ok(None);
        };
        self.last = Some(block);
        Ok(Some(view))
    }
}

/// Drops the views of a pool when the pool ends. Without this, each view would keep the engine
/// alive, and the engine would keep the views alive.
#[pyclass(module = "kvoxide._core_vllm", name = "VllmPoolCloser", frozen)]
pub(crate) struct VllmPoolCloser {
    pub(super) engine: Arc<Engine>,
}

impl Drop for VllmPoolCloser {
    fn drop(&mut self) {
        Python::attach(|py| self.engine.close(py));
    }
}

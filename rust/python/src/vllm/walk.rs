//! The free queue as vLLM's code walks it: its two ends, and from a block to the next.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyList;

use kvoxide_core::BlockId;

use super::blocks::{BACK, FRONT, VllmBlock, block_list, class_of_blocks, queued};
use super::engine::Engine;

/// What stands before the first block of the free queue, or behind the last one.
#[pyclass(module = "kvoxide._core_vllm", name = "VllmQueueEnd", frozen)]
pub(crate) struct VllmQueueEnd {
    engine: Arc<Engine>,
    is_front: bool,
}

impl VllmQueueEnd {
    /// Both ends, which the views of a pool know from now on.
    pub(super) fn open(py: Python<'_>, engine: &Arc<Engine>) -> PyResult<()> {
        let end =
            |is_front| Ok::<_, PyErr>(Py::new(py, Self { engine: engine.clone(), is_front })?);
        let ends: [Py<Self>; 2] = [end(true)?, end(false)?];
        engine.views.open(ends.map(Py::into_any));
        Ok(())
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
        if !self.is_front {
            return Ok(None);
        }
        let first = self.engine.gate.ask(py, |core| core.pool().first_queued())?;
        queued(py, &self.engine, first, BACK)
    }

    #[getter]
    fn prev_free_block<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        if self.is_front {
            return Ok(None);
        }
        let last = self.engine.gate.ask(py, |core| core.pool().last_queued())?;
        queued(py, &self.engine, last, FRONT)
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

/// Free blocks from one on. The queue may change between them: then the next one is that behind the
/// block that came last, if it is free still.
#[pyclass(module = "kvoxide._core_vllm", name = "VllmFreeWalk", frozen)]
pub(crate) struct VllmFreeWalk {
    engine: Arc<Engine>,
    state: Mutex<Walk>,
}

struct Walk {
    /// Behind which the walk goes on; the front of the queue if there is none.
    last: Option<BlockId>,
    /// Blocks that come next if the queue has not changed since.
    ahead: Vec<BlockId>,
    views: Option<Py<PyList>>,
    next: usize,
    seen_changes: u64,
    has_ended: bool,
}

/// Blocks that are listed at once, at first and at most.
const BATCH: usize = 1 << 4;
const LARGEST_BATCH: usize = 1 << 9;

impl VllmFreeWalk {
    /// Behind a block, or from the front.
    pub(super) fn new(engine: &Arc<Engine>, last: Option<BlockId>) -> Self {
        let walk = Walk {
            last,
            ahead: Vec::new(),
            views: None,
            next: 0,
            seen_changes: 0,
            has_ended: false,
        };
        Self { engine: engine.clone(), state: Mutex::new(walk) }
    }
}

impl Walk {
    /// Lists the blocks that come next, as the queue is now.
    fn look_ahead(&mut self, py: Python<'_>, engine: &Arc<Engine>) -> PyResult<()> {
        let n = (2 * self.ahead.len()).clamp(BATCH, LARGEST_BATCH);
        self.next = 0;
        (self.ahead, self.seen_changes) = engine.gate.read(py, |state| {
            let pool = state.core.pool();
            let first = match self.last {
                None => pool.first_queued(),
                Some(last) if pool.is_queued(last) => pool.queued_after(last),
                Some(_) => None,
            };
            Ok((pool.queued_from(first).take(n).collect(), state.num_changes))
        })?;
        let views = block_list(py, engine, self.ahead.iter().copied())?;
        self.views = Some(views.unbind());
        Ok(())
    }
}

#[pymethods]
impl VllmFreeWalk {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut walk = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if walk.has_ended {
            return Ok(None);
        }
        let num_changes = self.engine.gate.read(py, |state| Ok(state.num_changes))?;
        if walk.next == walk.ahead.len() || walk.seen_changes != num_changes {
            walk.look_ahead(py, &self.engine)?;
        }
        let Some(&block) = walk.ahead.get(walk.next) else {
            walk.has_ended = true;
            return Ok(None);
        };
        walk.last = Some(block);
        walk.next += 1;
        match &walk.views {
            Some(views) => Ok(Some(views.bind(py).get_item(walk.next - 1)?)),
            None => VllmBlock::shared(py, &self.engine, block).map(Some),
        }
    }
}

/// Lets the views of a pool go when it ends: each of them leads back to the engine.
#[pyclass(module = "kvoxide._core_vllm", name = "VllmKeeper", frozen)]
pub(crate) struct VllmKeeper {
    pub(super) engine: Arc<Engine>,
}

impl Drop for VllmKeeper {
    fn drop(&mut self) {
        Python::attach(|py| self.engine.close(py));
    }
}

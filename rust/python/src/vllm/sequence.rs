//! Every block of a pool as a sequence of views. Views are created one by one, and all at once when
//! Python has asked for many.

use std::sync::Arc;

use pyo3::exceptions::PyIndexError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyIterator, PyList, PySlice};

use kvoxide_core::BlockId;

use super::block::VllmBlock;
use super::engine::Engine;
use crate::ffi::{Owner, place};

/// If Python has asked for more than one in `SHARE` blocks, all blocks are put into a list, which
/// Python reads several times as fast.
const SHARE: usize = 8;
/// The pool size, in blocks, up to which the list is created at once.
const FEW: usize = 1 << 10;

/// Every block of a pool. The sequence replaces itself in the pool by a list once Python has asked
/// for many blocks.
#[pyclass(module = "kvoxide._core_vllm", name = "VllmBlockSequence", frozen)]
pub(crate) struct VllmBlockSequence {
    engine: Arc<Engine>,
    len: usize,
    all: PyOnceLock<Py<PyList>>,
}

impl VllmBlockSequence {
    pub(super) fn new(engine: &Arc<Engine>, len: usize) -> Self {
        Self { engine: engine.clone(), len, all: PyOnceLock::new() }
    }

    /// Returns all blocks as a list, which becomes the pool's attribute.
    fn all<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        if let Some(all) = self.all.get(py) {
            return Ok(all.bind(py).clone());
        }
        let list = self.engine.objects(py, 0..self.len as BlockId)?;
        let all = self.all.get_or_init(py, || list.unbind()).bind(py).clone();
        if !self.engine.is_replaced()
            && let Ok(pool) = self.engine.facade(py)
        {
            pool.getattr(intern!(py, "__dict__"))?.set_item(intern!(py, "blocks"), &all)?;
        }
        Ok(all)
    }

    fn has_many(&self) -> bool {
        self.engine.block_objects.num_created() * SHARE > self.len
    }
}

#[pymethods]
impl VllmBlockSequence {
    fn __len__(&self) -> usize {
        self.len
    }

    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        index: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if self.all.get(py).is_some() || self.len <= FEW || self.has_many() {
            return self.all(py)?.as_any().get_item(index);
        }
        if let Ok(slice) = index.cast::<PySlice>() {
            let indices = slice.indices(self.len as isize)?;
            let ids = (0..indices.slicelength as isize).map(|i| indices.start + i * indices.step);
            return Ok(self.engine.objects(py, ids.map(|id| id as BlockId))?.into_any());
        }
        let outside = || PyIndexError::new_err("list index out of range");
        let id = place(index.extract()?, self.len).ok_or_else(outside)?;
        VllmBlock::view_of(py, &self.engine, id as BlockId)
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.all(py)?.try_iter()
    }

    fn __contains__(&self, block: &Bound<'_, PyAny>) -> PyResult<bool> {
        if self.engine.is_replaced() {
            return self.all(block.py())?.as_any().contains(block);
        }
        Ok(block.cast::<VllmBlock>().is_ok_and(|block| block.get().is_of(&self.engine)))
    }

    fn index(&self, block: &Bound<'_, PyAny>) -> PyResult<usize> {
        self.all(block.py())?.as_any().call_method1("index", (block,))?.extract()
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.all(other.py())?.as_any().eq(other)
    }
}

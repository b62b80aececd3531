//! A block as vLLM's code sees it: a view that is created on demand. It passes writes to the
//! engine, or to vLLM's own block once that block has the state.

use std::sync::Arc;

use pyo3::exceptions::PyAssertionError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyBytes, PyDict, PyInt, PyList, PyString, PyType};

use kvoxide_core::pool::Blocks;
use kvoxide_core::{BlockId, NULL_BLOCK};

use super::engine::Engine;
use super::errors::IntoVllmResult;
use super::state::VllmState;
use crate::ffi::{BlockView, GuardedCell, Owner, view_methods};

/// Ends of the free queue.
pub(super) const FRONT: usize = 0;
pub(super) const BACK: usize = 1;

/// A view of one block. Attributes that never change are stored in it.
#[pyclass(module = "kvoxide._core_vllm", name = "VllmBlock", frozen)]
pub(crate) struct VllmBlock {
    view: BlockView<Engine>,
    #[pyo3(get)]
    block_id: Py<PyInt>,
    is_null: Py<PyBool>,
}

impl VllmBlock {
    pub(super) fn make(py: Python<'_>, engine: &Arc<Engine>, id: BlockId) -> PyResult<Py<PyAny>> {
        let made = Self {
            view: BlockView::new(engine, id),
            block_id: PyInt::new(py, id).unbind(),
            is_null: PyBool::new(py, id == NULL_BLOCK).to_owned().unbind(),
        };
        Ok(Py::new(py, made)?.into_any())
    }

    /// Returns the one view of a block.
    pub(super) fn view_of<'py>(
        py: Python<'py>,
        engine: &Arc<Engine>,
        id: BlockId,
    ) -> PyResult<Bound<'py, PyAny>> {
        engine.block_objects.of(py, id, || Self::make(py, engine, id))
    }

    /// Returns whether the block belongs to an engine.
    pub(super) fn is_of(&self, engine: &Arc<Engine>) -> bool {
        Arc::ptr_eq(&self.view.owner, engine)
    }

    /// Returns the id of a block, or an error unless it belongs to an engine.
    pub(super) fn id_at(&self, py: Python<'_>, engine: &Arc<Engine>) -> PyResult<BlockId> {
        self.view.id_at(py, engine)
    }

    fn cell(&self) -> &GuardedCell<VllmState> {
        &self.view.owner.cell
    }

    /// Returns an attribute of vLLM's object, once that object has the state of this block.
    #[inline]
    fn read_from_vllm<'py>(
        &self,
        name: &Bound<'py, PyString>,
    ) -> Option<PyResult<Bound<'py, PyAny>>> {
        let object = self.view.owner.vllm_object(name.py(), self.view.id)?;
        Some(object.getattr(name))
    }

    /// Writes an attribute that the engine does not support to vLLM's object.
    fn write_to_vllm(&self, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let Self { view, .. } = self;
        let object = view
            .owner
            .vllm_object_to_write(value.py(), name, |views| views.vllm_object(value.py(), view.id));
        object?.setattr(name, value)
    }

    /// Returns the view of a free block, or the sentinel at this end of the queue.
    fn neighbour<'py>(
        &self,
        py: Python<'py>,
        end: usize,
        of: impl FnOnce(&Blocks, BlockId) -> Option<BlockId>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let id = self.view.id;
        let neighbour = self.cell().ask(py, |core| {
            let blocks = core.pool().blocks();
            blocks.is_free(id).then(|| of(blocks, id))
        })?;
        let Some(neighbour) = neighbour else { return Ok(None) };
        queued(py, &self.view.owner, neighbour, end)
    }
}

impl Owner for Engine {
    type State = VllmState;

    #[inline]
    fn cell(&self) -> &GuardedCell<VllmState> {
        &self.cell
    }

    fn objects<'py>(
        self: &Arc<Self>,
        py: Python<'py>,
        ids: impl IntoIterator<Item = BlockId>,
    ) -> PyResult<Bound<'py, PyList>> {
        let ids: Vec<_> = ids.into_iter().collect();
        self.block_objects.list(py, ids.into_iter(), |id| VllmBlock::make(py, self, id))
    }

    fn ids_of(self: &Arc<Self>, blocks: &Bound<'_, PyAny>) -> PyResult<Vec<BlockId>> {
        let py = blocks.py();
        let id = |block: PyResult<Bound<'_, PyAny>>| {
            let block = block?;
            match block.cast::<VllmBlock>() {
                Ok(block) => block.get().id_at(py, self),
                Err(_) => block.getattr(intern!(py, "block_id"))?.extract(),
            }
        };
        let ids = blocks.try_iter()?.map(id).collect::<PyResult<Vec<_>>>()?;
        if self.is_replaced() {
            return Ok(ids);
        }
        self.cell.read(py, |state| state.core.check_ids(&ids).into_vllm(py))?;
        Ok(ids)
    }
}

/// Returns the view of a free block, or the sentinel at this end of the queue.
pub(super) fn queued<'py>(
    py: Python<'py>,
    engine: &Arc<Engine>,
    id: Option<BlockId>,
    end: usize,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    match id {
        Some(id) => VllmBlock::view_of(py, engine, id).map(Some),
        None => Ok(engine.block_objects.end(py, end)),
    }
}

#[pymethods]
impl VllmBlock {
    /// Returns vLLM's class, so that `isinstance` accepts a view as one of vLLM's blocks.
    #[getter(__class__)]
    fn class<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        class_of_blocks(slf.py(), || slf.get_type())
    }

    #[getter]
    fn ref_cnt(&self, py: Python<'_>) -> PyResult<i32> {
        if let Some(count) = self.read_from_vllm(intern!(py, "ref_cnt")) {
            return count?.extract();
        }
        // The count of the null block may be below zero.
        self.cell().ask(py, |core| core.pool().ref_count(self.view.id))
    }

    #[setter]
    fn set_ref_cnt(&self, count: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = count.py();
        if let Some(object) = self.view.owner.vllm_object(py, self.view.id) {
            return object.setattr(intern!(py, "ref_cnt"), count);
        }
        let count: u32 = count.extract()?;
        self.cell().edit(py, "ref_cnt", |state| {
            state.core.pool_mut().set_ref_count(self.view.id, count).into_vllm(py)
        })
    }

    #[getter]
    fn block_hash<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self.read_from_vllm(intern!(py, "block_hash")) {
            Some(hash) => hash.map(Some),
            None => Ok(self.view.block_hash(py)?.map(Bound::into_any)),
        }
    }

    #[getter(_block_hash)]
    fn private_block_hash<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.block_hash(py)
    }

    #[setter(_block_hash)]
    fn set_private_block_hash(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.write_to_vllm("_block_hash", value)
    }

    #[getter]
    fn block_hash_num_tokens<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self.read_from_vllm(intern!(py, "block_hash_num_tokens")) {
            Some(num_tokens) => num_tokens.map(Some),
            None => {
                let num_tokens = self.view.hash_num_tokens(py)?;
                num_tokens.map(|n| Ok(n.into_pyobject(py)?.into_any())).transpose()
            }
        }
    }

    #[getter(_block_hash_num_tokens)]
    fn private_num_tokens<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.block_hash_num_tokens(py)
    }

    #[setter(_block_hash_num_tokens)]
    fn set_private_num_tokens(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.write_to_vllm("_block_hash_num_tokens", value)
    }

    #[getter]
    fn is_null<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self.read_from_vllm(intern!(py, "is_null")) {
            Some(is_null) => is_null,
            None => Ok(self.is_null.bind(py).clone().into_any()),
        }
    }

    #[setter]
    fn set_is_null(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.write_to_vllm("is_null", value)
    }

    #[pyo3(signature = (block_hash, num_tokens=None))]
    fn set_block_hash(
        &self,
        block_hash: &Bound<'_, PyBytes>,
        num_tokens: Option<usize>,
    ) -> PyResult<()> {
        let py = block_hash.py();
        if let Some(object) = self.view.owner.vllm_object(py, self.view.id) {
            object.call_method1(intern!(py, "set_block_hash"), (block_hash, num_tokens))?;
            return Ok(());
        }
        self.cell().edit(block_hash.py(), "set_block_hash", |state| {
            if state.core.pool().blocks().is_cached(self.view.id) {
                return Err(PyAssertionError::new_err(format!(
                    "block {} already has a hash; call reset_hash first",
                    self.view.id
                )));
            }
            state.insert_key(self.view.id, block_hash, num_tokens)
        })
    }

    fn reset_hash(&self, py: Python<'_>) -> PyResult<()> {
        if let Some(object) = self.view.owner.vllm_object(py, self.view.id) {
            object.call_method0(intern!(py, "reset_hash"))?;
            return Ok(());
        }
        self.cell().edit(py, "reset_hash", |state| {
            state.remove_keys(self.view.id);
            Ok(())
        })
    }

    #[getter]
    fn pool<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.view.owner.facade(py)
    }

    #[getter]
    fn prev_free_block<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self.read_from_vllm(intern!(py, "prev_free_block")) {
            Some(block) => block.map(Some),
            None => self.neighbour(py, FRONT, Blocks::free_before),
        }
    }

    #[setter]
    fn set_prev_free_block(&self, block: &Bound<'_, PyAny>) -> PyResult<()> {
        self.write_to_vllm("prev_free_block", block)
    }

    #[getter]
    fn next_free_block<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self.read_from_vllm(intern!(py, "next_free_block")) {
            Some(block) => block.map(Some),
            None => self.neighbour(py, BACK, Blocks::free_after),
        }
    }

    #[setter]
    fn set_next_free_block(&self, block: &Bound<'_, PyAny>) -> PyResult<()> {
        self.write_to_vllm("next_free_block", block)
    }
}

view_methods!(VllmBlock);

/// Returns vLLM's class of blocks if it is loaded, else `own`.
pub(super) fn class_of_blocks<'py>(
    py: Python<'py>,
    own: impl FnOnce() -> Bound<'py, PyType>,
) -> PyResult<Bound<'py, PyAny>> {
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    class_in_vllm(py, &CLASS, ("vllm.v1.core.kv_cache_utils", "KVCacheBlock"), own)
}

/// Returns a class of a vLLM module if the module is loaded, else `own`.
pub(super) fn class_in_vllm<'py>(
    py: Python<'py>,
    known: &PyOnceLock<Py<PyAny>>,
    (module, name): (&str, &str),
    own: impl FnOnce() -> Bound<'py, PyType>,
) -> PyResult<Bound<'py, PyAny>> {
    if let Some(class) = known.get(py) {
        return Ok(class.bind(py).clone());
    }
    let modules = py.import("sys")?.getattr("modules")?.cast_into::<PyDict>()?;
    match modules.get_item(module)? {
        None => Ok(own().into_any()),
        Some(module) => {
            let class = module.getattr(name)?.unbind();
            Ok(known.get_or_init(py, || class).bind(py).clone())
        }
    }
}

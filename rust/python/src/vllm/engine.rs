//! The engine that a manager and every view of its blocks share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyTuple, PyWeakrefMethods, PyWeakrefReference};

use kvoxide_core::BlockId;

use super::block_objects::{BlockObjects, VllmObjects};
use super::call_times::CallTimes;
use super::state::{Changes, VllmState};
use crate::ffi::{GuardedCell, block_error};

/// The cell with the state, and the Python object of the block pool.
pub(crate) struct Engine {
    pub(super) cell: GuardedCell<VllmState>,
    /// The views of blocks that Python has asked for.
    pub(super) block_objects: BlockObjects,
    /// Counts changes of the free queue.
    pub(super) changes: Arc<Changes>,
    /// How long calls take.
    pub(super) call_times: CallTimes,
    facade: PyOnceLock<Py<PyWeakrefReference>>,
    /// Whether vLLM's own objects replaced this engine.
    is_replaced: AtomicBool,
    /// The manager that replaced this engine.
    successor: PyOnceLock<Py<PyWeakrefReference>>,
}

impl Engine {
    pub(super) fn new(state: VllmState) -> Self {
        let changes = state.changes.clone();
        Self {
            cell: GuardedCell::new(state),
            block_objects: BlockObjects::default(),
            changes,
            call_times: CallTimes::default(),
            facade: PyOnceLock::new(),
            is_replaced: AtomicBool::new(false),
            successor: PyOnceLock::new(),
        }
    }

    /// Returns the Python object of the block pool, if it still exists.
    pub(super) fn facade<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let facade = self.facade.get(py).and_then(|facade| facade.bind(py).upgrade());
        facade.ok_or_else(|| block_error(py, "the block pool of this block no longer exists"))
    }

    /// Returns whether vLLM's own objects replaced this engine.
    #[inline]
    pub(super) fn is_replaced(&self) -> bool {
        self.is_replaced.load(Ordering::Relaxed)
    }

    /// Retires this engine. vLLM's `manager` continues with these objects for the blocks. Returns
    /// every block of the pool. A block that Python has seen is returned as its view, and any other
    /// block as vLLM's object.
    pub(super) fn replace(
        &self,
        manager: &Bound<'_, PyAny>,
        objects: VllmObjects,
    ) -> PyResult<Vec<Py<PyAny>>> {
        let py = manager.py();
        let successor = PyWeakrefReference::new(manager)?.unbind();
        let synced = self.cell.edit(py, "replace", |state| Ok(state.synced.take()))?;
        drop(synced);
        let blocks = self.block_objects.replace(py, objects)?;
        let _ = self.successor.set(py, successor);
        self.cell.retire();
        self.is_replaced.store(true, Ordering::Relaxed);
        Ok(blocks)
    }

    /// Returns vLLM's object for a block, once vLLM's own objects replaced this engine.
    #[inline]
    pub(super) fn vllm_object<'py>(
        &self,
        py: Python<'py>,
        id: BlockId,
    ) -> Option<Bound<'py, PyAny>> {
        if self.is_replaced() { self.block_objects.vllm_object(py, id) } else { None }
    }

    /// Returns vLLM's object for a block or a sentinel before a write that the engine does not
    /// support. vLLM's own objects replace the engine first, unless this is refused.
    pub(super) fn vllm_object_to_write<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        object: impl Fn(&BlockObjects) -> Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if !self.is_replaced() {
            self.facade(py)?.call_method1("_replace_for_block", (name,))?;
        }
        object(&self.block_objects)
            .ok_or_else(|| block_error(py, "the block pool of this block no longer exists"))
    }

    /// Calls a method of the class of the manager that replaced this engine.
    #[cold]
    pub(super) fn in_vllm<'py>(
        &self,
        name: &Bound<'py, PyString>,
        args: Vec<Bound<'py, PyAny>>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = name.py();
        let manager = self.successor.get(py).and_then(|manager| manager.bind(py).upgrade());
        let manager = manager
            .ok_or_else(|| block_error(py, "the manager of this method no longer exists"))?;
        let method = manager.get_type().getattr(name)?;
        let args = std::iter::once(manager).chain(args).collect::<Vec<_>>();
        method.call(PyTuple::new(py, args)?, kwargs)
    }

    /// Drops every object that refers to this engine, because the engine's pool has ended.
    pub(super) fn close(&self, py: Python<'_>) {
        self.block_objects.close();
        // A poisoned manager refuses this call and all later calls.
        let synced = self.cell.edit(py, "close", |state| Ok(state.synced.take()));
        drop(synced);
    }

    /// Sets the Python object of the block pool, once. Only a weak reference is kept.
    pub(super) fn set_facade(&self, pool: &Bound<'_, PyAny>) -> PyResult<()> {
        let facade = PyWeakrefReference::new(pool)?.unbind();
        self.facade
            .set(pool.py(), facade)
            .map_err(|_| block_error(pool.py(), "this manager already has a block pool"))
    }
}

//! The engine that a manager and every view of its blocks share.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};

use super::state::{Changes, VllmState};
use super::views::Views;
use crate::ffi::{GuardedCell, Owner, block_error};

/// The cell with the state, and the Python object of the block pool.
pub(crate) struct Engine {
    pub(super) cell: GuardedCell<VllmState>,
    /// The views of blocks that Python has asked for.
    pub(super) views: Views,
    /// Counts changes of the free queue.
    pub(super) changes: Arc<Changes>,
    facade: PyOnceLock<Py<PyWeakrefReference>>,
}

impl Owner for Engine {
    type State = VllmState;

    #[inline]
    fn cell(&self) -> &GuardedCell<VllmState> {
        &self.cell
    }
}

impl Engine {
    pub(super) fn new(state: VllmState) -> Self {
        let changes = state.changes.clone();
        let (views, facade) = (Views::default(), PyOnceLock::new());
        Self { cell: GuardedCell::new(state), views, changes, facade }
    }

    /// Returns the Python object of the block pool.
    pub(super) fn facade<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let facade = self.facade.get(py).and_then(|facade| facade.bind(py).upgrade());
        facade.ok_or_else(|| block_error(py, "the block pool of this block is gone"))
    }

    /// Drops every object that refers to this engine, because its pool has ended.
    pub(super) fn close(&self, py: Python<'_>) {
        self.views.close();
        // A poisoned manager refuses this call, and every later one.
        let synced = self.cell.edit(py, "close", |state| Ok(state.synced.take()));
        drop(synced);
    }

    /// Sets the Python object of the block pool, once; only a weak reference is kept.
    pub(super) fn set_facade(&self, pool: &Bound<'_, PyAny>) -> PyResult<()> {
        let facade = PyWeakrefReference::new(pool)?.unbind();
        self.facade
            .set(pool.py(), facade)
            .map_err(|_| block_error(pool.py(), "this manager has a block pool already"))
    }
}

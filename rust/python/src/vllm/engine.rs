//! What a manager and every view of its blocks share.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};

use super::state::{Changes, VllmState};
use super::views::Views;
use crate::crossing::{Gate, Owner, block_error};

/// The gate to the state, and the Python object that stands for the block pool.
pub(crate) struct Engine {
    pub(super) gate: Gate<VllmState>,
    /// The views of blocks that are in use.
    pub(super) views: Views,
    /// Grow with what changes the free queue.
    pub(super) changes: Arc<Changes>,
    facade: PyOnceLock<Py<PyWeakrefReference>>,
}

impl Owner for Engine {
    type State = VllmState;

    #[inline]
    fn gate(&self) -> &Gate<VllmState> {
        &self.gate
    }
}

impl Engine {
    pub(super) fn new(state: VllmState) -> Self {
        let changes = state.changes.clone();
        let (views, facade) = (Views::default(), PyOnceLock::new());
        Self { gate: Gate::new(state), views, changes, facade }
    }

    /// The Python object that stands for the block pool.
    pub(super) fn facade<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let facade = self.facade.get(py).and_then(|facade| facade.bind(py).upgrade());
        facade.ok_or_else(|| block_error(py, "the block pool of this block is gone"))
    }

    /// The pool has ended: nothing that leads back here is kept.
    pub(super) fn close(&self, py: Python<'_>) {
        self.views.close();
        // A manager that refuses every call has nobody left who could look at it.
        let followed = self.gate.edit(py, "close", |state| Ok(state.followed.take()));
        drop(followed);
    }

    /// Tells, once, which object that is; only a weak reference is kept.
    pub(super) fn set_facade(&self, pool: &Bound<'_, PyAny>) -> PyResult<()> {
        let facade = PyWeakrefReference::new(pool)?.unbind();
        self.facade
            .set(pool.py(), facade)
            .map_err(|_| block_error(pool.py(), "this manager has a block pool already"))
    }
}

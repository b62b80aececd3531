//! The traits that both managers implement, for their common code. They define where the core is,
//! which Python objects its errors and blocks become, and which names its requests have.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyList;

use kvoxide_core::{BlockId, Manager, RequestId, Result};

use super::guarded_cell::{CheckedState, GuardedCell};
use super::outcomes::OutcomeLog;

/// State that has a core.
pub(crate) trait WithCore: CheckedState {
    fn core(&self) -> &Manager;
    fn core_mut(&mut self) -> &mut Manager;
    /// Returns the number of bytes of block hashes; 0 before the first hash.
    fn hash_len(&self) -> usize;
    /// Runs a call that may change the core and does not concern a request. An error becomes the
    /// exception that callers of this manager expect.
    fn call<T>(
        &mut self,
        py: Python<'_>,
        call: impl FnOnce(&mut Manager) -> Result<T>,
    ) -> PyResult<T>;
    /// Returns the time for outcomes of prompts, in seconds.
    fn seconds(&self, py: Python<'_>) -> PyResult<f64>;
    fn outcome_log(&mut self) -> &mut OutcomeLog;
    /// Returns the names of the requests that the manager knows.
    fn names(&self) -> impl Iterator<Item = (&str, RequestId)>;
    /// Checks every invariant. The error says what is broken.
    fn check(&self) -> std::result::Result<(), String>;
    /// Returns 32 bytes that depend on the whole state.
    fn digest(&self) -> [u8; 32];
}

/// An owner of blocks: the cell with the core. All views of its blocks share the cell.
pub(crate) trait Owner: Sized {
    type State: WithCore;

    fn cell(&self) -> &GuardedCell<Self::State>;
    /// Returns Python's objects for blocks, in their order.
    fn objects<'py>(
        self: &Arc<Self>,
        py: Python<'py>,
        ids: impl IntoIterator<Item = BlockId>,
    ) -> PyResult<Bound<'py, PyList>>;
    /// Returns the ids of Python's objects, or an error unless all are blocks of this owner.
    fn ids_of(self: &Arc<Self>, blocks: &Bound<'_, PyAny>) -> PyResult<Vec<BlockId>>;

    /// Returns Python's objects for blocks. The caller has a reference to each block from now on.
    fn objects_or_poison<'py>(
        self: &Arc<Self>,
        py: Python<'py>,
        ids: impl IntoIterator<Item = BlockId>,
    ) -> PyResult<Bound<'py, PyList>> {
        self.cell().or_poison(py, self.objects(py, ids))
    }
}

impl<S: WithCore> GuardedCell<S> {
    /// Runs a query that the core can answer in every state.
    #[inline]
    pub(crate) fn ask<R>(
        &self,
        py: Python<'_>,
        question: impl FnOnce(&Manager) -> R,
    ) -> PyResult<R> {
        self.read(py, |state| Ok(question(state.core())))
    }
}

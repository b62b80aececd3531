//! The owner of blocks: the cell with the core, which all views of its blocks share.

use pyo3::prelude::*;

use kvoxide_core::Manager;

use super::guarded_cell::{CheckedState, GuardedCell};

/// State that has a core.
pub(crate) trait WithCore: CheckedState {
    fn core(&self) -> &Manager;
    fn core_mut(&mut self) -> &mut Manager;
    /// Returns how many bytes block hashes have; 0 before the first hash.
    fn hash_len(&self) -> usize;
}

/// An owner of blocks.
pub(crate) trait Owner {
    type State: WithCore;

    fn cell(&self) -> &GuardedCell<Self::State>;
}

impl<S: WithCore> Owner for GuardedCell<S> {
    type State = S;

    #[inline]
    fn cell(&self) -> &GuardedCell<S> {
        self
    }
}

impl<S: WithCore> GuardedCell<S> {
    /// Runs a question that the core can answer in every state.
    #[inline]
    pub(crate) fn ask<R>(
        &self,
        py: Python<'_>,
        question: impl FnOnce(&Manager) -> R,
    ) -> PyResult<R> {
        self.read(py, |state| Ok(question(state.core())))
    }
}

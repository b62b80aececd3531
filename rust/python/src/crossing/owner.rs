//! Who owns blocks: a gate with a core behind it, which views of the blocks share.

use pyo3::prelude::*;

use kvoxide_core::Manager;

use super::gate::{Gate, Guarded};

/// The state of a manager, with its core.
pub(crate) trait WithCore: Guarded {
    fn core(&self) -> &Manager;
    fn core_mut(&mut self) -> &mut Manager;
    /// Bytes of the block hashes in use; 0 before one was seen.
    fn hash_len(&self) -> usize;
}

/// What views of blocks share.
pub(crate) trait Owner {
    type State: WithCore;

    fn gate(&self) -> &Gate<Self::State>;
}

impl<S: WithCore> Owner for Gate<S> {
    type State = S;

    #[inline]
    fn gate(&self) -> &Gate<S> {
        self
    }
}

impl<S: WithCore> Gate<S> {
    /// Asks the core something that has an answer in every state.
    #[inline]
    pub(crate) fn ask<R>(
        &self,
        py: Python<'_>,
        question: impl FnOnce(&Manager) -> R,
    ) -> PyResult<R> {
        self.read(py, |state| Ok(question(state.core())))
    }
}

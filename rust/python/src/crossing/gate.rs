//! The gate that every call of a manager goes through. It lets in one call at a time and no panic
//! out. After a panic, or once a manager is found broken, it lets in no call at all: serving with
//! wrong blocks would be worse than not serving.

use std::sync::{Mutex, OnceLock};

use pyo3::prelude::*;

use super::errors::{busy_error, poisoned_error};
use super::panics::caught;

/// What a gate keeps.
pub(crate) trait Guarded {
    /// Looks at the state after a call that may have changed it; what is found broken poisons the
    /// manager.
    fn look_after(&mut self, call: &'static str) -> Result<(), String>;
}

/// State behind a gate.
pub(crate) struct Gate<T> {
    state: Mutex<T>,
    poison: OnceLock<String>,
}

impl<T: Guarded> Gate<T> {
    /// A gate that is open.
    pub(crate) fn new(state: T) -> Self {
        Self { state: Mutex::new(state), poison: OnceLock::new() }
    }

    /// A call that changes nothing.
    #[inline]
    pub(crate) fn read<R>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&T) -> PyResult<R>,
    ) -> PyResult<R> {
        self.enter(py, "a reading call", |state| call(state))
    }

    /// A call that may change the state. Where it fails, it has changed nothing.
    #[inline]
    pub(crate) fn change<R>(
        &self,
        py: Python<'_>,
        name: &'static str,
        call: impl FnOnce(&mut T) -> PyResult<R>,
    ) -> PyResult<R> {
        self.enter(py, name, |state| {
            let result = call(state);
            match state.look_after(name) {
                Ok(()) => result,
                Err(broken) => Err(self.poison(py, broken)),
            }
        })
    }

    /// A change of a detail, in the middle of something that the caller does by hand: nobody looks
    /// whether the whole is right.
    #[inline]
    pub(crate) fn edit<R>(
        &self,
        py: Python<'_>,
        name: &'static str,
        call: impl FnOnce(&mut T) -> PyResult<R>,
    ) -> PyResult<R> {
        self.enter(py, name, call)
    }

    #[inline]
    fn enter<R>(
        &self,
        py: Python<'_>,
        name: &'static str,
        call: impl FnOnce(&mut T) -> PyResult<R>,
    ) -> PyResult<R> {
        if let Some(reason) = self.poison.get() {
            return Err(poisoned_error(py, reason));
        }
        // Never waits: whoever is inside may be this very thread, or wait for this thread's GIL.
        let Ok(mut state) = self.state.try_lock() else { return Err(busy_error(py)) };
        caught(|| call(&mut state))
            .unwrap_or_else(|report| Err(self.poison(py, format!("{name} {report}"))))
    }

    /// What a change hands out. Where that cannot be made nobody holds it, and the gate closes.
    pub(crate) fn handed_out<R>(&self, py: Python<'_>, made: PyResult<R>) -> PyResult<R> {
        made.map_err(|error| {
            let poisoned = self.poison(py, format!("what a call hands out was lost ({error})"));
            poisoned.set_cause(py, Some(error));
            poisoned
        })
    }

    /// Closes the gate for good. The first reason is the one that is told from then on.
    #[cold]
    pub(crate) fn poison(&self, py: Python<'_>, reason: String) -> PyErr {
        poisoned_error(py, self.poison.get_or_init(|| reason))
    }
}

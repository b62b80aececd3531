//! The cell through which every call of a manager or a tier accesses its state. It runs one call at
//! a time, and no panic leaves it. After a panic, or once an invariant is broken, the cell is
//! poisoned and refuses every call. Serving with wrong blocks would be worse than not serving. If
//! another implementation has taken over the state, the cell is retired and refuses every call too.

use std::sync::{Mutex, OnceLock};

use pyo3::prelude::*;

use super::errors::{busy_error, poisoned_error, retired_error};
use super::panics::caught;

/// State that a [`GuardedCell`] can hold.
pub(crate) trait CheckedState {
    /// The name of the state's holder in messages.
    const NAME: &'static str = "manager";

    /// Checks the state after a call that may have changed it. An error poisons the cell.
    #[inline]
    fn check_after(&mut self, _call: &'static str) -> Result<(), String> {
        Ok(())
    }
}

/// State that one call at a time can use.
pub(crate) struct GuardedCell<T> {
    state: Mutex<T>,
    refusal: OnceLock<Refusal>,
}

/// The reason why a cell refuses every call.
enum Refusal {
    /// The state cannot be trusted.
    Poisoned(String),
    /// Another implementation continues with the state.
    Retired,
}

impl<T: CheckedState> GuardedCell<T> {
    /// Returns a cell that accepts calls.
    pub(crate) fn new(state: T) -> Self {
        Self { state: Mutex::new(state), refusal: OnceLock::new() }
    }

    /// Runs a call that changes nothing.
    #[inline]
    pub(crate) fn read<R>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&T) -> PyResult<R>,
    ) -> PyResult<R> {
        self.enter(py, "a reading call", |state| call(state))
    }

    /// Runs a call that may change the state. A call that fails must have changed nothing.
    #[inline]
    pub(crate) fn change<R>(
        &self,
        py: Python<'_>,
        name: &'static str,
        call: impl FnOnce(&mut T) -> PyResult<R>,
    ) -> PyResult<R> {
        self.enter(py, name, |state| {
            let result = call(state);
            match state.check_after(name) {
                Ok(()) => result,
                Err(broken) => Err(self.poison(py, broken)),
            }
        })
    }

    /// Runs one of several changes that only together leave a valid state. Therefore invariants are
    /// not checked after it.
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
        if let Some(refusal) = self.refusal.get() {
            return Err(refusal.error(py, T::NAME));
        }
        // This never waits: the running call may be this thread's own, or wait for this thread's
        // GIL.
        let Ok(mut state) = self.state.try_lock() else { return Err(busy_error(py, T::NAME)) };
        caught(|| call(&mut state))
            .unwrap_or_else(|report| Err(self.poison(py, format!("{name} {report}"))))
    }

    /// Returns the object that a change created for Python. If its creation failed, the blocks
    /// would have no owner, so the cell is poisoned.
    pub(crate) fn or_poison<R>(&self, py: Python<'_>, made: PyResult<R>) -> PyResult<R> {
        made.map_err(|error| {
            let poisoned = self.poison(py, format!("the results of a call were lost ({error})"));
            poisoned.set_cause(py, Some(error));
            poisoned
        })
    }

    /// Poisons the cell and returns the error. The first reason is kept.
    #[cold]
    pub(crate) fn poison(&self, py: Python<'_>, reason: String) -> PyErr {
        self.refusal.get_or_init(|| Refusal::Poisoned(reason)).error(py, T::NAME)
    }

    /// Returns whether the state cannot be trusted any more.
    pub(crate) fn is_poisoned(&self) -> bool {
        matches!(self.refusal.get(), Some(Refusal::Poisoned(_)))
    }

    /// Refuses every further call, because another implementation continues with the state.
    pub(crate) fn retire(&self) {
        let _ = self.refusal.set(Refusal::Retired);
    }
}

impl Refusal {
    #[cold]
    fn error(&self, py: Python<'_>, name: &str) -> PyErr {
        match self {
            Self::Poisoned(reason) => poisoned_error(py, name, reason),
            Self::Retired => retired_error(py, name),
        }
    }
}

//! Converts panics into error messages.

use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::Cell;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook};

use pyo3::prelude::*;

use kvoxide_core::{Error, Manager};

use super::errors::to_py;

thread_local! {
    static LAST: Cell<Option<String>> = const { Cell::new(None) };
}

/// Sets a hook that keeps a panic's message and location and prints both in one line. With
/// `RUST_BACKTRACE` set, it also prints the backtrace. Other modules that are written in Rust have
/// their own hooks.
pub(crate) fn keep_reports() {
    set_hook(Box::new(|panic| {
        let line = panic.to_string().replace('\n', " ");
        // `eprintln` is not used, because it panics if stderr is closed.
        let mut stderr = std::io::stderr();
        let _ = writeln!(stderr, "kvoxide {line}");
        let trace = Backtrace::capture();
        if trace.status() == BacktraceStatus::Captured {
            let _ = write!(stderr, "{trace}");
        }
        LAST.set(Some(line));
    }));
}

/// Returns the result of a call, or the message of its panic. After a panic, the state that the
/// call was changing is unknown and must not be used again.
#[inline]
pub(crate) fn caught<R>(call: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(call)).map_err(report)
}

/// Returns the result of a call that changes nothing. A panic becomes an `InternalError`.
#[inline]
pub(crate) fn contained<R>(py: Python<'_>, call: impl FnOnce() -> PyResult<R>) -> PyResult<R> {
    caught(call).unwrap_or_else(|report| Err(to_py(py, &Error::Internal(report))))
}

#[cold]
fn report(payload: Box<dyn Any + Send>) -> String {
    let in_payload = || match payload.downcast_ref::<String>() {
        Some(message) => message.clone(),
        None => payload.downcast_ref::<&str>().unwrap_or(&"panicked").to_string(),
    };
    LAST.take().unwrap_or_else(in_payload)
}

/// Allocates a block that no request has and panics, for tests of the state after a panic.
pub(crate) fn panic_midway(core: &mut Manager) -> PyResult<()> {
    core.pool_mut().allocate(1, &mut Vec::new());
    panic!("planted by a test");
}

//! Panics as text: what the last one said, and a call that lets none out.

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

/// Keeps what a panic says and where, and shows it in one line; with `RUST_BACKTRACE` set, also how
/// it got there. The hook is this module's alone: other modules written in Rust have their own.
pub(crate) fn keep_reports() {
    set_hook(Box::new(|panic| {
        let line = panic.to_string().replace('\n', " ");
        // Not `eprintln`, which panics where stderr is closed.
        let mut stderr = std::io::stderr();
        let _ = writeln!(stderr, "kvoxide {line}");
        let trace = Backtrace::capture();
        if trace.status() == BacktraceStatus::Captured {
            let _ = write!(stderr, "{trace}");
        }
        LAST.set(Some(line));
    }));
}

/// The result of a call, or what its panic said. What the call was changing is then unknown: the
/// caller must not use it again.
#[inline]
pub(crate) fn caught<R>(call: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(call)).map_err(report)
}

/// As [`caught`], for calls that change nothing: a panic is an `InternalError`.
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

/// For tests of what a panic leaves behind: takes a block that nobody will ever give back, and
/// panics.
pub(crate) fn panic_midway(core: &mut Manager) -> PyResult<()> {
    core.pool_mut().take(1, &mut Vec::new());
    panic!("planted by a test");
}

//! Checks of counts and sizes that Python passes.

use pyo3::prelude::*;

use super::errors::{config_error, request_error};

/// Returns a number of tokens or blocks; a `RequestError` if it is negative.
pub(crate) fn count(py: Python<'_>, name: &str, value: i64) -> PyResult<usize> {
    not_negative(name, value).map_err(|message| request_error(py, message))
}

/// Returns a size in a configuration; a `ConfigError` if it is negative.
pub(crate) fn size(py: Python<'_>, name: &str, value: i64) -> PyResult<usize> {
    not_negative(name, value).map_err(|message| config_error(py, message))
}

/// Returns a size that may be missing.
pub(crate) fn optional_size(
    py: Python<'_>,
    name: &str,
    value: Option<i64>,
) -> PyResult<Option<usize>> {
    value.map(|value| size(py, name, value)).transpose()
}

/// Returns the number, or a message if it is negative.
pub(crate) fn not_negative(name: &str, value: i64) -> Result<usize, String> {
    usize::try_from(value).map_err(|_| format!("{name} is {value}; it must not be negative"))
}

/// Returns a position in a sequence; `None` if it is out of range. Negative positions count from
/// the end.
pub(crate) fn place(index: isize, len: usize) -> Option<usize> {
    let from_start = if index < 0 { index.checked_add_unsigned(len)? } else { index };
    usize::try_from(from_start).ok().filter(|&place| place < len)
}

/// Returns a number of tokens per hash, at least 1.
pub(crate) fn block_size_in_tokens(py: Python<'_>, block_size: i64) -> PyResult<usize> {
    match size(py, "block_size", block_size)? {
        0 => Err(config_error(py, "block_size is 0; it must be at least 1 token".into())),
        block_size => Ok(block_size),
    }
}

//! Reads the values of hints: numbers, ranges of tokens, and entries of dictionaries and objects.

use std::ops::Range;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyList, PyString, PyTuple};

use kvoxide_core::RetentionPriority;

use super::handling::{Found, Handling};

/// A value, or the reason why the hint is not taken.
pub(super) type Read<'py, T> = Result<T, Handling<'py>>;

/// Returns a reason why a hint is not taken: a value is invalid.
pub(super) fn malformed<'py, T>(
    name: &'static str,
    value: &Bound<'py, PyAny>,
    expected: &'static str,
) -> Read<'py, T> {
    Err(Handling::Malformed(Found::new(name, value, expected)))
}

/// Returns an entry of a dictionary, or an attribute of another object.
pub(super) fn entry<'py>(
    object: &Bound<'py, PyAny>,
    name: &'static str,
    expected: &'static str,
) -> Read<'py, Bound<'py, PyAny>> {
    let found = match object.cast::<PyDict>() {
        Ok(fields) => fields.get_item(name).ok().flatten(),
        Err(_) => object.getattr(name).ok(),
    };
    found.ok_or_else(|| Handling::Malformed(Found::unreadable(name, expected)))
}

/// Returns the first items of a list or tuple.
pub(super) fn items_up_to<'py>(
    name: &'static str,
    value: &Bound<'py, PyAny>,
    expected: &'static str,
    max: usize,
) -> Read<'py, Vec<Bound<'py, PyAny>>> {
    if let Ok(list) = value.cast::<PyList>() {
        return Ok(list.iter().take(max).collect());
    }
    if let Ok(tuple) = value.cast::<PyTuple>() {
        return Ok(tuple.iter().take(max).collect());
    }
    malformed(name, value, expected)
}

/// Returns a number. A boolean is none.
pub(super) fn number<'py, T: FromPyObjectOwned<'py>>(
    name: &'static str,
    value: &Bound<'py, PyAny>,
    expected: &'static str,
) -> Read<'py, T> {
    if value.is_instance_of::<PyBool>() {
        return malformed(name, value, expected);
    }
    value.extract().or_else(|_| malformed(name, value, expected))
}

/// Returns the text of a string.
pub(super) fn text<'py>(
    name: &'static str,
    value: &Bound<'py, PyAny>,
    expected: &'static str,
) -> Read<'py, String> {
    let text = value.cast::<PyString>().ok().and_then(|text| text.to_str().ok());
    text.map_or_else(|| malformed(name, value, expected), |text| Ok(text.to_owned()))
}

/// The names of a priority and of its time to live.
pub(super) struct PriorityNames {
    pub(super) priority: &'static str,
    pub(super) ttl: &'static str,
}

/// Returns a priority with a time to live. Without a priority it is the default one.
pub(super) fn priority<'py>(
    names: &PriorityNames,
    priority: Option<&Bound<'py, PyAny>>,
    ttl: Option<&Bound<'py, PyAny>>,
) -> Read<'py, RetentionPriority> {
    let asked = match priority {
        Some(value) => {
            let expected = "an integer from 0 to 100";
            let asked = number(names.priority, value, expected)?;
            let endless = RetentionPriority::new(asked, None);
            endless.or_else(|_| malformed(names.priority, value, expected))?
        }
        None => RetentionPriority::default(),
    };
    let Some(value) = ttl else { return Ok(asked) };
    let expected = "a number of seconds above 0";
    let seconds: f64 = number(names.ttl, value, expected)?;
    if seconds.is_finite() && seconds <= 0.0 {
        return Err(Handling::Expired(Found::new(names.ttl, value, expected)));
    }
    asked.for_seconds(seconds).or_else(|_| malformed(names.ttl, value, expected))
}

/// Returns a range of tokens, which begins inside the prompt. Without an end it has all tokens that
/// follow.
pub(super) fn token_range<'py>(
    (start_name, start): (&'static str, Option<&Bound<'py, PyAny>>),
    (end_name, end): (&'static str, Option<&Bound<'py, PyAny>>),
    num_prompt_tokens: usize,
) -> Read<'py, Range<usize>> {
    let first = match start {
        None => 0,
        Some(value) => {
            let expected = "a token of the prompt; the first one has the number 0";
            let first: i64 = number(start_name, value, expected)?;
            match usize::try_from(first) {
                Ok(first) if first < num_prompt_tokens => first,
                _ => return malformed(start_name, value, expected),
            }
        }
    };
    let end = match end {
        None => usize::MAX,
        Some(value) => {
            let expected = "a number of tokens, more than the start of the range";
            let end: i64 = number(end_name, value, expected)?;
            match usize::try_from(end) {
                Ok(end) if end > first => end,
                _ => return malformed(end_name, value, expected),
            }
        }
    };
    Ok(first..end)
}

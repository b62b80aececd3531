//! The fields of a JSON object that is a line of a trace.

use std::fmt::Display;
use std::ops::RangeInclusive;

use serde_json::{Map, Value};
use thiserror::Error;

use super::request::MAX_LENGTH;

/// The fields of a line.
pub type Fields = Map<String, Value>;

/// An error in a line.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}{message}", if field.is_empty() { String::new() } else { format!("field '{field}' ") })]
pub struct LineError {
    /// The field with the error; empty for the whole line.
    pub field: String,
    /// The error, and the expected value.
    pub message: String,
}

pub fn wrong(field: &str, message: String) -> LineError {
    LineError { field: field.to_owned(), message }
}

/// Returns a field, or an error if it is missing.
pub fn field<'a>(fields: &'a Fields, name: &str) -> Result<&'a Value, LineError> {
    fields.get(name).ok_or_else(|| wrong(name, "is missing".into()))
}

/// Returns an optional field. A `null` counts as missing.
pub fn given<'a>(fields: &'a Fields, name: &str) -> Option<&'a Value> {
    fields.get(name).filter(|value| !value.is_null())
}

/// Returns a number of tokens of a prompt or an output.
pub fn length(value: &Value, name: &str, least: usize) -> Result<usize, LineError> {
    checked_length(integer(value), value, name, least)
}

/// Returns a number of tokens, or an error that shows the value.
pub fn checked_length(
    number: Option<i64>,
    shown: impl Display,
    name: &str,
    least: usize,
) -> Result<usize, LineError> {
    let number = number.and_then(|number| usize::try_from(number).ok());
    let message = || format!("is {shown}; expected an integer from {least} to {MAX_LENGTH}");
    let number = number.filter(|number| (least..=MAX_LENGTH).contains(number));
    number.ok_or_else(|| wrong(name, message()))
}

pub fn within(value: &Value, range: RangeInclusive<usize>) -> Option<usize> {
    let number = usize::try_from(integer(value)?).ok()?;
    range.contains(&number).then_some(number)
}

/// Returns an integer, which may be written like 600.0.
pub fn integer(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_f64().and_then(exact))
}

/// Returns a number as an integer, if it is one.
pub fn exact(number: f64) -> Option<i64> {
    let is_exact = number.fract() == 0.0 && number.abs() < (1_u64 << 53) as f64;
    is_exact.then_some(number as i64)
}

/// Returns the values of an array, each read by `read`.
pub fn each<'a, T>(
    value: &'a Value,
    name: &str,
    what: &str,
    mut read: impl FnMut(&'a Value) -> Option<T>,
) -> Result<Vec<T>, LineError> {
    let Value::Array(values) = value else {
        return Err(wrong(name, format!("is not an array of {what}")));
    };
    // `collect` would not know the number of values, since each one may be an error.
    let mut found = Vec::with_capacity(values.len());
    for value in values {
        let message = || format!("has {value}; expected {what}");
        found.push(read(value).ok_or_else(|| wrong(name, message()))?);
    }
    Ok(found)
}

/// Returns a time or duration of at least 0 in microseconds. `unit` is the number of microseconds
/// in the field's unit.
pub fn microseconds(fields: &Fields, name: &str, unit: f64) -> Result<Option<u64>, LineError> {
    let Some(value) = given(fields, name) else { return Ok(None) };
    let time = value.as_f64().filter(|time| (0.0..1e15).contains(time));
    let time = time.map(|time| Some((time * unit).round() as u64));
    time.ok_or_else(|| wrong(name, format!("is {value}; expected a number of at least 0")))
}

/// Returns a required time or duration.
pub fn time(fields: &Fields, name: &str, unit: f64) -> Result<u64, LineError> {
    microseconds(fields, name, unit)?.ok_or_else(|| wrong(name, "is missing".into()))
}

/// Returns an error if a line of a dialect has one of the fields whose values are texts.
pub fn check_no_text(dialect: &str, fields: &Fields, texts: &[&str]) -> Result<(), LineError> {
    let text = texts.iter().find(|name| fields.contains_key(**name));
    text.map_or(Ok(()), |text| Err(is_text(dialect, text)))
}

/// Returns the error that a text field of a dialect cannot be replayed.
pub fn is_text(dialect: &str, name: &str) -> LineError {
    let message = format!(
        "is text (format {dialect}); only the model's tokenizer knows its tokens. Write them as \
         prompt_token_ids, or record the server with KVOXIDE_RECORD"
    );
    wrong(name, message)
}

//! Token ids that Python passes.

use numpy::{PyReadonlyArray1, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyString};

use super::errors::{or_raised, request_error};

/// Returns token ids from a 1-d int32, int64 or uint32 array or from a sequence of int.
pub(crate) fn token_ids(value: &Bound<'_, PyAny>) -> PyResult<Vec<i64>> {
    let py = value.py();
    if let Ok(array) = value.extract::<PyReadonlyArray1<'_, i64>>() {
        return Ok(array.as_array().iter().copied().collect());
    }
    if let Ok(array) = value.extract::<PyReadonlyArray1<'_, i32>>() {
        return Ok(array.as_array().iter().map(|&token| i64::from(token)).collect());
    }
    if let Ok(array) = value.extract::<PyReadonlyArray1<'_, u32>>() {
        return Ok(array.as_array().iter().map(|&token| i64::from(token)).collect());
    }
    if let Ok(array) = value.cast::<PyUntypedArray>() {
        return Err(request_error(
            py,
            format!(
                "token ids are an array of dtype {} and {} dimensions. Give a 1-d array of int32, \
                 int64 or uint32",
                array.dtype(),
                array.ndim()
            ),
        ));
    }
    if value.is_instance_of::<PyString>() || value.is_instance_of::<PyBytes>() {
        return Err(not_token_ids(value));
    }
    value
        .extract::<Vec<i64>>()
        .map_err(|error| or_raised(error, value.py(), || name_bad_token(value)))
}

/// Returns the error that names the first element of a sequence that is not a token id.
fn name_bad_token(value: &Bound<'_, PyAny>) -> PyErr {
    let mut elements = value.try_iter().into_iter().flatten().flatten();
    match elements.find(|token| token.extract::<i64>().is_err()) {
        None => not_token_ids(value),
        Some(token) => request_error(
            value.py(),
            format!("token id {token} is not an int; token ids must be ints within 64 bits"),
        ),
    }
}

/// Returns token ids from one int, or from any value that [`token_ids`] accepts.
pub(crate) fn one_or_more_token_ids(value: &Bound<'_, PyAny>) -> PyResult<Vec<i64>> {
    if value.is_instance_of::<PyInt>() {
        let token = value.extract::<i64>();
        return Ok(vec![token.map_err(|_| {
            request_error(value.py(), format!("token id {value} does not fit into 64 bits"))
        })?]);
    }
    token_ids(value)
}

fn not_token_ids(value: &Bound<'_, PyAny>) -> PyErr {
    let kind = value.get_type().name().map_or_else(|_| "?".to_owned(), |name| name.to_string());
    request_error(
        value.py(),
        format!("token ids are a {kind}; give a sequence of int within 64 bits, or a 1-d array"),
    )
}

//! Token ids and block hashes, as Python gives them.

use numpy::{PyReadonlyArray1, PyReadonlyArray2, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyAttributeError, PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyString};

use kvoxide_core::{BlockHash, Error};

use crate::errors::{request_error, to_py};

/// Token ids from a 1-d int32, int64 or uint32 array or from a sequence of int.
pub fn token_ids(value: &Bound<'_, PyAny>) -> PyResult<Vec<i64>> {
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
                "token ids are an array of dtype {} and {} dimensions; give a 1-d array of int32, \
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

/// The error of a value that is of a wrong type or too large; what the value's own code raised is
/// passed on.
pub fn or_raised(error: PyErr, py: Python<'_>, refusal: impl FnOnce() -> PyErr) -> PyErr {
    let is_of_value = error.is_instance_of::<PyTypeError>(py)
        || error.is_instance_of::<PyOverflowError>(py)
        || error.is_instance_of::<PyAttributeError>(py);
    if is_of_value { refusal() } else { error }
}

/// Names the first element that is no token id, where the value is a sequence at all.
fn name_bad_token(value: &Bound<'_, PyAny>) -> PyErr {
    let mut elements = value.try_iter().into_iter().flatten().flatten();
    match elements.find(|token| token.extract::<i64>().is_err()) {
        None => not_token_ids(value),
        Some(token) => request_error(
            value.py(),
            format!("token id {token} is not an int within 64 bits, which token ids must be"),
        ),
    }
}

/// Token ids from one int or from whatever [`token_ids`] takes.
pub fn one_or_more_token_ids(value: &Bound<'_, PyAny>) -> PyResult<Vec<i64>> {
    if value.is_instance_of::<PyInt>() {
        let token = value.extract::<i64>();
        return Ok(vec![token.map_err(|_| {
            request_error(value.py(), format!("token id {value} is not within 64 bits"))
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

/// Ready-made hashes, all of one length.
#[derive(Default)]
pub struct Hashes {
    pub hashes: Vec<BlockHash>,
    /// Bytes of each; 0 if there is none.
    pub hash_len: usize,
}

impl Hashes {
    /// Hashes from a sequence of bytes or a 2-d uint8 array.
    pub fn extract(value: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(array) = value.extract::<PyReadonlyArray2<'_, u8>>() {
            let rows = array.as_array();
            return Self::new(value.py(), rows.rows().into_iter().map(|row| row.to_vec()));
        }
        if let Ok(array) = value.cast::<PyUntypedArray>() {
            let message = format!(
                "block hashes are an array of dtype {} and {} dimensions; give a 2-d array of \
                 uint8, one row for each hash",
                array.dtype(),
                array.ndim()
            );
            return Err(request_error(value.py(), message));
        }
        let py = value.py();
        let hashes = value.extract::<Vec<Bound<'_, PyBytes>>>().map_err(|error| {
            or_raised(error, py, || {
                request_error(py, "block hashes must be a sequence of bytes or an array".into())
            })
        })?;
        Self::new(value.py(), hashes.iter().map(|hash| hash.as_bytes()))
    }

    /// A single hash.
    pub fn of_one(hash: &Bound<'_, PyBytes>) -> PyResult<Self> {
        Self::new(hash.py(), std::iter::once(hash.as_bytes()))
    }

    fn new(py: Python<'_>, rows: impl Iterator<Item = impl AsRef<[u8]>>) -> PyResult<Self> {
        let mut made = Self::default();
        for row in rows {
            let row = row.as_ref();
            let hash = BlockHash::from_slice(row).ok_or_else(|| {
                hash_error(py, format!("a block hash has {} bytes; allowed are 1 to 32", row.len()))
            })?;
            if made.hash_len != 0 && made.hash_len != row.len() {
                let message = format!(
                    "block hashes have {} and {} bytes; all must have the same length",
                    made.hash_len,
                    row.len()
                );
                return Err(hash_error(py, message));
            }
            made.hash_len = row.len();
            made.hashes.push(hash);
        }
        Ok(made)
    }
}

/// A hash as the bytes it was given as.
pub fn hash_bytes<'py>(py: Python<'py>, hash: &BlockHash, hash_len: usize) -> Bound<'py, PyBytes> {
    PyBytes::new(py, &hash.to_bytes()[..hash_len])
}

pub fn hash_error(py: Python<'_>, message: String) -> PyErr {
    to_py(py, &Error::BlockHash(message))
}

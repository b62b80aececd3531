//! Pickling. Python describes most objects by the arguments that create them again. Objects of a
//! replay are described as bytes.

use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyBytes, PyDict, PyType};
use serde::Serialize;
use serde::de::DeserializeOwned;

use kvoxide_core::Error;
use kvoxide_replay::packed::{pack, unpack};

use super::errors::{Exceptions, to_py};
use super::panics::contained;

/// The result of `__getnewargs_ex__`.
pub(crate) type NewArgs<'py, P> = (P, Bound<'py, PyDict>);

/// The result of `__reduce__`: the class method that reads bytes, and the bytes.
pub(crate) type Reduced<'py> = (Bound<'py, PyAny>, (Bound<'py, PyBytes>,));

/// Returns the arguments that create an object again.
pub(crate) fn new_args<'py, P, const N: usize>(
    py: Python<'py>,
    positional: P,
    keywords: [(&str, Bound<'py, PyAny>); N],
) -> PyResult<NewArgs<'py, P>> {
    Ok((positional, keywords.into_py_dict(py)?))
}

/// Returns a value as bytes, for the `_from_bytes` of a class.
pub(crate) fn reduced<'py, T: Serialize>(
    class: &Bound<'py, PyType>,
    kind: &'static str,
    value: &T,
) -> PyResult<Reduced<'py>> {
    let py = class.py();
    let bytes = contained(py, || Ok(pack(kind, value)))?;
    let bytes = bytes.map_err(|error| to_py(py, &Error::Internal(error.to_string())))?;
    Ok((class.getattr("_from_bytes")?, (PyBytes::new(py, &bytes),)))
}

/// Returns the value from the bytes that [`reduced`] returned.
pub(crate) fn restored<T: DeserializeOwned>(
    py: Python<'_>,
    kind: &'static str,
    bytes: &[u8],
) -> PyResult<T> {
    contained(py, || Ok(unpack(kind, bytes)))?.map_err(|refused| {
        let made = || {
            let class = Exceptions::get(py)?.pickle.bind(py).clone();
            PyResult::Ok(PyErr::from_type(class, refused.to_string()))
        };
        made().unwrap_or_else(|failure| failure)
    })
}

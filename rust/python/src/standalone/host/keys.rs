//! Keys of the tier and their positions, which are bytes and ints in Python.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use kvoxide_core::CacheKey;
use kvoxide_core::host::Position;

use crate::ffi::{known_key, or_raised, packed_key, request_error, unpacked_key};

/// The keys of a call, read in one pass, beside the objects that they were read from.
pub(super) struct Keys<'py> {
    pub(super) keys: Vec<CacheKey>,
    pub(super) objects: Vec<Bound<'py, PyBytes>>,
    /// The length of the tier's hashes once these keys are in it.
    pub(super) hash_len: Option<usize>,
}

impl<'py> Keys<'py> {
    /// Reads keys whose hashes have the length of the tier's, which the first one sets.
    pub(super) fn read(value: &Bound<'py, PyAny>, mut hash_len: Option<usize>) -> PyResult<Self> {
        let (mut keys, mut objects) = (Vec::new(), Vec::new());
        each(value, |object| {
            keys.push(unpacked_key(&object, &mut hash_len)?);
            objects.push(object);
            Ok(())
        })?;
        Ok(Self { keys, objects, hash_len })
    }

    /// Returns the position of each key that has one.
    pub(super) fn positions(
        &self,
        positions: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Vec<Position>> {
        let Some(positions) = positions else { return Ok(vec![None; self.keys.len()]) };
        let of = |object: &Bound<'py, PyBytes>| {
            positions.get_item(object)?.map(|found| position(&found)).transpose()
        };
        self.objects.iter().map(of).collect()
    }
}

/// Returns those keys that a tier with hashes of this length can have.
pub(super) fn known_keys(
    value: &Bound<'_, PyAny>,
    hash_len: Option<usize>,
) -> PyResult<Vec<CacheKey>> {
    let mut keys = Vec::new();
    each(value, |object| {
        keys.extend(known_key(&object, hash_len)?);
        Ok(())
    })?;
    Ok(keys)
}

/// Returns all positions of keys that a tier with hashes of this length can have.
pub(super) fn known_positions(
    positions: &Bound<'_, PyDict>,
    hash_len: Option<usize>,
) -> PyResult<Vec<(CacheKey, u32)>> {
    let mut known = Vec::with_capacity(positions.len());
    for (key, at) in positions {
        if let Some(key) = known_key(key.cast::<PyBytes>()?, hash_len)? {
            known.push((key, position(&at)?));
        }
    }
    Ok(known)
}

/// Returns keys as Python's.
pub(super) fn key_list<'py>(
    py: Python<'py>,
    keys: &[CacheKey],
    hash_len: Option<usize>,
) -> PyResult<Bound<'py, PyList>> {
    PyList::new(py, keys.iter().map(|key| packed_key(py, key, hash_len.unwrap_or(0))))
}

fn position(value: &Bound<'_, PyAny>) -> PyResult<u32> {
    let py = value.py();
    value.extract::<u32>().map_err(|error| {
        or_raised(error, py, || {
            let given = value.repr().map_or_else(|_| "?".into(), |given| given.to_string());
            let message = format!(
                "the position of a key is {given}; it is the number of tokens at the key's end"
            );
            request_error(py, message)
        })
    })
}

/// Calls `read` with each key of a list or of another iterable.
fn each<'py>(
    value: &Bound<'py, PyAny>,
    mut read: impl FnMut(Bound<'py, PyBytes>) -> PyResult<()>,
) -> PyResult<()> {
    if let Ok(list) = value.cast_exact::<PyList>() {
        return list.iter().try_for_each(|key| read(key.cast_into::<PyBytes>()?));
    }
    value.try_iter()?.try_for_each(|key| read(key?.cast_into::<PyBytes>()?))
}

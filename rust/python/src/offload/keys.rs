//! Keys of the tier and their positions, which are bytes and ints in Python, or stay in Rust.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use kvoxide_core::CacheKey;
use kvoxide_core::host::{Position, PositionedKey};

use super::hash_lengths::HashLengths;
use super::request_keys::{ChunkKeys, RequestKeys};
use crate::ffi::{or_raised, request_error};

/// The keys of a call.
pub(super) enum Keys<'py> {
    /// Keys that were read in one pass, and the objects that they were read from.
    Read { keys: Vec<CacheKey>, positions: Vec<Position>, objects: Vec<Bound<'py, PyBytes>> },
    /// Chunks of a request. They are distinct, and all have positions.
    Chunks(Bound<'py, ChunkKeys>, PyRef<'py, RequestKeys>),
}

impl<'py> Keys<'py> {
    /// Reads keys. The first one sets the lengths of hashes that the tier takes.
    pub(super) fn read(
        value: &Bound<'py, PyAny>,
        positions: Option<&Bound<'py, PyDict>>,
        hash_lengths: &mut Option<HashLengths>,
    ) -> PyResult<Self> {
        if let Some(chunks) = Self::chunks(value) {
            return chunks.checked(value.py(), hash_lengths);
        }
        let (mut keys, mut objects) = (Vec::new(), Vec::new());
        each(value, |object| {
            keys.push(HashLengths::key(&object, hash_lengths)?);
            objects.push(object);
            Ok(())
        })?;
        let of = |object: &Bound<'py, PyBytes>| match positions {
            Some(positions) => positions.get_item(object)?.map(|at| position(&at)).transpose(),
            None => Ok(None),
        };
        let positions = objects.iter().map(of).collect::<PyResult<_>>()?;
        Ok(Self::Read { keys, positions, objects })
    }

    /// Returns those keys that a tier with hashes of these lengths can have.
    pub(super) fn known(
        value: &Bound<'py, PyAny>,
        hash_lengths: Option<HashLengths>,
    ) -> PyResult<Self> {
        match Self::chunks(value) {
            Some(Self::Chunks(chunks, owner)) if owner.hash_lengths() == hash_lengths => {
                return Ok(Self::Chunks(chunks, owner));
            }
            _ => {}
        }
        let mut keys = Vec::new();
        each(value, |object| {
            keys.extend(HashLengths::known_key(&object, hash_lengths)?);
            Ok(())
        })?;
        let positions = vec![None; keys.len()];
        Ok(Self::Read { keys, positions, objects: Vec::new() })
    }

    /// Returns the keys with their positions.
    pub(super) fn with_positions(
        &self,
    ) -> impl DoubleEndedIterator<Item = PositionedKey> + ExactSizeIterator + Clone {
        match self {
            Self::Read { keys, positions, .. } => {
                let positioned = keys.iter().copied().zip(positions.iter().copied());
                Positioned { len: keys.len(), keys: OneOf::First(positioned) }
            }
            Self::Chunks(chunks, owner) => {
                let len = chunks.get().num_keys();
                Positioned { len, keys: OneOf::Second(chunks.get().with_positions(owner)) }
            }
        }
    }

    pub(super) fn keys(
        &self,
    ) -> impl DoubleEndedIterator<Item = CacheKey> + ExactSizeIterator + Clone {
        self.with_positions().map(|(key, _)| key)
    }

    /// Returns the keys at some places, which ascend, as Python's.
    pub(super) fn selected(
        &self,
        py: Python<'py>,
        places: &[usize],
    ) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Self::Read { objects, .. } => {
                let objects = places.iter().map(|&at| &objects[at]);
                Ok(PyList::new(py, objects.collect::<Vec<_>>())?.into_any())
            }
            Self::Chunks(chunks, _) => {
                Ok(Bound::new(py, chunks.get().selected(py, places))?.into_any())
            }
        }
    }

    fn chunks(value: &Bound<'py, PyAny>) -> Option<Self> {
        let chunks = value.cast_exact::<ChunkKeys>().ok()?;
        Some(Self::Chunks(chunks.clone(), chunks.get().owner(value.py())))
    }

    fn checked(self, py: Python<'_>, hash_lengths: &mut Option<HashLengths>) -> PyResult<Self> {
        if let Self::Chunks(_, owner) = &self
            && let Some(lengths) = owner.hash_lengths()
        {
            lengths.agree(py, hash_lengths)?;
        }
        Ok(self)
    }
}

/// An iterator of one of two kinds.
#[derive(Clone)]
enum OneOf<A, B> {
    First(A),
    Second(B),
}

/// Keys with their positions, and how many are left.
#[derive(Clone)]
struct Positioned<A, B> {
    keys: OneOf<A, B>,
    len: usize,
}

impl<A, B> Iterator for Positioned<A, B>
where
    A: Iterator<Item = PositionedKey>,
    B: Iterator<Item = PositionedKey>,
{
    type Item = PositionedKey;

    #[inline]
    fn next(&mut self) -> Option<PositionedKey> {
        self.len = self.len.saturating_sub(1);
        match &mut self.keys {
            OneOf::First(keys) => keys.next(),
            OneOf::Second(keys) => keys.next(),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.len, Some(self.len))
    }

    #[inline]
    fn fold<T, F: FnMut(T, PositionedKey) -> T>(self, init: T, each: F) -> T {
        match self.keys {
            OneOf::First(keys) => keys.fold(init, each),
            OneOf::Second(keys) => keys.fold(init, each),
        }
    }
}

impl<A, B> DoubleEndedIterator for Positioned<A, B>
where
    A: DoubleEndedIterator<Item = PositionedKey>,
    B: DoubleEndedIterator<Item = PositionedKey>,
{
    #[inline]
    fn next_back(&mut self) -> Option<PositionedKey> {
        self.len = self.len.saturating_sub(1);
        match &mut self.keys {
            OneOf::First(keys) => keys.next_back(),
            OneOf::Second(keys) => keys.next_back(),
        }
    }
}

impl<A, B> ExactSizeIterator for Positioned<A, B>
where
    A: Iterator<Item = PositionedKey>,
    B: Iterator<Item = PositionedKey>,
{
}

/// Returns all positions of keys that a tier with hashes of these lengths can have.
pub(super) fn known_positions(
    positions: &Bound<'_, PyDict>,
    hash_lengths: Option<HashLengths>,
) -> PyResult<Vec<(CacheKey, u32)>> {
    let mut known = Vec::with_capacity(positions.len());
    for (key, at) in positions {
        if let Some(key) = HashLengths::known_key(key.cast::<PyBytes>()?, hash_lengths)? {
            known.push((key, position(&at)?));
        }
    }
    Ok(known)
}

/// Returns keys as Python's.
pub(super) fn key_list<'py>(
    py: Python<'py>,
    keys: &[CacheKey],
    hash_lengths: Option<HashLengths>,
) -> PyResult<Bound<'py, PyList>> {
    PyList::new(py, keys.iter().map(|key| HashLengths::packed(hash_lengths, py, key)))
}

fn position(value: &Bound<'_, PyAny>) -> PyResult<u32> {
    let py = value.py();
    value.extract::<u32>().map_err(|error| {
        or_raised(error, py, || {
            let given = value.repr().map_or_else(|_| "?".into(), |given| given.to_string());
            let message = format!(
                "the position of a key is {given}; it must be the number of tokens up to the key's end"
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

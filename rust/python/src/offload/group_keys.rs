//! The keys of a request's chunks in a group: in Rust, or in a list of Python's.

use std::ops::Range;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use kvoxide_core::CacheKey;
use kvoxide_core::host::{ChunkKeys as KeysByPlace, ChunkLookup, HostTier};

use super::hash_lengths::HashLengths;
use super::request_keys::{ChunkKeys, GroupKeys, RequestKeys};

/// The keys of a request in a group.
#[derive(FromPyObject)]
pub(super) enum KeysOfGroup<'py> {
    InRust(Bound<'py, GroupKeys>),
    Listed(Bound<'py, PyList>),
}

impl<'py> KeysOfGroup<'py> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::InRust(keys) => {
                let py = keys.py();
                keys.get().of_request(py).borrow().num_keys(keys.get().group())
            }
            Self::Listed(keys) => keys.len(),
        }
    }

    /// Returns the keys, for look-ups in a tier with hashes of these lengths.
    pub(super) fn read(&self, hash_lengths: Option<HashLengths>) -> PyResult<ReadKeys<'py>> {
        match self {
            Self::InRust(keys) => {
                let py = keys.py();
                let request = keys.get().of_request(py).clone().borrow();
                if let Some(lengths) = request.hash_lengths() {
                    lengths.agree(py, &mut { hash_lengths })?;
                }
                Ok(ReadKeys::InRust(request, keys.get().group()))
            }
            Self::Listed(keys) => {
                let mut hash_lengths = hash_lengths;
                let read = |key: Bound<'py, PyAny>| {
                    HashLengths::key(key.cast::<PyBytes>()?, &mut hash_lengths)
                };
                Ok(ReadKeys::Listed(keys.iter().map(read).collect::<PyResult<_>>()?))
            }
        }
    }
}

/// Keys of a group that were read.
pub(super) enum ReadKeys<'py> {
    InRust(PyRef<'py, RequestKeys>, usize),
    Listed(Vec<CacheKey>),
}

impl ChunkLookup for ReadKeys<'_> {
    fn len(&self) -> usize {
        match self {
            Self::InRust(keys, group) => keys.num_keys(*group),
            Self::Listed(keys) => keys.len(),
        }
    }

    fn prefix(&self, places: Range<usize>, tier: &HostTier) -> Option<usize> {
        match self {
            Self::InRust(keys, group) => keys.lookup_prefix(*group, places, tier),
            Self::Listed(keys) => tier.lookup_prefix(keys[places].iter().copied()),
        }
    }

    fn window(
        &self,
        places: Range<usize>,
        (window, first_window): (usize, usize),
        tier: &HostTier,
    ) -> Option<usize> {
        match self {
            Self::InRust(keys, group) => {
                tier.lookup_window(keys.keys(*group, places), window, first_window)
            }
            Self::Listed(keys) => {
                tier.lookup_window(keys[places].iter().copied(), window, first_window)
            }
        }
    }

    fn is_any_loading(&self, places: Range<usize>, tier: &HostTier) -> bool {
        match self {
            Self::InRust(keys, group) => tier.is_any_loading(keys.keys(*group, places)),
            Self::Listed(keys) => tier.is_any_loading(keys[places].iter().copied()),
        }
    }
}

impl KeysByPlace for ReadKeys<'_> {
    fn at(&self, place: usize) -> CacheKey {
        match self {
            Self::InRust(keys, group) => keys.key(*group, place),
            Self::Listed(keys) => keys[place],
        }
    }
}

/// Keys of all groups that are loaded.
pub(super) enum LoadedKeys<'py> {
    InRust(ChunkKeys),
    Listed(Bound<'py, PyList>),
}

impl<'py> LoadedKeys<'py> {
    /// Returns no key yet, for keys of groups such as these.
    pub(super) fn new(py: Python<'py>, groups: &[KeysOfGroup<'py>]) -> Self {
        match groups.first() {
            Some(KeysOfGroup::InRust(keys)) => {
                Self::InRust(ChunkKeys::empty_of(keys.get().of_request(py)))
            }
            _ => Self::Listed(PyList::empty(py)),
        }
    }

    /// Adds the keys of a group at these places, and returns them.
    pub(super) fn add(
        &mut self,
        keys: &KeysOfGroup<'py>,
        places: Range<usize>,
    ) -> PyResult<Bound<'py, PyAny>> {
        match (self, keys) {
            (Self::InRust(all), KeysOfGroup::InRust(keys)) => {
                let mut part = ChunkKeys::empty_of(keys.get().of_request(keys.py()));
                part.add(keys.get().group(), places.clone());
                all.add(keys.get().group(), places);
                Ok(Bound::new(keys.py(), part)?.into_any())
            }
            (Self::Listed(all), KeysOfGroup::Listed(keys)) => {
                let part = keys.get_slice(places.start, places.end).into_any();
                all.as_any().call_method1("extend", (&part,))?;
                Ok(part)
            }
            _ => Err(pyo3::exceptions::PyTypeError::new_err(
                "the key lists of a request must all be kvoxide's or all be Python lists",
            )),
        }
    }
}

//! Hashes of the host tier's keys. Like vLLM's tier, it accepts hashes of several lengths.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use kvoxide_core::{BlockHash, CacheKey};

use crate::ffi::{hash_error, hash_of, key_of_known_len, packed_key, unpacked};

/// The lengths of all hashes of a tier or a request. A hash shows its own length only if it is
/// padded. So the lengths are known exactly only if all hashes are padded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum HashLengths {
    /// Each hash has [`BlockHash::MAX_LEN`] bytes.
    Longest,
    /// Each hash has fewer bytes.
    Shorter,
}

impl HashLengths {
    /// Returns the lengths of hashes. One of them has `len` bytes.
    pub(super) fn of(len: usize) -> Self {
        if len == BlockHash::MAX_LEN { Self::Longest } else { Self::Shorter }
    }

    /// Returns the hash of these bytes. The first hash sets the lengths.
    pub(crate) fn hash(
        py: Python<'_>,
        bytes: &[u8],
        lengths: &mut Option<Self>,
    ) -> PyResult<BlockHash> {
        let hash = hash_of(py, bytes)?;
        Self::of(bytes.len()).agree(py, lengths)?;
        Ok(hash)
    }

    /// Returns the key from its packed form. The first key sets the lengths.
    pub(crate) fn key(
        packed: &Bound<'_, PyBytes>,
        lengths: &mut Option<Self>,
    ) -> PyResult<CacheKey> {
        let (hash, group) = unpacked(packed)?;
        let hash = Self::hash(packed.py(), hash, lengths)?;
        Ok(CacheKey { hash, group })
    }

    /// Returns the key from its packed form; `None` if its length differs from the known lengths.
    pub(crate) fn known_key(
        packed: &Bound<'_, PyBytes>,
        lengths: Option<Self>,
    ) -> PyResult<Option<CacheKey>> {
        key_of_known_len(packed, |len| Some(Self::of(len)) == lengths)
    }

    /// Sets unknown lengths to these lengths. Raises an error if the known lengths differ.
    pub(crate) fn agree(self, py: Python<'_>, lengths: &mut Option<Self>) -> PyResult<()> {
        let expected = *lengths.get_or_insert(self);
        if expected == self {
            return Ok(());
        }
        let [given, expected] = [self, expected].map(|lengths| match lengths {
            Self::Longest => "32",
            Self::Shorter => "fewer than 32",
        });
        let message =
            format!("a block hash has {given} bytes; the hashes in this tier have {expected}");
        Err(hash_error(py, message))
    }

    /// Returns the key as vLLM packs it.
    pub(crate) fn packed<'py>(
        lengths: Option<Self>,
        py: Python<'py>,
        key: &CacheKey,
    ) -> Bound<'py, PyBytes> {
        let len = match lengths {
            Some(Self::Shorter) => key.hash.padded_len(),
            _ => BlockHash::MAX_LEN,
        };
        packed_key(py, key, len)
    }
}

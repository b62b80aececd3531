//! Block hashes and keys, as bytes in Python.

use numpy::{PyReadonlyArray2, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use kvoxide_core::block_hash::HashAlgorithm;
use kvoxide_core::{BlockHash, CacheKey, GroupId};

use super::errors::{block_error, config_error, hash_error, or_raised, request_error};

/// Hashes of one length that the caller computed.
#[derive(Default)]
pub(crate) struct Hashes {
    pub(crate) hashes: Vec<BlockHash>,
    /// The number of bytes of each hash; 0 if there is none.
    pub(crate) hash_len: usize,
}

impl Hashes {
    /// Returns the hashes in a sequence of bytes or a 2-d uint8 array.
    pub(crate) fn extract(value: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(array) = value.extract::<PyReadonlyArray2<'_, u8>>() {
            let rows = array.as_array();
            return Self::new(value.py(), rows.rows().into_iter().map(|row| row.to_vec()));
        }
        if let Ok(array) = value.cast::<PyUntypedArray>() {
            let message = format!(
                "block hashes are an array of dtype {} and {} dimensions. Give a 2-d array of \
                 uint8, one row for each hash",
                array.dtype(),
                array.ndim()
            );
            return Err(request_error(value.py(), message));
        }
        let py = value.py();
        let hashes = value.extract::<Vec<Bound<'_, PyBytes>>>().map_err(|error| {
            or_raised(error, py, || {
                request_error(
                    py,
                    "block hashes must be a sequence of bytes or an array of uint8".into(),
                )
            })
        })?;
        Self::new(value.py(), hashes.iter().map(|hash| hash.as_bytes()))
    }

    /// Returns a single hash.
    pub(crate) fn of_one(hash: &Bound<'_, PyBytes>) -> PyResult<Self> {
        Self::new(hash.py(), std::iter::once(hash.as_bytes()))
    }

    fn new(py: Python<'_>, rows: impl Iterator<Item = impl AsRef<[u8]>>) -> PyResult<Self> {
        let mut made = Self::default();
        for row in rows {
            let row = row.as_ref();
            let hash = hash_of(py, row)?;
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

/// Returns the hash of bytes. The number of bytes can be too large, or 0.
pub(crate) fn hash_of(py: Python<'_>, bytes: &[u8]) -> PyResult<BlockHash> {
    BlockHash::from_slice(bytes).ok_or_else(|| {
        hash_error(py, format!("a block hash has {} bytes; allowed are 1 to 32", bytes.len()))
    })
}

/// Returns a hash as the bytes from which it was created.
pub(crate) fn hash_bytes<'py>(
    py: Python<'py>,
    hash: &BlockHash,
    hash_len: usize,
) -> Bound<'py, PyBytes> {
    PyBytes::new(py, &hash.to_bytes()[..hash_len])
}

/// Returns a hash from bytes. It must be as long as the manager's hashes. The first hash sets this
/// length.
pub(crate) fn block_hash(
    value: &Bound<'_, PyAny>,
    hash_len: &mut Option<usize>,
) -> PyResult<BlockHash> {
    hash_of_len(value.py(), value.cast::<PyBytes>()?.as_bytes(), hash_len)
}

fn hash_of_len(py: Python<'_>, bytes: &[u8], hash_len: &mut Option<usize>) -> PyResult<BlockHash> {
    let expected = hash_len.unwrap_or(bytes.len());
    match BlockHash::from_slice(bytes).filter(|_| bytes.len() == expected) {
        Some(hash) => {
            *hash_len = Some(expected);
            Ok(hash)
        }
        None => {
            let message = format!(
                "a block hash has {} bytes; this manager's hashes have {expected}, and at most 32 \
                 are allowed",
                bytes.len()
            );
            Err(hash_error(py, message))
        }
    }
}

/// Returns a hash to look up; `None` if its length differs from the manager's hashes, since no
/// block has such a hash.
pub(crate) fn known_hash(
    value: &Bound<'_, PyAny>,
    hash_len: Option<usize>,
) -> PyResult<Option<BlockHash>> {
    let bytes = value.cast::<PyBytes>()?.as_bytes();
    Ok(BlockHash::from_slice(bytes).filter(|_| Some(bytes.len()) == hash_len))
}

/// Returns a key in vLLM's packed form: the hash, then the group in 4 bytes, big-endian.
pub(crate) fn packed_key<'py>(
    py: Python<'py>,
    key: &CacheKey,
    hash_len: usize,
) -> Bound<'py, PyBytes> {
    let mut bytes = [0; BlockHash::MAX_LEN + 4];
    bytes[..BlockHash::MAX_LEN].copy_from_slice(&key.hash.to_bytes());
    bytes[hash_len..hash_len + 4].copy_from_slice(&u32::from(key.group).to_be_bytes());
    PyBytes::new(py, &bytes[..hash_len + 4])
}

/// Returns a key from its packed form. Its hash must be as long as the manager's hashes. The first
/// hash sets this length.
pub(crate) fn unpacked_key(
    packed: &Bound<'_, PyBytes>,
    hash_len: &mut Option<usize>,
) -> PyResult<CacheKey> {
    let (hash, group) = unpacked(packed)?;
    let hash = hash_of_len(packed.py(), hash, hash_len)?;
    Ok(CacheKey { hash, group })
}

/// Returns a key to look up; `None` if the length of its hash differs from the manager's hashes,
/// since no block has such a key.
pub(crate) fn known_key(
    packed: &Bound<'_, PyBytes>,
    hash_len: Option<usize>,
) -> PyResult<Option<CacheKey>> {
    key_of_known_len(packed, |len| Some(len) == hash_len)
}

/// Returns a key to look up; `None` if its hash has a length that `is_known` refuses.
pub(crate) fn key_of_known_len(
    packed: &Bound<'_, PyBytes>,
    is_known: impl FnOnce(usize) -> bool,
) -> PyResult<Option<CacheKey>> {
    let (hash, group) = unpacked(packed)?;
    let hash = BlockHash::from_slice(hash).filter(|_| is_known(hash.len()));
    Ok(hash.map(|hash| CacheKey { hash, group }))
}

/// Returns the hash and the group of a packed key.
pub(crate) fn unpacked<'a>(packed: &'a Bound<'_, PyBytes>) -> PyResult<(&'a [u8], GroupId)> {
    let refuse =
        || block_error(packed.py(), "a key is a block hash followed by a group id of 4 bytes");
    let (hash, group) = packed.as_bytes().split_last_chunk::<4>().ok_or_else(refuse)?;
    let group = GroupId::try_from(u32::from_be_bytes(*group)).map_err(|_| refuse())?;
    Ok((hash, group))
}

/// Returns the algorithm with a name.
pub(crate) fn algorithm_named(py: Python<'_>, name: &str) -> PyResult<HashAlgorithm> {
    HashAlgorithm::named(name).ok_or_else(|| {
        let names = HashAlgorithm::ALL.map(|(name, _)| format!("'{name}'")).join(", ");
        config_error(py, format!("algorithm is '{name}'; it can be one of {names}"))
    })
}

//! Block hashing of vLLM's requests.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyList, PyNone, PyString, PyTuple};

use kvoxide_core::BlockHash;
use kvoxide_core::block_hash::{Chain, HashAlgorithm, Identity, Key};

use crate::ffi::{HashChain, algorithm_named, block_size_in_tokens, contained, hash_bytes};

/// The number of tokens from which on hashing takes longer than getting the GIL back from another
/// thread.
const MIN_TOKENS_WITHOUT_GIL: usize = 4_096;

/// The number of hashes of a prompt below which reading them from the list is as fast.
const MIN_KEPT: usize = 16;

/// The maximum depth of keys. vLLM hashes keys that are nested deeper.
const MAX_KEY_DEPTH: usize = 8;

/// Hashes blocks of vLLM's requests.
#[pyclass(module = "kvoxide._core_vllm", name = "VllmBlockHasher", frozen)]
pub(crate) struct VllmBlockHasher {
    algorithm: HashAlgorithm,
    block_size: usize,
    num_lookahead_tokens: usize,
}

#[pymethods]
impl VllmBlockHasher {
    #[new]
    #[pyo3(signature = (block_size, algorithm, num_lookahead_tokens=0))]
    fn new(
        py: Python<'_>,
        block_size: i64,
        algorithm: &str,
        num_lookahead_tokens: usize,
    ) -> PyResult<Self> {
        Ok(Self {
            algorithm: algorithm_named(py, algorithm)?,
            block_size: block_size_in_tokens(py, block_size)?,
            num_lookahead_tokens,
        })
    }

    #[pyo3(signature = (parent, tokens, start, num_blocks, keys=None))]
    fn hash_blocks<'py>(
        &self,
        py: Python<'py>,
        parent: &Bound<'py, PyAny>,
        tokens: &Bound<'py, PyAny>,
        start: usize,
        num_blocks: usize,
        keys: Option<&Bound<'py, PyList>>,
    ) -> PyResult<Bound<'py, PyList>> {
        self.list(py, &self.hash(py, parent, tokens, start, num_blocks, keys)?)
    }

    /// Returns the hashes from the first block on, as a list and in Rust.
    #[pyo3(signature = (parent, tokens, num_blocks, keys=None))]
    fn hash_prompt<'py>(
        &self,
        py: Python<'py>,
        parent: &Bound<'py, PyAny>,
        tokens: &Bound<'py, PyAny>,
        num_blocks: usize,
        keys: Option<&Bound<'py, PyList>>,
    ) -> PyResult<(Bound<'py, PyList>, Option<HashChain>)> {
        let hashes = self.hash(py, parent, tokens, 0, num_blocks, keys)?;
        let list = self.list(py, &hashes)?;
        let is_kept = self.algorithm.hash_len() == BlockHash::MAX_LEN && hashes.len() >= MIN_KEPT;
        Ok((list, is_kept.then(|| HashChain(Arc::new(hashes)))))
    }
}

impl VllmBlockHasher {
    fn hash(
        &self,
        py: Python<'_>,
        parent: &Bound<'_, PyAny>,
        tokens: &Bound<'_, PyAny>,
        start: usize,
        num_blocks: usize,
        keys: Option<&Bound<'_, PyList>>,
    ) -> PyResult<Vec<BlockHash>> {
        let (Ok(parent), Ok(tokens)) =
            (parent.cast_exact::<PyBytes>(), tokens.cast_exact::<PyList>())
        else {
            return Ok(Vec::new());
        };
        let keys = Keys::read(keys, parent, num_blocks);
        let num_tokens = match keys.num_blocks {
            0 => 0,
            num_blocks => {
                num_blocks.saturating_mul(self.block_size).saturating_add(self.num_lookahead_tokens)
            }
        };
        let tokens = read_tokens(tokens, start, num_tokens);
        let chain = Chain {
            parent: parent.as_bytes(),
            tokens: &tokens,
            block_size: self.block_size,
            num_lookahead_tokens: self.num_lookahead_tokens,
            keys: &keys.keys,
        };
        contained(py, || {
            Ok(match tokens.len() < MIN_TOKENS_WITHOUT_GIL {
                true => chain.hash(self.algorithm),
                false => py.detach(|| chain.hash(self.algorithm)),
            })
        })
    }

    fn list<'py>(&self, py: Python<'py>, hashes: &[BlockHash]) -> PyResult<Bound<'py, PyList>> {
        let hash_len = self.algorithm.hash_len();
        PyList::new(py, hashes.iter().map(|hash| hash_bytes(py, hash, hash_len)))
    }
}

/// Returns the tokens from `start` on, up to the first one that is not a plain `int` within 64
/// bits.
fn read_tokens(tokens: &Bound<'_, PyList>, start: usize, num_tokens: usize) -> Vec<i64> {
    let end = start.saturating_add(num_tokens).min(tokens.len());
    let mut read = Vec::with_capacity(end.saturating_sub(start));
    read.extend((start..end).map_while(|i| plain_int(&tokens.get_item(i).ok()?)));
    read
}

#[inline]
fn plain_int(value: &Bound<'_, PyAny>) -> Option<i64> {
    // Subclasses, such as bool, are encoded in their own way.
    if value.is_exact_instance_of::<PyInt>() { value.extract().ok() } else { None }
}

/// The extra keys of the first blocks, up to the first key that cannot be encoded here.
struct Keys {
    keys: Vec<Key>,
    num_blocks: usize,
}

impl Keys {
    /// Reads the keys of each block. The last entry also applies to all later blocks.
    fn read(
        keys: Option<&Bound<'_, PyList>>,
        parent: &Bound<'_, PyBytes>,
        num_blocks: usize,
    ) -> Self {
        let given = keys.map_or(0, |keys| keys.len());
        let mut read = Vec::with_capacity(given);
        let values = keys.into_iter().flatten();
        read.extend(values.map_while(|key| read_key(&key, parent, 0)));
        let num_blocks = if read.len() < given { read.len().min(num_blocks) } else { num_blocks };
        Self { keys: read, num_blocks }
    }
}

/// Returns a key that consists of plain tuples, texts, byte strings, numbers and None; `None` for
/// any other key.
fn read_key(value: &Bound<'_, PyAny>, parent: &Bound<'_, PyBytes>, depth: usize) -> Option<Key> {
    let identity = Identity::Object(value.as_ptr() as usize);
    if value.is_exact_instance_of::<PyNone>() {
        Some(Key::None)
    } else if let Ok(text) = value.cast_exact::<PyString>() {
        Some(Key::Text(identity, text.to_str().ok()?.into()))
    } else if let Ok(bytes) = value.cast_exact::<PyBytes>() {
        // The parent is an object too, so a pickle would refer back to it.
        (!value.is(parent)).then(|| Key::Bytes(identity, bytes.as_bytes().into()))
    } else if let Ok(items) = value.cast_exact::<PyTuple>() {
        if depth == MAX_KEY_DEPTH {
            return None;
        }
        let mut read = Vec::with_capacity(items.len());
        for item in items.iter_borrowed() {
            read.push(read_key(&item, parent, depth + 1)?);
        }
        Some(Key::Tuple(identity, read))
    } else {
        plain_int(value).map(Key::Int)
    }
}

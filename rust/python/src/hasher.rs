//! Block hashing for Python.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use kvoxide_core::block_hash::{BlockHasher, ExtraKeys, HashAlgorithm};

use crate::config::{config_error, size};
use crate::panics::contained;
use crate::tokens::{hash_bytes, token_ids};

/// Computes block hashes.
#[pyclass(module = "kvoxide", name = "BlockHasher", frozen, from_py_object)]
#[derive(Clone)]
pub struct PyBlockHasher {
    pub hasher: BlockHasher,
}

#[pymethods]
impl PyBlockHasher {
    #[new]
    #[pyo3(signature = (block_size, algorithm="sha256_cbor", *, seed=BlockHasher::DEFAULT_SEED))]
    fn new(py: Python<'_>, block_size: i64, algorithm: &str, seed: &str) -> PyResult<Self> {
        let algorithm = algorithm_named(py, algorithm)?;
        let block_size = block_size_in_tokens(py, block_size)?;
        Ok(Self { hasher: BlockHasher::new(algorithm, block_size, seed) })
    }

    #[getter]
    fn block_size(&self) -> usize {
        self.hasher.block_size()
    }

    #[getter]
    fn algorithm(&self) -> &'static str {
        self.hasher.algorithm().name()
    }

    fn hash_tokens<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = token_ids)] token_ids: Vec<i64>,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        contained(py, || {
            let mut hashes = Vec::new();
            py.detach(|| self.hasher.extend(&mut hashes, &token_ids, &ExtraKeys::default()));
            let hash_len = self.hasher.algorithm().hash_len();
            Ok(hashes.iter().map(|hash| hash_bytes(py, hash, hash_len)).collect())
        })
    }
}

/// The algorithm of a name that Python gives.
pub fn algorithm_named(py: Python<'_>, name: &str) -> PyResult<HashAlgorithm> {
    HashAlgorithm::named(name).ok_or_else(|| {
        let names = HashAlgorithm::ALL.map(|(name, _)| format!("'{name}'")).join(", ");
        config_error(py, format!("algorithm is '{name}'; it can be one of {names}"))
    })
}

/// A number of tokens per hash that Python gives.
pub fn block_size_in_tokens(py: Python<'_>, block_size: i64) -> PyResult<usize> {
    match size(py, "block_size", block_size)? {
        0 => Err(config_error(py, "block_size is 0; it must be at least 1 token".into())),
        block_size => Ok(block_size),
    }
}

//! Block hashing for Python.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use kvoxide_core::block_hash::{BlockHasher, ExtraKeys, HashAlgorithm};

use crate::config::{config_error, size};
use crate::tokens::{hash_bytes, token_ids};

/// Computes block hashes.
#[pyclass(module = "kvoxide", name = "BlockHasher", frozen)]
#[derive(Clone)]
pub struct PyBlockHasher {
    pub hasher: BlockHasher,
}

#[pymethods]
impl PyBlockHasher {
    #[new]
    #[pyo3(signature = (block_size, algorithm="sha256_cbor", *, seed=BlockHasher::DEFAULT_SEED))]
    fn new(py: Python<'_>, block_size: i64, algorithm: &str, seed: &str) -> PyResult<Self> {
        let names = HashAlgorithm::ALL.map(|(name, _)| name).join("' or '");
        let known = HashAlgorithm::ALL.into_iter().find(|(name, _)| *name == algorithm);
        let (_, algorithm) = known.ok_or_else(|| {
            config_error(py, format!("algorithm is '{algorithm}'; it can be '{names}'"))
        })?;
        let block_size = size(py, "block_size", block_size)?;
        if block_size == 0 {
            return Err(config_error(py, "block_size is 0; it must be at least 1 token".into()));
        }
        Ok(Self { hasher: BlockHasher::new(algorithm, block_size, seed) })
    }

    #[getter]
    fn block_size(&self) -> usize {
        self.hasher.block_size()
    }

    #[getter]
    fn algorithm(&self) -> &'static str {
        let own = HashAlgorithm::ALL.into_iter().find(|(_, a)| *a == self.hasher.algorithm());
        own.map_or("", |(name, _)| name)
    }

    fn hash_tokens<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = token_ids)] token_ids: Vec<i64>,
    ) -> Vec<Bound<'py, PyBytes>> {
        let mut hashes = Vec::new();
        py.detach(|| self.hasher.extend(&mut hashes, &token_ids, &ExtraKeys::default()));
        let hash_len = self.hasher.algorithm().hash_len();
        hashes.iter().map(|hash| hash_bytes(py, hash, hash_len)).collect()
    }
}

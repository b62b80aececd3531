//! Block hashing for Python.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use kvoxide_core::block_hash::{BlockHasher, ExtraKeys};

use crate::ffi::{algorithm_named, block_size_in_tokens, contained, hash_bytes, token_ids};

/// Computes block hashes.
#[pyclass(module = "kvoxide", name = "BlockHasher", frozen, from_py_object)]
#[derive(Clone)]
pub(crate) struct PyBlockHasher {
    pub(super) hasher: BlockHasher,
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

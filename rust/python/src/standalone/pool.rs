//! The block pool of a manager, for Python.

use std::sync::Arc;

use numpy::PyArray1;
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use kvoxide_core::{BlockId, NULL_BLOCK};

use super::blocks::PyBlock;
use super::state::StateCell;
use crate::ffi::{
    Hashes, Owner, WithCore, block_error, found, id_array, or_raised, place, pool_methods,
};

/// The block pool of a manager.
#[pyclass(module = "kvoxide", name = "BlockPool", frozen)]
pub(crate) struct PyBlockPool {
    pub(super) cell: Arc<StateCell>,
}

pool_methods!(PyBlockPool, cell);

#[pymethods]
impl PyBlockPool {
    #[getter]
    fn num_gpu_blocks(&self, py: Python<'_>) -> PyResult<usize> {
        self.cell.ask(py, |core| core.pool().num_blocks())
    }

    #[getter]
    fn null_block(&self) -> PyBlock {
        PyBlock::new(&self.cell, NULL_BLOCK)
    }

    #[getter]
    fn blocks(&self, py: Python<'_>) -> PyResult<BlockSequence> {
        Ok(BlockSequence { cell: self.cell.clone(), len: self.num_gpu_blocks(py)? })
    }

    fn get_num_cached_blocks(&self, py: Python<'_>) -> PyResult<usize> {
        self.cell.ask(py, |core| core.pool().index().num_cached())
    }

    fn get_usage(&self, py: Python<'_>) -> PyResult<f64> {
        self.cell.ask(py, |core| core.pool().usage())
    }

    fn get_free_block_ids<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<i32>>> {
        self.cell.ask(py, |core| {
            id_array(py, core.pool().free_blocks().chain(core.pool().listed_blocks()))
        })
    }

    fn get_pinned_block_ids<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<i32>>> {
        self.cell.ask(py, |core| id_array(py, core.pool().pinned_blocks()))
    }

    fn get_cached_block<'py>(
        &self,
        py: Python<'py>,
        block_hash: &Bound<'py, PyBytes>,
        kv_cache_group_ids: Vec<i64>,
    ) -> PyResult<Option<Bound<'py, PyList>>> {
        let hashes = Hashes::of_one(block_hash)?;
        self.cell.read(py, |state| {
            let groups = kv_cache_group_ids.into_iter().map(|group| state.group_id(py, group));
            let groups = groups.collect::<PyResult<Vec<_>>>()?;
            let found = found(&state.core, Some(hashes.hashes[0]), groups);
            found.map(|ids| self.cell.objects(py, ids)).transpose()
        })
    }

    #[pyo3(name = "evict_blocks")]
    fn py_evict_blocks(&self, block_ids: &Bound<'_, PyAny>) -> PyResult<()> {
        evict_blocks(&self.cell, block_ids)
    }

    fn take_events<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        take_events(&self.cell, py)
    }
}

/// Every block of a pool. Views are created on access.
#[pyclass(module = "kvoxide", frozen, sequence)]
struct BlockSequence {
    cell: Arc<StateCell>,
    len: usize,
}

#[pymethods]
impl BlockSequence {
    fn __len__(&self) -> usize {
        self.len
    }

    fn __getitem__(&self, index: isize) -> PyResult<PyBlock> {
        let id = place(index, self.len).ok_or_else(|| {
            PyIndexError::new_err(format!("block {index} of a pool of {} blocks", self.len))
        })?;
        Ok(PyBlock::new(&self.cell, id as BlockId))
    }
}

/// Evicts blocks from the prefix cache.
pub(super) fn evict_blocks(cell: &StateCell, block_ids: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = block_ids.py();
    let num_blocks = cell.ask(py, |core| core.config().num_blocks)?;
    let id_of = |id: PyResult<Bound<'_, PyAny>>| {
        let id = id?;
        let refusal = || {
            let last = num_blocks - 1;
            let id = id.repr().map_or_else(|_| "?".into(), |id| id.to_string());
            block_error(py, &format!("block id {id} is outside the pool; ids are 0 to {last}"))
        };
        match id.extract::<BlockId>() {
            Ok(id) if (id as usize) < num_blocks => Ok(id),
            Ok(_) => Err(refusal()),
            Err(error) => Err(or_raised(error, py, refusal)),
        }
    };
    let ids = block_ids.try_iter()?.map(id_of).collect::<PyResult<Vec<_>>>()?;
    cell.change(py, "evict_blocks", |state| state.change(py, None, |core| core.evict_blocks(&ids)))
}

/// Returns the events since the last call.
pub(super) fn take_events<'py>(cell: &StateCell, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
    cell.change(py, "take_events", |state| cell.or_poison(py, state.take_events(py)))
}

//! The block pool of a manager, as Python sees it.

use numpy::{IntoPyArray, PyArray1};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use kvoxide_core::block::CacheKey;
use kvoxide_core::{BlockId, NULL_BLOCK};

use crate::blocks::PyBlock;
use crate::errors::block_error;
use crate::gate::Gate;
use crate::manager::PyManager;
use crate::state::State;
use crate::tokens::{Hashes, or_raised};

/// The blocks behind a manager.
#[pyclass(module = "kvoxide", name = "BlockPool", frozen)]
pub struct PyBlockPool {
    pub manager: Py<PyManager>,
}

impl PyBlockPool {
    fn gate(&self) -> &Gate<State> {
        &self.manager.get().gate
    }

    fn view(&self, py: Python<'_>, id: BlockId) -> PyBlock {
        PyBlock { manager: self.manager.clone_ref(py), id }
    }

    /// The ids of block objects, all of which must be of this pool.
    fn ids(&self, blocks: &Bound<'_, PyAny>) -> PyResult<Vec<BlockId>> {
        let id_of = |block: PyResult<Bound<'_, PyAny>>| {
            let block = block?;
            let view = block.cast::<PyBlock>()?.get();
            match view.manager.is(&self.manager) {
                true => Ok(view.id),
                false => Err(block_error(blocks.py(), "a block is of another pool")),
            }
        };
        blocks.try_iter()?.map(id_of).collect()
    }
}

#[pymethods]
impl PyBlockPool {
    #[getter]
    fn num_gpu_blocks(&self, py: Python<'_>) -> PyResult<usize> {
        self.gate().read(py, |state| Ok(state.core.pool().num_blocks()))
    }

    #[getter]
    fn null_block(&self, py: Python<'_>) -> PyBlock {
        self.view(py, NULL_BLOCK)
    }

    #[getter]
    fn blocks(&self, py: Python<'_>) -> PyResult<BlockSequence> {
        let len = self.num_gpu_blocks(py)?;
        Ok(BlockSequence { manager: self.manager.clone_ref(py), len })
    }

    fn get_num_free_blocks(&self, py: Python<'_>) -> PyResult<usize> {
        self.gate().read(py, |state| Ok(state.core.pool().num_free_blocks()))
    }

    fn get_num_pinned_blocks(&self, py: Python<'_>) -> PyResult<usize> {
        self.gate().read(py, |state| Ok(state.core.pool().num_pinned_blocks()))
    }

    fn get_num_cached_blocks(&self, py: Python<'_>) -> PyResult<usize> {
        self.gate().read(py, |state| Ok(state.core.pool().num_cached_blocks()))
    }

    fn get_usage(&self, py: Python<'_>) -> PyResult<f64> {
        self.gate().read(py, |state| Ok(state.core.pool().usage()))
    }

    fn get_free_block_ids<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<i32>>> {
        self.gate().read(py, |state| Ok(id_array(py, state.core.pool().free_blocks())))
    }

    fn get_pinned_block_ids<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<i32>>> {
        self.gate().read(py, |state| Ok(id_array(py, state.core.pool().pinned_blocks())))
    }

    fn get_cached_block<'py>(
        &self,
        py: Python<'py>,
        block_hash: &Bound<'py, PyBytes>,
        kv_cache_group_ids: Vec<i64>,
    ) -> PyResult<Option<Bound<'py, PyList>>> {
        let hashes = Hashes::of_one(block_hash)?;
        self.gate().read(py, |state| {
            let groups = kv_cache_group_ids.into_iter().map(|group| state.group_id(py, group));
            let groups = groups.collect::<PyResult<Vec<_>>>()?;
            let hash = hashes.hashes[0];
            let find = |group| state.core.pool().find(&CacheKey { hash, group });
            let found = groups.into_iter().map(find).collect::<Option<Vec<_>>>();
            found.map(|ids| PyBlock::list(py, &self.manager, ids)).transpose()
        })
    }

    fn get_new_blocks<'py>(
        &self,
        py: Python<'py>,
        num_blocks: i64,
    ) -> PyResult<Bound<'py, PyList>> {
        let num_blocks = usize::try_from(num_blocks).map_err(|_| {
            block_error(py, &format!("num_blocks is {num_blocks}; it must not be negative"))
        })?;
        self.gate().change(py, "get_new_blocks", |state| {
            let mut ids = Vec::new();
            state.change(py, None, |core| {
                core.pool().check_free(num_blocks)?;
                core.pool_mut().take(num_blocks, &mut ids);
                Ok(())
            })?;
            self.gate().handed_out(py, PyBlock::list(py, &self.manager, ids))
        })
    }

    fn touch(&self, py: Python<'_>, blocks: &Bound<'_, PyAny>) -> PyResult<()> {
        let ids = self.ids(blocks)?;
        self.gate().change(py, "touch", |state| {
            state.change(py, None, |core| {
                core.pool_mut().touch(&ids);
                Ok(())
            })
        })
    }

    fn free_blocks(&self, py: Python<'_>, ordered_blocks: &Bound<'_, PyAny>) -> PyResult<()> {
        let ids = self.ids(ordered_blocks)?;
        self.gate().change(py, "free_blocks", |state| {
            state.change(py, None, |core| core.release_blocks(&ids))
        })
    }

    fn evict_blocks(&self, block_ids: &Bound<'_, PyAny>) -> PyResult<()> {
        self.manager.get().evict_blocks(block_ids)
    }

    fn reset_prefix_cache(&self, py: Python<'_>) -> PyResult<bool> {
        self.gate().change(py, "reset_prefix_cache", |state| state.reset_pool(py))
    }

    fn take_events<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.gate()
            .change(py, "take_events", |state| self.gate().handed_out(py, state.take_events(py)))
    }
}

/// Every block of a pool, as views made on access.
#[pyclass(module = "kvoxide", frozen, sequence)]
pub struct BlockSequence {
    manager: Py<PyManager>,
    len: usize,
}

#[pymethods]
impl BlockSequence {
    fn __len__(&self) -> usize {
        self.len
    }

    fn __getitem__(&self, py: Python<'_>, index: isize) -> PyResult<PyBlock> {
        let from_start = if index < 0 { index + self.len as isize } else { index };
        let is_inside = (0..self.len as isize).contains(&from_start);
        if !is_inside {
            let message = format!("block {index} of a pool of {} blocks", self.len);
            return Err(PyIndexError::new_err(message));
        }
        Ok(PyBlock { manager: self.manager.clone_ref(py), id: from_start as BlockId })
    }
}

impl PyManager {
    /// Takes blocks out of the prefix cache.
    pub fn evict_blocks(&self, block_ids: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = block_ids.py();
        let num_blocks = self.gate.read(py, |state| Ok(state.core.config().num_blocks))?;
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
        self.gate.change(py, "evict_blocks", |state| {
            state.change(py, None, |core| core.evict_blocks(&ids))
        })
    }
}

fn id_array(py: Python<'_>, ids: impl Iterator<Item = BlockId>) -> Bound<'_, PyArray1<i32>> {
    ids.map(|id| id as i32).collect::<Vec<_>>().into_pyarray(py)
}

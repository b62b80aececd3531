//! Views of blocks, and lists of them that hold ids until objects are asked for.

use std::sync::Arc;

use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use kvoxide_core::{BlockId, GroupBlocks, NULL_BLOCK};

use crate::errors::{block_error, request_error};
use crate::id_lists::id_list;
use crate::manager::PyManager;
use crate::panics::contained;
use crate::state::State;
use crate::tokens::hash_bytes;

/// A view of one block.
#[pyclass(module = "kvoxide", name = "KVCacheBlock", frozen)]
pub struct PyBlock {
    pub manager: Py<PyManager>,
    pub id: BlockId,
}

impl PyBlock {
    /// Views of blocks, in their order.
    pub fn list<'py>(
        py: Python<'py>,
        manager: &Py<PyManager>,
        ids: impl IntoIterator<Item = BlockId>,
    ) -> PyResult<Bound<'py, PyList>> {
        let views = ids.into_iter().map(|id| Self { manager: manager.clone_ref(py), id });
        let views = views.map(|view| Bound::new(py, view)).collect::<PyResult<Vec<_>>>()?;
        PyList::new(py, views)
    }

    fn with<T>(&self, py: Python<'_>, read: impl FnOnce(&State, BlockId) -> T) -> PyResult<T> {
        self.manager.get().gate.read(py, |state| Ok(read(state, self.id)))
    }
}

#[pymethods]
impl PyBlock {
    #[getter]
    fn block_id(&self) -> BlockId {
        self.id
    }

    #[getter]
    fn ref_cnt(&self, py: Python<'_>) -> PyResult<u32> {
        self.with(py, |state, id| state.core.pool().states().ref_count(id))
    }

    #[getter]
    fn block_hash<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        self.with(py, |state, id| {
            let key = state.core.pool().states().key(id)?;
            let mut bytes = hash_bytes(py, &key.hash, state.hash_len()).as_bytes().to_vec();
            bytes.extend(u32::from(key.group).to_be_bytes());
            Some(PyBytes::new(py, &bytes))
        })
    }

    #[getter]
    fn block_hash_num_tokens(&self, py: Python<'_>) -> PyResult<Option<usize>> {
        self.with(py, |state, id| state.core.pool().states().hash_num_tokens(id))
    }

    #[getter]
    fn is_null(&self) -> bool {
        self.id == NULL_BLOCK
    }

    #[getter]
    fn is_pinned(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |state, id| state.core.pool().states().is_pinned(id))
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        let other = other.cast::<Self>().map(Bound::get);
        other.is_ok_and(|other| self.id == other.id && self.manager.is(&other.manager))
    }

    fn __hash__(&self) -> u64 {
        u64::from(self.id)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let references = self.ref_cnt(py)?;
        Ok(format!("KVCacheBlock(block_id={}, ref_cnt={references})", self.id))
    }
}

/// Blocks per group.
#[pyclass(module = "kvoxide", name = "KVCacheBlocks", frozen)]
pub struct PyBlocks {
    pub manager: Py<PyManager>,
    pub groups: Arc<Vec<GroupBlocks>>,
}

impl PyBlocks {
    /// Checks that the blocks are of this manager.
    pub fn check_owner(&self, manager: &Bound<'_, PyManager>) -> PyResult<()> {
        if self.manager.is(manager) {
            return Ok(());
        }
        Err(block_error(manager.py(), "the blocks are of another manager"))
    }

    fn selected(
        &self,
        py: Python<'_>,
        group_ids: Option<Vec<isize>>,
    ) -> PyResult<Vec<&GroupBlocks>> {
        let Some(ids) = group_ids else { return Ok(self.groups.iter().collect()) };
        let select = |id: isize| {
            let group = usize::try_from(id).ok().and_then(|id| self.groups.get(id));
            group.ok_or_else(|| {
                let last = self.groups.len() as isize - 1;
                request_error(py, format!("group id {id} is unknown; ids are 0 to {last}"))
            })
        };
        ids.into_iter().map(select).collect()
    }
}

/// Ids as an int32 array; those behind the null head are copied as one piece.
pub fn id_array<'py>(py: Python<'py>, blocks: &GroupBlocks) -> Bound<'py, PyArray1<i32>> {
    let tail: &[i32] = bytemuck::cast_slice(blocks.tail());
    if blocks.null_head() == 0 {
        return PyArray1::from_slice(py, tail);
    }
    let mut ids = vec![0; blocks.len()];
    ids[blocks.null_head()..].copy_from_slice(tail);
    ids.into_pyarray(py)
}

#[pymethods]
impl PyBlocks {
    #[getter]
    fn blocks<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        contained(py, || {
            let lists =
                self.groups.iter().map(|group| PyBlock::list(py, &self.manager, group.iter()));
            PyTuple::new(py, lists.collect::<PyResult<Vec<_>>>()?)
        })
    }

    #[pyo3(signature = (allow_none=false, *, group_ids=None))]
    fn get_block_ids<'py>(
        &self,
        py: Python<'py>,
        allow_none: bool,
        group_ids: Option<Vec<isize>>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let groups = self.selected(py, group_ids)?;
        if allow_none && groups.iter().all(|group| group.is_empty()) {
            return Ok(None);
        }
        contained(py, || {
            let lists = groups.into_iter().map(|group| id_list(py, group));
            PyTuple::new(py, lists.collect::<PyResult<Vec<_>>>()?).map(Some)
        })
    }

    #[pyo3(signature = (*, group_ids=None))]
    fn get_block_ids_numpy<'py>(
        &self,
        py: Python<'py>,
        group_ids: Option<Vec<isize>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let groups = self.selected(py, group_ids)?;
        contained(py, || {
            let arrays = groups.into_iter().map(|group| id_array(py, group));
            PyTuple::new(py, arrays.collect::<Vec<_>>())
        })
    }

    fn get_unhashed_block_ids(&self, py: Python<'_>) -> PyResult<Vec<BlockId>> {
        let [group] = &self.groups[..] else {
            let message = format!(
                "get_unhashed_block_ids is for one group; there are {}: use \
                 get_unhashed_block_ids_all_groups",
                self.groups.len()
            );
            return Err(request_error(py, message));
        };
        self.manager.get().gate.read(py, |state| {
            let states = state.core.pool().states();
            Ok(group.iter().filter(|&id| !states.is_cached(id)).collect())
        })
    }

    fn get_unhashed_block_ids_all_groups(&self, py: Python<'_>) -> PyResult<Vec<Vec<BlockId>>> {
        self.manager.get().gate.read(py, |state| {
            Ok(self.groups.iter().map(|group| state.core.pool().unhashed(group)).collect())
        })
    }

    fn new_empty(&self, py: Python<'_>) -> Self {
        Self {
            manager: self.manager.clone_ref(py),
            groups: Arc::new(vec![GroupBlocks::default(); self.groups.len()]),
        }
    }

    fn __add__(&self, py: Python<'_>, other: &Self) -> PyResult<Self> {
        if self.groups.len() != other.groups.len() || !self.manager.is(&other.manager) {
            return Err(block_error(py, "the blocks are of another manager"));
        }
        let mut groups = self.groups.as_ref().clone();
        for (group, more) in groups.iter_mut().zip(other.groups.iter()) {
            group.extend_from(more, 0);
        }
        Ok(Self { manager: self.manager.clone_ref(py), groups: Arc::new(groups) })
    }

    fn __len__(&self) -> usize {
        self.groups.len()
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        let other = other.cast::<Self>().map(Bound::get);
        other.is_ok_and(|other| {
            self.manager.is(&other.manager)
                && self.groups.len() == other.groups.len()
                && self.groups.iter().zip(other.groups.iter()).all(|(a, b)| a.iter().eq(b.iter()))
        })
    }

    fn __repr__(&self) -> String {
        let lens: Vec<_> = self.groups.iter().map(|group| group.len().to_string()).collect();
        format!("KVCacheBlocks(blocks per group: {})", lens.join(", "))
    }
}

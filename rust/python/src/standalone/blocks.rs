//! Views of blocks, and lists of blocks that remain ids until Python asks for objects.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use kvoxide_core::{BlockId, GroupBlocks, NULL_BLOCK};

use super::checks::unknown_group;
use super::state::{State, StateCell};
use crate::ffi::{
    BlockLists, BlockView, Owner, contained, foreign_blocks, list_methods, request_error,
    view_methods,
};

/// A view of one block.
#[pyclass(module = "kvoxide", name = "KVCacheBlock", frozen)]
pub(crate) struct PyBlock {
    pub(super) view: BlockView<StateCell>,
}

impl PyBlock {
    pub(super) fn new(cell: &Arc<StateCell>, id: BlockId) -> Self {
        Self { view: BlockView::new(cell, id) }
    }
}

impl Owner for StateCell {
    type State = State;

    #[inline]
    fn cell(&self) -> &StateCell {
        self
    }

    fn objects<'py>(
        self: &Arc<Self>,
        py: Python<'py>,
        ids: impl IntoIterator<Item = BlockId>,
    ) -> PyResult<Bound<'py, PyList>> {
        let views = ids.into_iter().map(|id| Bound::new(py, PyBlock::new(self, id)));
        PyList::new(py, views.collect::<PyResult<Vec<_>>>()?)
    }

    fn ids_of(self: &Arc<Self>, blocks: &Bound<'_, PyAny>) -> PyResult<Vec<BlockId>> {
        let id = |block: PyResult<Bound<'_, PyAny>>| {
            block?.cast::<PyBlock>()?.get().view.id_at(blocks.py(), self)
        };
        blocks.try_iter()?.map(id).collect()
    }
}

#[pymethods]
impl PyBlock {
    #[getter]
    fn block_id(&self) -> BlockId {
        self.view.id
    }

    #[getter]
    fn ref_cnt(&self, py: Python<'_>) -> PyResult<u32> {
        self.view.owner.ask(py, |core| core.pool().blocks().ref_count(self.view.id))
    }

    #[getter]
    fn block_hash<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        self.view.block_hash(py)
    }

    #[getter]
    fn block_hash_num_tokens(&self, py: Python<'_>) -> PyResult<Option<usize>> {
        self.view.hash_num_tokens(py)
    }

    #[getter]
    fn is_null(&self) -> bool {
        self.view.id == NULL_BLOCK
    }

    #[getter]
    fn is_pinned(&self, py: Python<'_>) -> PyResult<bool> {
        self.view.owner.ask(py, |core| core.pool().blocks().is_pinned(self.view.id))
    }
}

view_methods!(PyBlock);

/// Blocks per group.
#[pyclass(module = "kvoxide", name = "KVCacheBlocks", frozen)]
pub(crate) struct PyBlocks {
    pub(super) lists: BlockLists<StateCell>,
}

impl PyBlocks {
    fn selected(
        &self,
        py: Python<'_>,
        group_ids: Option<Vec<isize>>,
    ) -> PyResult<Vec<&GroupBlocks>> {
        let unknown = |id| unknown_group(py, id as i64, self.lists.groups.len());
        self.lists.selected(group_ids, |id| usize::try_from(id).ok(), unknown)
    }
}

#[pymethods]
impl PyBlocks {
    #[getter]
    fn blocks<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        contained(py, || {
            let BlockLists { owner, groups } = &self.lists;
            let lists = groups.iter().map(|group| owner.objects(py, group.iter()));
            PyTuple::new(py, lists.collect::<PyResult<Vec<_>>>()?)
        })
    }

    fn get_unhashed_block_ids(&self, py: Python<'_>) -> PyResult<Vec<BlockId>> {
        self.lists.unhashed_of_one(py, || {
            let message = format!(
                "get_unhashed_block_ids works only with one group, but there are {}; use \
                 get_unhashed_block_ids_all_groups",
                self.lists.groups.len()
            );
            request_error(py, message)
        })
    }

    fn get_unhashed_block_ids_all_groups(&self, py: Python<'_>) -> PyResult<Vec<Vec<BlockId>>> {
        self.lists.unhashed(py)
    }

    fn new_empty(&self) -> Self {
        Self { lists: self.lists.emptied() }
    }

    fn __add__(&self, py: Python<'_>, other: &Self) -> PyResult<Self> {
        let more = other.lists.groups_at(py, &self.lists.owner)?;
        if self.lists.groups.len() != more.len() {
            return Err(foreign_blocks(py));
        }
        Ok(Self { lists: self.lists.joined(more) })
    }

    fn __len__(&self) -> usize {
        self.lists.groups.len()
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Self>().is_ok_and(|other| self.lists.is_same(&other.get().lists))
    }
}

list_methods!(PyBlocks);

//! Blocks as vLLM's code sees them: views made when asked for, written through.

use std::sync::Arc;

use pyo3::exceptions::{PyAssertionError, PyIndexError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use kvoxide_core::{BlockId, GroupBlocks, NULL_BLOCK};

use super::engine::Engine;
use super::errors::IntoVllmResult;
use super::state::VllmState;
use super::views::MAX_SHARED;
use crate::crossing::{BlockLists, BlockView, Gate, arrays, block_error, contained, lists_or_none};

/// A view of one block.
#[pyclass(module = "kvoxide._core_vllm", name = "VllmBlock", frozen, weakref)]
pub(crate) struct VllmBlock {
    view: BlockView<Engine>,
}

impl VllmBlock {
    fn new(engine: &Arc<Engine>, id: BlockId) -> Self {
        Self { view: BlockView::new(engine, id) }
    }

    /// The view of a block that whoever asks for it gets.
    pub(super) fn shared<'py>(
        py: Python<'py>,
        engine: &Arc<Engine>,
        id: BlockId,
    ) -> PyResult<Bound<'py, Self>> {
        engine.views.of(py, id, || Self::new(engine, id))
    }

    fn gate(&self) -> &Gate<VllmState> {
        &self.view.owner.gate
    }

    /// The blocks before and after this one in its queue.
    fn neighbours(&self, py: Python<'_>) -> PyResult<(Option<BlockId>, Option<BlockId>)> {
        self.gate().ask(py, |core| core.pool().free_neighbours(self.view.id))
    }

    fn other<'py>(
        &self,
        py: Python<'py>,
        id: Option<BlockId>,
    ) -> PyResult<Option<Bound<'py, Self>>> {
        id.map(|id| Self::shared(py, &self.view.owner, id)).transpose()
    }
}

#[pymethods]
impl VllmBlock {
    #[getter]
    fn block_id(&self) -> BlockId {
        self.view.id
    }

    #[getter]
    fn ref_cnt(&self, py: Python<'_>) -> PyResult<i32> {
        // That of the null block may be below zero.
        self.gate().ask(py, |core| core.pool().ref_count(self.view.id))
    }

    #[setter]
    fn set_ref_cnt(&self, py: Python<'_>, count: u32) -> PyResult<()> {
        self.gate().edit(py, "ref_cnt", |state| {
            state.core.pool_mut().set_ref_count(self.view.id, count).into_vllm(py)
        })
    }

    #[getter]
    fn block_hash<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        self.view.block_hash(py)
    }

    #[getter(_block_hash)]
    fn private_block_hash<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        self.view.block_hash(py)
    }

    #[getter]
    fn block_hash_num_tokens(&self, py: Python<'_>) -> PyResult<Option<usize>> {
        self.view.hash_num_tokens(py)
    }

    #[pyo3(signature = (block_hash, num_tokens=None))]
    fn set_block_hash(
        &self,
        block_hash: &Bound<'_, PyBytes>,
        num_tokens: Option<usize>,
    ) -> PyResult<()> {
        self.gate().edit(block_hash.py(), "set_block_hash", |state| {
            if state.core.pool().states().is_cached(self.view.id) {
                return Err(PyAssertionError::new_err(format!(
                    "block {} has a hash already; reset it first",
                    self.view.id
                )));
            }
            state.insert_key(self.view.id, block_hash, num_tokens)
        })
    }

    fn reset_hash(&self, py: Python<'_>) -> PyResult<()> {
        self.gate().edit(py, "reset_hash", |state| {
            state.remove_keys(self.view.id);
            Ok(())
        })
    }

    #[getter]
    fn is_null(&self) -> bool {
        self.view.id == NULL_BLOCK
    }

    #[getter]
    fn pool<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.view.owner.facade(py)
    }

    #[getter]
    fn prev_free_block<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, Self>>> {
        self.other(py, self.neighbours(py)?.0)
    }

    #[getter]
    fn next_free_block<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, Self>>> {
        self.other(py, self.neighbours(py)?.1)
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Self>().is_ok_and(|other| self.view.is_same(&other.get().view))
    }

    fn __hash__(&self) -> u64 {
        u64::from(self.view.id)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.view.repr(self.ref_cnt(py)?))
    }
}

/// Blocks per group, with the interface of vLLM's class of this name.
#[pyclass(module = "kvoxide._core_vllm", name = "VllmBlocks", frozen)]
pub(crate) struct VllmBlocks {
    lists: BlockLists<Engine>,
    /// Whether a caller put it together, so that it is not the one object that stands for no
    /// blocks even if it has none.
    is_made_by_caller: bool,
}

impl VllmBlocks {
    /// Blocks that the engine hands out.
    pub(super) fn new(lists: BlockLists<Engine>) -> Self {
        Self { lists, is_made_by_caller: false }
    }

    fn of_caller(lists: BlockLists<Engine>) -> Self {
        Self { lists, is_made_by_caller: true }
    }

    /// The groups of a list of ids, which count from the end if negative.
    fn selected(&self, group_ids: Option<Vec<isize>>) -> PyResult<Vec<&GroupBlocks>> {
        let len = self.lists.groups.len();
        let index = |id: isize| {
            let from_start = if id < 0 { id.checked_add_unsigned(len)? } else { id };
            usize::try_from(from_start).ok()
        };
        self.lists.selected(group_ids, index, |id| {
            PyIndexError::new_err(format!("group id {id} is unknown; there are {len} groups"))
        })
    }
}

#[pymethods]
impl VllmBlocks {
    /// A tuple of lists of block views; without any block one of empty tuples, as in vLLM.
    #[getter]
    fn blocks<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let BlockLists { owner, groups } = &self.lists;
        if self.lists.is_empty() {
            return PyTuple::new(py, groups.iter().map(|_| PyTuple::empty(py)));
        }
        contained(py, || {
            let lists = groups.iter().map(|group| block_list(py, owner, group.iter()));
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
        lists_or_none(py, self.selected(group_ids)?, allow_none)
    }

    fn get_block_ids_numpy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        arrays(py, self.selected(None)?)
    }

    fn get_unhashed_block_ids(&self, py: Python<'_>) -> PyResult<Vec<BlockId>> {
        self.lists.unhashed_of_one(py, || {
            PyAssertionError::new_err(
                "get_unhashed_block_ids is for models with one KV cache group",
            )
        })
    }

    fn get_unhashed_block_ids_all_groups(&self, py: Python<'_>) -> PyResult<Vec<Vec<BlockId>>> {
        self.lists.unhashed(py)
    }

    fn new_empty(&self) -> Self {
        Self::of_caller(self.lists.emptied())
    }

    fn __add__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        let more = groups_of(other, &self.lists.owner)?;
        Ok(Self::of_caller(self.lists.joined(&more)))
    }

    /// Equal to whatever has equal blocks, vLLM's own class included.
    fn __eq__(&self, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        if let Ok(other) = other.cast::<Self>() {
            return Ok(self.lists.is_same(&other.get().lists));
        }
        match other.getattr(intern!(other.py(), "blocks")) {
            Ok(blocks) => self.blocks(other.py())?.eq(blocks),
            Err(_) => Ok(false),
        }
    }

    fn __repr__(&self) -> String {
        self.lists.repr()
    }
}

/// Views of blocks as a list. Every null entry is the one null view of the pool.
pub(super) fn block_list<'py>(
    py: Python<'py>,
    engine: &Arc<Engine>,
    ids: impl IntoIterator<Item = BlockId>,
) -> PyResult<Bound<'py, PyList>> {
    let ids: Vec<_> = ids.into_iter().collect();
    let is_shared = ids.len() <= MAX_SHARED;
    let mut null = None;
    let view = |&id: &BlockId| -> PyResult<Bound<'py, PyAny>> {
        if id != NULL_BLOCK {
            return Ok(match is_shared {
                true => VllmBlock::shared(py, engine, id)?,
                false => Bound::new(py, VllmBlock::new(engine, id))?,
            }
            .into_any());
        }
        if null.is_none() {
            null = Some(engine.facade(py)?.getattr(intern!(py, "null_block"))?);
        }
        null.clone().ok_or_else(|| block_error(py, "the pool has no null block"))
    };
    PyList::new(py, ids.iter().map(view).collect::<PyResult<Vec<_>>>()?)
}

/// Whether an allocation with these blocks is one without a hit. vLLM tells that by the identity of
/// the object that its manager returns where there is no block.
pub(super) fn is_no_hit(blocks: &Bound<'_, PyAny>) -> bool {
    let own = blocks.cast::<VllmBlocks>().map(Bound::get);
    own.is_ok_and(|own| own.lists.is_empty() && !own.is_made_by_caller)
}

/// The ids of blocks that vLLM's code hands in, group by group: our own lists, or any object with
/// `blocks` of views.
pub(super) fn groups_of(
    blocks: &Bound<'_, PyAny>,
    engine: &Arc<Engine>,
) -> PyResult<Arc<Vec<GroupBlocks>>> {
    if let Ok(own) = blocks.cast::<VllmBlocks>() {
        return own.get().lists.groups_at(blocks.py(), engine).cloned();
    }
    let groups = blocks.getattr(intern!(blocks.py(), "blocks"))?;
    lists_of(&groups, engine).map(Arc::new)
}

/// The ids of a sequence of sequences of block views.
pub(super) fn lists_of(
    groups: &Bound<'_, PyAny>,
    engine: &Arc<Engine>,
) -> PyResult<Vec<GroupBlocks>> {
    let lists = groups.try_iter()?.map(|group| Ok(GroupBlocks::new(0, ids_of(&group?, engine)?)));
    lists.collect()
}

/// The ids of block views, which must be those of `engine`.
pub(super) fn ids_of(blocks: &Bound<'_, PyAny>, engine: &Arc<Engine>) -> PyResult<Vec<BlockId>> {
    let py = blocks.py();
    let id = |block: PyResult<Bound<'_, PyAny>>| {
        let block = block?;
        match block.cast::<VllmBlock>() {
            Ok(block) => block.get().view.id_at(py, engine),
            Err(_) => block.getattr(intern!(py, "block_id"))?.extract(),
        }
    };
    let ids = blocks.try_iter()?.map(id).collect::<PyResult<Vec<_>>>()?;
    engine.gate.read(py, |state| state.core.check_ids(&ids).into_vllm(py))?;
    Ok(ids)
}

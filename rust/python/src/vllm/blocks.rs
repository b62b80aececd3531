//! Blocks of all groups as vLLM's code sees them. They are ids until Python asks for objects.

use std::ops::Range;
use std::sync::Arc;

use pyo3::exceptions::{PyAssertionError, PyIndexError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyString, PyTuple};

use kvoxide_core::{BlockId, GroupBlocks, NULL_BLOCK, RequestId};

use super::block::class_in_vllm;
use super::engine::Engine;
use super::state::VllmState;
use super::synced::Synced;
use crate::ffi::{BlockLists, Owner, contained, list_methods, place, runs};

/// Blocks per group, with the interface of vLLM's class of this name.
#[pyclass(module = "kvoxide._core_vllm", name = "VllmBlocks", frozen)]
pub(crate) struct VllmBlocks {
    lists: BlockLists<Engine>,
    /// Whether a caller created it. Then it is not the one object for no blocks, even if it has
    /// none.
    is_made_by_caller: bool,
    /// The lists of views, once Python has asked for them.
    views: PyOnceLock<Py<PyTuple>>,
    /// For the tables of a request: the dictionaries that have its lists.
    held: Option<Held>,
}

/// A request, and the dictionaries that have its tables.
pub(super) struct Held {
    pub(super) request: RequestId,
    pub(super) name: Py<PyString>,
    /// A dictionary for each group.
    pub(super) tables: Py<PyTuple>,
}

impl VllmBlocks {
    /// Returns blocks from the engine.
    pub(super) fn new(lists: BlockLists<Engine>) -> Self {
        Self { lists, is_made_by_caller: false, views: PyOnceLock::new(), held: None }
    }

    /// Returns the tables of a request.
    pub(super) fn held(lists: BlockLists<Engine>, held: Held) -> Self {
        Self { held: Some(held), ..Self::new(lists) }
    }

    fn of_caller(lists: BlockLists<Engine>) -> Self {
        Self { is_made_by_caller: true, ..Self::new(lists) }
    }

    fn list_views<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let BlockLists { owner, groups } = &self.lists;
        if self.lists.is_empty() {
            return PyTuple::new(py, groups.iter().map(|_| PyTuple::empty(py)));
        }
        if let Some(held) = &self.held
            && held.still_has_blocks(py, owner)?
        {
            return held.rows(py);
        }
        contained(py, || {
            let lists = groups.iter().map(|group| owner.objects(py, group.iter()));
            PyTuple::new(py, lists.collect::<PyResult<Vec<_>>>()?)
        })
    }

    /// Returns the blocks among `ids` whose objects in vLLM have no hash.
    fn unhashed_in_vllm(
        &self,
        py: Python<'_>,
        ids: impl IntoIterator<Item = BlockId>,
    ) -> PyResult<Vec<BlockId>> {
        let mut unhashed = Vec::new();
        for id in ids {
            let object = self.lists.owner.vllm_object(py, id);
            let has_hash = match &object {
                Some(object) => !object.getattr(intern!(py, "block_hash"))?.is_none(),
                None => false,
            };
            if !has_hash {
                unhashed.push(id);
            }
        }
        Ok(unhashed)
    }

    /// Returns the ids of all groups, except for leading null blocks.
    pub(crate) fn ids(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.lists.groups.iter().flat_map(|group| group.ids()).copied()
    }

    /// Returns the groups with these ids. Negative ids count from the end.
    fn selected(
        &self,
        _: Python<'_>,
        group_ids: Option<Vec<isize>>,
    ) -> PyResult<Vec<&GroupBlocks>> {
        let len = self.lists.groups.len();
        self.lists.selected(
            group_ids,
            |id| place(id, len),
            |id| PyIndexError::new_err(format!("group id {id} is unknown; there are {len} groups")),
        )
    }
}

impl Held {
    fn still_has_blocks(&self, py: Python<'_>, engine: &Engine) -> PyResult<bool> {
        if engine.is_replaced() {
            let mut tables = self.tables.bind(py).iter();
            return tables.try_fold(true, |are, table| Ok(are && table.contains(&self.name)?));
        }
        let name = self.name.bind(py).to_str()?;
        engine.cell.read(py, |state| Ok(state.id_of(name) == Some(self.request)))
    }

    /// Returns the lists in the dictionaries.
    fn rows<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let tables = self.tables.bind(py).iter();
        let rows = tables.map(|table| table.get_item(&self.name)).collect::<PyResult<Vec<_>>>()?;
        PyTuple::new(py, rows)
    }
}

#[pymethods]
impl VllmBlocks {
    /// Returns vLLM's class, so that `isinstance` accepts the object as one of vLLM's results.
    #[getter(__class__)]
    fn class<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let name = ("vllm.v1.core.kv_cache_manager", "KVCacheBlocks");
        class_in_vllm(slf.py(), &CLASS, name, || slf.get_type())
    }

    /// Returns a tuple of lists of block views. Without any block, it returns a tuple of empty
    /// tuples, as in vLLM.
    #[getter]
    fn blocks<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let made = self.views.get_or_try_init(py, || self.list_views(py).map(Bound::unbind))?;
        Ok(made.bind(py).clone())
    }

    fn get_unhashed_block_ids(&self, py: Python<'_>) -> PyResult<Vec<BlockId>> {
        if let [group] = &self.lists.groups[..]
            && self.lists.owner.is_replaced()
        {
            return self.unhashed_in_vllm(py, group.iter());
        }
        self.lists.unhashed_of_one(py, || {
            PyAssertionError::new_err("get_unhashed_block_ids works with one KV cache group only")
        })
    }

    fn get_unhashed_block_ids_all_groups(&self, py: Python<'_>) -> PyResult<Vec<Vec<BlockId>>> {
        if self.lists.owner.is_replaced() {
            let ids = |group: &GroupBlocks| {
                group.ids().iter().copied().filter(|&id| id != NULL_BLOCK).collect::<Vec<_>>()
            };
            let groups = self.lists.groups.iter();
            return groups.map(|group| self.unhashed_in_vllm(py, ids(group))).collect();
        }
        self.lists.unhashed(py)
    }

    fn new_empty(&self) -> Self {
        Self::of_caller(self.lists.emptied())
    }

    fn __add__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        let more = groups_of(other, &self.lists.owner)?;
        Ok(Self::of_caller(self.lists.joined(&more)))
    }

    /// Returns whether the other object has equal blocks. It may be of vLLM's own class.
    fn __eq__(&self, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        if let Ok(other) = other.cast::<Self>() {
            return Ok(self.lists.is_same(&other.get().lists));
        }
        match other.getattr(intern!(other.py(), "blocks")) {
            Ok(blocks) => self.blocks(other.py())?.eq(blocks),
            Err(_) => Ok(false),
        }
    }
}

list_methods!(VllmBlocks);

impl VllmBlocks {
    /// Returns the blocks of a group.
    pub(crate) fn group(&self, group: usize) -> PyResult<&GroupBlocks> {
        self.lists.groups.get(group).ok_or_else(|| {
            let len = self.lists.groups.len();
            PyIndexError::new_err(format!("group id {group} is unknown; there are {len} groups"))
        })
    }

    /// Returns the places of a group in a range whose block is not the null block and, unless
    /// `or_hashed`, has no hash, as runs of neighbours.
    pub(crate) fn unhashed_places(
        &self,
        py: Python<'_>,
        group: usize,
        places: Range<usize>,
        or_hashed: bool,
    ) -> PyResult<Vec<Range<usize>>> {
        let group = self.group(group)?;
        if !self.lists.owner.is_replaced() {
            return self.lists.unhashed_places(py, group, places, or_hashed);
        }
        let mut found = Vec::new();
        for (at, id) in group.iter().enumerate().take(places.end).skip(places.start) {
            if id != NULL_BLOCK && (or_hashed || !self.unhashed_in_vllm(py, [id])?.is_empty()) {
                found.push(at);
            }
        }
        Ok(runs(found.into_iter()))
    }
}

impl Engine {
    /// Returns the part of a state that keeps Python's lists up to date.
    pub(super) fn synced<'a>(self: &Arc<Self>, state: &'a mut VllmState) -> &'a mut Synced {
        let engine = Arc::downgrade(self);
        let views_of = move |py: Python<'_>, ids: Vec<BlockId>| {
            let Some(engine) = engine.upgrade() else { return Ok(None) };
            engine.objects(py, ids).map(|views| Some(views.unbind()))
        };
        state.synced.get_or_insert_with(|| Synced::new(Box::new(views_of)))
    }
}

/// Returns whether these blocks mean that there was no hit. vLLM decides this by the identity of
/// the object that its manager returns if there is no block.
pub(super) fn is_no_hit(blocks: &Bound<'_, PyAny>) -> bool {
    let own = blocks.cast::<VllmBlocks>().map(Bound::get);
    own.is_ok_and(|own| own.lists.is_empty() && !own.is_made_by_caller)
}

/// Returns the ids of blocks that vLLM's code passes, group by group. The blocks are our own lists,
/// or any object with views in `blocks`.
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

/// Returns the ids of a sequence of sequences of block views.
pub(super) fn lists_of(
    groups: &Bound<'_, PyAny>,
    engine: &Arc<Engine>,
) -> PyResult<Vec<GroupBlocks>> {
    let lists = groups.try_iter()?.map(|group| Ok(GroupBlocks::new(0, engine.ids_of(&group?)?)));
    lists.collect()
}

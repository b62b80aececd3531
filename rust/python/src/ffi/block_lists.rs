//! Blocks per group. They remain ids until Python asks for objects.

use std::ops::Range;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use kvoxide_core::{BlockId, GroupBlocks, NULL_BLOCK};

use super::block_ids::{id_arrays, id_lists};
use super::errors::foreign_blocks;
use super::owner::Owner;
use super::panics::contained;

/// The blocks of `owner`, group by group.
pub(crate) struct BlockLists<O> {
    pub(crate) owner: Arc<O>,
    pub(crate) groups: Arc<Vec<GroupBlocks>>,
}

impl<O: Owner> BlockLists<O> {
    #[inline]
    pub(crate) fn new(owner: &Arc<O>, groups: impl Into<Arc<Vec<GroupBlocks>>>) -> Self {
        Self { owner: owner.clone(), groups: groups.into() }
    }

    /// Returns lists of newly allocated blocks without null blocks.
    #[inline]
    pub(crate) fn of_new(owner: &Arc<O>, ids: Vec<Vec<BlockId>>) -> Self {
        let groups = ids.into_iter().map(|ids| GroupBlocks::new(0, ids));
        Self::new(owner, groups.collect::<Vec<_>>())
    }

    /// Returns the same number of empty groups.
    pub(crate) fn emptied(&self) -> Self {
        Self::new(&self.owner, vec![GroupBlocks::default(); self.groups.len()])
    }

    /// Returns these blocks, followed by the blocks of `more`.
    pub(crate) fn joined(&self, more: &[GroupBlocks]) -> Self {
        let mut groups = self.groups.as_ref().clone();
        for (group, more) in groups.iter_mut().zip(more) {
            group.extend_from(more, 0);
        }
        Self::new(&self.owner, groups)
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.groups.iter().all(GroupBlocks::is_empty)
    }

    /// Returns the groups, or a `BlockError` unless the blocks belong to `owner`.
    pub(crate) fn groups_at(
        &self,
        py: Python<'_>,
        owner: &Arc<O>,
    ) -> PyResult<&Arc<Vec<GroupBlocks>>> {
        match Arc::ptr_eq(&self.owner, owner) {
            true => Ok(&self.groups),
            false => Err(foreign_blocks(py)),
        }
    }

    /// Returns the groups with these ids, or all of them; `index` converts an id to a position.
    pub(crate) fn selected(
        &self,
        group_ids: Option<Vec<isize>>,
        index: impl Fn(isize) -> Option<usize>,
        unknown: impl Fn(isize) -> PyErr,
    ) -> PyResult<Vec<&GroupBlocks>> {
        let Some(ids) = group_ids else { return Ok(self.groups.iter().collect()) };
        let group = |id| {
            let group = index(id).and_then(|index| self.groups.get(index));
            group.ok_or_else(|| unknown(id))
        };
        ids.into_iter().map(group).collect()
    }

    /// Returns the blocks without a hash in the only group.
    pub(crate) fn unhashed_of_one(
        &self,
        py: Python<'_>,
        refusal: impl FnOnce() -> PyErr,
    ) -> PyResult<Vec<BlockId>> {
        let [group] = &self.groups[..] else { return Err(refusal()) };
        self.owner.cell().ask(py, |core| {
            let states = core.pool().blocks();
            group.iter().filter(|&id| !states.is_cached(id)).collect()
        })
    }

    /// Returns the blocks without a hash in each group.
    pub(crate) fn unhashed(&self, py: Python<'_>) -> PyResult<Vec<Vec<BlockId>>> {
        self.owner.cell().ask(py, |core| {
            self.groups.iter().map(|group| core.pool().blocks().unhashed(group.ids())).collect()
        })
    }

    /// Returns the positions of a group's blocks in a range that are not the null block. Blocks that
    /// have a hash are skipped unless `or_hashed`.
    pub(crate) fn unhashed_places(
        &self,
        py: Python<'_>,
        group: &GroupBlocks,
        places: Range<usize>,
        or_hashed: bool,
    ) -> PyResult<Vec<Range<usize>>> {
        self.owner.cell().ask(py, |core| {
            let states = core.pool().blocks();
            let (first, ids) = group.ids_from(places.start);
            let ids = &ids[..ids.len().min(places.end.saturating_sub(first))];
            let is_it = |&id: &BlockId| id != NULL_BLOCK && (or_hashed || !states.is_cached(id));
            runs((first..).zip(ids).filter(|(_, id)| is_it(id)).map(|(place, _)| place))
        })
    }

    /// Returns whether both have the same blocks in the same order.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.owner, &other.owner)
            && self.groups.len() == other.groups.len()
            && self.groups.iter().zip(other.groups.iter()).all(|(a, b)| a.iter().eq(b.iter()))
    }

    pub(crate) fn repr(&self) -> String {
        let lens: Vec<_> = self.groups.iter().map(|group| group.len().to_string()).collect();
        format!("KVCacheBlocks(blocks per group: {})", lens.join(", "))
    }
}

/// Returns ascending places as runs of neighbours.
pub(crate) fn runs(places: impl Iterator<Item = usize>) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for place in places {
        match runs.last_mut() {
            Some(run) if run.end == place => run.end += 1,
            _ => runs.push(place..place + 1),
        }
    }
    runs
}

/// Returns ids as lists, or `None` for no block if that is allowed.
pub(crate) fn lists_or_none<'py>(
    py: Python<'py>,
    groups: Vec<&GroupBlocks>,
    allow_none: bool,
) -> PyResult<Option<Bound<'py, PyTuple>>> {
    if allow_none && groups.iter().all(|group| group.is_empty()) {
        return Ok(None);
    }
    contained(py, || id_lists(py, groups).map(Some))
}

/// Returns ids as int32 arrays.
pub(crate) fn arrays<'py>(
    py: Python<'py>,
    groups: Vec<&GroupBlocks>,
) -> PyResult<Bound<'py, PyTuple>> {
    contained(py, || id_arrays(py, groups))
}

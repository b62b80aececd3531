//! Blocks as vLLM's code sees them: views made when asked for, written through.

use std::sync::Arc;

use pyo3::exceptions::{PyAssertionError, PyIndexError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use kvoxide_core::block::CacheKey;
use kvoxide_core::{BlockHash, BlockId, GroupBlocks, GroupId, NULL_BLOCK};

use super::errors::IntoVllmResult;
use super::manager::VllmManager;
use super::mirror::block_hash;
use super::state::VllmState;
use crate::blocks::id_array;
use crate::errors::block_error;
use crate::gate::Gate;
use crate::id_lists::id_list;
use crate::panics::contained;
use crate::tokens::hash_bytes;

/// A view of one block.
#[pyclass(module = "kvoxide.vllm", name = "VllmBlock", frozen)]
pub struct VllmBlock {
    pub manager: Py<VllmManager>,
    pub id: BlockId,
}

/// The key of a block as vLLM packs it: hash, then the group in 4 bytes, big-endian.
pub fn packed_key<'py>(py: Python<'py>, key: &CacheKey, hash_len: usize) -> Bound<'py, PyBytes> {
    let mut bytes = hash_bytes(py, &key.hash, hash_len).as_bytes().to_vec();
    bytes.extend(u32::from(key.group).to_be_bytes());
    PyBytes::new(py, &bytes)
}

/// A key from its packed form, whose hash is one of the manager's from then on.
pub fn unpacked_key(
    packed: &Bound<'_, PyBytes>,
    hash_len: &mut Option<usize>,
) -> PyResult<CacheKey> {
    let (hash, group) = unpacked(packed)?;
    let hash = block_hash(PyBytes::new(packed.py(), hash).as_any(), hash_len)?;
    Ok(CacheKey { hash, group })
}

/// A key to look up. One whose hash has another length than the manager's is no block's.
pub fn known_key(
    packed: &Bound<'_, PyBytes>,
    hash_len: Option<usize>,
) -> PyResult<Option<CacheKey>> {
    let (hash, group) = unpacked(packed)?;
    let hash = BlockHash::from_slice(hash).filter(|_| Some(hash.len()) == hash_len);
    Ok(hash.map(|hash| CacheKey { hash, group }))
}

fn unpacked<'a>(packed: &'a Bound<'_, PyBytes>) -> PyResult<(&'a [u8], GroupId)> {
    let refuse =
        || block_error(packed.py(), "a key is a block hash followed by a group id of 4 bytes");
    let (hash, group) = packed.as_bytes().split_last_chunk::<4>().ok_or_else(refuse)?;
    let group = GroupId::try_from(u32::from_be_bytes(*group)).map_err(|_| refuse())?;
    Ok((hash, group))
}

impl VllmBlock {
    fn gate(&self) -> &Gate<VllmState> {
        &self.manager.get().gate
    }

    /// The blocks before and after this one in its queue.
    fn neighbours(&self, py: Python<'_>) -> PyResult<(Option<Self>, Option<Self>)> {
        let view = |id| Self { manager: self.manager.clone_ref(py), id };
        self.gate().read(py, |state| {
            let (before, after) = state.core.pool().free_neighbours(self.id);
            Ok((before.map(view), after.map(view)))
        })
    }
}

#[pymethods]
impl VllmBlock {
    #[getter]
    fn block_id(&self) -> BlockId {
        self.id
    }

    #[getter]
    fn ref_cnt(&self, py: Python<'_>) -> PyResult<i32> {
        // That of the null block may be below zero.
        self.gate().read(py, |state| Ok(state.core.pool().ref_count(self.id)))
    }

    #[setter]
    fn set_ref_cnt(&self, py: Python<'_>, count: u32) -> PyResult<()> {
        self.gate().edit(py, "ref_cnt", |state| {
            state.core.pool_mut().set_ref_count(self.id, count).into_vllm(py)
        })
    }

    #[getter]
    fn block_hash<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        self.gate().read(py, |state| {
            let key = state.core.pool().states().key(self.id);
            Ok(key.map(|key| packed_key(py, &key, state.hash_len())))
        })
    }

    #[getter(_block_hash)]
    fn private_block_hash<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        self.block_hash(py)
    }

    #[getter]
    fn block_hash_num_tokens(&self, py: Python<'_>) -> PyResult<Option<usize>> {
        self.gate().read(py, |state| Ok(state.core.pool().states().hash_num_tokens(self.id)))
    }

    #[pyo3(signature = (block_hash, num_tokens=None))]
    fn set_block_hash(
        &self,
        block_hash: &Bound<'_, PyBytes>,
        num_tokens: Option<usize>,
    ) -> PyResult<()> {
        self.gate().edit(block_hash.py(), "set_block_hash", |state| {
            if state.core.pool().states().is_cached(self.id) {
                return Err(PyAssertionError::new_err(format!(
                    "block {} has a hash already; reset it first",
                    self.id
                )));
            }
            state.insert_key(self.id, block_hash, num_tokens)
        })
    }

    fn reset_hash(&self, py: Python<'_>) -> PyResult<()> {
        self.gate().edit(py, "reset_hash", |state| {
            state.remove_keys(self.id);
            Ok(())
        })
    }

    #[getter]
    fn is_null(&self) -> bool {
        self.id == NULL_BLOCK
    }

    #[getter]
    fn pool<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.manager.get().facade(py)
    }

    #[getter]
    fn prev_free_block(&self, py: Python<'_>) -> PyResult<Option<Self>> {
        Ok(self.neighbours(py)?.0)
    }

    #[getter]
    fn next_free_block(&self, py: Python<'_>) -> PyResult<Option<Self>> {
        Ok(self.neighbours(py)?.1)
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        let other = other.cast::<Self>().map(Bound::get);
        other.is_ok_and(|other| self.id == other.id && self.manager.is(&other.manager))
    }

    fn __hash__(&self) -> u64 {
        u64::from(self.id)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("KVCacheBlock(block_id={}, ref_cnt={})", self.id, self.ref_cnt(py)?))
    }
}

/// Blocks per group, with the interface of vLLM's class of this name.
#[pyclass(module = "kvoxide.vllm", name = "VllmBlocks", frozen)]
pub struct VllmBlocks {
    pub manager: Py<VllmManager>,
    pub groups: Arc<Vec<GroupBlocks>>,
    /// Whether a caller put it together, so that it is not the one object that stands for no
    /// blocks even if it has none.
    pub is_made_by_caller: bool,
}

impl VllmBlocks {
    fn is_empty(&self) -> bool {
        self.groups.iter().all(GroupBlocks::is_empty)
    }

    /// The groups of a list of ids, which count from the end if negative.
    fn selected(&self, group_ids: Option<Vec<isize>>) -> PyResult<Vec<&GroupBlocks>> {
        let Some(ids) = group_ids else { return Ok(self.groups.iter().collect()) };
        let len = self.groups.len();
        let group = |id: isize| {
            let index = if id < 0 { id.checked_add_unsigned(len) } else { Some(id) };
            let found = index.and_then(|index| self.groups.get(usize::try_from(index).ok()?));
            found.ok_or_else(|| {
                PyIndexError::new_err(format!("group id {id} is unknown; there are {len} groups"))
            })
        };
        ids.into_iter().map(group).collect()
    }
}

#[pymethods]
impl VllmBlocks {
    /// A tuple of lists of block views; without any block one of empty tuples, as in vLLM.
    #[getter]
    fn blocks<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        if self.is_empty() {
            return PyTuple::new(py, self.groups.iter().map(|_| PyTuple::empty(py)));
        }
        contained(py, || {
            let lists = self.groups.iter().map(|group| block_list(py, &self.manager, group.iter()));
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
        if allow_none && group_ids.is_none() && self.is_empty() {
            return Ok(None);
        }
        let groups = self.selected(group_ids)?;
        if allow_none && groups.iter().all(|group| group.is_empty()) {
            return Ok(None);
        }
        contained(py, || {
            let lists = groups.into_iter().map(|group| id_list(py, group));
            PyTuple::new(py, lists.collect::<PyResult<Vec<_>>>()?).map(Some)
        })
    }

    fn get_block_ids_numpy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        contained(py, || {
            let arrays = self.groups.iter().map(|group| id_array(py, group));
            PyTuple::new(py, arrays.collect::<Vec<_>>())
        })
    }

    fn get_unhashed_block_ids(&self, py: Python<'_>) -> PyResult<Vec<BlockId>> {
        let [group] = &self.groups[..] else {
            return Err(pyo3::exceptions::PyAssertionError::new_err(
                "get_unhashed_block_ids is for models with one KV cache group",
            ));
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
            is_made_by_caller: true,
        }
    }

    fn __add__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        let manager = self.manager.bind(other.py());
        let mut groups = self.groups.as_ref().clone();
        for (group, more) in groups.iter_mut().zip(groups_of(other, manager)?.iter()) {
            group.extend_from(more, 0);
        }
        Ok(Self {
            manager: manager.clone().unbind(),
            groups: Arc::new(groups),
            is_made_by_caller: true,
        })
    }

    /// Equal to whatever has equal blocks, vLLM's own class included.
    fn __eq__(&self, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = other.py();
        if let Ok(other) = other.cast::<Self>() {
            let pairs = self.groups.iter().zip(other.get().groups.iter());
            return Ok(self.groups.len() == other.get().groups.len()
                && self.manager.is(&other.get().manager)
                && pairs.into_iter().all(|(a, b)| a.iter().eq(b.iter())));
        }
        match other.getattr(pyo3::intern!(py, "blocks")) {
            Ok(blocks) => self.blocks(py)?.eq(blocks),
            Err(_) => Ok(false),
        }
    }

    fn __repr__(&self) -> String {
        let lens: Vec<_> = self.groups.iter().map(|group| group.len().to_string()).collect();
        format!("KVCacheBlocks(blocks per group: {})", lens.join(", "))
    }
}

/// Views of blocks as a list. Every null entry is the one null view of the pool.
pub fn block_list<'py>(
    py: Python<'py>,
    manager: &Py<VllmManager>,
    ids: impl IntoIterator<Item = BlockId>,
) -> PyResult<Bound<'py, PyList>> {
    let mut null = None;
    let view = |id: BlockId| -> PyResult<Bound<'py, PyAny>> {
        if id != NULL_BLOCK {
            return Ok(Bound::new(py, VllmBlock { manager: manager.clone_ref(py), id })?.into_any());
        }
        if null.is_none() {
            let facade = manager.get().facade(py)?;
            null = Some(facade.getattr(pyo3::intern!(py, "null_block"))?);
        }
        null.clone().ok_or_else(|| block_error(py, "the pool has no null block"))
    };
    PyList::new(py, ids.into_iter().map(view).collect::<PyResult<Vec<_>>>()?)
}

/// Whether an allocation with these blocks is one without a hit. vLLM tells that by the identity of
/// the object that its manager returns where there is no block.
pub fn is_no_hit(blocks: &Bound<'_, PyAny>) -> bool {
    let own = blocks.cast::<VllmBlocks>().map(Bound::get);
    own.is_ok_and(|own| own.is_empty() && !own.is_made_by_caller)
}

/// The ids of blocks that vLLM's code hands in, group by group: our own lists, or any object with
/// `blocks` of views.
pub fn groups_of(
    blocks: &Bound<'_, PyAny>,
    manager: &Bound<'_, VllmManager>,
) -> PyResult<Arc<Vec<GroupBlocks>>> {
    if let Ok(own) = blocks.cast::<VllmBlocks>() {
        return match own.get().manager.is(manager) {
            true => Ok(own.get().groups.clone()),
            false => Err(block_error(blocks.py(), "the blocks are of another manager")),
        };
    }
    let groups = blocks.getattr(pyo3::intern!(blocks.py(), "blocks"))?;
    lists_of(&groups, manager).map(Arc::new)
}

/// The ids of a sequence of sequences of block views.
pub fn lists_of(
    groups: &Bound<'_, PyAny>,
    manager: &Bound<'_, VllmManager>,
) -> PyResult<Vec<GroupBlocks>> {
    let lists = groups.try_iter()?.map(|group| Ok(GroupBlocks::new(0, ids_of(&group?, manager)?)));
    lists.collect()
}

/// The ids of block views, which must be those of `manager`.
pub fn ids_of(
    blocks: &Bound<'_, PyAny>,
    manager: &Bound<'_, VllmManager>,
) -> PyResult<Vec<BlockId>> {
    let py = blocks.py();
    let id = |block: PyResult<Bound<'_, PyAny>>| {
        let block = block?;
        match block.cast::<VllmBlock>() {
            Ok(view) if view.get().manager.is(manager) => Ok(view.get().id),
            Ok(_) => Err(block_error(py, "a block is of another manager")),
            Err(_) => block.getattr(pyo3::intern!(py, "block_id"))?.extract(),
        }
    };
    let ids = blocks.try_iter()?.map(id).collect::<PyResult<Vec<_>>>()?;
    manager.get().gate.read(py, |state| state.core.check_ids(&ids).into_vllm(py))?;
    Ok(ids)
}

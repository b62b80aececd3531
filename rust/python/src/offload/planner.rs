//! Calls of the scheduler's side of vLLM's offloading connector: a look-up, a load, a store and the
//! end of a transfer.

use std::sync::OnceLock;

use numpy::{IntoPyArray, PyArray1};
use pyo3::exceptions::{PyAssertionError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyList;

use kvoxide_core::host::{
    ChunkId, HostGroup, HostHit, HostSearch, HostTier, StoreWait, TooFewKeys, WantedLoad,
};

use super::group_keys::{KeysOfGroup, LoadedKeys, ReadKeys};
use super::groups::OffloadGroup;
use super::keys::Keys;
use super::leaving_plan::LeavingPlan;
use super::load::{GroupLoad, Table};
use super::plan::chunk_array;
use super::request::PyHostRequest;
use super::request_keys::ChunkKeys;
use super::tier::PyHostTier;
use super::together::Together;

/// Plans for the groups of a connector, over a tier if its manager has one.
#[pyclass(module = "kvoxide._core_vllm", name = "OffloadPlanner", frozen)]
pub(crate) struct OffloadPlanner {
    pub(super) search: HostSearch,
    blocks_per_chunk: usize,
    tier: Option<Py<PyHostTier>>,
    /// The manager that decides together with the tier, if one does.
    pub(super) together: OnceLock<Together>,
}

/// A look-up: tokens beyond the tokens of the GPU, and the chunk after the hit in each group.
pub(super) type Found = (Option<usize>, Vec<usize>);

#[pymethods]
impl OffloadPlanner {
    #[new]
    #[pyo3(signature = (groups, order, blocks_per_chunk, align_size=None, tier=None))]
    fn new(
        groups: Vec<OffloadGroup>,
        order: Vec<usize>,
        blocks_per_chunk: usize,
        align_size: Option<usize>,
        tier: Option<Py<PyHostTier>>,
    ) -> PyResult<Self> {
        let groups: Vec<_> = groups.into_iter().map(HostGroup::from).collect();
        let is_empty =
            |group: &HostGroup| group.tokens_per_block == 0 || group.tokens_per_chunk == 0;
        if blocks_per_chunk == 0 || align_size == Some(0) || groups.iter().any(is_empty) {
            return Err(PyValueError::new_err(
                "a chunk, a block and an alignment need at least one token",
            ));
        }
        if let Some(at) = order.iter().find(|&&at| at >= groups.len()) {
            let message = format!("cannot look up group {at}; there are {} groups", groups.len());
            return Err(PyValueError::new_err(message));
        }
        let search = HostSearch::new(groups, order, align_size);
        Ok(Self { search, blocks_per_chunk, tier, together: OnceLock::new() })
    }

    /// Returns how many tokens beyond `num_computed` the tier has of a request, `None` if it has to
    /// ask again later, and for each group the chunk after the last one that was found.
    #[pyo3(signature = (keys, num_computed, num_tokens, max_new=None, max_load=None))]
    fn look_up(
        &self,
        py: Python<'_>,
        keys: Vec<KeysOfGroup<'_>>,
        num_computed: usize,
        num_tokens: usize,
        max_new: Option<usize>,
        max_load: Option<usize>,
    ) -> PyResult<Found> {
        let wanted = WantedLoad { num_computed, num_tokens, max_new, max_load };
        let found = self.find(py, &keys, |keys, tier| Ok(self.search.find(wanted, keys, tier)))?;
        Ok((found.num_tokens, found.ends))
    }

    /// Returns what a load of the tokens after `num_computed` up to `num_cached` covers; `None` for
    /// what vLLM's own method has to do or to refuse. With a `request`, whose keys are in Rust, the
    /// tier has prepared the load and, unless `is_sync`, noted that its keys are being loaded if
    /// `notes_loading`.
    #[pyo3(signature = (keys, blocks, num_computed, num_cached, is_sync, request=None,
        notes_loading=false))]
    #[expect(clippy::too_many_arguments, reason = "the arguments of vLLM's hook")]
    fn load<'py>(
        &self,
        py: Python<'py>,
        keys: Vec<KeysOfGroup<'py>>,
        blocks: &Bound<'py, PyAny>,
        num_computed: usize,
        num_cached: usize,
        is_sync: bool,
        request: Option<&Bound<'py, PyHostRequest>>,
        notes_loading: bool,
    ) -> PyResult<Option<LoadPlan>> {
        self.check_num_groups(keys.len())?;
        let mut loaded = LoadedKeys::new(py, &keys);
        let (mut block_ids, mut parts) = (Vec::new(), Vec::new());
        let (mut group_sizes, mut block_indices) = (Vec::new(), Vec::new());
        let mut num_chunks = Vec::new();
        for (at, (group, keys)) in self.search.groups.iter().zip(&keys).enumerate() {
            let planned = GroupLoad::plan(
                group,
                &Table::of(blocks, group.group_idx)?,
                (num_computed, num_cached),
                (keys.len(), self.blocks_per_chunk),
                is_sync,
                &mut block_ids,
            )?;
            let Some(planned) = planned else { return Ok(None) };
            num_chunks.push(planned.num_chunks);
            group_sizes.push(planned.num_blocks);
            block_indices.push(planned.first_block);
            for (chunks, tokens) in planned.parts {
                let part = loaded.add(keys, chunks)?;
                parts.push((at, tokens.start, tokens.end, part.unbind()));
            }
        }
        let (keys, chunk_ids) = match loaded {
            LoadedKeys::Listed(keys) => (keys.into_any(), None),
            LoadedKeys::InRust(keys) => {
                let keys = Bound::new(py, keys)?;
                let notes = notes_loading && !is_sync;
                let chunks = request.map(|request| self.prepare_load(request, &keys, notes));
                (keys.into_any(), chunks.transpose()?)
            }
        };
        let block_ids = bytemuck::cast_vec::<u32, i32>(block_ids).into_pyarray(py).unbind();
        Ok(Some(LoadPlan {
            keys: keys.unbind(),
            chunk_ids: chunk_ids.map(|chunks| chunk_array(py, chunks).unbind()),
            block_ids,
            group_sizes,
            block_indices,
            num_chunks,
            parts,
        }))
    }

    /// Gives the chunks of offers that the tier has not yet room, and returns what is to be stored;
    /// `None` if there is no room. All keys are of `request` and in Rust.
    fn store<'py>(
        &self,
        py: Python<'py>,
        request: &Bound<'py, PyHostRequest>,
        offers: Vec<Offer<'py>>,
    ) -> PyResult<Option<StorePlan>> {
        let Some(first) = offers.first() else {
            return Err(PyValueError::new_err("a connector needs at least one group to store"));
        };
        let mut wanted = ChunkKeys::empty_of(first.keys.get().of_request(py));
        for Offer { keys, block_ids, start, end, mask } in &offers {
            let end = (*end).min(KeysOfGroup::InRust(keys.clone()).len());
            let mask = mask.as_deref();
            wanted.add_stored(keys.get().group(), *start..end, block_ids, mask)?;
        }
        let (keys, chunks) = if wanted.num_keys() == 0 {
            (wanted, Vec::new())
        } else {
            let tier = self.tier(py)?;
            let plan = tier.cell.change(py, "prepare_store", |state| {
                let owner = wanted.owner(py);
                let mut hash_lengths = state.hash_lengths;
                if let Some(lengths) = owner.hash_lengths() {
                    lengths.agree(py, &mut hash_lengths)?;
                }
                let request = &mut request.try_borrow_mut()?.request;
                let plan = state
                    .core
                    .prepare_store_of_distinct(request, wanted.with_positions(&owner))
                    .map_err(|error| PyAssertionError::new_err(error.to_string()))?;
                state.hash_lengths = hash_lengths;
                if !state.log_stats {
                    state.core.take_store_sizes();
                }
                Ok(plan)
            })?;
            let Some(plan) = plan else { return Ok(None) };
            (wanted.selected(py, &plan.stored), plan.chunks)
        };
        let tables = offers.into_iter().map(|offer| offer.block_ids).collect();
        let (block_ids, block_indices) = keys.blocks(py, tables)?;
        Ok(Some(StorePlan {
            keys: Bound::new(py, keys)?.unbind(),
            chunk_ids: chunk_array(py, chunks).unbind(),
            block_ids: block_ids.into_iter().map(Bound::unbind).collect(),
            block_indices,
        }))
    }

    /// Ends a transfer of keys: a store, which may have failed, or a load, after which none of them
    /// counts as being loaded.
    #[pyo3(signature = (keys, is_store, is_success=true))]
    fn end(&self, keys: &Bound<'_, PyAny>, is_store: bool, is_success: bool) -> PyResult<()> {
        let py = keys.py();
        self.tier(py)?.cell.change(py, "end", |state| {
            if let Ok(plan) = keys.cast_exact::<LeavingPlan>() {
                state.core.complete_store(plan.get().copied.keys(), is_success);
                return Ok(());
            }
            if is_store {
                let keys = Keys::known(keys, state.hash_lengths)?;
                state.core.complete_store(keys.keys(), is_success);
                return Ok(());
            }
            let keys = Keys::read(keys, None, &mut { state.hash_lengths })?;
            let ended = state.core.complete_load(keys.keys());
            ended.map_err(|error| PyAssertionError::new_err(error.to_string()))?;
            state.core.set_loading(keys.keys(), false);
            Ok(())
        })
    }
}

impl OffloadPlanner {
    /// Returns what `search` finds with the keys of a request in the tier.
    #[inline]
    pub(super) fn find(
        &self,
        py: Python<'_>,
        keys: &[KeysOfGroup<'_>],
        search: impl FnOnce(&[ReadKeys<'_>], &HostTier) -> PyResult<Result<HostHit, TooFewKeys>>,
    ) -> PyResult<HostHit> {
        self.check_num_groups(keys.len())?;
        self.tier(py)?.cell.read(py, |state| {
            let keys = keys.iter().map(|keys| keys.read(state.hash_lengths));
            let keys = keys.collect::<PyResult<Vec<_>>>()?;
            search(&keys, &state.core)?.map_err(|TooFewKeys| {
                PyAssertionError::new_err("a group has fewer keys than the request has chunks")
            })
        })
    }

    pub(super) fn tier<'a>(&'a self, py: Python<'a>) -> PyResult<&'a PyHostTier> {
        let tier = self.tier.as_ref().map(|tier| tier.bind(py).get());
        tier.ok_or_else(|| PyValueError::new_err("the connector's manager must be kvoxide's"))
    }

    pub(super) fn check_num_groups(&self, num: usize) -> PyResult<()> {
        let expected = self.search.groups.len();
        if num == expected {
            return Ok(());
        }
        let message =
            format!("keys of {num} groups were given; the connector has {expected} groups");
        Err(PyValueError::new_err(message))
    }

    fn prepare_load(
        &self,
        request: &Bound<'_, PyHostRequest>,
        keys: &Bound<'_, ChunkKeys>,
        notes_loading: bool,
    ) -> PyResult<Vec<ChunkId>> {
        let py = keys.py();
        self.tier(py)?.cell.change(py, "prepare_load", |state| {
            let mut hash_lengths = state.hash_lengths;
            let keys = Keys::read(keys.as_any(), None, &mut hash_lengths)?;
            let request = &mut *request.try_borrow_mut()?;
            let chunks = state.core.prepare_load(&mut request.request, keys.with_positions());
            let chunks = chunks.map_err(|error| PyAssertionError::new_err(error.to_string()))?;
            state.hash_lengths = hash_lengths;
            request.store_wait = StoreWait::NotAsked;
            if notes_loading {
                state.core.set_loading(keys.keys(), true);
            }
            Ok(chunks)
        })
    }
}

/// The chunks of a group that a request offers: those from `start` to before `end` whose block is
/// there and, if there is a `mask` of them, that it has.
#[derive(FromPyObject)]
pub(crate) struct Offer<'py> {
    keys: Bound<'py, super::request_keys::GroupKeys>,
    block_ids: Bound<'py, PyList>,
    start: usize,
    end: usize,
    mask: Option<Vec<bool>>,
}

/// A load.
#[pyclass(module = "kvoxide._core_vllm", name = "OffloadLoadPlan", get_all, frozen)]
pub(crate) struct LoadPlan {
    keys: Py<PyAny>,
    chunk_ids: Option<Py<PyArray1<i32>>>,
    block_ids: Py<PyArray1<i32>>,
    group_sizes: Vec<usize>,
    block_indices: Vec<usize>,
    num_chunks: Vec<usize>,
    parts: Vec<(usize, usize, usize, Py<PyAny>)>,
}

/// A store.
#[pyclass(module = "kvoxide._core_vllm", name = "OffloadStorePlan", get_all, frozen)]
pub(crate) struct StorePlan {
    keys: Py<ChunkKeys>,
    chunk_ids: Py<PyArray1<i32>>,
    block_ids: Vec<Py<PyList>>,
    block_indices: Vec<usize>,
}

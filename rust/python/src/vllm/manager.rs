//! One crossing per scheduler call.

use std::sync::Arc;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple, PyWeakrefMethods, PyWeakrefReference};

use kvoxide_core::{
    AllocateArgs, BlockDemand, BlockId, Error, GroupBlocks, HashSource, Manager, ManagerConfig,
    PrefixHit,
};

use super::errors::IntoVllmResult;
use super::mirror::{Facts, Mirror, PyHashes, num_tokens};
use super::state::VllmState;
use super::views::{VllmBlocks, block_list, groups_of, is_no_hit, lists_of};
use crate::config::{PyConfig, PyPolicy};
use crate::errors::{IntoPyResult, block_error, to_py};
use crate::gate::Gate;
use crate::id_lists::id_list;
use crate::panics::panic_midway;

/// The engine of one vLLM manager.
#[pyclass(module = "kvoxide._core", name = "VllmManager", frozen)]
pub struct VllmManager {
    pub gate: Gate<VllmState>,
    waiting_states: Vec<Py<PyAny>>,
    facade: PyOnceLock<Py<PyWeakrefReference>>,
}

impl VllmManager {
    /// The Python object that stands for the block pool.
    pub fn facade<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let facade = self.facade.get(py).and_then(|facade| facade.bind(py).upgrade());
        facade
            .ok_or_else(|| to_py(py, &Error::Block("the block pool of this block is gone".into())))
    }
}

fn hashes_of<'py>(request: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    request.getattr(intern!(request.py(), "block_hashes"))
}

/// Copies the hashes that an allocation needs.
fn update(
    mirror: &mut Mirror,
    core: &Manager,
    request: &Bound<'_, PyAny>,
    hash_len: &mut Option<usize>,
    facts: &Facts,
    hit: &[GroupBlocks],
) -> PyResult<()> {
    let list = hashes_of(request)?;
    let hashes = PyHashes::new(&list, *hash_len)?;
    let first = core.first_hash_needed(mirror.id, facts.num_prompt_tokens, hashes.len(), hit);
    hashes.settle(request.py(), mirror.update(&hashes, first))?;
    *hash_len = hashes.hash_len();
    Ok(())
}

/// The longest cached prefix of a request, reported as events if the request wants that.
fn look_up(
    core: &mut Manager,
    mirror: &mut Mirror,
    hash_len: &mut Option<usize>,
    request: &Bound<'_, PyAny>,
    max_length: usize,
) -> PyResult<PrefixHit> {
    let py = request.py();
    let list = hashes_of(request)?;
    let hashes = PyHashes::new(&list, *hash_len)?;
    let hit = core.get_computed_blocks(mirror.id, &hashes, max_length);
    let hit = hashes.settle(py, hit)?;
    if core.pool().has_events() && hit.length > 0 && reports_hits(request)? {
        hashes.settle(py, mirror.update(&hashes, 0))?;
        let facts = Facts::read(request, &[])?;
        core.report_hit(&mirror.view(&facts), &hit).into_vllm(py)?;
    }
    *hash_len = hashes.hash_len();
    Ok(hit)
}

fn wrap(slf: &Bound<'_, VllmManager>, groups: impl Into<Arc<Vec<GroupBlocks>>>) -> VllmBlocks {
    VllmBlocks { manager: slf.clone().unbind(), groups: groups.into(), is_made_by_caller: false }
}

#[pymethods]
impl VllmManager {
    #[new]
    #[pyo3(signature = (kv_cache_config, *, max_model_len, scheduler_block_size,
        hash_block_size, max_in_flight_tokens, enable_caching, use_eagle,
        num_prefill_lookahead, enable_kv_cache_events, watermark, policy,
        keep_tail_below_junction, counts_null_references, observe, waiting_states,
        check_every=0))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments in Python")]
    fn new(
        py: Python<'_>,
        kv_cache_config: PyConfig,
        max_model_len: usize,
        scheduler_block_size: usize,
        hash_block_size: usize,
        max_in_flight_tokens: usize,
        enable_caching: bool,
        use_eagle: bool,
        num_prefill_lookahead: usize,
        enable_kv_cache_events: bool,
        watermark: f64,
        policy: PyPolicy,
        keep_tail_below_junction: bool,
        counts_null_references: bool,
        observe: bool,
        waiting_states: Vec<Py<PyAny>>,
        check_every: u64,
    ) -> PyResult<Self> {
        let config = ManagerConfig {
            num_blocks: kv_cache_config.num_blocks,
            groups: kv_cache_config.groups.into_iter().map(|group| group.spec).collect(),
            max_model_len,
            scheduler_block_size: Some(scheduler_block_size),
            hash_block_size: Some(hash_block_size),
            max_in_flight_tokens: Some(max_in_flight_tokens),
            enable_caching,
            use_eagle,
            num_prefill_lookahead,
            enable_events: enable_kv_cache_events,
            watermark,
            needs_zeroing: kv_cache_config.needs_zeroing,
            keep_tail_below_junction,
            observe,
            policy: policy.policy,
        };
        let mut core = Manager::new(config).into_py(py)?;
        if counts_null_references {
            core.pool_mut().count_null_references();
        }
        let has_watermark = core.watermark_blocks() > 0;
        Ok(Self {
            gate: Gate::new(VllmState::new(core, check_every)),
            waiting_states: if has_watermark { waiting_states } else { Vec::new() },
            facade: PyOnceLock::new(),
        })
    }

    /// Tells, once, which Python object stands for the block pool; only a weak reference is kept.
    fn set_facade(&self, pool: &Bound<'_, PyAny>) -> PyResult<()> {
        let facade = PyWeakrefReference::new(pool)?.unbind();
        self.facade
            .set(pool.py(), facade)
            .map_err(|_| block_error(pool.py(), "this manager has a block pool already"))
    }

    /// Makes the manager refuse every further call, as after a panic, and says why.
    fn poison(&self, py: Python<'_>, reason: String) {
        self.gate.poison(py, reason);
    }

    /// Panics with a block that nobody holds. A build of its own with such a method would test
    /// another module than the one that ships.
    fn _panic_for_tests(&self, py: Python<'_>) -> PyResult<()> {
        self.gate.change(py, "_panic_for_tests", |state| panic_midway(&mut state.core))
    }

    #[getter]
    fn usage(&self, py: Python<'_>) -> PyResult<f64> {
        self.gate.read(py, |state| Ok(state.core.pool().usage()))
    }

    #[getter]
    fn watermark_blocks(&self, py: Python<'_>) -> PyResult<usize> {
        self.gate.read(py, |state| Ok(state.core.watermark_blocks()))
    }

    fn empty_blocks(slf: &Bound<'_, Self>) -> PyResult<VllmBlocks> {
        slf.get().gate.read(slf.py(), |state| Ok(wrap(slf, state.core.no_blocks())))
    }

    #[pyo3(signature = (request, max_cache_hit_length=None))]
    fn get_computed_blocks(
        slf: &Bound<'_, Self>,
        request: &Bound<'_, PyAny>,
        max_cache_hit_length: Option<usize>,
    ) -> PyResult<(VllmBlocks, usize, usize)> {
        let py = slf.py();
        slf.get().gate.change(py, "get_computed_blocks", |state| {
            let skips = || request.getattr(intern!(py, "skip_reading_prefix_cache"))?.is_truthy();
            if !state.core.config().enable_caching || skips()? {
                return Ok((wrap(slf, state.core.no_blocks()), 0, 0));
            }
            let max_length = match max_cache_hit_length {
                Some(length) => length,
                None => num_tokens(request)?.saturating_sub(1),
            };
            let hit = state.about(request, |core, mirror, hash_len| {
                look_up(core, mirror, hash_len, request, max_length)
            })?;
            Ok((wrap(slf, hit.blocks), hit.length, hit.shared_prefix_boundary))
        })
    }

    #[pyo3(signature = (request, num_new_tokens, num_new_computed_tokens=0,
        new_computed_blocks=None, num_lookahead_tokens=0, num_external_computed_tokens=0,
        delay_cache_blocks=false, num_encoder_tokens=0, full_sequence_must_fit=false,
        reserved_blocks=0, has_scheduled_reqs=true, skip_zeroing_group_ids=None))]
    #[expect(clippy::too_many_arguments, reason = "vLLM's arguments")]
    fn allocate_slots<'py>(
        slf: &Bound<'py, Self>,
        request: &Bound<'_, PyAny>,
        num_new_tokens: usize,
        num_new_computed_tokens: usize,
        new_computed_blocks: Option<&Bound<'_, PyAny>>,
        num_lookahead_tokens: usize,
        num_external_computed_tokens: usize,
        delay_cache_blocks: bool,
        num_encoder_tokens: usize,
        full_sequence_must_fit: bool,
        reserved_blocks: usize,
        has_scheduled_reqs: bool,
        skip_zeroing_group_ids: Option<Vec<usize>>,
    ) -> PyResult<Option<Bound<'py, VllmBlocks>>> {
        let py = slf.py();
        let _ = num_encoder_tokens;
        let hit = new_computed_blocks.filter(|blocks| !is_no_hit(blocks));
        let hit = hit.map(|blocks| groups_of(blocks, slf)).transpose()?;
        let hit_blocks = hit.as_ref().map_or(&[][..], |hit| hit.as_slice());
        let args = AllocateArgs {
            num_new_tokens,
            num_new_computed_tokens,
            new_computed_blocks: hit_blocks,
            num_lookahead_tokens,
            num_external_computed_tokens,
            delay_cache_blocks,
            full_sequence_must_fit,
            reserved_blocks,
            has_scheduled_reqs,
            skip_zeroing_group_ids: skip_zeroing_group_ids.as_deref().unwrap_or(&[]),
        };
        let Self { gate, waiting_states, .. } = slf.get();
        gate.change(py, "allocate_slots", |state| {
            if hit.is_some() {
                check_num_groups(hit_blocks.len(), state.core.config().groups.len())
                    .into_vllm(py)?;
            }
            let facts = Facts::read(request, waiting_states)?;
            let new = state.about(request, |core, mirror, hash_len| {
                update(mirror, core, request, hash_len, &facts, hit_blocks)?;
                core.allocate_slots(&mirror.view(&facts), &args).into_vllm(py)
            })?;
            let groups = |ids: Vec<Vec<BlockId>>| {
                ids.into_iter().map(|ids| GroupBlocks::new(0, ids)).collect::<Vec<_>>()
            };
            let made = new.map(|new| Bound::new(py, wrap(slf, groups(new)))).transpose();
            gate.handed_out(py, made)
        })
    }

    fn cache_blocks(&self, request: &Bound<'_, PyAny>, num_computed_tokens: usize) -> PyResult<()> {
        let py = request.py();
        self.gate.change(py, "cache_blocks", |state| {
            let facts = Facts::read(request, &[])?;
            state.about(request, |core, mirror, hash_len| {
                update(mirror, core, request, hash_len, &facts, &[])?;
                core.cache_blocks(&mirror.view(&facts), num_computed_tokens).into_vllm(py)
            })
        })
    }

    /// Gives back what a request holds; nothing if it holds nothing.
    fn free(&self, py: Python<'_>, request_id: &str) -> PyResult<()> {
        self.gate.change(py, "free", |state| match state.forget(request_id) {
            Some(id) => state.core.free(id).into_vllm(py),
            None => Ok(()),
        })
    }

    /// Forgets a request and hands its blocks out in token order, group by group. Leading null
    /// blocks are left out unless asked for.
    fn pop_blocks_for_free<'py>(
        slf: &Bound<'py, Self>,
        request_id: &str,
        with_null_head: bool,
    ) -> PyResult<Bound<'py, PyList>> {
        let py = slf.py();
        let gate = &slf.get().gate;
        gate.change(py, "pop_blocks_for_free", |state| {
            let held = state.blocks_of(request_id);
            if let Some(id) = state.forget(request_id) {
                state.core.pop_blocks_for_free(id).into_vllm(py)?;
            }
            let ids = held.iter().flat_map(|group| {
                group.iter().skip(if with_null_head { 0 } else { group.null_head() })
            });
            gate.handed_out(py, block_list(py, slf.as_unbound(), ids))
        })
    }

    fn remove_skipped_blocks(
        &self,
        py: Python<'_>,
        request_id: &str,
        processed_computed_tokens: usize,
    ) -> PyResult<()> {
        self.gate.change(py, "remove_skipped_blocks", |state| match state.id_of(request_id) {
            Some(id) => {
                state.core.remove_skipped_blocks(id, processed_computed_tokens).into_vllm(py)
            }
            None => Ok(()),
        })
    }

    fn get_blocks(slf: &Bound<'_, Self>, request_id: &str) -> PyResult<VllmBlocks> {
        slf.get().gate.read(slf.py(), |state| Ok(wrap(slf, state.blocks_of(request_id))))
    }

    fn get_block_ids<'py>(
        &self,
        py: Python<'py>,
        request_id: &str,
    ) -> PyResult<Bound<'py, PyTuple>> {
        self.gate.read(py, |state| {
            let held = state.id_of(request_id).map(|id| state.core.blocks_of(id)).transpose();
            let lists = match held.into_vllm(py)? {
                Some(held) => {
                    let lists = held.groups.iter().map(|group| id_list(py, &group.blocks));
                    lists.collect::<PyResult<Vec<_>>>()?
                }
                None => state.core.config().groups.iter().map(|_| PyList::empty(py)).collect(),
            };
            PyTuple::new(py, lists)
        })
    }

    fn estimate_cached_tokens(&self, py: Python<'_>, request_id: &str) -> PyResult<usize> {
        self.gate.read(py, |state| match state.id_of(request_id) {
            Some(id) => state.core.estimate_cached_tokens(id).into_vllm(py),
            None => Ok(0),
        })
    }

    #[pyo3(signature = (request_id, num_tokens, new_computed_blocks, total_computed_tokens,
        num_local_computed_tokens, apply_admission_cap=false))]
    fn get_num_blocks_to_allocate(
        slf: &Bound<'_, Self>,
        request_id: &str,
        num_tokens: usize,
        new_computed_blocks: &Bound<'_, PyAny>,
        total_computed_tokens: usize,
        num_local_computed_tokens: usize,
        apply_admission_cap: bool,
    ) -> PyResult<usize> {
        let hit = lists_of(new_computed_blocks, slf)?;
        let demand = BlockDemand {
            num_tokens,
            new_computed_blocks: &hit,
            total_computed_tokens,
            num_local_computed_tokens,
            apply_admission_cap,
        };
        let py = slf.py();
        slf.get().gate.read(py, |state| {
            let id = state.requests.get(request_id).map_or(0, |mirror| mirror.id);
            state.core.get_num_blocks_to_allocate(id, &demand).into_vllm(py)
        })
    }

    /// The hit of a list of hashes: blocks, length, and tokens that a group has cached beyond it.
    fn find_longest_cache_hit(
        slf: &Bound<'_, Self>,
        hashes: &Bound<'_, PyAny>,
        max_cache_hit_length: usize,
    ) -> PyResult<(VllmBlocks, usize, usize)> {
        slf.get().gate.read(slf.py(), |state| {
            let hashes = PyHashes::new(hashes, state.hash_len)?;
            let found = state.core.find_longest_hit(&hashes, max_cache_hit_length);
            let found = hashes.settle(slf.py(), found)?;
            let uncached = found.num_uncached_common_prefix_tokens;
            Ok((wrap(slf, found.blocks), found.length, uncached))
        })
    }

    /// The hit of each group by itself: blocks and lengths.
    fn find_longest_cache_hit_per_group(
        slf: &Bound<'_, Self>,
        hashes: &Bound<'_, PyAny>,
        max_cache_hit_length: usize,
    ) -> PyResult<(VllmBlocks, Vec<usize>)> {
        slf.get().gate.read(slf.py(), |state| {
            let hashes = PyHashes::new(hashes, state.hash_len)?;
            let found = state.core.find_longest_hit_per_group(&hashes, max_cache_hit_length);
            let (blocks, lengths) = hashes.settle(slf.py(), found)?;
            Ok((wrap(slf, blocks), lengths))
        })
    }

    fn take_new_block_ids<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.gate.change(py, "take_new_block_ids", |state| {
            self.gate.handed_out(py, PyList::new(py, state.core.take_new_block_ids()))
        })
    }

    fn record_blocks_for_zeroing(
        &self,
        py: Python<'_>,
        request_id: &str,
        start_token: usize,
    ) -> PyResult<()> {
        // No request has the id 0: the start is checked even for a request that holds nothing.
        self.gate.change(py, "record_blocks_for_zeroing", |state| {
            let id = state.id_of(request_id).unwrap_or(0);
            match state.core.record_blocks_for_zeroing(id, start_token) {
                Err(Error::UnknownRequest(_)) => Ok(()),
                recorded => recorded.into_vllm(py),
            }
        })
    }

    fn wrap_blocks(slf: &Bound<'_, Self>, blocks: &Bound<'_, PyAny>) -> PyResult<VllmBlocks> {
        Ok(wrap(slf, lists_of(blocks, slf)?))
    }

    fn truncate_computed_blocks(
        slf: &Bound<'_, Self>,
        blocks: &Bound<'_, PyAny>,
        num_computed_tokens: usize,
    ) -> PyResult<VllmBlocks> {
        let groups = groups_of(blocks, slf)?;
        slf.get().gate.read(slf.py(), |state| {
            let cut = state.core.truncated(&groups, num_computed_tokens).into_vllm(slf.py())?;
            Ok(wrap(slf, cut))
        })
    }

    /// Ids of the requests that hold blocks, or have been looked up and not been freed.
    fn request_ids<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.gate.read(py, |state| {
            let known = state.requests.iter().filter(|(_, mirror)| state.core.knows(mirror.id));
            PyList::new(py, known.map(|(name, _)| name).collect::<Vec<_>>())
        })
    }

    /// Leading cached blocks of each request in one group, where that is known.
    fn num_cached_blocks<'py>(
        &self,
        py: Python<'py>,
        group: usize,
    ) -> PyResult<Bound<'py, PyDict>> {
        self.gate.read(py, |state| {
            let counts = PyDict::new(py);
            for (name, mirror) in &state.requests {
                let held = state.core.blocks_of(mirror.id).ok();
                let held = held.and_then(|held| held.groups.get(group));
                if let Some(count) = held.and_then(|held| held.num_cached_blocks) {
                    counts.set_item(name, count)?;
                }
            }
            Ok(counts)
        })
    }

    /// 32 bytes that change with the state of the engine.
    fn state_digest<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.gate.read(py, |state| Ok(PyBytes::new(py, &state.digest())))
    }

    fn check_invariants(&self, py: Python<'_>) -> PyResult<()> {
        self.gate.read(py, |state| state.check().map_err(Error::Internal).into_vllm(py))
    }
}

fn check_num_groups(given: usize, expected: usize) -> kvoxide_core::Result<()> {
    if given >= expected {
        return Ok(());
    }
    Err(Error::OutOfRange(format!(
        "new_computed_blocks has {given} groups; this manager has {expected}"
    )))
}

/// Whether a request wants its hits reported as events.
fn reports_hits(request: &Bound<'_, PyAny>) -> PyResult<bool> {
    let mode = request.getattr_opt(intern!(request.py(), "kv_cache_report_mode"))?;
    mode.map_or(Ok(false), |mode| mode.eq("full"))
}

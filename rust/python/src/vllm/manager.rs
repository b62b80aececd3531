//! One crossing per scheduler call.

use std::sync::Arc;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{
    PyBytes, PyDict, PyList, PyString, PyTuple, PyWeakrefMethods, PyWeakrefReference,
};

use kvoxide_core::{
    AllocateArgs, BlockDemand, BlockId, Error, GroupBlocks, GroupSpec, HashSource, Manager,
    ManagerConfig, RequestId,
};

use super::errors::IntoVllmResult;
use super::mirror::{Facts, Mirror, PyHashes, num_tokens};
use super::views::{VllmBlocks, block_list, groups_of, is_no_hit, lists_of, unpacked_key};
use crate::config::{PyConfig, PyPolicy};
use crate::errors::{IntoPyResult, block_error, to_py};
use crate::id_lists::id_list;

type Mirrors = hashbrown::HashMap<String, Mirror, foldhash::fast::RandomState>;

/// The engine of one vLLM manager.
#[pyclass(module = "kvoxide._core", name = "VllmManager")]
pub struct VllmManager {
    pub core: Manager,
    pub(super) hash_len: Option<usize>,
    requests: Mirrors,
    next_id: RequestId,
    waiting_states: Vec<Py<PyAny>>,
    facade: Option<Py<PyWeakrefReference>>,
}

impl VllmManager {
    /// Bytes of the block hashes in use.
    pub fn hash_len(&self) -> usize {
        self.hash_len.unwrap_or(0)
    }

    /// The Python object that stands for the block pool.
    pub fn facade<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let facade = self.facade.as_ref().and_then(|facade| facade.bind(py).upgrade());
        facade
            .ok_or_else(|| to_py(py, &Error::Block("the block pool of this block is gone".into())))
    }

    /// Adds a key, given as vLLM packs it, to a block.
    pub fn insert_key(
        &mut self,
        block: BlockId,
        packed: &Bound<'_, PyBytes>,
        num_tokens: Option<usize>,
    ) -> PyResult<()> {
        let py = packed.py();
        self.core.check_ids(&[block]).into_vllm(py)?;
        if let Some(num_tokens) = num_tokens.filter(|&n| n > GroupSpec::MAX_TOKENS) {
            let message = format!(
                "num_tokens is {num_tokens}; a hash covers at most {} tokens",
                GroupSpec::MAX_TOKENS
            );
            return Err(block_error(py, &message));
        }
        let key = unpacked_key(packed, &mut self.hash_len)?;
        let num_tokens = num_tokens.unwrap_or(0);
        self.core.pool_mut().insert_foreign_key(block, key, num_tokens).into_vllm(py)
    }

    fn id_of(&self, request_id: &str) -> Option<RequestId> {
        self.requests.get(request_id).map(|mirror| mirror.id).filter(|&id| self.core.knows(id))
    }

    fn blocks_of(&self, request_id: &str) -> Vec<GroupBlocks> {
        let held = self.id_of(request_id).and_then(|id| self.core.blocks_of(id).ok());
        match held {
            Some(held) => held.groups.iter().map(|group| group.blocks.clone()).collect(),
            None => self.core.no_blocks(),
        }
    }

    fn forget(&mut self, request_id: &str) -> Option<RequestId> {
        let id = self.requests.remove(request_id)?.id;
        self.core.forget_lookup(id);
        self.core.knows(id).then_some(id)
    }
}

/// The mirror of a request, made when the request is first seen.
fn mirror_of<'a>(
    requests: &'a mut Mirrors,
    next_id: &mut RequestId,
    request: &Bound<'_, PyAny>,
) -> PyResult<&'a mut Mirror> {
    let name = request.getattr(intern!(request.py(), "request_id"))?;
    let name = name.cast::<PyString>()?.to_str()?;
    Ok(requests.entry_ref(name).or_insert_with(|| {
        *next_id += 1;
        Mirror::new(*next_id)
    }))
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

fn wrap(slf: &Bound<'_, VllmManager>, groups: impl Into<Arc<Vec<GroupBlocks>>>) -> VllmBlocks {
    VllmBlocks { manager: slf.clone().unbind(), groups: groups.into(), is_made_by_caller: false }
}

#[pymethods]
impl VllmManager {
    #[new]
    #[pyo3(signature = (kv_cache_config, *, max_model_len, scheduler_block_size,
        hash_block_size, max_in_flight_tokens, enable_caching, use_eagle,
        num_prefill_lookahead, enable_kv_cache_events, watermark, policy,
        keep_tail_below_junction, counts_null_references, observe, waiting_states))]
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
            core,
            hash_len: None,
            requests: Mirrors::default(),
            next_id: 0,
            waiting_states: if has_watermark { waiting_states } else { Vec::new() },
            facade: None,
        })
    }

    /// Tells which Python object stands for the block pool; only a weak reference is kept.
    fn set_facade(&mut self, pool: &Bound<'_, PyAny>) -> PyResult<()> {
        self.facade = Some(PyWeakrefReference::new(pool)?.unbind());
        Ok(())
    }

    #[getter]
    fn usage(&self) -> f64 {
        self.core.pool().usage()
    }

    #[getter]
    fn watermark_blocks(&self) -> usize {
        self.core.watermark_blocks()
    }

    fn empty_blocks(slf: &Bound<'_, Self>) -> VllmBlocks {
        let empty = slf.borrow().core.no_blocks();
        wrap(slf, empty)
    }

    #[pyo3(signature = (request, max_cache_hit_length=None))]
    fn get_computed_blocks(
        slf: &Bound<'_, Self>,
        request: &Bound<'_, PyAny>,
        max_cache_hit_length: Option<usize>,
    ) -> PyResult<(VllmBlocks, usize, usize)> {
        let py = slf.py();
        let mut this = slf.try_borrow_mut()?;
        let Self { core, hash_len, requests, next_id, .. } = &mut *this;
        let skips = || request.getattr(intern!(py, "skip_reading_prefix_cache"))?.is_truthy();
        if !core.config().enable_caching || skips()? {
            let empty = core.no_blocks();
            return Ok((wrap(slf, empty), 0, 0));
        }
        let max_length = match max_cache_hit_length {
            Some(length) => length,
            None => num_tokens(request)?.saturating_sub(1),
        };
        let list = hashes_of(request)?;
        let hashes = PyHashes::new(&list, *hash_len)?;
        let mirror = mirror_of(requests, next_id, request)?;
        let hit = core.get_computed_blocks(mirror.id, &hashes, max_length);
        let hit = hashes.settle(py, hit)?;
        if core.pool().has_events() && hit.length > 0 && reports_hits(request)? {
            hashes.settle(py, mirror.update(&hashes, 0))?;
            let facts = Facts::read(request, &[])?;
            core.report_hit(&mirror.view(&facts), &hit).into_vllm(py)?;
        }
        *hash_len = hashes.hash_len();
        Ok((wrap(slf, hit.blocks), hit.length, hit.shared_prefix_boundary))
    }

    #[pyo3(signature = (request, num_new_tokens, num_new_computed_tokens=0,
        new_computed_blocks=None, num_lookahead_tokens=0, num_external_computed_tokens=0,
        delay_cache_blocks=false, num_encoder_tokens=0, full_sequence_must_fit=false,
        reserved_blocks=0, has_scheduled_reqs=true, skip_zeroing_group_ids=None))]
    #[expect(clippy::too_many_arguments, reason = "vLLM's arguments")]
    fn allocate_slots(
        slf: &Bound<'_, Self>,
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
    ) -> PyResult<Option<VllmBlocks>> {
        let py = slf.py();
        let _ = num_encoder_tokens;
        let hit = new_computed_blocks.filter(|blocks| !is_no_hit(blocks));
        let hit = hit.map(|blocks| groups_of(blocks, slf)).transpose()?;
        let mut this = slf.try_borrow_mut()?;
        let Self { core, hash_len, requests, next_id, waiting_states, .. } = &mut *this;
        if let Some(hit) = &hit {
            check_num_groups(hit.len(), core.config().groups.len()).into_vllm(py)?;
        }
        let facts = Facts::read(request, waiting_states)?;
        let mirror = mirror_of(requests, next_id, request)?;
        let hit_blocks = hit.as_ref().map_or(&[][..], |hit| hit.as_slice());
        update(mirror, core, request, hash_len, &facts, hit_blocks)?;
        let view = mirror.view(&facts);
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
        let new = core.allocate_slots(&view, &args).into_vllm(py)?;
        let groups = |ids: Vec<Vec<BlockId>>| {
            ids.into_iter().map(|ids| GroupBlocks::new(0, ids)).collect::<Vec<_>>()
        };
        Ok(new.map(|new| wrap(slf, groups(new))))
    }

    fn cache_blocks(
        &mut self,
        request: &Bound<'_, PyAny>,
        num_computed_tokens: usize,
    ) -> PyResult<()> {
        let Self { core, hash_len, requests, next_id, .. } = self;
        let facts = Facts::read(request, &[])?;
        let mirror = mirror_of(requests, next_id, request)?;
        update(mirror, core, request, hash_len, &facts, &[])?;
        let view = mirror.view(&facts);
        core.cache_blocks(&view, num_computed_tokens).into_vllm(request.py())
    }

    /// Gives back what a request holds; nothing if it holds nothing.
    fn free(&mut self, py: Python<'_>, request_id: &str) -> PyResult<()> {
        match self.forget(request_id) {
            Some(id) => self.core.free(id).into_vllm(py),
            None => Ok(()),
        }
    }

    /// Forgets a request and hands its blocks out in token order, group by group. Leading null
    /// blocks are left out unless asked for.
    fn pop_blocks_for_free<'py>(
        slf: &Bound<'py, Self>,
        request_id: &str,
        with_null_head: bool,
    ) -> PyResult<Bound<'py, PyList>> {
        let py = slf.py();
        let ids = {
            let mut this = slf.try_borrow_mut()?;
            let held = this.blocks_of(request_id);
            if let Some(id) = this.forget(request_id) {
                this.core.pop_blocks_for_free(id).into_vllm(py)?;
            }
            let ids = held.iter().flat_map(|group| {
                group.iter().skip(if with_null_head { 0 } else { group.null_head() })
            });
            ids.collect::<Vec<_>>()
        };
        block_list(py, &slf.clone().unbind(), ids)
    }

    fn remove_skipped_blocks(
        &mut self,
        py: Python<'_>,
        request_id: &str,
        processed_computed_tokens: usize,
    ) -> PyResult<()> {
        match self.id_of(request_id) {
            Some(id) => {
                self.core.remove_skipped_blocks(id, processed_computed_tokens).into_vllm(py)
            }
            None => Ok(()),
        }
    }

    fn get_blocks(slf: &Bound<'_, Self>, request_id: &str) -> PyResult<VllmBlocks> {
        let groups = slf.try_borrow()?.blocks_of(request_id);
        Ok(wrap(slf, groups))
    }

    fn get_block_ids<'py>(
        &self,
        py: Python<'py>,
        request_id: &str,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let held = self.id_of(request_id).map(|id| self.core.blocks_of(id)).transpose();
        let lists = match held.into_vllm(py)? {
            Some(held) => {
                let lists = held.groups.iter().map(|group| id_list(py, &group.blocks));
                lists.collect::<PyResult<Vec<_>>>()?
            }
            None => self.core.config().groups.iter().map(|_| PyList::empty(py)).collect(),
        };
        PyTuple::new(py, lists)
    }

    fn estimate_cached_tokens(&self, py: Python<'_>, request_id: &str) -> PyResult<usize> {
        match self.id_of(request_id) {
            Some(id) => self.core.estimate_cached_tokens(id).into_vllm(py),
            None => Ok(0),
        }
    }

    #[pyo3(signature = (request_id, num_tokens, new_computed_blocks, total_computed_tokens,
        apply_admission_cap=false))]
    fn get_num_blocks_to_allocate(
        slf: &Bound<'_, Self>,
        request_id: &str,
        num_tokens: usize,
        new_computed_blocks: &Bound<'_, PyAny>,
        total_computed_tokens: usize,
        apply_admission_cap: bool,
    ) -> PyResult<usize> {
        let hit = lists_of(new_computed_blocks, slf)?;
        let this = slf.try_borrow()?;
        let demand = BlockDemand {
            num_tokens,
            new_computed_blocks: &hit,
            total_computed_tokens,
            apply_admission_cap,
        };
        let id = this.requests.get(request_id).map_or(0, |mirror| mirror.id);
        this.core.get_num_blocks_to_allocate(id, &demand).into_vllm(slf.py())
    }

    /// The hit of a list of hashes: blocks, length, and tokens that a group has cached beyond it.
    fn find_longest_cache_hit(
        slf: &Bound<'_, Self>,
        hashes: &Bound<'_, PyAny>,
        max_cache_hit_length: usize,
    ) -> PyResult<(VllmBlocks, usize, usize)> {
        let mut this = slf.try_borrow_mut()?;
        let hashes = PyHashes::new(hashes, this.hash_len)?;
        let found = this.core.find_longest_hit(&hashes, max_cache_hit_length);
        let found = hashes.settle(slf.py(), found)?;
        this.hash_len = hashes.hash_len();
        let uncached = found.num_uncached_common_prefix_tokens;
        Ok((wrap(slf, found.blocks), found.length, uncached))
    }

    /// The hit of each group by itself: blocks and lengths.
    fn find_longest_cache_hit_per_group(
        slf: &Bound<'_, Self>,
        hashes: &Bound<'_, PyAny>,
        max_cache_hit_length: usize,
    ) -> PyResult<(VllmBlocks, Vec<usize>)> {
        let mut this = slf.try_borrow_mut()?;
        let hashes = PyHashes::new(hashes, this.hash_len)?;
        let found = this.core.find_longest_hit_per_group(&hashes, max_cache_hit_length);
        let (blocks, lengths) = hashes.settle(slf.py(), found)?;
        this.hash_len = hashes.hash_len();
        Ok((wrap(slf, blocks), lengths))
    }

    fn take_new_block_ids(&mut self) -> Vec<BlockId> {
        self.core.take_new_block_ids()
    }

    fn record_blocks_for_zeroing(
        &mut self,
        py: Python<'_>,
        request_id: &str,
        start_token: usize,
    ) -> PyResult<()> {
        // No request has the id 0: the start is checked even for a request that holds nothing.
        let id = self.id_of(request_id).unwrap_or(0);
        match self.core.record_blocks_for_zeroing(id, start_token) {
            Err(Error::UnknownRequest(_)) => Ok(()),
            recorded => recorded.into_vllm(py),
        }
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
        let cut = slf.try_borrow()?.core.truncated(&groups, num_computed_tokens);
        Ok(wrap(slf, cut.into_vllm(slf.py())?))
    }

    /// Ids of the requests that hold blocks, or have been looked up and not been freed.
    fn request_ids(&self) -> Vec<String> {
        let known = self.requests.iter().filter(|(_, mirror)| self.core.knows(mirror.id));
        known.map(|(name, _)| name.clone()).collect()
    }

    /// Leading cached blocks of each request in one group, where that is known.
    fn num_cached_blocks<'py>(
        &self,
        py: Python<'py>,
        group: usize,
    ) -> PyResult<Bound<'py, PyDict>> {
        let counts = PyDict::new(py);
        for (name, mirror) in &self.requests {
            let held = self.core.blocks_of(mirror.id).ok();
            let state = held.and_then(|held| held.groups.get(group));
            if let Some(count) = state.and_then(|state| state.num_cached_blocks) {
                counts.set_item(name, count)?;
            }
        }
        Ok(counts)
    }

    /// 32 bytes that change with the state of the engine.
    fn state_digest<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &kvoxide_core::digest::digest(&self.core))
    }

    fn check_invariants(&self, py: Python<'_>) -> PyResult<()> {
        kvoxide_core::invariant::check(&self.core).map_err(Error::Internal).into_vllm(py)
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

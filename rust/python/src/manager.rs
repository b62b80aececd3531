//! The standalone manager: converts arguments, calls the core, converts results.

use std::collections::HashMap;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

use kvoxide_core::digest::digest;
use kvoxide_core::{
    AllocateArgs, BlockDemand, BlockId, Error, GroupBlocks, Manager, ManagerConfig, Policy,
    RequestId,
};

use crate::blocks::{PyBlock, PyBlocks};
use crate::config::{PyConfig, PyPolicy, optional_size, size};
use crate::errors::{IntoPyResult, block_error, request_error, to_py};
use crate::events::PendingEvent;
use crate::id_lists::id_list;
use crate::pool::PyBlockPool;
use crate::request::PyRequest;
use crate::stats::PrefixCacheStats;

/// The KV cache manager of a scheduler.
#[pyclass(module = "kvoxide", name = "KVCacheManager")]
pub struct PyManager {
    pub core: Manager,
    config: PyConfig,
    pub(crate) hash_len: Option<usize>,
    pub(crate) names: HashMap<String, RequestId>,
    events: Vec<PendingEvent>,
    stats: Option<PrefixCacheStats>,
    num_hash_lookahead_tokens: usize,
}

impl PyManager {
    /// Bytes of the block hashes in use.
    pub fn hash_len(&self) -> usize {
        self.hash_len.unwrap_or(0)
    }

    /// Runs a call that may change the core, and keeps the events it causes.
    pub fn change<T>(
        &mut self,
        py: Python<'_>,
        request: Option<&PyRequest>,
        call: impl FnOnce(&mut Manager) -> kvoxide_core::Result<T>,
    ) -> PyResult<T> {
        let result = call(&mut self.core).into_py(py);
        let lookahead = self.num_hash_lookahead_tokens;
        let events = self.core.take_events().into_iter();
        self.events.extend(events.map(|event| PendingEvent::new(event, request, lookahead)));
        result
    }

    fn adopt_hash_len(&mut self, request: &PyRequest) {
        if self.hash_len.is_none() && !request.hashes.is_empty() {
            self.hash_len = Some(request.hash_len);
        }
    }

    fn request_id(&self, py: Python<'_>, name: &str) -> PyResult<RequestId> {
        let id = self.names.get(name).copied();
        id.ok_or_else(|| to_py(py, &Error::UnknownRequest(name.to_owned())))
    }

    /// Checks that a request is held by this manager.
    fn held(&self, py: Python<'_>, request: &PyRequest) -> PyResult<RequestId> {
        self.check_request(py, request)?;
        self.request_id(py, &request.request_id)
    }
}

/// A count of tokens or blocks that a caller gives.
pub fn count(py: Python<'_>, name: &str, value: i64) -> PyResult<usize> {
    usize::try_from(value)
        .map_err(|_| request_error(py, format!("{name} is {value}; it must not be negative")))
}

fn wrap(slf: &Bound<'_, PyManager>, groups: impl Into<Arc<Vec<GroupBlocks>>>) -> PyBlocks {
    PyBlocks { manager: slf.clone().unbind(), groups: groups.into() }
}

#[pymethods]
impl PyManager {
    #[new]
    #[pyo3(signature = (kv_cache_config, max_model_len, scheduler_block_size=None,
        hash_block_size=None, max_in_flight_tokens=None, enable_caching=true, use_eagle=false,
        num_hash_lookahead_tokens=0, num_prefill_lookahead=0, log_stats=false,
        enable_kv_cache_events=false, *, watermark=0.0, policy=None))]
    #[expect(clippy::too_many_arguments, reason = "vLLM's arguments")]
    fn new(
        py: Python<'_>,
        kv_cache_config: PyConfig,
        max_model_len: i64,
        scheduler_block_size: Option<i64>,
        hash_block_size: Option<i64>,
        max_in_flight_tokens: Option<i64>,
        enable_caching: bool,
        use_eagle: bool,
        num_hash_lookahead_tokens: i64,
        num_prefill_lookahead: i64,
        log_stats: bool,
        enable_kv_cache_events: bool,
        watermark: f64,
        policy: Option<PyPolicy>,
    ) -> PyResult<Self> {
        let groups = kv_cache_config.groups.iter().map(|group| group.spec.clone()).collect();
        let config = ManagerConfig {
            num_blocks: kv_cache_config.num_blocks,
            groups,
            max_model_len: size(py, "max_model_len", max_model_len)?,
            scheduler_block_size: optional_size(py, "scheduler_block_size", scheduler_block_size)?,
            hash_block_size: optional_size(py, "hash_block_size", hash_block_size)?,
            max_in_flight_tokens: optional_size(py, "max_in_flight_tokens", max_in_flight_tokens)?,
            enable_caching,
            use_eagle,
            num_prefill_lookahead: size(py, "num_prefill_lookahead", num_prefill_lookahead)?,
            enable_events: enable_kv_cache_events,
            watermark,
            needs_zeroing: kv_cache_config.needs_zeroing,
            keep_tail_below_junction: true,
            observe: false,
            policy: policy.map_or_else(Policy::default, |policy| policy.policy),
        };
        config.check_holds_a_request().into_py(py)?;
        Ok(Self {
            core: Manager::new(config).into_py(py)?,
            config: kv_cache_config,
            hash_len: None,
            names: HashMap::new(),
            events: Vec::new(),
            stats: log_stats.then(PrefixCacheStats::default),
            num_hash_lookahead_tokens: size(
                py,
                "num_hash_lookahead_tokens",
                num_hash_lookahead_tokens,
            )?,
        })
    }

    #[getter]
    fn kv_cache_config(&self) -> PyConfig {
        self.config.clone()
    }

    #[getter]
    fn policy(&self) -> PyPolicy {
        PyPolicy { policy: self.core.config().policy.clone() }
    }

    #[getter]
    fn max_model_len(&self) -> usize {
        self.core.config().max_model_len
    }

    #[getter]
    fn scheduler_block_size(&self) -> usize {
        self.core.scheduler_block_size()
    }

    #[getter]
    fn hash_block_size(&self) -> usize {
        self.core.hash_block_size()
    }

    #[getter]
    fn enable_caching(&self) -> bool {
        self.core.config().enable_caching
    }

    #[getter]
    fn num_kv_cache_groups(&self) -> usize {
        self.core.config().groups.len()
    }

    #[getter]
    fn watermark_blocks(&self) -> usize {
        self.core.watermark_blocks()
    }

    #[getter]
    fn block_pool(slf: &Bound<'_, Self>) -> PyBlockPool {
        PyBlockPool { manager: slf.clone().unbind() }
    }

    #[getter]
    fn empty_kv_cache_blocks(slf: &Bound<'_, Self>) -> PyBlocks {
        let empty = slf.borrow().core.no_blocks();
        wrap(slf, empty)
    }

    #[getter]
    fn usage(&self) -> f64 {
        self.core.pool().usage()
    }

    fn make_prefix_cache_stats(&mut self) -> Option<PrefixCacheStats> {
        self.stats.as_mut().map(std::mem::take)
    }

    fn prefix_cache_lookup_enabled(&self, request: &PyRequest) -> bool {
        self.core.config().enable_caching && !request.skip_reading_prefix_cache
    }

    fn record_prefix_cache_stats(
        &mut self,
        py: Python<'_>,
        request: &PyRequest,
        num_hits: i64,
    ) -> PyResult<()> {
        let num_hits = count(py, "num_hits", num_hits)?;
        if self.prefix_cache_lookup_enabled(request)
            && let Some(stats) = &mut self.stats
        {
            stats.record(request.num_tokens, num_hits, request.num_preemptions > 0);
        }
        Ok(())
    }

    #[pyo3(signature = (request, max_cache_hit_length=None))]
    fn get_computed_blocks(
        slf: &Bound<'_, Self>,
        request: &PyRequest,
        max_cache_hit_length: Option<i64>,
    ) -> PyResult<(PyBlocks, usize, usize)> {
        let py = slf.py();
        let mut this = slf.try_borrow_mut()?;
        this.check_request(py, request)?;
        if !this.prefix_cache_lookup_enabled(request) {
            let empty = this.core.no_blocks();
            return Ok((wrap(slf, empty), 0, 0));
        }
        let max_length = match max_cache_hit_length {
            Some(length) => count(py, "max_cache_hit_length", length)?,
            None => request.num_tokens - 1,
        };
        this.adopt_hash_len(request);
        let view = request.view();
        let hit = this.change(py, Some(request), |core| {
            let hit = core.get_computed_blocks(view.id, &view.hashes, max_length)?;
            if request.reports_hits {
                core.report_hit(&view, &hit)?;
            }
            Ok(hit)
        })?;
        Ok((wrap(slf, hit.blocks), hit.length, hit.shared_prefix_boundary))
    }

    #[pyo3(signature = (request, max_cache_hit_length=None))]
    fn get_computed_blocks_for_connector(
        slf: &Bound<'_, Self>,
        request: &PyRequest,
        max_cache_hit_length: Option<i64>,
    ) -> PyResult<(PyBlocks, usize, usize, bool)> {
        // Only groups with recurrent state can diverge from full attention, and none is native.
        let (blocks, length, boundary) =
            Self::get_computed_blocks(slf, request, max_cache_hit_length)?;
        Ok((blocks, length, boundary, false))
    }

    #[pyo3(signature = (request, num_new_tokens, num_new_computed_tokens=0,
        new_computed_blocks=None, num_lookahead_tokens=0, num_external_computed_tokens=0,
        delay_cache_blocks=false, num_encoder_tokens=0, full_sequence_must_fit=false,
        reserved_blocks=0, has_scheduled_reqs=true, skip_zeroing_group_ids=Vec::new()))]
    #[expect(clippy::too_many_arguments, reason = "vLLM's arguments")]
    fn allocate_slots(
        slf: &Bound<'_, Self>,
        request: &PyRequest,
        num_new_tokens: i64,
        num_new_computed_tokens: i64,
        new_computed_blocks: Option<&Bound<'_, PyBlocks>>,
        num_lookahead_tokens: i64,
        num_external_computed_tokens: i64,
        delay_cache_blocks: bool,
        num_encoder_tokens: i64,
        full_sequence_must_fit: bool,
        reserved_blocks: i64,
        has_scheduled_reqs: bool,
        skip_zeroing_group_ids: Vec<i64>,
    ) -> PyResult<Option<PyBlocks>> {
        let py = slf.py();
        if num_encoder_tokens != 0 {
            let message = format!(
                "num_encoder_tokens is {num_encoder_tokens}; no supported group kind holds \
                 encoder tokens, so it must be 0"
            );
            return Err(request_error(py, message));
        }
        let hit = new_computed_blocks.map(Bound::get);
        if let Some(hit) = hit {
            hit.check_owner(slf)?;
        }
        let hit = hit.filter(|hit| hit.groups.iter().any(|group| !group.is_empty()));
        let external = "num_external_computed_tokens";
        let mut this = slf.try_borrow_mut()?;
        let unzeroed = skip_zeroing_group_ids.into_iter().map(|group| this.group_id(py, group));
        let unzeroed = unzeroed.map(|id| Ok(usize::from(id?))).collect::<PyResult<Vec<_>>>()?;
        let args = AllocateArgs {
            num_new_tokens: count(py, "num_new_tokens", num_new_tokens)?,
            num_new_computed_tokens: count(py, "num_new_computed_tokens", num_new_computed_tokens)?,
            new_computed_blocks: hit.map_or(&[], |hit| &hit.groups[..]),
            num_lookahead_tokens: count(py, "num_lookahead_tokens", num_lookahead_tokens)?,
            num_external_computed_tokens: count(py, external, num_external_computed_tokens)?,
            delay_cache_blocks,
            full_sequence_must_fit,
            reserved_blocks: count(py, "reserved_blocks", reserved_blocks)?,
            has_scheduled_reqs,
            skip_zeroing_group_ids: &unzeroed,
        };
        this.check_allocation(py, request, &args)?;
        let new =
            this.change(py, Some(request), |core| core.allocate_slots(&request.view(), &args))?;
        this.adopt_hash_len(request);
        if this.core.knows(request.id) && !this.names.contains_key(&request.request_id) {
            this.names.insert(request.request_id.clone(), request.id);
        }
        let groups = |ids: Vec<Vec<BlockId>>| {
            ids.into_iter().map(|ids| GroupBlocks::new(0, ids)).collect::<Vec<_>>()
        };
        Ok(new.map(|new| wrap(slf, groups(new))))
    }

    fn free(&mut self, py: Python<'_>, request: &PyRequest) -> PyResult<()> {
        let id = self.held(py, request)?;
        self.change(py, None, |core| core.free(id))?;
        self.names.remove(&request.request_id);
        Ok(())
    }

    #[pyo3(signature = (request_id, processed_computed_tokens, num_prompt_tokens=None))]
    fn remove_skipped_blocks(
        &mut self,
        py: Python<'_>,
        request_id: &str,
        processed_computed_tokens: i64,
        num_prompt_tokens: Option<i64>,
    ) -> PyResult<()> {
        let _ = num_prompt_tokens;
        let id = self.request_id(py, request_id)?;
        let processed = count(py, "processed_computed_tokens", processed_computed_tokens)?;
        self.change(py, None, |core| core.remove_skipped_blocks(id, processed))
    }

    fn pop_blocks_for_free<'py>(
        slf: &Bound<'py, Self>,
        request: &PyRequest,
    ) -> PyResult<Bound<'py, PyList>> {
        let py = slf.py();
        let mut this = slf.try_borrow_mut()?;
        let id = this.held(py, request)?;
        let ids = this.change(py, None, |core| core.pop_blocks_for_free(id))?;
        this.names.remove(&request.request_id);
        PyBlock::list(py, &slf.clone().unbind(), ids)
    }

    #[pyo3(name = "evict_blocks")]
    fn py_evict_blocks(&mut self, block_ids: &Bound<'_, PyAny>) -> PyResult<()> {
        self.evict_blocks(block_ids)
    }

    fn reset_prefix_cache(&mut self, py: Python<'_>) -> PyResult<bool> {
        let done = self.reset_pool(py)?;
        if let (true, Some(stats)) = (done, &mut self.stats) {
            stats.reset = true;
        }
        Ok(done)
    }

    fn get_num_common_prefix_blocks(
        &self,
        py: Python<'_>,
        running_request_id: &str,
    ) -> PyResult<Vec<usize>> {
        self.request_id(py, running_request_id)?;
        Ok(vec![0; self.core.config().groups.len()])
    }

    /// The events since the last call.
    pub fn take_events<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let hash_len = self.hash_len();
        let groups = &self.core.config().groups;
        let events = std::mem::take(&mut self.events).into_iter();
        let events = events.map(|event| event.into_py(py, hash_len, groups));
        PyList::new(py, events.collect::<PyResult<Vec<_>>>()?)
    }

    fn get_blocks(slf: &Bound<'_, Self>, request_id: &str) -> PyResult<PyBlocks> {
        let this = slf.try_borrow()?;
        let id = this.request_id(slf.py(), request_id)?;
        let held = this.core.blocks_of(id).into_py(slf.py())?;
        Ok(wrap(slf, held.groups.iter().map(|group| group.blocks.clone()).collect::<Vec<_>>()))
    }

    fn get_block_ids<'py>(
        slf: &Bound<'py, Self>,
        request_id: &str,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let this = slf.try_borrow()?;
        let id = this.request_id(slf.py(), request_id)?;
        let held = this.core.blocks_of(id).into_py(slf.py())?;
        let lists = held.groups.iter().map(|group| id_list(slf.py(), &group.blocks));
        PyTuple::new(slf.py(), lists.collect::<PyResult<Vec<_>>>()?)
    }

    fn get_block_ids_for_computed_tokens<'py>(
        slf: &Bound<'py, Self>,
        request_id: &str,
        num_computed_tokens: i64,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let py = slf.py();
        let num_computed = count(py, "num_computed_tokens", num_computed_tokens)?;
        let this = slf.try_borrow()?;
        let id = this.request_id(py, request_id)?;
        let held = this.core.blocks_of(id).into_py(py)?;
        let lists = held.groups.iter().zip(&this.core.config().groups).map(|(state, group)| {
            let mut blocks = state.blocks.clone();
            blocks.truncate(num_computed.div_ceil(group.block_size).min(blocks.len()));
            id_list(py, &blocks)
        });
        PyTuple::new(py, lists.collect::<PyResult<Vec<_>>>()?)
    }

    #[pyo3(signature = (request, num_tokens, *, new_computed_blocks=None,
        total_computed_tokens=0, num_local_computed_tokens=0, apply_admission_cap=false))]
    fn get_num_blocks_to_allocate(
        slf: &Bound<'_, Self>,
        request: &PyRequest,
        num_tokens: i64,
        new_computed_blocks: Option<&Bound<'_, PyBlocks>>,
        total_computed_tokens: i64,
        num_local_computed_tokens: i64,
        apply_admission_cap: bool,
    ) -> PyResult<usize> {
        let py = slf.py();
        count(py, "num_local_computed_tokens", num_local_computed_tokens)?;
        let hit = new_computed_blocks.map(Bound::get);
        if let Some(hit) = hit {
            hit.check_owner(slf)?;
        }
        let demand = BlockDemand {
            num_tokens: count(py, "num_tokens", num_tokens)?,
            new_computed_blocks: hit.map_or(&[], |hit| &hit.groups[..]),
            total_computed_tokens: count(py, "total_computed_tokens", total_computed_tokens)?,
            apply_admission_cap,
        };
        let this = slf.try_borrow()?;
        this.check_request(py, request)?;
        this.core.get_num_blocks_to_allocate(request.id, &demand).into_py(py)
    }

    fn estimate_cached_tokens(&self, py: Python<'_>, request: &PyRequest) -> PyResult<usize> {
        let id = self.held(py, request)?;
        self.core.estimate_cached_tokens(id).into_py(py)
    }

    fn cache_blocks(
        &mut self,
        py: Python<'_>,
        request: &PyRequest,
        num_computed_tokens: i64,
    ) -> PyResult<()> {
        self.held(py, request)?;
        let num_computed = count(py, "num_computed_tokens", num_computed_tokens)?;
        if num_computed > request.num_tokens {
            let message = format!(
                "{num_computed} tokens are to be cached, but the request has {}",
                request.num_tokens
            );
            return Err(request_error(py, message));
        }
        self.adopt_hash_len(request);
        self.change(py, Some(request), |core| core.cache_blocks(&request.view(), num_computed))
    }

    fn create_kv_cache_blocks(
        slf: &Bound<'_, Self>,
        blocks: Vec<Vec<Bound<'_, PyBlock>>>,
    ) -> PyResult<PyBlocks> {
        let num_groups = slf.try_borrow()?.core.config().groups.len();
        if blocks.len() != num_groups {
            let message = format!("{} groups were given, {num_groups} exist", blocks.len());
            return Err(request_error(slf.py(), message));
        }
        let ids = |group: Vec<Bound<'_, PyBlock>>| {
            let id = |block: &Bound<'_, PyBlock>| match block.get().manager.is(slf) {
                true => Ok(block.get().id),
                false => Err(block_error(slf.py(), "a block is of another manager")),
            };
            Ok(GroupBlocks::new(0, group.iter().map(id).collect::<PyResult<_>>()?))
        };
        Ok(wrap(slf, blocks.into_iter().map(ids).collect::<PyResult<Vec<_>>>()?))
    }

    fn truncate_computed_blocks(
        slf: &Bound<'_, Self>,
        blocks: &Bound<'_, PyBlocks>,
        num_computed_tokens: i64,
    ) -> PyResult<PyBlocks> {
        let py = slf.py();
        blocks.get().check_owner(slf)?;
        let num_computed = count(py, "num_computed_tokens", num_computed_tokens)?;
        let this = slf.try_borrow()?;
        let cut = this.core.truncated(&blocks.get().groups, num_computed).into_py(py)?;
        Ok(wrap(slf, cut))
    }

    fn take_new_block_ids(&mut self) -> Vec<BlockId> {
        self.core.take_new_block_ids()
    }

    fn record_blocks_for_zeroing(
        &mut self,
        py: Python<'_>,
        request_id: &str,
        start_token: i64,
    ) -> PyResult<()> {
        let id = self.request_id(py, request_id)?;
        let start = count(py, "start_token", start_token)?;
        self.core.record_blocks_for_zeroing(id, start).into_py(py)
    }

    /// Copies belong to recurrent-state groups; there are none.
    fn take_kv_cache_block_copies<'py>(
        &self,
        py: Python<'py>,
    ) -> (Bound<'py, PyList>, Bound<'py, PyList>) {
        (PyList::empty(py), PyList::empty(py))
    }

    fn take_boundary_state_offloads<'py>(&self, py: Python<'py>) -> Bound<'py, PyDict> {
        PyDict::new(py)
    }

    fn finalize_partial_tail_offloads<'py>(
        &self,
        py: Python<'py>,
        request: &PyRequest,
    ) -> Bound<'py, PyList> {
        let _ = request;
        PyList::empty(py)
    }

    fn new_step_starts(&self) {}

    fn check_invariants(&self, py: Python<'_>) -> PyResult<()> {
        kvoxide_core::invariant::check(&self.core).map_err(Error::Internal).into_py(py)
    }

    fn state_digest<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let mut state = digest(&self.core);
        for (byte, pending) in state.iter_mut().zip(self.events.len().to_le_bytes()) {
            *byte ^= pending;
        }
        PyBytes::new(py, &state)
    }
}

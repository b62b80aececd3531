//! The standalone manager: converts arguments, calls the core, converts results.

use std::collections::HashMap;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

use kvoxide_core::digest::digest;
use kvoxide_core::{
    AllocateArgs, BlockDemand, BlockId, Error, GroupBlocks, Manager, ManagerConfig, Policy,
    invariant,
};

use crate::blocks::{PyBlock, PyBlocks};
use crate::config::{PyConfig, PyPolicy, optional_size, size};
use crate::errors::{IntoPyResult, block_error, request_error};
use crate::gate::Gate;
use crate::id_lists::id_list;
use crate::panics::panic_midway;
use crate::pool::PyBlockPool;
use crate::request::PyRequest;
use crate::state::State;
use crate::stats::PrefixCacheStats;

/// The KV cache manager of a scheduler.
#[pyclass(module = "kvoxide", name = "KVCacheManager", frozen)]
pub struct PyManager {
    pub gate: Gate<State>,
    config: PyConfig,
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
        let lookahead = size(py, "num_hash_lookahead_tokens", num_hash_lookahead_tokens)?;
        let state = State {
            core: Manager::new(config).into_py(py)?,
            hash_len: None,
            names: HashMap::new(),
            stats: log_stats.then(PrefixCacheStats::default),
            num_hash_lookahead_tokens: lookahead,
            events: Vec::new(),
        };
        Ok(Self { gate: Gate::new(state), config: kv_cache_config })
    }

    #[getter]
    fn kv_cache_config(&self) -> PyConfig {
        self.config.clone()
    }

    #[getter]
    fn policy(&self, py: Python<'_>) -> PyResult<PyPolicy> {
        self.gate.read(py, |state| Ok(PyPolicy { policy: state.core.config().policy.clone() }))
    }

    #[getter]
    fn max_model_len(&self, py: Python<'_>) -> PyResult<usize> {
        self.gate.read(py, |state| Ok(state.core.config().max_model_len))
    }

    #[getter]
    fn scheduler_block_size(&self, py: Python<'_>) -> PyResult<usize> {
        self.gate.read(py, |state| Ok(state.core.scheduler_block_size()))
    }

    #[getter]
    fn hash_block_size(&self, py: Python<'_>) -> PyResult<usize> {
        self.gate.read(py, |state| Ok(state.core.hash_block_size()))
    }

    #[getter]
    fn enable_caching(&self, py: Python<'_>) -> PyResult<bool> {
        self.gate.read(py, |state| Ok(state.core.config().enable_caching))
    }

    #[getter]
    fn num_kv_cache_groups(&self, py: Python<'_>) -> PyResult<usize> {
        self.gate.read(py, |state| Ok(state.core.config().groups.len()))
    }

    #[getter]
    fn watermark_blocks(&self, py: Python<'_>) -> PyResult<usize> {
        self.gate.read(py, |state| Ok(state.core.watermark_blocks()))
    }

    #[getter]
    fn block_pool(slf: &Bound<'_, Self>) -> PyBlockPool {
        PyBlockPool { manager: slf.clone().unbind() }
    }

    #[getter]
    fn empty_kv_cache_blocks(slf: &Bound<'_, Self>) -> PyResult<PyBlocks> {
        slf.get().gate.read(slf.py(), |state| Ok(wrap(slf, state.core.no_blocks())))
    }

    #[getter]
    fn usage(&self, py: Python<'_>) -> PyResult<f64> {
        self.gate.read(py, |state| Ok(state.core.pool().usage()))
    }

    fn make_prefix_cache_stats(&self, py: Python<'_>) -> PyResult<Option<PrefixCacheStats>> {
        self.gate.change(py, "make_prefix_cache_stats", |state| {
            Ok(state.stats.as_mut().map(std::mem::take))
        })
    }

    fn prefix_cache_lookup_enabled(&self, py: Python<'_>, request: &PyRequest) -> PyResult<bool> {
        self.gate.read(py, |state| Ok(state.looks_up(request)))
    }

    fn record_prefix_cache_stats(
        &self,
        py: Python<'_>,
        request: &PyRequest,
        num_hits: i64,
    ) -> PyResult<()> {
        let num_hits = count(py, "num_hits", num_hits)?;
        self.gate.change(py, "record_prefix_cache_stats", |state| {
            if state.looks_up(request)
                && let Some(stats) = &mut state.stats
            {
                stats.record(request.num_tokens, num_hits, request.num_preemptions > 0);
            }
            Ok(())
        })
    }

    #[pyo3(signature = (request, max_cache_hit_length=None))]
    fn get_computed_blocks(
        slf: &Bound<'_, Self>,
        request: &PyRequest,
        max_cache_hit_length: Option<i64>,
    ) -> PyResult<(PyBlocks, usize, usize)> {
        let py = slf.py();
        let max_length = match max_cache_hit_length {
            Some(length) => count(py, "max_cache_hit_length", length)?,
            None => request.num_tokens - 1,
        };
        slf.get().gate.change(py, "get_computed_blocks", |state| {
            state.check_request(py, request)?;
            if !state.looks_up(request) {
                return Ok((wrap(slf, state.core.no_blocks()), 0, 0));
            }
            let view = request.view();
            let hit = state.change(py, Some(request), |core| {
                let hit = core.get_computed_blocks(view.id, &view.hashes, max_length)?;
                if request.reports_hits {
                    core.report_hit(&view, &hit)?;
                }
                Ok(hit)
            })?;
            state.adopt_hash_len(request);
            Ok((wrap(slf, hit.blocks), hit.length, hit.shared_prefix_boundary))
        })
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
    fn allocate_slots<'py>(
        slf: &Bound<'py, Self>,
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
    ) -> PyResult<Option<Bound<'py, PyBlocks>>> {
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
            skip_zeroing_group_ids: &[],
        };
        slf.get().gate.change(py, "allocate_slots", |state| {
            let unzeroed = skip_zeroing_group_ids.into_iter().map(|id| state.group_id(py, id));
            let unzeroed = unzeroed.map(|id| Ok(usize::from(id?))).collect::<PyResult<Vec<_>>>()?;
            let new = state.allocate(
                py,
                request,
                &AllocateArgs { skip_zeroing_group_ids: &unzeroed, ..args },
            )?;
            let groups = |ids: Vec<Vec<BlockId>>| {
                ids.into_iter().map(|ids| GroupBlocks::new(0, ids)).collect::<Vec<_>>()
            };
            let made = new.map(|new| Bound::new(py, wrap(slf, groups(new)))).transpose();
            slf.get().gate.handed_out(py, made)
        })
    }

    fn free(&self, py: Python<'_>, request: &PyRequest) -> PyResult<()> {
        self.gate.change(py, "free", |state| {
            let id = state.held(py, request)?;
            state.change(py, None, |core| core.free(id))?;
            state.names.remove(&request.request_id);
            Ok(())
        })
    }

    #[pyo3(signature = (request_id, processed_computed_tokens, num_prompt_tokens=None))]
    fn remove_skipped_blocks(
        &self,
        py: Python<'_>,
        request_id: &str,
        processed_computed_tokens: i64,
        num_prompt_tokens: Option<i64>,
    ) -> PyResult<()> {
        let _ = num_prompt_tokens;
        let processed = count(py, "processed_computed_tokens", processed_computed_tokens)?;
        self.gate.change(py, "remove_skipped_blocks", |state| {
            let id = state.request_id(py, request_id)?;
            state.change(py, None, |core| core.remove_skipped_blocks(id, processed))
        })
    }

    fn pop_blocks_for_free<'py>(
        slf: &Bound<'py, Self>,
        request: &PyRequest,
    ) -> PyResult<Bound<'py, PyList>> {
        let py = slf.py();
        slf.get().gate.change(py, "pop_blocks_for_free", |state| {
            let id = state.held(py, request)?;
            let ids = state.change(py, None, |core| core.pop_blocks_for_free(id))?;
            state.names.remove(&request.request_id);
            slf.get().gate.handed_out(py, PyBlock::list(py, slf.as_unbound(), ids))
        })
    }

    #[pyo3(name = "evict_blocks")]
    fn py_evict_blocks(&self, block_ids: &Bound<'_, PyAny>) -> PyResult<()> {
        self.evict_blocks(block_ids)
    }

    fn reset_prefix_cache(&self, py: Python<'_>) -> PyResult<bool> {
        self.gate.change(py, "reset_prefix_cache", |state| {
            let done = state.reset_pool(py)?;
            if let (true, Some(stats)) = (done, &mut state.stats) {
                stats.reset = true;
            }
            Ok(done)
        })
    }

    fn get_num_common_prefix_blocks(
        &self,
        py: Python<'_>,
        running_request_id: &str,
    ) -> PyResult<Vec<usize>> {
        self.gate.read(py, |state| {
            state.request_id(py, running_request_id)?;
            Ok(vec![0; state.core.config().groups.len()])
        })
    }

    fn take_events<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.gate.change(py, "take_events", |state| self.gate.handed_out(py, state.take_events(py)))
    }

    fn get_blocks(slf: &Bound<'_, Self>, request_id: &str) -> PyResult<PyBlocks> {
        slf.get().gate.read(slf.py(), |state| {
            let held = state.blocks_of(slf.py(), request_id)?;
            Ok(wrap(slf, held.groups.iter().map(|group| group.blocks.clone()).collect::<Vec<_>>()))
        })
    }

    fn get_block_ids<'py>(
        &self,
        py: Python<'py>,
        request_id: &str,
    ) -> PyResult<Bound<'py, PyTuple>> {
        self.gate.read(py, |state| {
            let held = state.blocks_of(py, request_id)?;
            let lists = held.groups.iter().map(|group| id_list(py, &group.blocks));
            PyTuple::new(py, lists.collect::<PyResult<Vec<_>>>()?)
        })
    }

    fn get_block_ids_for_computed_tokens<'py>(
        &self,
        py: Python<'py>,
        request_id: &str,
        num_computed_tokens: i64,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let num_computed = count(py, "num_computed_tokens", num_computed_tokens)?;
        self.gate.read(py, |state| {
            let held = state.blocks_of(py, request_id)?;
            let groups = held.groups.iter().zip(&state.core.config().groups);
            let lists = groups.map(|(held, group)| {
                let mut blocks = held.blocks.clone();
                blocks.truncate(num_computed.div_ceil(group.block_size).min(blocks.len()));
                id_list(py, &blocks)
            });
            PyTuple::new(py, lists.collect::<PyResult<Vec<_>>>()?)
        })
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
        let hit = new_computed_blocks.map(Bound::get);
        if let Some(hit) = hit {
            hit.check_owner(slf)?;
        }
        let demand = BlockDemand {
            num_tokens: count(py, "num_tokens", num_tokens)?,
            new_computed_blocks: hit.map_or(&[], |hit| &hit.groups[..]),
            total_computed_tokens: count(py, "total_computed_tokens", total_computed_tokens)?,
            num_local_computed_tokens: count(
                py,
                "num_local_computed_tokens",
                num_local_computed_tokens,
            )?,
            apply_admission_cap,
        };
        slf.get().gate.read(py, |state| {
            state.check_request(py, request)?;
            state.core.get_num_blocks_to_allocate(request.id, &demand).into_py(py)
        })
    }

    fn estimate_cached_tokens(&self, py: Python<'_>, request: &PyRequest) -> PyResult<usize> {
        self.gate.read(py, |state| {
            let id = state.held(py, request)?;
            state.core.estimate_cached_tokens(id).into_py(py)
        })
    }

    fn cache_blocks(
        &self,
        py: Python<'_>,
        request: &PyRequest,
        num_computed_tokens: i64,
    ) -> PyResult<()> {
        let num_computed = count(py, "num_computed_tokens", num_computed_tokens)?;
        self.gate.change(py, "cache_blocks", |state| {
            state.held(py, request)?;
            if num_computed > request.num_tokens {
                let message = format!(
                    "{num_computed} tokens are to be cached, but the request has {}",
                    request.num_tokens
                );
                return Err(request_error(py, message));
            }
            let view = request.view();
            state.change(py, Some(request), |core| core.cache_blocks(&view, num_computed))?;
            state.adopt_hash_len(request);
            Ok(())
        })
    }

    fn create_kv_cache_blocks(
        slf: &Bound<'_, Self>,
        blocks: Vec<Vec<Bound<'_, PyBlock>>>,
    ) -> PyResult<PyBlocks> {
        let num_groups = Self::num_kv_cache_groups(slf.get(), slf.py())?;
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
        slf.get().gate.read(py, |state| {
            let cut = state.core.truncated(&blocks.get().groups, num_computed).into_py(py)?;
            Ok(wrap(slf, cut))
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
        start_token: i64,
    ) -> PyResult<()> {
        let start = count(py, "start_token", start_token)?;
        self.gate.change(py, "record_blocks_for_zeroing", |state| {
            let id = state.request_id(py, request_id)?;
            state.core.record_blocks_for_zeroing(id, start).into_py(py)
        })
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
        self.gate
            .read(py, |state| invariant::check(&state.core).map_err(Error::Internal).into_py(py))
    }

    fn state_digest<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.gate.read(py, |state| {
            let mut digest = digest(&state.core);
            for (byte, pending) in digest.iter_mut().zip(state.events.len().to_le_bytes()) {
                *byte ^= pending;
            }
            Ok(PyBytes::new(py, &digest))
        })
    }

    /// Panics with a block that nobody holds. A build of its own with such a method would test
    /// another module than the one that ships.
    fn _panic_for_tests(&self, py: Python<'_>) -> PyResult<()> {
        self.gate.change(py, "_panic_for_tests", |state| panic_midway(&mut state.core))
    }
}

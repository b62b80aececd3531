//! The scheduler's calls about one request, from its look-up to its end.

use pyo3::prelude::*;
use pyo3::types::PyList;

use kvoxide_core::outcomes::PromptStart;
use kvoxide_core::{AllocateArgs, BlockId, GroupBlocks, Manager, ObservedRequest, SlotDemand};

use super::construction::PyManager;
use crate::ffi::{
    self, BlockLists, IntoPyResult, Owner, count, request_error, update_outcome_time,
};
use crate::standalone::blocks::PyBlocks;
use crate::standalone::request::PyRequest;
use crate::standalone::state::State;

#[pymethods]
impl PyManager {
    #[pyo3(signature = (request, max_cache_hit_length=None))]
    fn get_computed_blocks(
        &self,
        py: Python<'_>,
        request: &PyRequest,
        max_cache_hit_length: Option<i64>,
    ) -> PyResult<(PyBlocks, usize, usize)> {
        let max_length = match max_cache_hit_length {
            Some(length) => count(py, "max_cache_hit_length", length)?,
            None => request.num_tokens - 1,
        };
        self.cell.change(py, "get_computed_blocks", |state| {
            state.check_request(py, request)?;
            if !state.looks_up(request) {
                return Ok((self.wrap(state.core.no_blocks()), 0, 0));
            }
            let view = request.view();
            let hit = state.change(py, Some(request), |core| {
                let hit = core.get_computed_blocks(view.id, &view.hashes, max_length)?;
                if request.reports_hits {
                    core.report_hit(&view, &hit)?;
                }
                Ok(hit)
            })?;
            state.set_hash_len_once(request);
            Ok((self.wrap(hit.blocks), hit.length, hit.shared_prefix_boundary))
        })
    }

    #[pyo3(signature = (request, max_cache_hit_length=None))]
    fn get_computed_blocks_for_connector(
        &self,
        py: Python<'_>,
        request: &PyRequest,
        max_cache_hit_length: Option<i64>,
    ) -> PyResult<(PyBlocks, usize, usize, bool)> {
        let max_length = match max_cache_hit_length {
            Some(length) => count(py, "max_cache_hit_length", length)?,
            None => request.num_tokens - 1,
        };
        let deepest = self.cell.read(py, |state| {
            state.check_request(py, request)?;
            match state.looks_up(request) {
                true => state.core.find_deepest_hit(&request.view().hashes, max_length).into_py(py),
                false => Ok(None),
            }
        })?;
        if let Some(found) = deepest {
            return Ok((self.wrap(found.blocks), found.length, 0, found.is_diverged));
        }
        let (blocks, length, boundary) =
            self.get_computed_blocks(py, request, max_cache_hit_length)?;
        Ok((blocks, length, boundary, false))
    }

    #[pyo3(signature = (request, num_new_tokens, num_new_computed_tokens=0,
        new_computed_blocks=None, num_lookahead_tokens=0, num_external_computed_tokens=0,
        delay_cache_blocks=false, num_encoder_tokens=0, full_sequence_must_fit=false,
        reserved_blocks=0, has_scheduled_reqs=true, skip_zeroing_group_ids=Vec::new()))]
    #[expect(clippy::too_many_arguments, reason = "vLLM's arguments")]
    fn allocate_slots<'py>(
        &self,
        py: Python<'py>,
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
        let hit = self.given_hit(py, new_computed_blocks)?;
        let is_hit = hit.iter().any(|group| !group.is_empty());
        let external = "num_external_computed_tokens";
        let args = AllocateArgs {
            num_new_tokens: count(py, "num_new_tokens", num_new_tokens)?,
            num_new_computed_tokens: count(py, "num_new_computed_tokens", num_new_computed_tokens)?,
            new_computed_blocks: if is_hit { hit } else { &[] },
            num_lookahead_tokens: count(py, "num_lookahead_tokens", num_lookahead_tokens)?,
            num_external_computed_tokens: count(py, external, num_external_computed_tokens)?,
            num_encoder_tokens: count(py, "num_encoder_tokens", num_encoder_tokens)?,
            delay_cache_blocks,
            full_sequence_must_fit,
            reserved_blocks: count(py, "reserved_blocks", reserved_blocks)? as isize,
            has_scheduled_reqs,
            ..AllocateArgs::default()
        };
        self.cell.change(py, "allocate_slots", |state| {
            let unzeroed = skip_zeroing_group_ids.into_iter().map(|id| state.group_id(py, id));
            let unzeroed = unzeroed.map(|id| Ok(usize::from(id?))).collect::<PyResult<Vec<_>>>()?;
            let args = AllocateArgs { skip_zeroing_group_ids: &unzeroed, ..args };
            let new = allocate(state, py, request, &args)?;
            let blocks = |ids| PyBlocks { lists: BlockLists::of_new(&self.cell, ids) };
            let made = new.map(|new| Bound::new(py, blocks(new))).transpose();
            self.cell.or_poison(py, made)
        })
    }

    fn cache_blocks(
        &self,
        py: Python<'_>,
        request: &PyRequest,
        num_computed_tokens: i64,
    ) -> PyResult<()> {
        let num_computed = count(py, "num_computed_tokens", num_computed_tokens)?;
        self.cell.change(py, "cache_blocks", |state| {
            state.held(py, request)?;
            state.loads.check_filled(py, request)?;
            if num_computed > request.num_tokens {
                let message = format!(
                    "{num_computed} tokens cannot be cached; the request has only {}",
                    request.num_tokens
                );
                return Err(request_error(py, message));
            }
            let view = request.view();
            state.change_for(py, request.id, Some(request), |core| {
                core.cache_blocks(&view, num_computed)
            })?;
            state.set_hash_len_once(request);
            Ok(())
        })
    }

    fn free(&self, py: Python<'_>, request: &PyRequest) -> PyResult<()> {
        self.cell.change(py, "free", |state| {
            let id = state.held(py, request)?;
            state.end_for(py, request, |core| core.free(id))?;
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
        let processed = count(py, "processed_computed_tokens", processed_computed_tokens)?;
        let prompt =
            num_prompt_tokens.map(|tokens| count(py, "num_prompt_tokens", tokens)).transpose()?;
        self.cell.change(py, "remove_skipped_blocks", |state| {
            let id = state.request_id(py, request_id)?;
            state.change_for(py, id, None, |core| core.remove_skipped_blocks(id, processed, prompt))
        })
    }

    fn pop_blocks_for_free<'py>(
        &self,
        py: Python<'py>,
        request: &PyRequest,
    ) -> PyResult<Bound<'py, PyList>> {
        self.cell.change(py, "pop_blocks_for_free", |state| {
            let id = state.held(py, request)?;
            let ids = state.end_for(py, request, |core| core.pop_blocks_for_free(id))?;
            state.names.remove(&request.request_id);
            self.cell.objects_or_poison(py, ids)
        })
    }

    #[pyo3(signature = (request, num_tokens, *, new_computed_blocks=None,
        total_computed_tokens=0, num_local_computed_tokens=0, apply_admission_cap=false,
        num_encoder_tokens=0, num_tokens_main_model=None, prefill_end=0))]
    #[expect(clippy::too_many_arguments, reason = "vLLM's arguments")]
    fn get_num_blocks_to_allocate(
        &self,
        py: Python<'_>,
        request: &PyRequest,
        num_tokens: i64,
        new_computed_blocks: Option<&Bound<'_, PyBlocks>>,
        total_computed_tokens: i64,
        num_local_computed_tokens: i64,
        apply_admission_cap: bool,
        num_encoder_tokens: i64,
        num_tokens_main_model: Option<i64>,
        prefill_end: i64,
    ) -> PyResult<isize> {
        let hit = self.given_hit(py, new_computed_blocks)?;
        let main_model = num_tokens_main_model.unwrap_or(num_tokens);
        let demand = SlotDemand {
            num_tokens: count(py, "num_tokens", num_tokens)?,
            num_tokens_main_model: count(py, "num_tokens_main_model", main_model)?,
            num_encoder_tokens: count(py, "num_encoder_tokens", num_encoder_tokens)?,
            prefill_end: count(py, "prefill_end", prefill_end)?,
            new_computed_blocks: hit,
            total_computed_tokens: count(py, "total_computed_tokens", total_computed_tokens)?,
            num_local_computed_tokens: count(
                py,
                "num_local_computed_tokens",
                num_local_computed_tokens,
            )?,
            apply_admission_cap,
            ..SlotDemand::default()
        };
        self.cell.change(py, "get_num_blocks_to_allocate", |state| {
            state.check_request(py, request)?;
            state.core.get_num_blocks_to_allocate(request.id, &demand).into_py(py)
        })
    }

    fn estimate_cached_tokens(&self, py: Python<'_>, request: &PyRequest) -> PyResult<usize> {
        self.cell.read(py, |state| {
            let id = state.held(py, request)?;
            state.core.estimate_cached_tokens(id).into_py(py)
        })
    }
}

impl PyManager {
    /// Returns the blocks of a hit that a caller passes; an empty slice without a hit.
    fn given_hit<'a>(
        &self,
        py: Python<'_>,
        blocks: Option<&'a Bound<'_, PyBlocks>>,
    ) -> PyResult<&'a [GroupBlocks]> {
        match blocks {
            Some(blocks) => Ok(blocks.get().lists.groups_at(py, &self.cell)?),
            None => Ok(&[]),
        }
    }
}

/// Allocates slots for a step of a request. Returns the new blocks, or `None` if too few blocks are
/// free.
fn allocate(
    state: &mut State,
    py: Python<'_>,
    request: &PyRequest,
    args: &AllocateArgs<'_>,
) -> PyResult<Option<Vec<Vec<BlockId>>>> {
    state.check_allocation(py, request, args)?;
    let view = request.view();
    let retention = request.hints.requested().cloned();
    if request.hints.are_given() {
        state.core.check_takes_priorities().into_py(py)?;
    }
    state.update_time(py, retention.as_deref())?;
    let reads_cache = !request.skip_reading_prefix_cache;
    let is_first = request.num_preemptions == 0 && !state.core.knows(request.id);
    let is_observed = is_first && state.core.observes_outcomes();
    let realm = request.realm();
    let tokens: Vec<i64> = match is_observed {
        true => request.start_tokens(&state.core, args.num_new_computed_tokens),
        false => Vec::new(),
    };
    let start =
        Some(PromptStart { tokens: &tokens, realm }).filter(|start| !start.tokens.is_empty());
    let observed =
        is_observed.then_some(ObservedRequest { hashes: &view.hashes, reads_cache, start });
    if is_observed {
        update_outcome_time(state, py)?;
    }
    let attached = state.noted.as_ref().and_then(|it| it.attached(&state.core, &view, args));
    let new_computed_blocks = attached.as_deref().unwrap_or(args.new_computed_blocks);
    let fills_holes = attached.is_some();
    let args = &AllocateArgs { new_computed_blocks, fills_holes, ..*args };
    let allocate = |core: &mut Manager| ffi::allocate(core, &view, args, observed);
    let (new, outcomes) = state
        .change(py, Some(request), |core| core.with_retention(retention.as_ref(), allocate))?;
    if let Some(outcomes) = outcomes {
        state.outcomes.add(&request.request_id, &outcomes);
    }
    state.set_hash_len_once(request);
    if let Some(noted) = state.noted.as_mut().filter(|_| new.is_some()) {
        noted.note_slots(&view, args);
        if args.num_external_computed_tokens > 0 {
            state.loads.add(request.id);
        }
    }
    if state.core.knows(request.id) && !state.names.contains_key(&request.request_id) {
        state.names.insert(request.request_id.clone(), request.id);
        state.retentions.extend(retention.map(|retention| (request.id, retention)));
    }
    Ok(new)
}

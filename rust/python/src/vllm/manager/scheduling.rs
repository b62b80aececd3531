//! The scheduler's calls about one request, from its look-up to its end.

use pyo3::exceptions::PyIndexError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyBool, PyDict, PyList, PySlice, PyString, PyTuple};

use kvoxide_core::host::HostGroup;
use kvoxide_core::joint::attached_tables;
use kvoxide_core::outcomes::{Positions, PromptStart};
use kvoxide_core::{
    AllocateArgs, BlockHash, Error, GroupBlocks, HashSource, HashWindow, Manager, ObservedRequest,
    PrefixHit, RequestView,
};

use super::construction::VllmManager;
use crate::ffi::{BlockLists, Observed, Owner, allocate, realm};
use crate::vllm::attributes::Reader;
use crate::vllm::blocks::{VllmBlocks, groups_of, is_no_hit};
use crate::vllm::call_times::TimedCall;
use crate::vllm::errors::IntoVllmResult;
use crate::vllm::request::{PyHashes, RequestCache, RequestSnapshot};

#[pymethods]
impl VllmManager {
    #[pyo3(signature = (request, max_cache_hit_length=None))]
    fn get_computed_blocks<'py>(
        &self,
        py: Python<'py>,
        request: &Bound<'py, PyAny>,
        max_cache_hit_length: Option<usize>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if self.engine.is_replaced() {
            let mut args = vec![request.clone()];
            if let Some(length) = max_cache_hit_length {
                args.push(length.into_pyobject(py)?.into_any());
            }
            return self.engine.in_vllm(intern!(py, "get_computed_blocks"), args, None);
        }
        let _timer = self.engine.call_times.start(TimedCall::GetComputedBlocks);
        let hit = self.engine.cell.change(py, "get_computed_blocks", |state| {
            let request = state.reading.reader(request)?;
            let skips = || request.get(intern!(py, "skip_reading_prefix_cache"))?.is_truthy();
            if !state.core.config().enable_caching || skips()? {
                return Ok((self.no_blocks(py, state.core.groups().len())?, 0, 0));
            }
            let max_length = match max_cache_hit_length {
                Some(length) => length,
                None => request.num_tokens()?.saturating_sub(1),
            };
            let hit = state.with_request(&request, |core, known, hash_len| {
                look_up(core, known, hash_len, &request, max_length)
            })?;
            Ok((self.object(py, hit.blocks)?, hit.length, hit.shared_prefix_boundary))
        })?;
        Ok(hit.into_pyobject(py)?.into_any())
    }

    #[pyo3(signature = (request, num_new_tokens, num_new_computed_tokens=0,
        new_computed_blocks=None, num_lookahead_tokens=0, num_external_computed_tokens=0,
        delay_cache_blocks=false, num_encoder_tokens=0, full_sequence_must_fit=false,
        reserved_blocks=0, has_scheduled_reqs=true, skip_zeroing_group_ids=Vec::new()))]
    #[expect(clippy::too_many_arguments, reason = "vLLM's arguments")]
    fn allocate_slots<'py>(
        &self,
        py: Python<'py>,
        request: &Bound<'py, PyAny>,
        num_new_tokens: usize,
        num_new_computed_tokens: usize,
        new_computed_blocks: Option<&Bound<'py, PyAny>>,
        num_lookahead_tokens: usize,
        num_external_computed_tokens: usize,
        delay_cache_blocks: bool,
        num_encoder_tokens: usize,
        full_sequence_must_fit: bool,
        reserved_blocks: isize,
        has_scheduled_reqs: bool,
        skip_zeroing_group_ids: Vec<usize>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if self.engine.is_replaced() {
            let kwargs = [
                ("num_new_tokens", num_new_tokens.into_pyobject(py)?.into_any()),
                ("num_new_computed_tokens", num_new_computed_tokens.into_pyobject(py)?.into_any()),
                ("new_computed_blocks", new_computed_blocks.into_pyobject(py)?.into_any()),
                ("num_lookahead_tokens", num_lookahead_tokens.into_pyobject(py)?.into_any()),
                (
                    "num_external_computed_tokens",
                    num_external_computed_tokens.into_pyobject(py)?.into_any(),
                ),
                ("delay_cache_blocks", PyBool::new(py, delay_cache_blocks).to_owned().into_any()),
                ("num_encoder_tokens", num_encoder_tokens.into_pyobject(py)?.into_any()),
                (
                    "full_sequence_must_fit",
                    PyBool::new(py, full_sequence_must_fit).to_owned().into_any(),
                ),
                ("reserved_blocks", reserved_blocks.into_pyobject(py)?.into_any()),
                ("has_scheduled_reqs", PyBool::new(py, has_scheduled_reqs).to_owned().into_any()),
            ];
            let kwargs = kwargs.into_py_dict(py)?;
            if !skip_zeroing_group_ids.is_empty() {
                let groups = PyTuple::new(py, skip_zeroing_group_ids)?;
                kwargs.set_item("skip_zeroing_group_ids", groups)?;
            }
            return self.engine.in_vllm(
                intern!(py, "allocate_slots"),
                vec![request.clone()],
                Some(&kwargs),
            );
        }
        let _timer = self.engine.call_times.start(TimedCall::AllocateSlots);
        let hit = new_computed_blocks.filter(|blocks| !is_no_hit(blocks));
        let hit = hit.map(|blocks| groups_of(blocks, &self.engine)).transpose()?;
        let hit_blocks = hit.as_ref().map_or(&[][..], |hit| hit.as_slice());
        let args = AllocateArgs {
            num_new_tokens,
            num_new_computed_tokens,
            new_computed_blocks: hit_blocks,
            num_lookahead_tokens,
            num_external_computed_tokens,
            num_encoder_tokens,
            delay_cache_blocks,
            full_sequence_must_fit,
            reserved_blocks,
            has_scheduled_reqs,
            skip_zeroing_group_ids: &skip_zeroing_group_ids,
            ..AllocateArgs::default()
        };
        let new = self.engine.cell.change(py, "allocate_slots", |state| {
            if !state.core.pool().by_hand().is_empty() {
                state.core.check_hit_by_hand(hit_blocks).into_vllm(py)?;
            }
            if hit.is_some() {
                check_num_groups(hit_blocks.len(), state.core.config().groups.len())
                    .into_vllm(py)?;
            }
            let request = state.reading.reader(request)?;
            let snapshot = RequestSnapshot::read(&request, &self.waiting_states)?;
            let start = state.start;
            let load_groups = state.load_groups.clone();
            let (new, outcomes) = state.with_request(&request, |core, known, hash_len| {
                if let Some(groups) = &load_groups {
                    return allocate_with_host(
                        core, known, &request, hash_len, &snapshot, &args, groups,
                    );
                }
                let num_hashes = core.num_hashes_needed(args.num_final(&known.view(&snapshot)));
                update(known, core, &request, hash_len, &snapshot, (hit_blocks, num_hashes))?;
                let view = known.view(&snapshot);
                if core.observes_outcomes() && !core.knows(known.id) {
                    core.set_outcome_time(start.elapsed().as_secs_f64());
                    return admit(core, &view, &args, &request, *hash_len);
                }
                Ok((core.allocate_slots(&view, &args).into_vllm(py)?, None))
            })?;
            if let Some(outcomes) = outcomes {
                let name = request.get(intern!(py, "request_id"))?;
                state.outcomes.add(name.cast::<PyString>()?.to_str()?, &outcomes);
            }
            let made = match new {
                None => return Ok(None),
                Some(new) if new.iter().all(Vec::is_empty) => self.no_blocks(py, new.len()),
                Some(new) => Bound::new(py, VllmBlocks::new(BlockLists::of_new(&self.engine, new))),
            };
            self.engine.cell.or_poison(py, made).map(Some)
        })?;
        Ok(new.into_pyobject(py)?.into_any())
    }

    fn cache_blocks(&self, request: &Bound<'_, PyAny>, num_computed_tokens: usize) -> PyResult<()> {
        let py = request.py();
        self.engine.cell.change(py, "cache_blocks", |state| {
            let request = state.reading.reader(request)?;
            let snapshot = RequestSnapshot::read(&request, &[])?;
            state.with_request(&request, |core, known, hash_len| {
                update(known, core, &request, hash_len, &snapshot, (&[], usize::MAX))?;
                core.cache_blocks(&known.view(&snapshot), num_computed_tokens).into_vllm(py)
            })
        })
    }

    /// Releases the blocks of a request, if it has any. With `request`, the blocks of a request that
    /// has not finished are not given up.
    #[pyo3(signature = (request_id, request=None))]
    fn free(
        &self,
        py: Python<'_>,
        request_id: &str,
        request: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let _timer = self.engine.call_times.start(TimedCall::Free);
        self.engine.cell.change(py, "free", |state| {
            if let Some(id) = state.id_of(request_id) {
                state.core.check_none_by_hand(id).into_vllm(py)?;
            }
            match state.forget_with_retention(request_id, request) {
                Some((id, retention)) => state
                    .core
                    .with_retention(retention.as_ref(), |core| core.free(id))
                    .into_vllm(py),
                None => Ok(()),
            }
        })
    }

    /// Forgets a request and returns its blocks in token order, group by group. Leading null blocks
    /// are left out by default. `request` is as for `free`.
    #[pyo3(signature = (request_id, with_null_head, request=None))]
    fn pop_blocks_for_free<'py>(
        &self,
        py: Python<'py>,
        request_id: &str,
        with_null_head: bool,
        request: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        self.engine.cell.change(py, "pop_blocks_for_free", |state| {
            let held = state.blocks_of(request_id);
            if let Some((id, retention)) = state.forget_with_retention(request_id, request) {
                let pop = |core: &mut Manager| core.pop_blocks_for_free(id);
                state.core.with_retention(retention.as_ref(), pop).into_vllm(py)?;
            }
            let ids = held.iter().flat_map(|group| {
                group.iter().skip(if with_null_head { 0 } else { group.null_head() })
            });
            self.engine.objects_or_poison(py, ids)
        })
    }

    #[pyo3(signature = (request_id, processed_computed_tokens, num_prompt_tokens=None))]
    fn remove_skipped_blocks(
        &self,
        py: Python<'_>,
        request_id: &str,
        processed_computed_tokens: usize,
        num_prompt_tokens: Option<usize>,
    ) -> PyResult<()> {
        let processed = processed_computed_tokens;
        self.engine.cell.change(py, "remove_skipped_blocks", |state| {
            match state.id_of(request_id) {
                Some(id) => {
                    let retention = state.retention_of(request_id);
                    let remove = |core: &mut Manager| {
                        core.remove_skipped_blocks(id, processed, num_prompt_tokens)
                    };
                    state.note(request_id, id);
                    state.core.with_retention(retention.as_ref(), remove).into_vllm(py)
                }
                None => Ok(()),
            }
        })
    }

    /// Returns how many hints were given by kind and result, without zeros.
    fn hint_counts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.engine.cell.read(py, |state| state.hints.counts(py))
    }

    fn estimate_cached_tokens(&self, py: Python<'_>, request_id: &str) -> PyResult<usize> {
        self.engine.cell.read(py, |state| match state.id_of(request_id) {
            Some(id) => state.core.estimate_cached_tokens(id).into_vllm(py),
            None => Ok(0),
        })
    }
}

fn hashes_of<'py>(request: &Reader<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    request.get(intern!(request.py(), "block_hashes"))
}

/// Copies the hashes that an allocation with a hit needs, up to `end`.
fn update(
    known: &mut RequestCache,
    core: &Manager,
    request: &Reader<'_, '_>,
    hash_len: &mut Option<usize>,
    snapshot: &RequestSnapshot,
    (hit, end): (&[GroupBlocks], usize),
) -> PyResult<()> {
    let list = hashes_of(request)?;
    let hashes = PyHashes::of(request, &list, *hash_len)?;
    let RequestSnapshot { num_prompt_tokens, num_computed_tokens, .. } = *snapshot;
    let num_hashes = hashes.len();
    let first =
        core.first_hash_needed(known.id, num_prompt_tokens, num_computed_tokens, num_hashes, hit);
    hashes.or_python_error(request.py(), known.update(&hashes, first..end))?;
    *hash_len = hashes.hash_len();
    Ok(())
}

/// Returns the longest cached prefix of a request. Reports the prefix as events if the request
/// wants that.
fn look_up(
    core: &mut Manager,
    known: &mut RequestCache,
    hash_len: &mut Option<usize>,
    request: &Reader<'_, '_>,
    max_length: usize,
) -> PyResult<PrefixHit> {
    let py = request.py();
    let list = hashes_of(request)?;
    let hashes = PyHashes::of(request, &list, *hash_len)?;
    let hit = core.get_computed_blocks(known.id, &hashes, max_length);
    let hit = hashes.or_python_error(py, hit)?;
    if core.pool().index().events().is_kept() && hit.length > 0 && reports_hits(request.request)? {
        hashes.or_python_error(py, known.update(&hashes, 0..usize::MAX))?;
        let snapshot = RequestSnapshot::read(request, &[])?;
        core.report_hit(&known.view(&snapshot), &hit).into_vllm(py)?;
    }
    *hash_len = hashes.hash_len();
    Ok(hit)
}

/// Allocates slots where CPU memory decides together with the manager. A load attaches what the pool
/// has.
#[cold]
#[inline(never)]
fn allocate_with_host(
    core: &mut Manager,
    known: &mut RequestCache,
    request: &Reader<'_, '_>,
    hash_len: &mut Option<usize>,
    snapshot: &RequestSnapshot,
    args: &AllocateArgs<'_>,
    groups: &[HostGroup],
) -> PyResult<Observed> {
    let py = request.py();
    let list = hashes_of(request)?;
    let hashes = PyHashes::of(request, &list, *hash_len)?;
    hashes.or_python_error(py, known.update(&hashes, 0..usize::MAX))?;
    *hash_len = hashes.hash_len();
    let view = known.view(snapshot);
    let num_local = args.num_new_computed_tokens;
    let tables;
    let mut args = *args;
    if args.num_external_computed_tokens > 0 && !core.knows(known.id) {
        let end = num_local + args.num_external_computed_tokens;
        tables = attached_tables(core, &view, groups, args.new_computed_blocks, (num_local, end));
        if !core.pool().by_hand().is_empty() {
            core.check_hit_by_hand(&tables).into_vllm(py)?;
        }
        args = AllocateArgs { new_computed_blocks: &tables, fills_holes: true, ..args };
    }
    if core.observes_outcomes() && !core.knows(known.id) {
        return admit(core, &view, &args, request, *hash_len);
    }
    Ok((core.allocate_slots(&view, &args).into_vllm(py)?, None))
}

/// Allocates the first slots of a request. Observes the outcomes of its prompt, unless it was
/// preempted.
#[cold]
fn admit(
    core: &mut Manager,
    view: &RequestView<'_>,
    args: &AllocateArgs<'_>,
    request: &Reader<'_, '_>,
    hash_len: Option<usize>,
) -> PyResult<Observed> {
    let py = request.py();
    let is_truthy = |name| -> PyResult<bool> {
        request.find(name)?.map_or(Ok(false), |value| value.is_truthy())
    };
    if is_truthy(intern!(py, "num_preemptions"))? {
        return allocate(core, view, args, None).into_vllm(py);
    }
    let reads_cache = !is_truthy(intern!(py, "skip_reading_prefix_cache"))?;
    let list = hashes_of(request)?;
    let hashes =
        AdmittedHashes { copied: view.hashes, of_request: PyHashes::of(request, &list, hash_len)? };
    let realm = realm_of(request)?;
    let positions =
        core.start_positions(realm, view.num_prompt_tokens, args.num_new_computed_tokens);
    let tokens = start_tokens(request, positions)?;
    let start = tokens.as_deref().map(|tokens| PromptStart { tokens, realm });
    let observed = ObservedRequest { hashes: &hashes, reads_cache, start };
    allocate(core, view, args, Some(observed)).into_vllm(py)
}

/// All hashes of a request that is admitted. Most of them are copied already.
struct AdmittedHashes<'a, 'py> {
    copied: HashWindow<'a>,
    of_request: PyHashes<'a, 'py>,
}

impl HashSource for AdmittedHashes<'_, '_> {
    fn len(&self) -> usize {
        self.of_request.len()
    }

    fn get(&self, index: usize) -> kvoxide_core::Result<BlockHash> {
        self.copied.get_at(index).map_or_else(|| self.of_request.get(index), |&hash| Ok(hash))
    }
}

/// Returns a number for the salt and the adapter of a request; 0 for neither.
fn realm_of(request: &Reader<'_, '_>) -> PyResult<u64> {
    let py = request.py();
    let text = |value: Option<Bound<'_, PyAny>>| match value {
        None => Ok(None),
        Some(value) => value.str().map(|text| Some(text.to_string_lossy().into_owned())),
    };
    let salt = text(request.find(intern!(py, "cache_salt"))?)?;
    let adapter = request.find(intern!(py, "lora_request"))?;
    let name = adapter.map(|adapter| adapter.getattr_opt(intern!(py, "lora_name"))).transpose()?;
    let adapter = text(name.flatten().filter(|name| !name.is_none()))?;
    Ok(realm(salt.as_deref(), adapter.as_deref()))
}

/// Returns the tokens of a request's prompt at some positions. Returns `None` if there are no
/// positions, and for a prompt whose tokens do not identify it, because it has embeddings or
/// multimodal inputs.
fn start_tokens(
    request: &Reader<'_, '_>,
    positions: impl Iterator<Item = Positions>,
) -> PyResult<Option<Vec<i64>>> {
    let py = request.py();
    let mut positions = positions.peekable();
    if positions.peek().is_none() {
        return Ok(None);
    }
    let features = request.find(intern!(py, "mm_features"))?;
    if features.map_or(Ok(false), |features| features.is_truthy())? {
        return Ok(None);
    }
    let tokens = request.find(intern!(py, "prompt_token_ids"))?;
    let Some(tokens) = tokens.and_then(|tokens| tokens.cast_into::<PyList>().ok()) else {
        return Ok(None);
    };
    let mut read = Vec::new();
    for positions in positions {
        // Without all of its tokens, a prompt is not compared.
        if read_slice(&tokens, positions, &mut read).is_err() {
            return Ok(None);
        }
    }
    Ok(Some(read))
}

/// Reads tokens through a slice. A slice touches all of them in one tight loop, so that the waits
/// for memory overlap.
fn read_slice(
    tokens: &Bound<'_, PyList>,
    positions: Positions,
    read: &mut Vec<i64>,
) -> PyResult<()> {
    let Positions { first, distance, len } = positions;
    let [first, distance, last] =
        [first, distance, first + (len - 1) * distance].map(|number| number as isize);
    let slice = PySlice::new(tokens.py(), first, last + 1, distance);
    let slice = tokens.as_any().get_item(slice)?.cast_into::<PyList>()?;
    if slice.len() != len {
        return Err(PyIndexError::new_err("the prompt has fewer tokens than it says"));
    }
    read.reserve(len);
    for token in &slice {
        read.push(token.extract()?);
    }
    Ok(())
}

fn check_num_groups(given: usize, expected: usize) -> kvoxide_core::Result<()> {
    if given >= expected {
        return Ok(());
    }
    Err(Error::OutOfRange(format!(
        "new_computed_blocks has {given} groups; it must have {expected}"
    )))
}

/// Returns whether a request wants its hits reported as events.
fn reports_hits(request: &Bound<'_, PyAny>) -> PyResult<bool> {
    let mode = request.getattr_opt(intern!(request.py(), "kv_cache_report_mode"))?;
    mode.map_or(Ok(false), |mode| mode.eq("full"))
}

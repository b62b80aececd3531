//! The host tier for Python.

use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use kvoxide_core::host::{
    ChunkId, ChunkState, HostPolicy, HostTier, HostTierConfig, LruRank, Seen, Transfers,
    VllmVersion,
};

use super::hash_lengths::HashLengths;
use super::keys::{Keys, key_list, known_positions};
use super::pair::Partner;
use super::plan::{PyHostEvent, PyHostStorePlan, chunk_array};
use super::request::PyHostRequest;
use super::state::HostState;
use crate::ffi::{GuardedCell, IntoPyResult, config_error, size};

/// The releases whose decisions a tier can make.
const RELEASES: [(&str, VllmVersion); 2] =
    [("0.33.0", VllmVersion::V0_33), ("0.32.0", VllmVersion::V0_32)];

/// Chunks of KV in host memory.
#[pyclass(module = "kvoxide", name = "HostTier", frozen)]
pub(crate) struct PyHostTier {
    pub(super) cell: GuardedCell<HostState>,
}

#[pymethods]
impl PyHostTier {
    #[new]
    #[pyo3(signature = (num_chunks, policy="lru", *, store_threshold=1, max_tracker_size=64_000,
        enable_kv_cache_events=false, log_stats=false, vllm_release="0.33.0"))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments in Python")]
    fn new(
        py: Python<'_>,
        num_chunks: i64,
        policy: &str,
        store_threshold: i64,
        max_tracker_size: i64,
        enable_kv_cache_events: bool,
        log_stats: bool,
        vllm_release: &str,
    ) -> PyResult<Self> {
        let (_, policy) = named(py, "policy", policy, &HostPolicy::ALL)?;
        let threshold = size(py, "store_threshold", store_threshold)?;
        let is_adaptive = policy == HostPolicy::Adaptive;
        if is_adaptive && threshold > 1 {
            let message = format!(
                "store_threshold is {threshold}; policy 'adaptive' does not count offers, so it \
                 must be 1"
            );
            return Err(config_error(py, message));
        }
        let config = HostTierConfig {
            release: named(py, "vllm_release", vllm_release, &RELEASES)?.1,
            store_threshold: u32::try_from(threshold).unwrap_or(u32::MAX),
            max_tracker_size: size(py, "max_tracker_size", max_tracker_size)?,
            enable_events: enable_kv_cache_events,
            ..HostTierConfig::new(size(py, "num_chunks", num_chunks)?, policy)
        };
        let core = HostTier::new(&config).into_py(py)?;
        let partner = if is_adaptive { Partner::Missing } else { Partner::Unneeded };
        let state = HostState { core, hash_lengths: None, log_stats, partner };
        Ok(Self { cell: GuardedCell::new(state) })
    }

    #[getter]
    fn policy(&self, py: Python<'_>) -> PyResult<&'static str> {
        self.ask(py, |tier| tier.policy().name())
    }

    #[getter]
    fn num_chunks(&self, py: Python<'_>) -> PyResult<usize> {
        self.ask(py, HostTier::num_chunks)
    }

    #[getter]
    fn num_free_chunks(&self, py: Python<'_>) -> PyResult<usize> {
        self.ask(py, HostTier::num_free)
    }

    #[getter]
    fn num_allocated_chunks(&self, py: Python<'_>) -> PyResult<usize> {
        self.ask(py, HostTier::num_allocated)
    }

    #[getter]
    fn num_evictable_chunks(&self, py: Python<'_>) -> PyResult<usize> {
        self.ask(py, HostTier::num_evictable)
    }

    #[getter]
    fn num_loading_keys(&self, py: Python<'_>) -> PyResult<usize> {
        self.ask(py, HostTier::num_loading)
    }

    #[getter]
    fn num_pending_chunks(&self, py: Python<'_>) -> PyResult<usize> {
        self.ask(py, HostTier::num_pending)
    }

    /// Returns how many chunks were stored, loaded, and evicted without a load.
    #[getter]
    fn num_transferred_chunks(&self, py: Python<'_>) -> PyResult<(u64, u64, u64)> {
        self.ask(py, |tier| {
            let Transfers { stored, loaded, never_loaded } = tier.transfers();
            (stored, loaded, never_loaded)
        })
    }

    fn lookup(&self, py: Python<'_>, key: &Bound<'_, PyBytes>) -> PyResult<&'static str> {
        self.cell.read(py, |state| {
            let known = HashLengths::known_key(key, state.hash_lengths)?;
            Ok(match known.and_then(|key| state.core.lookup(&key)) {
                None => "miss",
                Some(ChunkState::Pending) => "hit_pending",
                Some(ChunkState::Ready { .. }) => "hit",
            })
        })
    }

    fn lookup_prefix(&self, keys: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
        self.ask_of(keys, |tier, keys| match keys {
            Keys::Chunks(chunks, owner) => chunks.get().lookup_prefix(owner, tier),
            keys @ Keys::Read { .. } => tier.lookup_prefix(keys.keys()),
        })
    }

    fn lookup_window(
        &self,
        keys: &Bound<'_, PyAny>,
        window: i64,
        first_window: i64,
    ) -> PyResult<Option<usize>> {
        let window = size(keys.py(), "window", window)?;
        let first_window = size(keys.py(), "first_window", first_window)?;
        self.ask_of(keys, |tier, keys| tier.lookup_window(keys.keys(), window, first_window))
    }

    fn is_any_loading(&self, keys: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.ask_of(keys, |tier, keys| tier.is_any_loading(keys.keys()))
    }

    fn set_loading(&self, keys: &Bound<'_, PyAny>, is_loading: bool) -> PyResult<()> {
        self.cell.change(keys.py(), "set_loading", |state| {
            state.check_vllm_call(keys.py(), "set_loading")?;
            let keys = Keys::known(keys, state.hash_lengths)?;
            state.core.set_loading(keys.keys(), is_loading);
            Ok(())
        })
    }

    fn start_request(&self, request: &Bound<'_, PyHostRequest>) -> PyResult<()> {
        self.cell.change(request.py(), "start_request", |state| {
            state.check_vllm_call(request.py(), "start_request")?;
            state.core.claim_for_this_tier(&mut request.try_borrow_mut()?.request);
            Ok(())
        })
    }

    #[pyo3(signature = (request, keys, positions=None))]
    fn prepare_load<'py>(
        &self,
        request: &Bound<'py, PyHostRequest>,
        keys: &Bound<'py, PyAny>,
        positions: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyArray1<i32>>> {
        let py = keys.py();
        self.cell.change(py, "prepare_load", |state| {
            state.check_vllm_call(py, "prepare_load")?;
            let mut hash_lengths = state.hash_lengths;
            let keys = Keys::read(keys, positions, &mut hash_lengths)?;
            let request = &mut request.try_borrow_mut()?.request;
            let chunks = state.core.prepare_load(request, keys.with_positions()).into_py(py)?;
            state.hash_lengths = hash_lengths;
            Ok(chunk_array(py, chunks))
        })
    }

    fn prepare_read<'py>(&self, keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyArray1<i32>>> {
        let py = keys.py();
        self.cell.change(py, "prepare_read", |state| {
            let keys = Keys::read(keys, None, &mut { state.hash_lengths })?;
            Ok(chunk_array(py, state.core.prepare_read(keys.keys()).into_py(py)?))
        })
    }

    fn complete_load(&self, keys: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = keys.py();
        self.cell.change(py, "complete_load", |state| {
            state.check_vllm_call(py, "complete_load")?;
            let keys = Keys::read(keys, None, &mut { state.hash_lengths })?;
            state.core.complete_load(keys.keys()).into_py(py)
        })
    }

    fn complete_read(&self, keys: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = keys.py();
        self.cell.change(py, "complete_read", |state| {
            let keys = Keys::read(keys, None, &mut { state.hash_lengths })?;
            state.core.complete_read(keys.keys()).into_py(py)
        })
    }

    #[pyo3(signature = (request, keys, positions=None))]
    fn prepare_store<'py>(
        &self,
        request: &Bound<'py, PyHostRequest>,
        keys: &Bound<'py, PyAny>,
        positions: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Option<PyHostStorePlan>> {
        let py = keys.py();
        self.cell.change(py, "prepare_store", |state| {
            state.check_vllm_call(py, "prepare_store")?;
            let mut hash_lengths = state.hash_lengths;
            let keys = Keys::read(keys, positions, &mut hash_lengths)?;
            let request = &mut request.try_borrow_mut()?.request;
            let plan = match keys {
                Keys::Read { .. } => state.core.prepare_store(request, keys.with_positions()),
                Keys::Chunks(..) => {
                    state.core.prepare_store_of_distinct(request, keys.with_positions())
                }
            };
            let plan = plan.into_py(py)?;
            state.hash_lengths = hash_lengths;
            if !state.log_stats {
                state.core.take_store_sizes();
            }
            let Some(plan) = plan else { return Ok(None) };
            let made = PyHostStorePlan::new(py, plan, &keys, state.hash_lengths);
            self.cell.or_poison(py, made).map(Some)
        })
    }

    #[pyo3(signature = (keys, success=true))]
    fn complete_store(&self, keys: &Bound<'_, PyAny>, success: bool) -> PyResult<()> {
        self.cell.change(keys.py(), "complete_store", |state| {
            state.check_vllm_call(keys.py(), "complete_store")?;
            let keys = Keys::known(keys, state.hash_lengths)?;
            state.core.complete_store(keys.keys(), success);
            Ok(())
        })
    }

    fn touch(&self, keys: &Bound<'_, PyAny>) -> PyResult<()> {
        self.cell.change(keys.py(), "touch", |state| {
            state.check_vllm_call(keys.py(), "touch")?;
            let keys = Keys::known(keys, state.hash_lengths)?;
            state.core.touch(&keys.keys().collect::<Vec<_>>());
            Ok(())
        })
    }

    #[pyo3(signature = (request, positions=None))]
    fn finish_request(
        &self,
        request: &Bound<'_, PyHostRequest>,
        positions: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        self.cell.change(request.py(), "finish_request", |state| {
            state.check_vllm_call(request.py(), "finish_request")?;
            let known = positions.map(|positions| known_positions(positions, state.hash_lengths));
            let positions = known.transpose()?.unwrap_or_default();
            state.core.finish_request(&mut request.try_borrow_mut()?.request, positions);
            Ok(())
        })
    }

    fn reset(&self, py: Python<'_>) -> PyResult<()> {
        self.cell.change(py, "reset", |state| state.reset(py))
    }

    fn take_events<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.cell.change(py, "take_events", |state| {
            let events = state.core.take_events();
            let events = events.iter().map(|event| PyHostEvent::new(py, event, state.hash_lengths));
            let made = events.collect::<PyResult<Vec<_>>>();
            self.cell.or_poison(py, made.and_then(|events| PyList::new(py, events)))
        })
    }

    fn take_num_skipped(&self, py: Python<'_>) -> PyResult<usize> {
        self.cell.change(py, "take_num_skipped", |state| Ok(state.core.take_num_skipped()))
    }

    fn take_store_sizes(&self, py: Python<'_>) -> PyResult<Vec<usize>> {
        self.cell.change(py, "take_store_sizes", |state| Ok(state.core.take_store_sizes()))
    }

    fn get_chunks<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.cell.read(py, |state| {
            let chunks = PyDict::new(py);
            for (key, chunk) in state.core.keys() {
                let num_loads = match state.core.lookup(&key) {
                    Some(ChunkState::Ready { num_loads }) => Some(num_loads),
                    _ => None,
                };
                chunks.set_item(state.packed(py, &key), (chunk, num_loads))?;
            }
            Ok(chunks)
        })
    }

    fn get_lru_order<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyList>>> {
        self.cell.read(py, |state| {
            let order = state.core.lru_order();
            order.map(|keys| key_list(py, &keys, state.hash_lengths)).transpose()
        })
    }

    fn get_arc_lists<'py>(&self, py: Python<'py>) -> PyResult<Option<ArcLists<'py>>> {
        self.cell.read(py, |state| {
            let Some((lists, target)) = state.core.arc_lists() else { return Ok(None) };
            let [t1, t2, b1, b2] = lists.map(|keys| key_list(py, &keys, state.hash_lengths));
            Ok(Some((t1?, t2?, b1?, b2?, target)))
        })
    }

    fn get_tracked_offers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.cell.read(py, |state| {
            let offers = PyDict::new(py);
            for (key, count) in state.core.tracked_offers() {
                offers.set_item(state.packed(py, &key), count)?;
            }
            Ok(offers)
        })
    }

    fn _state_for_vllm<'py>(&self, py: Python<'py>) -> PyResult<StateForVllm<'py>> {
        self.cell.read(py, |state| {
            let ranks = PyDict::new(py);
            let (keys, last_rank) = state.core.lru_ranks().unwrap_or_default();
            for (key, LruRank { rank, position }) in keys {
                ranks.set_item(state.packed(py, &key), (rank, -i64::from(position)))?;
            }
            let events = state.core.recorded_events().iter();
            let events = events.map(|event| PyHostEvent::new(py, event, state.hash_lengths));
            Ok((state.core.freed().to_vec(), events.collect::<PyResult<_>>()?, ranks, last_rank))
        })
    }

    fn _request_for_vllm<'py>(
        &self,
        request: &Bound<'py, PyHostRequest>,
    ) -> PyResult<Option<RequestForVllm<'py>>> {
        let py = request.py();
        let request = &request.try_borrow()?.request;
        self.cell.read(py, |state| {
            let seen = |seen: &Seen| {
                let uses = (seen.is_inserted(), seen.is_reused(), seen.is_store_miss());
                (state.packed(py, &seen.key()), uses)
            };
            Ok(state.core.is_from_this_tier(request).then(|| {
                let seen = request.seen().iter().map(seen).collect();
                (request.is_finished(), request.rank(), seen)
            }))
        })
    }

    fn _panic_for_tests(&self, py: Python<'_>) -> PyResult<()> {
        self.cell.change(py, "_panic_for_tests", |state| state.panic_midway())
    }
}

/// T1, T2, B1, B2 and the target of T1.
type ArcLists<'py> =
    (Bound<'py, PyList>, Bound<'py, PyList>, Bound<'py, PyList>, Bound<'py, PyList>, f64);

/// The freed chunks, the events, the rank and negative position of each key under LRU, and the last rank.
type StateForVllm<'py> = (Vec<ChunkId>, Vec<PyHostEvent>, Bound<'py, PyDict>, u64);

/// Whether a request ended, its rank, and the keys that it saw: whether each was inserted, reused,
/// or reported to the policy as a miss.
type RequestForVllm<'py> = (bool, Option<u64>, Vec<(Bound<'py, PyBytes>, (bool, bool, bool))>);

impl PyHostTier {
    fn ask_of<R>(
        &self,
        keys: &Bound<'_, PyAny>,
        question: impl FnOnce(&HostTier, &Keys<'_>) -> R,
    ) -> PyResult<R> {
        self.cell.read(keys.py(), |state| {
            let keys = Keys::read(keys, None, &mut { state.hash_lengths })?;
            Ok(question(&state.core, &keys))
        })
    }

    fn ask<R>(&self, py: Python<'_>, question: impl FnOnce(&HostTier) -> R) -> PyResult<R> {
        self.cell.read(py, |state| Ok(question(&state.core)))
    }
}

/// Returns the choice with a name, and the name.
fn named<T: Copy>(
    py: Python<'_>,
    what: &str,
    name: &str,
    choices: &[(&'static str, T)],
) -> PyResult<(&'static str, T)> {
    choices.iter().find(|(known, _)| *known == name).copied().ok_or_else(|| {
        let names: Vec<_> = choices.iter().map(|(known, _)| format!("'{known}'")).collect();
        config_error(py, format!("{what} is '{name}'; it must be one of {}", names.join(", ")))
    })
}

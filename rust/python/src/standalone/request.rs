//! Requests of the standalone manager.

use std::sync::atomic::{AtomicU64, Ordering};

use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;
use pyo3::types::PyList;

use kvoxide_core::block_hash::ExtraKeys;
use kvoxide_core::host::StoreWait;
use kvoxide_core::outcomes::Positions;
use kvoxide_core::{BlockHash, HashWindow, Manager, RequestId, RequestView};

use super::hasher::PyBlockHasher;
use super::retention::Hints;
use crate::ffi::{
    Hashes, contained, count, hash_bytes, hash_error, one_or_more_token_ids, realm, request_error,
    token_ids,
};

/// The status of a request in the scheduler.
#[pyclass(module = "kvoxide", name = "RequestStatus", frozen, eq, hash, from_py_object)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum RequestStatus {
    #[pyo3(name = "WAITING")]
    Waiting,
    #[pyo3(name = "RUNNING")]
    Running,
    #[pyo3(name = "PREEMPTED")]
    Preempted,
    #[pyo3(name = "FINISHED")]
    Finished,
}

/// A request of the standalone manager.
#[pyclass(module = "kvoxide", name = "Request")]
pub(crate) struct PyRequest {
    pub(crate) id: RequestId,
    #[pyo3(get)]
    pub(crate) request_id: String,
    pub(super) tokens: Vec<i64>,
    pub(super) hashes: Vec<BlockHash>,
    pub(super) hash_len: usize,
    pub(super) hash_block_size: Option<usize>,
    pub(super) extra_keys: ExtraKeys,
    hasher: Option<PyBlockHasher>,
    #[pyo3(get)]
    pub(super) num_prompt_tokens: usize,
    #[pyo3(get)]
    pub(super) num_tokens: usize,
    #[pyo3(get)]
    pub(super) num_computed_tokens: usize,
    #[pyo3(get)]
    pub(super) num_in_flight_tokens: usize,
    #[pyo3(get)]
    pub(super) shared_prefix_boundary: usize,
    #[pyo3(get)]
    pub(super) num_preemptions: usize,
    #[pyo3(get, set)]
    pub(super) status: RequestStatus,
    #[pyo3(get)]
    pub(super) skip_reading_prefix_cache: bool,
    #[pyo3(get)]
    pub(super) session_id: Option<String>,
    pub(super) reports_hits: bool,
    pub(super) hints: Hints,
    /// The tokens in the pool and the tokens to load, as the last look-up in a tier found them.
    pub(crate) load: Option<(usize, usize)>,
    /// How far look-ups have waited until the blocks are stored that the load takes from the pool.
    pub(crate) store_wait: StoreWait,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl PyRequest {
    /// Returns the request as the core reads it.
    pub(super) fn view(&self) -> RequestView<'_> {
        let hashes = HashWindow::from(&self.hashes[..]);
        RequestView {
            num_prompt_tokens: self.num_prompt_tokens,
            num_computed_tokens: self.num_computed_tokens,
            num_in_flight_tokens: self.num_in_flight_tokens.cast_signed(),
            shared_prefix_boundary: self.shared_prefix_boundary,
            is_waiting: matches!(self.status, RequestStatus::Waiting | RequestStatus::Preempted),
            ..RequestView::new(self.id, hashes.chained(self.hasher.is_some()), self.num_tokens)
        }
    }

    /// Returns a number for the salt and the adapter; 0 for neither.
    pub(super) fn realm(&self) -> u64 {
        let ExtraKeys { lora, cache_salt } = &self.extra_keys;
        realm(cache_salt.as_deref(), lora.as_ref().map(|(name, _)| &**name))
    }

    /// Returns the tokens of the prompt that help to explain its misses. `num_hit_tokens` of it are
    /// hit. Returns none if the request has ready-made hashes and no tokens.
    pub(super) fn start_tokens(&self, core: &Manager, num_hit_tokens: usize) -> Vec<i64> {
        let num_known = self.num_prompt_tokens.min(self.tokens.len());
        let positions = core.start_positions(self.realm(), num_known, num_hit_tokens);
        positions.flat_map(Positions::iter).map(|position| self.tokens[position]).collect()
    }

    fn hash_new_tokens(&mut self, py: Python<'_>) -> PyResult<()> {
        let Self { hasher, hashes, tokens, extra_keys, .. } = self;
        let Some(hasher) = hasher else { return Ok(()) };
        contained(py, || {
            py.detach(|| hasher.hasher.extend(hashes, tokens, extra_keys));
            Ok(())
        })
    }
}

#[pymethods]
impl PyRequest {
    #[new]
    #[pyo3(signature = (request_id, prompt_token_ids=None, *, block_hasher=None,
        block_hashes=None, num_prompt_tokens=None, cache_salt=None, lora=None, session_id=None,
        skip_reading_prefix_cache=false, kv_cache_report_mode="incremental", retention=None,
        release=None, ends_session=false))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments in Python")]
    fn new(
        py: Python<'_>,
        request_id: String,
        prompt_token_ids: Option<&Bound<'_, PyAny>>,
        block_hasher: Option<PyBlockHasher>,
        block_hashes: Option<&Bound<'_, PyAny>>,
        num_prompt_tokens: Option<i64>,
        cache_salt: Option<String>,
        lora: Option<(String, String)>,
        session_id: Option<String>,
        skip_reading_prefix_cache: bool,
        kv_cache_report_mode: &str,
        retention: Option<&Bound<'_, PyAny>>,
        release: Option<Vec<(i64, Option<i64>)>>,
        ends_session: bool,
    ) -> PyResult<Self> {
        let release = release.unwrap_or_default();
        let hints = Hints::new(py, session_id.as_deref(), retention, release, ends_session)?;
        let prompt = Prompt::new(py, prompt_token_ids, num_prompt_tokens)?;
        hints.check_starts(py, prompt.num_tokens)?;
        if block_hasher.is_some() && (block_hashes.is_some() || prompt_token_ids.is_none()) {
            let message =
                "block_hasher needs prompt_token_ids and cannot be used with block_hashes";
            return Err(request_error(py, message.into()));
        }
        let ready_made = block_hashes.map(Hashes::extract).transpose()?.unwrap_or_default();
        let reports_hits = is_full_report_mode(py, kv_cache_report_mode)?;
        let hash_len = match &block_hasher {
            Some(hasher) => hasher.hasher.algorithm().hash_len(),
            None => ready_made.hash_len,
        };
        let mut request = Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            request_id,
            tokens: prompt.token_ids,
            hashes: ready_made.hashes,
            hash_len,
            hash_block_size: block_hasher.as_ref().map(|hasher| hasher.hasher.block_size()),
            extra_keys: ExtraKeys { lora, cache_salt },
            hasher: block_hasher,
            num_prompt_tokens: prompt.num_tokens,
            num_tokens: prompt.num_tokens,
            num_computed_tokens: 0,
            num_in_flight_tokens: 0,
            shared_prefix_boundary: 0,
            num_preemptions: 0,
            status: RequestStatus::Waiting,
            skip_reading_prefix_cache,
            session_id,
            reports_hits,
            hints,
            load: None,
            store_wait: StoreWait::NotAsked,
        };
        request.hash_new_tokens(py)?;
        Ok(request)
    }

    #[getter]
    fn block_hashes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        contained(py, || {
            let hashes = self.hashes.iter().map(|hash| hash_bytes(py, hash, self.hash_len));
            PyList::new(py, hashes.collect::<Vec<_>>())
        })
    }

    #[getter]
    fn retention<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.hints.retention(py)
    }

    #[getter]
    fn release(&self) -> Vec<(usize, Option<usize>)> {
        self.hints.release()
    }

    #[getter]
    fn ends_session(&self) -> bool {
        self.hints.ends_session()
    }

    #[getter]
    fn all_token_ids<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i64>> {
        self.tokens.clone().into_pyarray(py)
    }

    #[setter]
    fn set_num_computed_tokens(&mut self, py: Python<'_>, value: i64) -> PyResult<()> {
        self.num_computed_tokens = count(py, "num_computed_tokens", value)?;
        Ok(())
    }

    #[setter]
    fn set_num_in_flight_tokens(&mut self, py: Python<'_>, value: i64) -> PyResult<()> {
        self.num_in_flight_tokens = count(py, "num_in_flight_tokens", value)?;
        Ok(())
    }

    #[setter]
    fn set_shared_prefix_boundary(&mut self, py: Python<'_>, value: i64) -> PyResult<()> {
        self.shared_prefix_boundary = count(py, "shared_prefix_boundary", value)?;
        Ok(())
    }

    #[setter]
    fn set_num_preemptions(&mut self, py: Python<'_>, value: i64) -> PyResult<()> {
        self.num_preemptions = count(py, "num_preemptions", value)?;
        Ok(())
    }

    fn append_output_token_ids(
        &mut self,
        py: Python<'_>,
        #[pyo3(from_py_with = one_or_more_token_ids)] token_ids: Vec<i64>,
    ) -> PyResult<()> {
        if self.tokens.len() != self.num_tokens {
            let message = "the request has no tokens, only hashes; use append_block_hashes";
            return Err(request_error(py, message.into()));
        }
        self.num_tokens += token_ids.len();
        self.tokens.extend(token_ids);
        self.hash_new_tokens(py)
    }

    fn append_block_hashes(
        &mut self,
        block_hashes: &Bound<'_, PyAny>,
        num_new_tokens: i64,
    ) -> PyResult<()> {
        let py = block_hashes.py();
        if self.hasher.is_some() {
            let message = "the request hashes its own tokens; use append_output_token_ids";
            return Err(request_error(py, message.into()));
        }
        if !self.tokens.is_empty() && num_new_tokens != 0 {
            let message = "the request has tokens; append them with append_output_token_ids, and \
                           pass num_new_tokens 0 with their hashes";
            return Err(request_error(py, message.into()));
        }
        let new = Hashes::extract(block_hashes)?;
        if !new.hashes.is_empty() && self.hash_len != 0 && new.hash_len != self.hash_len {
            let message = format!(
                "block hashes have {} bytes, but earlier ones have {}. All must have the same \
                 length",
                new.hash_len, self.hash_len
            );
            return Err(hash_error(py, message));
        }
        let num_new_tokens = count(py, "num_new_tokens", num_new_tokens)?;
        if !new.hashes.is_empty() {
            self.hash_len = new.hash_len;
        }
        self.hashes.extend(new.hashes);
        self.num_tokens += num_new_tokens;
        Ok(())
    }

    fn __repr__(&self) -> String {
        format!(
            "Request('{}', num_tokens={}, num_computed_tokens={})",
            self.request_id, self.num_tokens, self.num_computed_tokens
        )
    }
}

fn is_full_report_mode(py: Python<'_>, mode: &str) -> PyResult<bool> {
    match mode {
        "incremental" => Ok(false),
        "full" => Ok(true),
        other => {
            let message =
                format!("kv_cache_report_mode is '{other}'; it can be 'incremental' or 'full'");
            Err(request_error(py, message))
        }
    }
}

/// The prompt of a new request: its tokens, or only the number of tokens.
struct Prompt {
    token_ids: Vec<i64>,
    num_tokens: usize,
}

impl Prompt {
    fn new(
        py: Python<'_>,
        prompt_token_ids: Option<&Bound<'_, PyAny>>,
        num_prompt_tokens: Option<i64>,
    ) -> PyResult<Self> {
        let (token_ids, num_tokens) = match (prompt_token_ids, num_prompt_tokens) {
            (Some(tokens), None) => {
                let token_ids = token_ids(tokens)?;
                let num_tokens = token_ids.len();
                (token_ids, num_tokens)
            }
            (None, Some(number)) => {
                let message = || format!("num_prompt_tokens is {number}; it must be positive");
                let number = usize::try_from(number).map_err(|_| request_error(py, message()))?;
                (Vec::new(), number)
            }
            _ => {
                let message = "give either prompt_token_ids or num_prompt_tokens";
                return Err(request_error(py, message.into()));
            }
        };
        if num_tokens == 0 {
            let message = "the prompt is empty; a request has at least one token";
            return Err(request_error(py, message.into()));
        }
        Ok(Self { token_ids, num_tokens })
    }
}

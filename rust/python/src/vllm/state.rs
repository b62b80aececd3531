//! The state of vLLM's manager: the core, and the core's numbers for vLLM's requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use pyo3::exceptions::PyAssertionError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use kvoxide_core::host::HostGroup;
use kvoxide_core::{BlockId, GroupBlocks, GroupSpec, Manager, RequestId, RequestRetention};

use super::attributes::{Reader, Requests};
use super::errors::IntoVllmResult;
use super::hints::{HintReader, at_release};
use super::request::RequestCache;
use super::synced::Synced;
use crate::ffi::{
    CheckedState, OutcomeLog, WithCore, block_error, copied_tables, mixed_digest, unpacked_key,
};

type RequestCaches = hashbrown::HashMap<String, RequestCache, foldhash::fast::RandomState>;

/// Counts the possible changes of the free queue. The count is read without the cell.
#[derive(Default)]
pub(super) struct Changes(AtomicU64);

impl Changes {
    /// Returns the count.
    #[inline]
    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn add(&self) {
        self.0.store(self.count().wrapping_add(1), Ordering::Relaxed);
    }
}

/// The state of one vLLM manager.
pub(crate) struct VllmState {
    pub(super) core: Manager,
    /// The number of bytes of a block hash, once a hash has been read.
    pub(super) hash_len: Option<usize>,
    pub(super) requests: RequestCaches,
    /// The readers of requests.
    pub(super) reading: Requests,
    /// Reads the sessions and hints of requests.
    pub(super) hints: HintReader,
    next_id: RequestId,
    /// The number of changing calls after which invariants are checked; 0 means never.
    check_every: u64,
    num_calls: u64,
    /// Counts changes of the free queue.
    pub(super) changes: Arc<Changes>,
    /// `None` until Python asks for a list or dictionary that has to be kept up to date.
    pub(super) synced: Option<Box<Synced>>,
    /// The outcomes of the latest prompts.
    pub(super) outcomes: OutcomeLog,
    /// The origin of the times of evictions.
    pub(super) start: Instant,
    /// The groups whose blocks a load attaches, if CPU memory decides together with the manager.
    pub(super) load_groups: Option<Arc<[HostGroup]>>,
}

impl CheckedState for VllmState {
    #[inline]
    fn check_after(&mut self, call: &'static str) -> Result<(), String> {
        self.changes.add();
        if self.needs_update() {
            Python::attach(|py| self.update_synced(py)).map_err(|error| {
                format!("the objects that other code reads could not be updated ({error})")
            })?;
        }
        match self.check_every {
            0 => Ok(()),
            _ => self.count_and_check(call),
        }
    }
}

impl WithCore for VllmState {
    #[inline]
    fn core(&self) -> &Manager {
        &self.core
    }

    #[inline]
    fn core_mut(&mut self) -> &mut Manager {
        &mut self.core
    }

    fn hash_len(&self) -> usize {
        self.hash_len.unwrap_or(0)
    }

    fn call<T>(
        &mut self,
        py: Python<'_>,
        call: impl FnOnce(&mut Manager) -> kvoxide_core::Result<T>,
    ) -> PyResult<T> {
        call(&mut self.core).into_vllm(py)
    }

    fn seconds(&self, _py: Python<'_>) -> PyResult<f64> {
        Ok(self.start.elapsed().as_secs_f64())
    }

    fn outcome_log(&mut self) -> &mut OutcomeLog {
        &mut self.outcomes
    }

    fn names(&self) -> impl Iterator<Item = (&str, RequestId)> {
        self.requests.iter().map(|(name, known)| (name.as_str(), known.id))
    }

    /// Checks the invariants of the core, and that each request with blocks has a name.
    fn check(&self) -> Result<(), String> {
        kvoxide_core::check(&self.core)?;
        let num_named = self.requests.values().filter(|known| self.core.knows(known.id)).count();
        match self.core.num_requests() {
            held if held == num_named => Ok(()),
            held => Err(format!("{held} requests hold blocks, but only {num_named} have a name")),
        }
    }

    fn digest(&self) -> [u8; 32] {
        let beside = [self.requests.len(), self.hash_len(), self.next_id as usize];
        mixed_digest(&self.core, &beside)
    }
}

impl VllmState {
    /// Returns the state of a new manager.
    pub(super) fn new(
        core: Manager,
        reading: Requests,
        max_priority: u8,
        check_every: u64,
    ) -> Self {
        let requests = RequestCaches::default();
        Self {
            hints: HintReader::new(&core, max_priority),
            core,
            hash_len: None,
            requests,
            reading,
            next_id: 0,
            check_every,
            num_calls: 0,
            changes: Arc::default(),
            synced: None,
            outcomes: OutcomeLog::default(),
            start: Instant::now(),
            load_groups: None,
        }
    }

    /// Notes that a call may change the tables of a request.
    #[inline]
    pub(super) fn note(&mut self, name: &str, request: RequestId) {
        if let Some(synced) = &mut self.synced {
            synced.note(name, request);
        }
    }

    #[inline]
    fn needs_update(&self) -> bool {
        self.synced.as_ref().is_some_and(|synced| {
            synced.needs_update() || self.core.pool().index().alias_keys().has_changed()
        })
    }

    /// Updates the lists and dictionaries that Python has.
    pub(super) fn update_synced(&mut self, py: Python<'_>) -> PyResult<()> {
        let hash_len = self.hash_len();
        match &mut self.synced {
            Some(synced) => synced.update(py, &mut self.core, hash_len),
            None => Ok(()),
        }
    }

    #[cold]
    fn count_and_check(&mut self, call: &'static str) -> Result<(), String> {
        self.num_calls += 1;
        if !self.num_calls.is_multiple_of(self.check_every) {
            return Ok(());
        }
        self.check().map_err(|broken| {
            format!("call {} ({call}) broke an invariant: {broken}", self.num_calls)
        })
    }

    /// Runs a call about a request with the core, the known request and the length of hashes. If
    /// the call fails, the data that was read for it is dropped.
    pub(super) fn with_request<R>(
        &mut self,
        request: &Reader<'_, '_>,
        call: impl FnOnce(&mut Manager, &mut RequestCache, &mut Option<usize>) -> PyResult<R>,
    ) -> PyResult<R> {
        let name = request.get(intern!(request.py(), "request_id"))?;
        let name = name.cast::<PyString>()?.to_str()?;
        let last_id = self.next_id;
        let known = self.requests.entry_ref(name).or_insert_with(|| {
            self.next_id += 1;
            RequestCache::new(self.next_id, self.hints.read(&self.core, request))
        });
        self.hints.update_time(&mut self.core, known.retention.as_deref());
        check_written_table(&mut self.core, known.id)?;
        if let Some(synced) = &mut self.synced {
            synced.note(name, known.id);
        }
        let mut hash_len = self.hash_len;
        let retention = known.retention.clone();
        let result =
            self.core.with_retention(retention.as_ref(), |core| call(core, known, &mut hash_len));
        match result {
            Ok(_) => self.hash_len = hash_len,
            Err(_) if self.next_id == last_id => known.forget_hashes(),
            Err(_) => {
                self.forget(name);
                self.next_id = last_id;
            }
        }
        result
    }

    /// Returns the number of a request that has blocks.
    pub(super) fn id_of(&self, request_id: &str) -> Option<RequestId> {
        self.requests.get(request_id).map(|known| known.id).filter(|&id| self.core.knows(id))
    }

    /// Writes to the tables of a request. An unknown request gets a number, unless the write is
    /// refused. A request without blocks is forgotten afterwards.
    pub(super) fn write(
        &mut self,
        py: Python<'_>,
        request_id: &str,
        write: impl FnOnce(&mut Manager, RequestId) -> kvoxide_core::Result<()>,
    ) -> PyResult<()> {
        let last_id = self.next_id;
        let known = self.requests.entry_ref(request_id).or_insert_with(|| {
            self.next_id += 1;
            RequestCache::new(self.next_id, None)
        });
        let id = known.id;
        if let Err(refused) = write(&mut self.core, id) {
            if self.next_id != last_id {
                self.forget(request_id);
                self.next_id = last_id;
            }
            return Err(refused).into_vllm(py);
        }
        self.note(request_id, id);
        self.update_synced(py)?;
        if self.core.forget_if_empty(id) {
            self.forget(request_id);
        }
        Ok(())
    }

    /// Returns the block tables of a request; empty tables for a request without blocks.
    pub(super) fn blocks_of(&self, request_id: &str) -> Vec<GroupBlocks> {
        let held = self.id_of(request_id).and_then(|id| self.core.blocks_of(id).ok());
        match held {
            Some(held) => copied_tables(held),
            None => self.core.no_blocks(),
        }
    }

    /// Forgets the name of a request. Returns its number, if it has blocks.
    pub(super) fn forget(&mut self, request_id: &str) -> Option<RequestId> {
        self.forget_with_retention(request_id, None).map(|(id, _)| id)
    }

    /// Forgets the name of a request whose blocks are about to be released. Returns its number, if
    /// it has blocks, and its retention. `request` is the request itself, if the caller has it.
    pub(super) fn forget_with_retention(
        &mut self,
        request_id: &str,
        request: Option<&Bound<'_, PyAny>>,
    ) -> Option<(RequestId, Option<Arc<RequestRetention>>)> {
        let RequestCache { id, retention, .. } = self.requests.remove(request_id)?;
        if let Some(synced) = &mut self.synced {
            Python::attach(|py| synced.forget(py, request_id, id));
        }
        self.core.forget_lookup(id);
        self.hints.update_time(&mut self.core, retention.as_deref());
        let may_give_up = self.core.follower().is_some();
        let retention = at_release(retention, request, may_give_up);
        self.core.knows(id).then_some((id, retention))
    }

    /// Returns the retention that a request asked for.
    pub(super) fn retention_of(&self, request_id: &str) -> Option<Arc<RequestRetention>> {
        self.requests.get(request_id)?.retention.clone()
    }

    /// Adds a key in vLLM's packed form to a block.
    pub(super) fn insert_key(
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
        let mut hash_len = self.hash_len;
        let key = unpacked_key(packed, &mut hash_len)?;
        let num_tokens = num_tokens.unwrap_or(0);
        self.core.pool_mut().insert_foreign_key(block, key, num_tokens).into_vllm(py)?;
        self.hash_len = hash_len;
        Ok(())
    }

    /// Removes every key of a block without an event.
    pub(super) fn remove_keys(&mut self, block: BlockId) {
        self.changes.add();
        let pool = self.core.pool_mut();
        pool.remove_keys_silently(block);
        if pool.blocks().is_pinned(block) || pool.is_listed(block) {
            // Only cached blocks may stay in the pinned tier and in the order of a policy.
            pool.evict([block]);
        }
    }
}

/// Checks tables that other code wrote, before the engine uses them.
#[inline]
fn check_written_table(core: &mut Manager, request: RequestId) -> PyResult<()> {
    if !core.has_unchecked_writes(request) {
        return Ok(());
    }
    kvoxide_core::check_direct_writes(core, request).map_err(|broken| {
        PyAssertionError::new_err(format!("other code wrote an invalid block table: {broken}"))
    })
}

//! What vLLM's manager keeps behind its gate: the core, and how vLLM's requests are called there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::exceptions::PyAssertionError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use kvoxide_core::{BlockId, Claim, GroupBlocks, GroupSpec, Manager, RequestId};

use super::claims::Claims;
use super::errors::IntoVllmResult;
use super::followed::Followed;
use super::reading::{Reader, Requests};
use super::request::Mirror;
use crate::crossing::{Guarded, WithCore, block_error, held_blocks, mixed_digest, unpacked_key};

type Mirrors = hashbrown::HashMap<String, Mirror, foldhash::fast::RandomState>;

/// How often the free queue may have changed: read without the state, written by who has it.
#[derive(Default)]
pub(super) struct Changes(AtomicU64);

impl Changes {
    /// How often so far.
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
    /// Bytes of the block hashes in use, once one was seen.
    pub(super) hash_len: Option<usize>,
    pub(super) requests: Mirrors,
    /// How requests are read.
    pub(super) reading: Requests,
    /// What requests ask for their blocks.
    pub(super) claims: Claims,
    next_id: RequestId,
    /// How many calls that may change something go by from one check to the next; 0 for no check.
    check_every: u64,
    num_calls: u64,
    /// Counts whenever the free queue may have changed.
    pub(super) changes: Arc<Changes>,
    /// None where nobody asked for what has to be kept up to date.
    pub(super) followed: Option<Box<Followed>>,
}

impl Guarded for VllmState {
    #[inline]
    fn look_after(&mut self, call: &'static str) -> Result<(), String> {
        self.changes.add();
        if self.is_behind() {
            Python::attach(|py| self.follow(py)).map_err(|error| {
                format!("what others look at could not be brought up to date ({error})")
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
}

impl VllmState {
    /// The state of a manager that nobody has used.
    pub(super) fn new(core: Manager, reading: Requests, check_every: u64) -> Self {
        let requests = Mirrors::default();
        Self {
            claims: Claims::new(&core),
            core,
            hash_len: None,
            requests,
            reading,
            next_id: 0,
            check_every,
            num_calls: 0,
            changes: Arc::default(),
            followed: None,
        }
    }

    /// A call changes, or may change, what a request holds.
    #[inline]
    pub(super) fn note(&mut self, request: RequestId) {
        if let Some(followed) = &mut self.followed {
            followed.note(request);
        }
    }

    #[inline]
    fn is_behind(&self) -> bool {
        self.followed.as_ref().is_some_and(|followed| {
            followed.is_behind() || self.core.pool().has_changed_alias_keys()
        })
    }

    /// Brings what others look at up to date.
    pub(super) fn follow(&mut self, py: Python<'_>) -> PyResult<()> {
        let hash_len = self.hash_len();
        match &mut self.followed {
            Some(followed) => followed.follow(py, &mut self.core, hash_len),
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
            format!("after call {} ({call}) an invariant was broken: {broken}", self.num_calls)
        })
    }

    /// Checks every invariant, and that vLLM can name each request that holds blocks.
    pub(super) fn check(&self) -> Result<(), String> {
        kvoxide_core::check(&self.core)?;
        let num_named = self.requests.values().filter(|mirror| self.core.knows(mirror.id)).count();
        match self.core.num_requests() {
            held if held == num_named => Ok(()),
            held => Err(format!("{held} requests hold blocks, {num_named} of them have a name")),
        }
    }

    /// 32 bytes over all of the state.
    pub(super) fn digest(&self) -> [u8; 32] {
        let beside = [self.requests.len(), self.hash_len(), self.next_id as usize];
        mixed_digest(&self.core, &beside)
    }

    /// Runs a call about a request: with the core, the request's mirror, and the length of hashes.
    /// Where it fails, nothing that was read for it is kept.
    pub(super) fn about<R>(
        &mut self,
        request: &Reader<'_, '_>,
        call: impl FnOnce(&mut Manager, &mut Mirror, &mut Option<usize>) -> PyResult<R>,
    ) -> PyResult<R> {
        let name = request.get(intern!(request.py(), "request_id"))?;
        let name = name.cast::<PyString>()?.to_str()?;
        let last_id = self.next_id;
        let mirror = self.requests.entry_ref(name).or_insert_with(|| {
            self.next_id += 1;
            Mirror::new(self.next_id, self.claims.read(request.request))
        });
        self.claims.tell_time(&mut self.core, mirror.claim);
        check_by_hand(&mut self.core, mirror.id)?;
        if let Some(followed) = &mut self.followed {
            followed.note(mirror.id);
        }
        let mut hash_len = self.hash_len;
        let claim = mirror.claim;
        let result = self.core.claiming(claim.as_ref(), |core| call(core, mirror, &mut hash_len));
        match result {
            Ok(_) => self.hash_len = hash_len,
            Err(_) if self.next_id == last_id => mirror.forget_hashes(),
            Err(_) => {
                self.forget(name);
                self.next_id = last_id;
            }
        }
        result
    }

    /// The number of a request that holds blocks.
    pub(super) fn id_of(&self, request_id: &str) -> Option<RequestId> {
        self.requests.get(request_id).map(|mirror| mirror.id).filter(|&id| self.core.knows(id))
    }

    /// Writes to the tables of a request, by its number; one that nobody knows gets one, unless the
    /// write is refused. What it then holds is followed, and where that is nothing it is forgotten.
    pub(super) fn write(
        &mut self,
        py: Python<'_>,
        request_id: &str,
        write: impl FnOnce(&mut Manager, RequestId) -> kvoxide_core::Result<()>,
    ) -> PyResult<()> {
        let last_id = self.next_id;
        let mirror = self.requests.entry_ref(request_id).or_insert_with(|| {
            self.next_id += 1;
            Mirror::new(self.next_id, None)
        });
        let id = mirror.id;
        if let Err(refused) = write(&mut self.core, id) {
            if self.next_id != last_id {
                self.forget(request_id);
                self.next_id = last_id;
            }
            return Err(refused).into_vllm(py);
        }
        self.note(id);
        self.follow(py)?;
        if self.core.forget_if_empty(id) {
            self.forget(request_id);
        }
        Ok(())
    }

    /// The names of requests.
    pub(super) fn names_of(
        &self,
        ids: impl Iterator<Item = RequestId>,
    ) -> hashbrown::HashMap<RequestId, &str> {
        let wanted: hashbrown::HashSet<_> = ids.collect();
        let known = self.requests.iter().filter(|_| !wanted.is_empty());
        let known = known.filter(|(_, mirror)| wanted.contains(&mirror.id));
        known.map(|(name, mirror)| (mirror.id, name.as_str())).collect()
    }

    /// What a request holds; no blocks for one that holds nothing.
    pub(super) fn blocks_of(&self, request_id: &str) -> Vec<GroupBlocks> {
        let held = self.id_of(request_id).and_then(|id| self.core.blocks_of(id).ok());
        match held {
            Some(held) => held_blocks(held),
            None => self.core.no_blocks(),
        }
    }

    /// Forgets the name of a request; its number, if it holds blocks.
    pub(super) fn forget(&mut self, request_id: &str) -> Option<RequestId> {
        self.forget_claimed(request_id).map(|(id, _)| id)
    }

    /// As [`Self::forget`], with what the request asked for its blocks, which it is about to give
    /// back.
    pub(super) fn forget_claimed(
        &mut self,
        request_id: &str,
    ) -> Option<(RequestId, Option<Claim>)> {
        let Mirror { id, claim, .. } = self.requests.remove(request_id)?;
        if let Some(followed) = &mut self.followed {
            Python::attach(|py| followed.forget(py, request_id, id));
        }
        self.core.forget_lookup(id);
        self.claims.tell_time(&mut self.core, claim);
        self.core.knows(id).then_some((id, claim))
    }

    /// What a request asks for its blocks.
    pub(super) fn claim_of(&self, request_id: &str) -> Option<Claim> {
        self.requests.get(request_id)?.claim
    }

    /// Adds a key, given as vLLM packs it, to a block.
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

    /// Takes every key of a block away without an event.
    pub(super) fn remove_keys(&mut self, block: BlockId) {
        self.changes.add();
        let pool = self.core.pool_mut();
        pool.remove_keys_silently(block);
        if pool.blocks().is_pinned(block) || pool.adaptive().is_some_and(|order| order.has(block)) {
            // Only cached blocks may stay in the pinned tier and in adaptive order.
            pool.evict([block]);
        }
    }
}

/// Checks what others wrote to the tables of a request before it goes on.
#[inline]
fn check_by_hand(core: &mut Manager, request: RequestId) -> PyResult<()> {
    if !core.is_newly_written(request) {
        return Ok(());
    }
    kvoxide_core::check_written(core, request).map_err(|broken| {
        PyAssertionError::new_err(format!("what was written to a block table cannot be: {broken}"))
    })
}

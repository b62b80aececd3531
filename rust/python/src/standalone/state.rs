//! The state of the standalone manager: the core, and data that only Python uses.

use std::collections::HashMap;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyList;

use kvoxide_core::request::RequestBlocks;
use kvoxide_core::{Error, Manager, RequestId, RequestRetention};

use super::clock::Clock;
use super::events::PendingEvent;
use super::loads::EmptyLoads;
use super::noted::Noted;
use super::request::{PyRequest, RequestStatus};
use super::stats::PrefixCacheStats;
use crate::ffi::{
    CheckedState, GuardedCell, IntoPyResult, OutcomeLog, WithCore, mixed_digest, to_py,
};

/// The cell that a manager, its pool and every view of its blocks share.
pub(super) type StateCell = GuardedCell<State>;

/// The state of a standalone manager.
pub(crate) struct State {
    pub(super) core: Manager,
    pub(super) hash_len: Option<usize>,
    pub(super) names: HashMap<String, RequestId>,
    pub(super) stats: Option<PrefixCacheStats>,
    pub(super) num_hash_lookahead_tokens: usize,
    pub(super) events: Vec<PendingEvent>,
    /// The retention that requests with blocks asked for.
    pub(super) retentions: HashMap<RequestId, Arc<RequestRetention>>,
    pub(super) clock: Clock,
    /// The calls that a tier reads, if it decides together with this manager.
    pub(super) noted: Option<Noted>,
    pub(super) loads: EmptyLoads,
    /// The outcomes of the latest prompts.
    pub(super) outcomes: OutcomeLog,
}

impl CheckedState for State {}

impl WithCore for State {
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
        self.change(py, None, call)
    }

    fn seconds(&self, py: Python<'_>) -> PyResult<f64> {
        Ok(self.clock.now(py)? as f64 / 1000.0)
    }

    fn outcome_log(&mut self) -> &mut OutcomeLog {
        &mut self.outcomes
    }

    fn names(&self) -> impl Iterator<Item = (&str, RequestId)> {
        self.names.iter().map(|(name, &id)| (name.as_str(), id))
    }

    fn check(&self) -> Result<(), String> {
        kvoxide_core::check(&self.core)
    }

    fn digest(&self) -> [u8; 32] {
        mixed_digest(&self.core, &[self.events.len()])
    }
}

impl State {
    /// Runs a call that may change the core and keeps its events.
    pub(super) fn change<T>(
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

    /// Runs a call that may change the core, with the retention of a request that has blocks, and
    /// keeps its events.
    pub(super) fn change_for<T>(
        &mut self,
        py: Python<'_>,
        id: RequestId,
        request: Option<&PyRequest>,
        call: impl FnOnce(&mut Manager) -> kvoxide_core::Result<T>,
    ) -> PyResult<T> {
        let retention = self.retentions.get(&id).cloned();
        self.update_time(py, retention.as_deref())?;
        self.change(py, request, |core| core.with_retention(retention.as_ref(), call))
    }

    /// Runs a call that releases the blocks of a request, and keeps its events. The blocks of a
    /// preempted request are not given up. Blocks that a load may write now are not released.
    pub(super) fn end_for<T>(
        &mut self,
        py: Python<'_>,
        request: &PyRequest,
        call: impl FnOnce(&mut Manager) -> kvoxide_core::Result<T>,
    ) -> PyResult<T> {
        self.loads.check_not_copied(py, request)?;
        let is_preempted = request.status == RequestStatus::Preempted;
        let is_told = self.noted.is_some() || self.retentions.contains_key(&request.id);
        if is_preempted && is_told {
            let retention = self.retentions.entry(request.id).or_default();
            *retention = Arc::new(retention.while_preempted());
        }
        let ended = self.change_for(py, request.id, None, call)?;
        self.retentions.remove(&request.id);
        self.loads.remove(request.id);
        if let Some(noted) = &mut self.noted {
            noted.has_ended |= !is_preempted;
        }
        Ok(ended)
    }

    /// Passes the time to the core if some block has a time to live.
    pub(super) fn update_time(
        &mut self,
        py: Python<'_>,
        retention: Option<&RequestRetention>,
    ) -> PyResult<()> {
        if self.core.has_times_to_live() || retention.is_some_and(RequestRetention::has_end) {
            self.core.set_now(self.clock.now(py)?);
        }
        Ok(())
    }

    /// Returns the events since the last call.
    pub(super) fn take_events<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let hash_len = self.hash_len();
        let groups = &self.core.config().groups;
        let events = std::mem::take(&mut self.events).into_iter();
        let events = events.map(|event| event.into_py(py, hash_len, groups));
        PyList::new(py, events.collect::<PyResult<Vec<_>>>()?)
    }

    /// Stores the length of hashes. The first request with hashes sets this length.
    pub(super) fn set_hash_len_once(&mut self, request: &PyRequest) {
        if self.hash_len.is_none() && !request.hashes.is_empty() {
            self.hash_len = Some(request.hash_len);
        }
    }

    /// Returns whether look-ups may serve this request.
    pub(super) fn looks_up(&self, request: &PyRequest) -> bool {
        self.core.config().enable_caching && !request.skip_reading_prefix_cache
    }

    /// Returns the block tables of a request.
    pub(super) fn blocks_of(&self, py: Python<'_>, name: &str) -> PyResult<&RequestBlocks> {
        self.core.blocks_of(self.request_id(py, name)?).into_py(py)
    }

    /// Returns the number of a request that has blocks.
    pub(super) fn request_id(&self, py: Python<'_>, name: &str) -> PyResult<RequestId> {
        let id = self.names.get(name).copied();
        id.ok_or_else(|| to_py(py, &Error::UnknownRequest(name.to_owned())))
    }
}

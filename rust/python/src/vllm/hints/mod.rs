//! Sessions and hints of vLLM's requests: the reader of a manager, which counts and logs how each
//! hint was handled.
//!
//! Clients and orchestrators set all of this. No value raises an error: an invalid hint is counted,
//! logged once, and ignored.

mod claims;
mod envelope;
mod fields;
mod granted;
mod handling;
mod reading;

use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Instant;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use kvoxide_core::{Manager, RequestRetention, Retention, SessionId};

use self::handling::{Handled, Handling, Hint, NUM_RESULTS, RESULTS};
use self::reading::HintReading;
use super::attributes::Reader;

pub(crate) use granted::VllmGrantedHints;

/// Reads the sessions and hints of requests if the policy uses them, and measures the time.
pub(super) struct HintReader {
    are_read: bool,
    /// The highest priority that a request may get; 0 means that hints are ignored.
    max_priority: u8,
    sessions: SessionHasher,
    /// The number of hints of each kind with each result.
    counts: [[u64; NUM_RESULTS]; Hint::ALL.len()],
    start: Instant,
}

/// Hashes the ids of sessions with a random key, so that no client can choose ids with equal hashes.
type SessionHasher = foldhash::quality::RandomState;

impl HintReader {
    /// Returns a reader for a new manager.
    pub(super) fn new(core: &Manager, max_priority: u8) -> Self {
        Self {
            are_read: core.config().policy.retention == Retention::Adaptive,
            max_priority,
            sessions: SessionHasher::default(),
            counts: [[0; NUM_RESULTS]; Hint::ALL.len()],
            start: Instant::now(),
        }
    }

    /// Returns the retention that a request asks for, as far as it is granted.
    #[inline]
    pub(super) fn read(
        &mut self,
        core: &Manager,
        request: &Reader<'_, '_>,
    ) -> Option<Arc<RequestRetention>> {
        if !self.are_read {
            return None;
        }
        let reading = HintReading::of(request, self.max_priority, &self.sessions);
        if !reading.handled.is_empty() && !was_preempted(request) {
            for handled in &reading.handled {
                self.note(core, request.py(), handled);
            }
        }
        reading.retention.map(Arc::new)
    }

    /// Counts a hint, and logs the first one with its result.
    #[cold]
    fn note(&mut self, core: &Manager, py: Python<'_>, handled: &Handled<'_>) {
        let is_crowded = handled.num_protected_tokens > 0
            && num_blocks(core, handled.num_protected_tokens) > core.num_spare_protected();
        let handling = match &handled.handling {
            Handling::Taken if is_crowded => &Handling::Crowded,
            handling => handling,
        };
        let result = handling.index();
        let is_first = self.counts.iter().all(|counts| counts[result] == 0);
        self.counts[handled.hint as usize][result] += handled.count as u64;
        let details = if is_first { handling.details() } else { String::new() };
        let (hint, result) = (handled.hint.label(), RESULTS[result]);
        // Serving continues even if the hint cannot be counted or logged.
        let _ = py.import("kvoxide.vllm.environment.hints").and_then(|hints| {
            hints.call_method1("note", (hint, result, handled.count, is_first, details))
        });
    }

    /// Returns the number of hints by kind and result, without zeros.
    pub(super) fn counts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = PyDict::new(py);
        for (hint, counts) in Hint::ALL.iter().zip(&self.counts) {
            let counts = RESULTS.iter().zip(counts).filter(|&(_, &count)| count > 0);
            let of_hint = PyDict::new(py);
            for (result, count) in counts {
                of_hint.set_item(result, count)?;
            }
            if !of_hint.is_empty() {
                found.set_item(hint.label(), of_hint)?;
            }
        }
        Ok(found)
    }

    /// Passes the time to the core if some block has a time to live.
    #[inline]
    pub(super) fn update_time(&self, core: &mut Manager, retention: Option<&RequestRetention>) {
        if core.has_times_to_live() || retention.is_some_and(RequestRetention::has_end) {
            core.set_now(self.start.elapsed().as_millis() as u64);
        }
    }
}

/// Returns the retention for the release of a request's blocks. A request that has not finished was
/// preempted, and keeps its blocks. vLLM sets the status of a finished request before the release.
/// `may_give_up` is true if blocks can be given up that the request does not give up itself.
pub(super) fn at_release(
    retention: Option<Arc<RequestRetention>>,
    request: Option<&Bound<'_, PyAny>>,
    may_give_up: bool,
) -> Option<Arc<RequestRetention>> {
    let gives_up = retention.as_ref().is_some_and(|it| it.gives_up_any());
    match request {
        Some(request) if (gives_up || may_give_up) && !is_finished(request) => {
            let retention = retention.as_deref().cloned().unwrap_or_default();
            Some(Arc::new(retention.while_preempted()))
        }
        _ => retention,
    }
}

fn is_finished(request: &Bound<'_, PyAny>) -> bool {
    let finished = request.call_method0(intern!(request.py(), "is_finished"));
    finished.and_then(|finished| finished.is_truthy()).unwrap_or(false)
}

/// Returns whether a request was preempted. Then its hints were counted before.
fn was_preempted(request: &Reader<'_, '_>) -> bool {
    let preemptions = request.find(intern!(request.py(), "num_preemptions"));
    preemptions.is_ok_and(|count| count.is_some_and(|count| count.is_truthy().unwrap_or(false)))
}

/// Returns the number of blocks that tokens fill in the groups that need the whole prefix.
fn num_blocks(core: &Manager, num_tokens: usize) -> usize {
    let whole = core.groups().iter().filter(|group| group.is_cacheable && !group.is_sparse);
    whole.map(|group| num_tokens / group.block_size).sum()
}

/// Returns a number for the id of a session.
fn session_number(hasher: &SessionHasher, id: &str) -> SessionId {
    hasher.hash_one(id)
}

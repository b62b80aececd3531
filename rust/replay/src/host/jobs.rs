//! Transfers between pool and tier, and the times at which they end.

use std::collections::{HashSet, VecDeque};

use kvoxide_core::{BlockId, CacheKey, RequestId};

use super::settings::Link;
use crate::clock::Nanoseconds;

/// The request of a transfer that is for no request.
pub(super) const NO_REQUEST: RequestId = RequestId::MAX;

/// A transfer of chunks.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub request: RequestId,
    pub keys: Vec<CacheKey>,
    /// The blocks that must keep their contents until the end; none for a load.
    pub sources: Vec<BlockId>,
    /// Whether the sources can be allocated while the request runs, as blocks that leave a window.
    pub is_fenced: bool,
    /// The step in which it was made.
    step: u64,
    ends: Nanoseconds,
}

impl Job {
    pub fn new(request: RequestId, keys: Vec<CacheKey>, step: u64) -> Self {
        Self { request, keys, sources: Vec::new(), is_fenced: false, step, ends: 0 }
    }

    /// Returns whether the transfer was made in a step.
    pub fn is_of_step(&self, step: u64) -> bool {
        self.step == step
    }

    pub fn of_blocks(self, sources: Vec<BlockId>, is_fenced: bool) -> Self {
        Self { sources, is_fenced, ..self }
    }
}

/// The transfers in one direction, which take turns.
#[derive(Debug)]
pub(super) struct Queue {
    link: Link,
    chunk_bytes: u64,
    /// Transfers that begin when the step ends.
    waiting: Vec<Job>,
    under_way: VecDeque<Job>,
    free_at: Nanoseconds,
    pub busy: Nanoseconds,
}

impl Queue {
    pub fn new(link: Link, chunk_bytes: u64) -> Self {
        Self {
            link,
            chunk_bytes,
            waiting: Vec::new(),
            under_way: VecDeque::new(),
            free_at: 0,
            busy: 0,
        }
    }

    /// Adds a transfer that begins when [`Self::begin`] is called.
    pub fn push(&mut self, job: Job) {
        self.waiting.push(job);
    }

    /// Lets the waiting transfers begin. Returns in how much time the last of them ends; 0 if there
    /// are none.
    pub fn begin(&mut self, now: Nanoseconds) -> Nanoseconds {
        let mut end = now;
        for mut job in std::mem::take(&mut self.waiting) {
            let duration = self.link.duration(self.chunk_bytes * job.keys.len() as u64);
            self.free_at = self.free_at.max(now).saturating_add(duration);
            self.busy += duration;
            end = self.free_at;
            job.ends = end;
            self.under_way.push_back(job);
        }
        end.saturating_sub(now)
    }

    /// Takes all transfers that have not begun, as if they took no time.
    pub fn take_all(&mut self) -> Vec<Job> {
        std::mem::take(&mut self.waiting)
    }

    /// Forgets all transfers.
    pub fn forget(&mut self) {
        self.waiting.clear();
        self.under_way.clear();
    }

    /// Forgets the keys of all transfers, which still end.
    pub fn forget_keys(&mut self) {
        self.waiting.iter_mut().chain(&mut self.under_way).for_each(|job| job.keys.clear());
    }

    /// Takes the first transfer of a request that has not begun.
    pub fn take_first_of(&mut self, request: RequestId) -> Option<Job> {
        let place = self.waiting.iter().position(|job| job.request == request)?;
        Some(self.waiting.remove(place))
    }

    /// Takes the first transfer of a request that was made in a step and has not begun.
    pub fn take_first_of_step(&mut self, request: RequestId, step: u64) -> Option<Job> {
        let is_it = |job: &Job| job.request == request && job.is_of_step(step);
        let place = self.waiting.iter().position(is_it)?;
        Some(self.waiting.remove(place))
    }

    /// Takes the transfers that were made before a step and have not begun.
    pub fn take_before(&mut self, step: u64) -> Vec<Job> {
        let num = self.waiting.iter().take_while(|job| job.step < step).count();
        self.waiting.drain(..num).collect()
    }

    /// Takes the transfers that have ended.
    pub fn take_ended(&mut self, now: Nanoseconds) -> Vec<Job> {
        let num = self.under_way.iter().take_while(|job| job.ends <= now).count();
        self.under_way.drain(..num).collect()
    }

    /// Returns whether there are transfers.
    pub fn has_jobs(&self) -> bool {
        !(self.waiting.is_empty() && self.under_way.is_empty())
    }

    /// Returns whether there is a transfer of a request.
    pub fn has_job_of(&self, request: RequestId) -> bool {
        self.waiting.iter().chain(&self.under_way).any(|job| job.request == request)
    }

    /// Returns the end of the next transfer.
    pub fn next_end(&self) -> Option<Nanoseconds> {
        self.under_way.front().map(|job| job.ends)
    }

    /// Returns the end of the last transfer whose sources are in `allocated`, or whose request is
    /// in `preempted`. A request that runs holds its own sources, unless they left a window.
    pub fn last_end_of(
        &self,
        allocated: &HashSet<BlockId>,
        preempted: &[RequestId],
        ended: &HashSet<RequestId>,
    ) -> Option<Nanoseconds> {
        let is_needed = |job: &&Job| {
            let is_watched = job.is_fenced || ended.contains(&job.request);
            preempted.contains(&job.request)
                || (is_watched && job.sources.iter().any(|block| allocated.contains(block)))
        };
        self.under_way.iter().filter(is_needed).map(|job| job.ends).max()
    }
}

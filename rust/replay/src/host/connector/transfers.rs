//! The times of transfers: when they begin and end.

use kvoxide_core::RequestId;

use super::HostConnector;
use crate::clock::Nanoseconds;
use crate::host::jobs::{Job, NO_REQUEST};

/// The rule for the ends of transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// Loads end at once, and stores with their step.
    AtOnce,
    /// Transfers take time, one after the other in each direction.
    Timed,
    /// Transfers end when they ended on a recorded server, or after [`MOST_STEPS`]. Stores of kinds
    /// that the server did not make end with their step.
    Recorded,
}

/// The most steps for which a transfer waits for its recorded end. A transfer that the server did
/// not make has none.
const MOST_STEPS: u64 = 64;

impl HostConnector {
    /// Lets transfers take time.
    pub fn keep_time(&mut self) {
        self.pace = Pace::Timed;
    }

    /// Lets transfers end when [`Self::end_transfer`] is called. `has_leaving_stores` is whether the
    /// stores of the recorded server belonged to no request.
    pub fn follow(&mut self, has_leaving_stores: bool) {
        self.pace = Pace::Recorded;
        self.has_leaving_stores = has_leaving_stores;
    }

    /// Ends the oldest transfer of a request in one direction, if there is one.
    pub fn end_transfer(&mut self, request: RequestId, is_store: bool) {
        let queue = if is_store { &mut self.stores } else { &mut self.loads };
        match (queue.take_first_of(request), is_store) {
            (Some(job), true) => self.end_store(job),
            (Some(job), false) => self.end_load(job),
            (None, _) => {}
        }
    }

    /// Ends the oldest store of the step `steps_ago` that belongs to no request, if there is one.
    pub fn end_leaving_store(&mut self, steps_ago: u32) {
        let step = self.num_steps.checked_sub(1 + u64::from(steps_ago));
        let job = step.and_then(|step| self.stores.take_first_of_step(NO_REQUEST, step));
        job.into_iter().for_each(|job| self.end_store(job));
    }

    /// Ends all transfers.
    pub fn end_all_transfers(&mut self) {
        self.stores.take_all().into_iter().for_each(|job| self.end_store(job));
        self.loads.take_all().into_iter().for_each(|job| self.end_load(job));
    }

    /// Ends a step at time `now`. Its stores begin.
    pub fn step_has_run(&mut self, now: Nanoseconds) {
        self.num_steps += 1;
        match self.pace {
            Pace::Timed => _ = self.stores.begin(now),
            Pace::AtOnce => {
                self.stores.take_all().into_iter().for_each(|job| self.end_store(job));
            }
            Pace::Recorded => {
                let first = self.num_steps.saturating_sub(MOST_STEPS);
                let late = self.stores.take_before(first);
                late.into_iter().for_each(|job| self.end_store(job));
                // The recording has no ends of stores that its server did not make.
                let num_recorded = std::mem::take(&mut self.num_recorded_stores);
                let mut num_new = 0;
                for job in self.stores.take_all() {
                    let is_leaving = job.request == NO_REQUEST;
                    let is_new = is_leaving && job.is_of_step(self.num_steps - 1);
                    num_new += u32::from(is_new);
                    let is_recorded = match is_new {
                        true => num_new <= num_recorded,
                        false => is_leaving || !self.has_leaving_stores,
                    };
                    match is_recorded {
                        true => self.stores.push(job),
                        false => self.end_store(job),
                    }
                }
            }
        }
        self.set_now(now);
    }

    /// Ends the transfers that have ended at time `now`.
    pub fn set_now(&mut self, now: Nanoseconds) {
        self.now = now;
        let stores = self.stores.take_ended(now);
        stores.into_iter().for_each(|job| self.end_store(job));
        let loads = self.loads.take_ended(now);
        loads.into_iter().for_each(|job| self.end_load(job));
    }

    fn end_store(&mut self, job: Job) {
        self.tier.complete_store(job.keys.iter().copied(), true);
        self.end_job(job.request);
    }

    pub(super) fn end_load(&mut self, job: Job) {
        let keys = || job.keys.iter().copied();
        let ended = self.tier.complete_load(keys());
        debug_assert!(ended.is_ok(), "prepared before");
        self.tier.set_loading(keys(), false);
        self.loaded.push(job.request);
        self.end_job(job.request);
    }

    fn end_job(&mut self, request: RequestId) {
        self.num_changes += 1;
        let Some(state) = self.requests.get_mut(&request) else { return };
        state.num_jobs -= 1;
        if state.has_ended && state.num_jobs == 0 {
            self.requests.remove(&request);
        }
    }

    /// Takes the requests whose loads have ended.
    pub fn take_loaded(&mut self) -> Vec<RequestId> {
        std::mem::take(&mut self.loaded)
    }

    /// Returns whether a load of a request has not ended.
    pub fn has_load_of(&self, request: RequestId) -> bool {
        self.loads.has_job_of(request)
    }

    /// Returns whether transfers are in progress or begin with the end of the step.
    pub fn has_transfers(&self) -> bool {
        self.loads.has_jobs() || self.stores.has_jobs()
    }

    /// Returns the time of the next end of a load.
    pub fn next_load_end(&self) -> Option<Nanoseconds> {
        self.loads.next_end()
    }

    /// Returns the time of the next end of a store.
    pub fn next_store_end(&self) -> Option<Nanoseconds> {
        self.stores.next_end()
    }
}

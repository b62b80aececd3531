//! CPU memory in a run: loads before requests run, and the stores of each step.

use super::run::{Release, Run, chunk};
use super::settings::Stopped;
use super::step_clock::StepClock;
use crate::active_request::ActiveRequest;
use crate::cache::{Cache, Hit, Slots};
use crate::clock::Nanoseconds;

impl<C: Cache> Run<'_, C> {
    /// Returns whether blocks are in use that no running request has: their loads are in progress,
    /// or have ended, or their requests ended during a load or a step.
    pub(super) fn has_waiting_blocks(&self) -> bool {
        !(self.loading.is_empty() && self.loaded.is_empty()) || self.has_ended_blocks()
    }

    /// Returns whether blocks are in use whose requests ended during a load or a step.
    pub(super) fn has_ended_blocks(&self) -> bool {
        self.cache.has_held_blocks() || !self.ended_loading.is_empty()
    }

    /// Ends a request whose load began. Its blocks stay in use until the load has ended.
    pub(super) fn end_loading(&mut self, request: &ActiveRequest) {
        let id = request.index as u64;
        let is_loading = self.cache.host().is_some_and(|(host, _)| host.has_load_of(id));
        let release = if is_loading { Release::AfterLoad } else { Release::Now };
        self.end_with(request, request.num_computed_tokens, release);
    }

    /// Releases the blocks of all requests that ended during a load or a step.
    pub(super) fn release_ended_blocks(&mut self) {
        self.cache.steps_ended(usize::MAX);
        let ended = std::mem::take(&mut self.ended_loading);
        ended.into_iter().for_each(|id| self.cache.free(id));
    }

    /// Starts the load of a request's hit. Returns the request if too few blocks are free. A request
    /// that can never fit is rejected.
    pub(super) fn start_load(
        &mut self,
        mut request: ActiveRequest,
        hit: &Hit,
        slots: Slots,
        step: &mut StepClock,
    ) -> Result<Option<ActiveRequest>, Stopped> {
        request.shared_prefix_boundary = hit.shared_prefix_boundary;
        let num_reserved = self.num_reserved_blocks()?;
        let view = request.view();
        let fits = step
            .time(&mut self.report.schedule, || self.cache.load(&view, hit, slots, num_reserved))?;
        if !fits {
            if self.running.is_empty() && !self.has_waiting_blocks() {
                self.reject(request.index);
                return Ok(None);
            }
            return Ok(Some(request));
        }
        self.note_admission(&mut request, hit);
        self.loading.push(request);
        self.collect_loaded();
        Ok(None)
    }

    /// Moves the requests whose loads have ended. Releases the blocks of ended ones.
    pub(super) fn collect_loaded(&mut self) {
        let Some((host, _)) = self.cache.host() else { return };
        for id in host.take_loaded() {
            if let Some(place) = self.ended_loading.iter().position(|&ended| ended == id) {
                self.ended_loading.remove(place);
                self.cache.free(id);
            }
            let place = self.loading.iter().position(|request| request.index as u64 == id);
            self.loaded.extend(place.map(|place| self.loading.remove(place)));
        }
    }

    /// Returns how many free blocks are for requests that compute or load their prompts.
    fn num_reserved_blocks(&mut self) -> Result<isize, Stopped> {
        let is_prefill = |it: &&ActiveRequest| it.num_computed_tokens < it.num_tokens;
        let prefills = self.running.iter().zip(&self.scheduled).filter(|(request, num_new)| {
            request.num_computed_tokens + *num_new < request.num_tokens
        });
        let prefills = prefills.map(|(request, _)| request);
        let held = self.loading.iter().chain(&self.loaded).filter(is_prefill);
        let mut sum = 0;
        for request in prefills.chain(held) {
            sum += self.cache.num_missing_blocks(&request.view())?;
        }
        Ok(sum)
    }

    /// Lets a request run whose load has ended. Returns whether it got its blocks.
    pub(super) fn resume_loaded(
        &mut self,
        mut request: ActiveRequest,
        budget: &mut usize,
        step: &mut StepClock,
    ) -> Result<bool, Stopped> {
        self.settle_load(&mut request)?;
        let view = request.view();
        let start = view.num_computed_tokens;
        let num_new = chunk(&self.chunks, &view, start, (view.num_tokens - start).min(*budget));
        let fits = num_new > 0
            && step.time(&mut self.report.schedule, || {
                self.cache.allocate(&view, Slots::of(num_new), None)
            })?;
        if !fits {
            self.loaded.push_front(request);
            if self.running.is_empty() && self.loading.is_empty() {
                self.give_up_load();
            }
            return Ok(false);
        }
        *budget -= num_new;
        request.is_waiting = false;
        self.work.add(&request.view(), start, num_new);
        self.cache.note_computed(&request.view(), start, start + num_new);
        self.running.push(request);
        self.scheduled.push(num_new);
        Ok(true)
    }

    /// Caches the blocks of a request whose load has ended. The last token of a prompt is computed
    /// in any case.
    pub(super) fn settle_load(&mut self, request: &mut ActiveRequest) -> Result<(), Stopped> {
        if request.is_settled {
            return Ok(());
        }
        request.is_settled = true;
        if let Some((host, _)) = self.cache.host() {
            host.end_transfer(request.index as u64, false);
        }
        self.cache.end_load(&request.view())?;
        if request.num_computed_tokens == request.num_tokens {
            request.num_computed_tokens -= 1;
        }
        Ok(())
    }

    /// Releases the blocks of the newest request that was loaded, so that others get blocks. A
    /// request that is alone can never fit.
    fn give_up_load(&mut self) {
        let Some(mut request) = self.loaded.pop_back() else { return };
        self.cache.preempt(request.index as u64);
        if self.loaded.is_empty() {
            return self.reject(request.index);
        }
        self.note_preempted(request.index);
        request.num_computed_tokens = 0;
        request.is_settled = false;
        self.waiting.push_front(request);
    }

    /// Offers the chunks of a step to CPU memory.
    pub(super) fn offer_to_host(&mut self) -> Result<(), Stopped> {
        let scheduled = self.running.iter().zip(&self.scheduled);
        let scheduled = scheduled.filter(|&(_, &num_new)| num_new > 0);
        let scheduled = scheduled.map(|(request, &num_new)| (request.view(), num_new));
        if let Some((host, manager)) = self.cache.host() {
            self.fence = host.step_scheduled(manager, scheduled)?;
        }
        Ok(())
    }

    /// Lets transfers take time from now on.
    pub fn keep_transfer_times(&mut self) {
        if let Some((host, _)) = self.cache.host() {
            host.keep_time();
        }
    }

    /// Lets transfers end when they ended on the recorded server. `has_leaving_stores` is whether its
    /// stores belonged to no request.
    pub(super) fn keep_recorded_transfers(&mut self, has_leaving_stores: bool) {
        if let Some((host, _)) = self.cache.host() {
            host.follow(has_leaving_stores);
        }
    }

    /// Empties CPU memory.
    pub(super) fn reset_host(&mut self) {
        if let Some((host, _)) = self.cache.host() {
            host.reset();
        }
    }

    /// Sorts the last offers of requests that have ended. Requests that had computed nothing are
    /// not in this run.
    pub(super) fn note_last_offers(&mut self, order: &[usize]) {
        if let Some((host, _)) = self.cache.host() {
            host.note_last_offers(order);
        }
    }

    /// Notes for how many blocks the recorded server's loads wait in the next step.
    pub(super) fn ask_for_stores(&mut self, num_blocks: u64) {
        if let Some((host, _)) = self.cache.host() {
            host.ask_for_stores(num_blocks);
        }
    }

    /// Notes how many stores that belong to no request the recorded server begins in the next step.
    pub(super) fn note_stores(&mut self, num_stores: u32) {
        if let Some((host, _)) = self.cache.host() {
            host.note_stores(num_stores);
        }
    }

    /// Ends stores that belong to no request. `steps_ago` has the age of each in steps.
    pub(super) fn end_leaving_stores(&mut self, steps_ago: &[u32]) {
        if let Some((host, _)) = self.cache.host() {
            steps_ago.iter().for_each(|&num_steps| host.end_leaving_store(num_steps));
        }
    }

    /// Ends the oldest transfer of a request in one direction.
    pub(super) fn end_transfer(&mut self, index: usize, is_store: bool) {
        if let Some((host, _)) = self.cache.host() {
            host.end_transfer(index as u64, is_store);
        }
        self.collect_loaded();
    }

    /// Ends the transfers that have ended at time `now`.
    pub fn set_now(&mut self, now: Nanoseconds) {
        if let Some((host, _)) = self.cache.host() {
            host.set_now(now);
            self.collect_loaded();
        }
    }

    /// Ends a step at time `now`. Its stores begin.
    pub fn end_host_step(&mut self, now: Nanoseconds) {
        if let Some((host, _)) = self.cache.host() {
            host.step_has_run(now);
            self.collect_loaded();
        }
    }

    /// Returns how long the current step waits for stores.
    pub fn fence(&self) -> Nanoseconds {
        self.fence
    }

    /// Returns the time at which the next transfer ends that a request waits for.
    pub fn next_transfer_end(&mut self) -> Option<Nanoseconds> {
        let has_waiting = self.has_work();
        let (host, _) = self.cache.host()?;
        let stores = host.next_store_end().filter(|_| has_waiting);
        host.next_load_end().into_iter().chain(stores).min()
    }

    /// Returns whether requests have ended that have not offered their last chunks.
    pub fn has_last_offers(&mut self) -> bool {
        self.cache.host().is_some_and(|(host, _)| host.has_last_offers())
    }

    /// Returns whether the current step has no tokens because all requests wait for transfers, or
    /// because there are none.
    pub fn waits_for_transfers(&mut self) -> bool {
        let has_work = self.has_work();
        let Some((host, _)) = self.cache.host() else { return false };
        self.work.running == 0 && (host.has_transfers() || !has_work)
    }

    /// Ends a step without tokens at time `now`.
    pub fn end_idle_step(&mut self, now: Nanoseconds) {
        self.report.steps -= 1;
        self.end_host_step(now);
    }

    pub(super) fn note_preempted(&mut self, index: usize) {
        if let Some((host, _)) = self.cache.host() {
            host.preempted(index as u64);
        }
    }

    pub(super) fn note_ended(&mut self, request: &ActiveRequest) {
        let recorded = self.trace.requests()[request.index].recorded;
        if let Some((host, _)) = self.cache.host() {
            host.ended(&request.view(), recorded.is_some_and(|recorded| recorded.is_aborted));
        }
    }

    pub(super) fn forget_in_host(&mut self, index: usize) {
        if let Some((host, _)) = self.cache.host() {
            host.rejected(index as u64);
        }
    }
}

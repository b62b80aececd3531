//! A step of the run: it serves the running requests and admits the requests that are due.

use std::cmp::Reverse;
use std::collections::VecDeque;

use kvoxide_core::RequestView;

use super::Follower;
use super::position::Position;
use crate::active_request::ActiveRequest;
use crate::cache::{Cache, Hit, Slots};
use crate::chunks::Chunks;
use crate::scheduler::run::chunk;
use crate::scheduler::settings::{Rules, Stopped};
use crate::scheduler::step_clock::StepClock;

impl<C: Cache> Follower<'_, C> {
    /// Serves running requests. Returns whether one was preempted.
    pub(super) fn serve_running(
        &mut self,
        budget: &mut usize,
        step: &mut StepClock,
    ) -> Result<bool, Stopped> {
        let (mut preempts, mut has_no_room) = (false, false);
        while self.run.scheduled.len() < self.run.running.len() {
            let place = self.run.scheduled.len();
            if self.preempt_recorded_victim(place) {
                preempts = true;
                continue;
            }
            let num_new = self.tokens_of(place, *budget);
            if num_new == 0 {
                if !has_no_room && self.found_no_room(place, *budget) {
                    has_no_room = true;
                    self.fail_to_allocate(place);
                }
                self.run.scheduled.push(0);
                continue;
            }
            if self.allocate(place, num_new, step)? {
                self.run.scheduled.push(num_new);
                *budget -= num_new;
                continue;
            }
            let Some(victim) = self.next_victim() else {
                if self.run.has_ended_blocks() {
                    self.run.scheduled.push(0);
                    continue;
                }
                self.reject_only(place);
                return Ok(true);
            };
            preempts = true;
            if let Some(gone) = self.preempt(victim)
                && gone < self.run.scheduled.len()
            {
                *budget += self.run.scheduled.remove(gone);
            }
        }
        // A larger pool has room for the requests that the server had to preempt.
        self.victims.clear();
        Ok(preempts)
    }

    /// Preempts a request that the server preempted for its own allocation, after the server's
    /// earlier victims. Returns whether it did. A pool larger than the server's has room for the
    /// request.
    pub(super) fn preempt_recorded_victim(&mut self, place: usize) -> bool {
        let settings = self.run.settings;
        let recorded = settings.rules.as_ref().map(|rules| rules.num_blocks);
        let is_larger = settings.num_blocks.is_none_or(|num| Some(num) > recorded);
        let index = self.run.running[place].index;
        let is_victim = !is_larger && self.victims.contains(&index);
        if is_victim {
            self.fail_to_allocate(place);
        }
        while is_victim && let Some(victim) = self.victims.pop_front() {
            self.preempt(victim);
            if victim == index {
                break;
            }
        }
        is_victim
    }

    /// Returns the number of tokens of a running request in this step.
    pub(super) fn tokens_of(&mut self, place: usize, budget: usize) -> usize {
        let request = &mut self.run.running[place];
        let Some(position) = self.positions.get(&request.index) else { return 0 };
        let known = &self.run.trace.requests()[request.index];
        let start = request.num_computed_tokens;
        let wanted = position.end.saturating_sub(start).min(budget);
        if start != position.start {
            let num_known = (start + wanted).min(known.prompt.len() + known.output_length);
            while request.num_tokens < num_known {
                request.generate(known, self.run.hash_sizes, &mut self.run.next_unique_token);
            }
        }
        if start == position.start && start + wanted == position.end {
            return wanted;
        }
        // The end of an aborted prompt can be too near for a step that ends with a block.
        match chunk(&self.run.chunks, &request.view(), start, wanted) {
            0 if position.has_ended => wanted,
            num_tokens => num_tokens,
        }
    }

    pub(super) fn slots(&self, num_new_tokens: usize, has_running: bool) -> Slots {
        let rules = self.run.settings.rules.as_ref();
        Slots {
            num_lookahead_tokens: rules.map_or(0, |rules| rules.num_lookahead_tokens),
            whole_must_fit: rules.is_none_or(|rules| rules.reserves_full_input),
            has_running,
            ..Slots::of(num_new_tokens)
        }
    }

    pub(super) fn allocate(
        &mut self,
        place: usize,
        num_new: usize,
        step: &mut StepClock,
    ) -> Result<bool, Stopped> {
        let slots = self.slots(num_new, true);
        let run = &mut self.run;
        let request = &run.running[place];
        let index = request.index;
        let num_in_flight = self.positions.get(&index).map_or(0, |it| it.num_in_flight);
        let num_in_flight_tokens = num_in_flight as isize;
        let view = RequestView { num_in_flight_tokens, ..request.view() };
        let start = view.num_computed_tokens;
        let is_plain = num_new == 1 && start >= request.num_prompt_tokens;
        let skips = is_plain && start < request.next_call && slots.num_lookahead_tokens == 0;
        let fits = skips
            || step.time(&mut run.report.schedule, || run.cache.allocate(&view, slots, None))?;
        if fits {
            let most_decoded = Rules::most_decoded(run.settings.rules.as_ref());
            run.work.add_part(request.num_prompt_tokens, (start, num_new), most_decoded);
        }
        if !fits || skips {
            return Ok(fits);
        }
        run.cache.note_computed(&view, start, start + num_new);
        let num_prompt_tokens = request.num_prompt_tokens;
        if is_plain && start + 1 == request.num_tokens {
            run.running[place].next_call = run.cache.next_call(start + 1);
        }
        let known = &run.trace.requests()[index];
        let num_known = known.num_known_tokens(run.hash_sizes.tokens_per_id);
        run.record(|schedule| {
            schedule.extend(index, num_prompt_tokens, num_known, start..start + num_new);
        });
        Ok(true)
    }

    /// Returns the request that is preempted to make room: the server's victim, or else the newest
    /// request.
    pub(super) fn next_victim(&mut self) -> Option<usize> {
        while let Some(victim) = self.victims.pop_front() {
            if self.run.running.iter().any(|it| it.index == victim) {
                return Some(victim);
            }
        }
        (self.run.running.len() > 1).then(|| self.run.running.last().map(|it| it.index))?
    }

    /// Rejects a request that outgrows the pool while it runs alone.
    pub(super) fn reject_only(&mut self, place: usize) {
        let request = self.run.running.remove(place);
        self.run.cache.free(request.index as u64);
        self.run.record(|schedule| schedule.end(request.index));
        self.forget(request.index);
    }

    pub(super) fn forget(&mut self, index: usize) {
        self.positions.remove(&index);
        self.running.retain(|&it| it != index);
        self.run.reject(index);
    }

    /// Admits requests that the server had admitted, in the server's order.
    pub(super) fn admit_due(
        &mut self,
        budget: &mut usize,
        step: &mut StepClock,
    ) -> Result<(), Stopped> {
        self.sort_due();
        while *budget > 0 && self.run.running.len() < self.run.settings.concurrency {
            let Some(mut request) = self.due.pop_front() else { break };
            let none = Position::default();
            let position = match request.only_loads {
                true => &none,
                false => match self.positions.get(&request.index) {
                    Some(position) => position,
                    None => continue,
                },
            };
            let slots = self.slots(0, !self.run.running.is_empty());
            let run = &mut self.run;
            let known = &run.trace.requests()[request.index];
            let most_tokens = known.prompt.len() + known.output_length;
            // A new request is looked up by its prompt, even if its first step has drafts.
            let was_admitted = run.report.requests[request.index].hit_tokens.is_some();
            while was_admitted && request.num_tokens < position.end.min(most_tokens) {
                request.generate(known, run.hash_sizes, &mut run.next_unique_token);
            }
            if request.num_computed_tokens > 0 {
                if !self.admit_loaded(request, slots, budget, step)? {
                    break;
                }
                continue;
            }
            let num_in_flight_tokens = position.num_in_flight as isize;
            let view = RequestView { num_in_flight_tokens, ..request.view() };
            let num_replayed = run.settings.rules.as_ref().map_or(0, |it| it.prefix_replay_tokens);
            let (hit, num_new, fits) = step.time(&mut run.report.schedule, || {
                let mut hit = match request.skips_reading {
                    true => run.cache.without_look_up(&view),
                    false => run.cache.look_up_at_once(&view)?,
                };
                if hit.length <= num_replayed {
                    hit = hit.dropped();
                }
                if hit.num_loaded > 0 || request.only_loads {
                    return Ok((hit, 0, false));
                }
                let num_replayed = num_replayed.min(hit.length);
                let start = hit.length - num_replayed;
                let boundary = hit.shared_prefix_boundary;
                let first = (&request, boundary, start);
                let num_new = first_tokens(&run.chunks, first, position, *budget);
                let num_new_tokens = num_new.saturating_sub(num_replayed);
                let slots = Slots { num_new_tokens, ..slots };
                let view =
                    RequestView { shared_prefix_boundary: hit.shared_prefix_boundary, ..view };
                let fits = num_new > 0 && run.cache.allocate(&view, slots, Some(&hit))?;
                Ok((hit, num_new, fits))
            })?;
            if hit.num_loaded > 0 {
                if !self.load(request, &hit, slots, budget, step)? {
                    break;
                }
                continue;
            }
            if request.only_loads {
                // The server loads what this run has in its pool, or nowhere.
                self.parked.insert(request.index, ActiveRequest { only_loads: false, ..request });
                continue;
            }
            match fits {
                true => {
                    *budget = budget.saturating_sub(num_new);
                    run.admit(request, &hit, num_new);
                    if let Some(request) = run.running.last_mut() {
                        request.num_computed_tokens -= num_replayed.min(hit.length);
                    }
                }
                false if run.running.is_empty() && !run.has_ended_blocks() => {
                    self.forget(request.index);
                }
                false => {
                    request.shared_prefix_boundary = hit.shared_prefix_boundary;
                    self.due.push_front(request);
                    break;
                }
            }
        }
        Ok(())
    }

    /// Puts the requests that only load between the requests to admit, where they waited on the
    /// server: after requests whose loads have ended, and then in the order of its queue. The order
    /// of all others is the recorded one.
    fn sort_due(&mut self) {
        if !self.due.iter().any(|request| request.only_loads) {
            return;
        }
        let (loading, others): (VecDeque<_>, VecDeque<_>) =
            self.due.drain(..).partition(|request| request.only_loads);
        self.due = others;
        let mut place = self.due.iter().take_while(|it| it.num_computed_tokens > 0).count();
        for request in loading {
            let at = self.place_in_queue(&request);
            let waits_before = |it: &ActiveRequest| self.place_in_queue(it) < at;
            place += self.due.range(place..).take_while(|it| waits_before(it)).count();
            self.due.insert(place, request);
            place += 1;
        }
    }

    /// Returns what orders the requests that wait on the server: first preempted ones, the latest
    /// first, then all others by arrival.
    fn place_in_queue(&self, request: &ActiveRequest) -> (Reverse<Option<usize>>, Option<u64>) {
        let preempted = self.preempted.get(&request.index).copied();
        (Reverse(preempted), self.run.trace.requests()[request.index].arrival)
    }

    /// Loads the hit of a request, which takes no time, and admits the request. Returns whether
    /// there were blocks.
    fn load(
        &mut self,
        request: ActiveRequest,
        hit: &Hit,
        slots: Slots,
        budget: &mut usize,
        step: &mut StepClock,
    ) -> Result<bool, Stopped> {
        let index = request.index;
        if let Some(request) = self.run.start_load(request, hit, slots, step)? {
            self.due.push_front(request);
            return Ok(false);
        }
        let run = &mut self.run;
        let Some(request) = run.loaded.pop_front().or_else(|| run.loading.pop()) else {
            self.positions.remove(&index);
            self.running.retain(|&it| it != index);
            return Ok(true);
        };
        if request.only_loads {
            self.loading.push(request);
            return Ok(true);
        }
        self.admit_loaded(request, slots, budget, step)
    }

    /// Admits a request whose hit was loaded. Returns whether there were blocks.
    fn admit_loaded(
        &mut self,
        mut request: ActiveRequest,
        slots: Slots,
        budget: &mut usize,
        step: &mut StepClock,
    ) -> Result<bool, Stopped> {
        self.run.settle_load(&mut request)?;
        let Some(position) = self.positions.get(&request.index) else { return Ok(true) };
        let run = &mut self.run;
        let num_in_flight_tokens = position.num_in_flight as isize;
        let view = RequestView { num_in_flight_tokens, ..request.view() };
        let start = request.num_computed_tokens;
        let first = (&request, request.shared_prefix_boundary, start);
        let num_new = first_tokens(&run.chunks, first, position, *budget);
        let slots = Slots { num_new_tokens: num_new, ..slots };
        let fits = num_new > 0
            && step.time(&mut run.report.schedule, || run.cache.allocate(&view, slots, None))?;
        if !fits {
            if run.running.is_empty() && !run.has_ended_blocks() {
                run.cache.free(request.index as u64);
                self.forget(request.index);
                return Ok(true);
            }
            self.due.push_front(request);
            return Ok(false);
        }
        *budget = budget.saturating_sub(num_new);
        request.is_waiting = false;
        run.work.add(&request.view(), start, num_new);
        run.cache.note_computed(&request.view(), start, start + num_new);
        run.running.push(request);
        run.scheduled.push(num_new);
        Ok(true)
    }
}

/// Returns the number of tokens that a request computes in its first step, from `start` on. It is
/// the server's number if the hit is the server's. Otherwise the step computes up to the server's
/// position.
fn first_tokens(
    chunks: &Option<Chunks>,
    (request, shared_prefix_boundary, start): (&ActiveRequest, usize, usize),
    position: &Position,
    budget: usize,
) -> usize {
    let wanted = position.end.saturating_sub(start);
    if start == position.start && wanted > 0 {
        return wanted;
    }
    let most = (request.num_tokens - start).min(budget);
    let view = RequestView { shared_prefix_boundary, ..request.view() };
    chunk(chunks, &view, start, wanted.clamp(1, most))
}

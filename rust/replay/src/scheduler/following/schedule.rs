//! Notes the server's actions from the schedule.

use super::Follower;
use super::position::Position;
use crate::active_request::ActiveRequest;
use crate::cache::Cache;
use crate::clock::StepWork;
use crate::scheduler::run::Release;
use crate::scheduler::settings::Rules;
use crate::trace::{Preempted, ScheduleEvent, Scheduled, Transferred};

impl<C: Cache> Follower<'_, C> {
    /// Notes the server's actions in a step. Returns the requests that the server admitted.
    pub(super) fn note_step(&mut self, scheduled: &[Scheduled]) -> Vec<usize> {
        let first_in_flight = self.first_in_flight();
        for &index in &self.running {
            let position = self.positions.entry(index).or_default();
            position.note_in_flight(first_in_flight);
            (position.start, position.end) = (position.end, position.end + 1);
        }
        for index in &self.victims {
            if let Some(position) = self.positions.get_mut(index) {
                position.note_in_flight(first_in_flight);
            }
        }
        let mut admitted = Vec::new();
        for &Scheduled { request, num_tokens, start } in scheduled {
            let Some(&index) = self.requests.get(&(self.schedule, request)) else { continue };
            let is_new = !self.running.contains(&index);
            let position = self.positions.entry(index).or_default();
            position.start = start.map_or(position.start, |start| start as usize);
            position.end = position.start + num_tokens as usize;
            if is_new {
                position.note_in_flight(first_in_flight);
                self.running.push(index);
                admitted.push(index);
                self.make_due(index);
            }
        }
        self.count_step();
        admitted
    }

    /// Notes the outputs that the server learns before its next step. `later` are the events after
    /// the latest step.
    pub(super) fn note_outputs(&mut self, later: &[ScheduleEvent]) {
        let is_step = |event: &&ScheduleEvent| {
            matches!(event, ScheduleEvent::PlainSteps(_) | ScheduleEvent::Step(_))
        };
        let num_in_flight = later.iter().take_while(|event| !is_step(event)).find_map(|event| {
            let &ScheduleEvent::InFlight(num_steps) = event else { return None };
            Some(num_steps as usize)
        });
        self.num_in_flight = num_in_flight.unwrap_or(self.num_in_flight);
        let num_ended = self.first_in_flight();
        self.run.cache.steps_ended(num_ended);
    }

    /// Returns the number of the first step whose output the server does not know.
    fn first_in_flight(&self) -> usize {
        self.num_steps.saturating_sub(self.num_in_flight)
    }

    /// Counts the tokens of a step if it has any. They are needed while the step is in flight.
    pub(super) fn count_step(&mut self) {
        let most_decoded = Rules::most_decoded(self.run.settings.rules.as_ref());
        let mut work = StepWork::default();
        for index in &self.running {
            let Some(position) = self.positions.get_mut(index) else { continue };
            if position.end > position.start {
                let num_new = position.end - position.start;
                position.latest.push_back((self.num_steps, num_new));
                let num_prompt_tokens = self.run.trace.requests()[*index].prompt.len();
                work.add_part(num_prompt_tokens, (position.start, num_new), most_decoded);
            }
        }
        self.num_steps += usize::from(work.running > 0);
        self.server_work = work;
    }

    /// Notes the requests whose loads the server begins in the next step.
    pub(super) fn note_loading(&mut self, numbers: &[u32]) {
        for &number in numbers {
            let Some(&index) = self.requests.get(&(self.schedule, number)) else { continue };
            let parked = self.parked.remove(&index);
            let is_known = self.run.running.iter().chain(&self.due).any(|it| it.index == index);
            if parked.is_some() || !is_known {
                let request = parked.unwrap_or_else(|| self.arriving(index));
                self.due.push_back(ActiveRequest { only_loads: true, ..request });
            }
        }
    }

    /// Notes in which order requests that have ended offer their last blocks.
    pub(super) fn note_finished(&mut self, numbers: &[u32]) {
        let of = |&number: &u32| self.requests.get(&(self.schedule, number)).copied();
        let order: Vec<_> = numbers.iter().filter_map(of).collect();
        self.run.note_last_offers(&order);
    }

    /// Ends the transfers that have ended on the server.
    pub(super) fn note_transferred(&mut self, ended: &[Transferred]) {
        self.take_in_first(self.run.running.len());
        for &Transferred { request, is_store } in ended {
            if let Some(&index) = self.requests.get(&(self.schedule, request)) {
                self.run.end_transfer(index, is_store);
            }
        }
    }

    fn arriving(&mut self, index: usize) -> ActiveRequest {
        let request = &self.run.trace.requests()[index];
        self.run.cache.arrives(index as u64, request.arrival, request.retention());
        let chain = self.run.hashes(index);
        ActiveRequest::new(index, request, chain).with_caching(self.run.settings.enable_caching)
    }

    /// Lets a request wait for its blocks, unless it runs.
    pub(super) fn make_due(&mut self, index: usize) {
        if let Some(loaded) = self.take_loading(index) {
            let at = self.due.iter().take_while(|request| request.num_computed_tokens > 0).count();
            self.due.insert(at, ActiveRequest { only_loads: false, ..loaded });
            return;
        }
        if let Some(waiting) = self.due.iter_mut().find(|request| request.index == index) {
            waiting.only_loads = false;
            return;
        }
        if let Some(parked) = self.parked.remove(&index) {
            self.due.push_back(parked);
            return;
        }
        if !self.run.running.iter().any(|it| it.index == index) {
            let request = self.arriving(index);
            self.due.push_back(request);
        }
    }

    fn take_loading(&mut self, index: usize) -> Option<ActiveRequest> {
        let place = self.loading.iter().position(|request| request.index == index)?;
        Some(self.loading.remove(place))
    }

    pub(super) fn note_preempted(&mut self, preempted: &Preempted) {
        let Some(&index) = self.requests.get(&(self.schedule, preempted.request)) else { return };
        self.running.retain(|&it| it != index);
        self.victims.push_back(index);
        self.preempted.insert(index, self.num_preempted);
        self.num_preempted += 1;
        let end = self.positions.get(&index).map(|position| position.end);
        let is_here = |it: &ActiveRequest| it.index == index && Some(it.num_computed_tokens) == end;
        if let Some(place) = self.run.running.iter().position(is_here) {
            let num_settled = preempted.num_computed_tokens as usize;
            self.take_in(place, preempted.num_tokens as usize, num_settled);
        }
    }

    /// Adds the tokens that the server sampled for running requests since the previous step.
    pub(super) fn take_in_outputs(&mut self) {
        for place in 0..self.run.running.len() {
            let request = &mut self.run.running[place];
            let Some(position) = self.positions.get(&request.index) else { continue };
            if position.start < request.num_computed_tokens
                && position.start >= request.num_prompt_tokens
                && (position.end > position.start)
            {
                // The server computes rejected drafts again.
                request.num_computed_tokens = position.start;
            }
            if request.num_computed_tokens == position.start {
                let num_settled = position.start.saturating_sub(position.num_in_flight);
                self.take_in(place, position.num_known(), num_settled);
            }
        }
    }

    /// Adds the tokens that the server has sampled since the previous step for the first `num`
    /// running requests. It then ends another request, or transfers. With drafts, the next step says
    /// which tokens these are.
    pub(super) fn take_in_first(&mut self, num: usize) {
        let rules = self.run.settings.rules.as_ref();
        if rules.is_none_or(|rules| !rules.caches_late() || rules.num_spec_tokens > 0) {
            return;
        }
        let first_in_flight = self.first_in_flight();
        for place in 0..num {
            let request = &self.run.running[place];
            let Some(position) = self.positions.get(&request.index) else { continue };
            if request.num_computed_tokens == position.end {
                let num_in_flight = position.in_flight_from(first_in_flight);
                let num_settled = position.end.saturating_sub(num_in_flight);
                let num_known = (position.end + 1).saturating_sub(num_in_flight);
                self.take_in(place, num_known, num_settled);
            }
        }
    }

    /// Adds tokens to a running request until it has `num_known`. A scheduler that runs ahead or
    /// has drafts caches the settled tokens then, instead of with the next step.
    pub(super) fn take_in(&mut self, place: usize, num_known: usize, num_settled: usize) {
        let run = &mut self.run;
        let request = &mut run.running[place];
        let known = &run.trace.requests()[request.index];
        let num_known = num_known.min(known.prompt.len() + known.output_length);
        if request.num_tokens >= num_known {
            return;
        }
        while request.num_tokens < num_known {
            request.generate(known, run.hash_sizes, &mut run.next_unique_token);
        }
        if run.settings.rules.as_ref().is_some_and(Rules::caches_late) {
            let num_settled = num_settled.min(request.num_tokens - 1);
            run.cache.cache(&request.view(), num_settled);
        }
    }

    pub(super) fn note_ended(&mut self, number: u32) {
        let Some(&index) = self.requests.get(&(self.schedule, number)) else { return };
        self.running.retain(|&it| it != index);
        self.victims.retain(|&it| it != index);
        self.preempted.remove(&index);
        // A request ends with its output, or is aborted after all outputs.
        let recorded = self.run.trace.requests()[index].recorded;
        let is_aborted = recorded.is_some_and(|recorded| recorded.is_aborted);
        let running = &self.run.running;
        let place = running.iter().position(|it| it.index == index).filter(|_| !is_aborted);
        self.take_in_first(place.unwrap_or(running.len()));
        if let Some(request) = self.take_loading(index) {
            return self.run.end_loading(&request);
        }
        if !self.positions.contains_key(&index) {
            return self.note_unseen(index);
        }
        let Some(position) = self.positions.get_mut(&index) else { return };
        position.has_ended = true;
        let end = position.end;
        let here = self.run.running.iter().find(|it| it.index == index);
        let is_done = here.is_some_and(|it| end <= it.num_computed_tokens);
        if is_done || self.parked.contains_key(&index) {
            self.end(index);
        }
    }

    /// Serves a request whose steps are missing, because the recording began later, as one step.
    pub(super) fn note_unseen(&mut self, index: usize) {
        let request = &self.run.trace.requests()[index];
        let end = (request.prompt.len() + request.output_length).saturating_sub(1).max(1);
        self.positions.insert(index, Position { end, has_ended: true, ..Position::default() });
        self.make_due(index);
    }

    pub(super) fn end(&mut self, index: usize) {
        self.cache_last_blocks(index);
        let release = self.release_of(index);
        let position = self.positions.remove(&index);
        let running = self.run.running.iter().position(|it| it.index == index);
        let request = match running {
            Some(place) => Some(self.run.running.remove(place)),
            None => self.parked.remove(&index),
        };
        if let Some(mut request) = request {
            self.take_in_answer(&mut request);
            let num_in_flight = position.map_or(0, |it| it.in_flight_from(self.first_in_flight()));
            let num_settled = request.num_computed_tokens.saturating_sub(num_in_flight);
            self.run.end_with(&request, num_settled, release);
            let wanted = self.run.trace.requests()[index].output_length;
            self.run.report.requests[index].output_tokens = wanted;
        }
    }

    /// Returns when the blocks of a request return to the pool. The server keeps them while a step in
    /// flight can write to them.
    fn release_of(&self, index: usize) -> Release {
        let frees_late = self.run.settings.rules.as_ref().is_some_and(|it| it.frees_late);
        let first = self.first_in_flight();
        let is_in_flight =
            self.positions.get(&index).is_some_and(|it| it.in_flight_from(first) > 0);
        match frees_late && is_in_flight {
            true => Release::AfterSteps(self.num_steps),
            false => Release::Now,
        }
    }

    /// Adds the last tokens of a request that ends, because CPU memory can store their blocks.
    fn take_in_answer(&mut self, request: &mut ActiveRequest) {
        let run = &mut self.run;
        if run.cache.host().is_none() || request.num_computed_tokens < request.num_prompt_tokens {
            return;
        }
        let known = &run.trace.requests()[request.index];
        while request.num_generated() < known.output_length {
            request.generate(known, run.hash_sizes, &mut run.next_unique_token);
        }
    }

    /// Caches the blocks that a request's last output completed. A scheduler that runs ahead or has
    /// drafts does this before it ends the request.
    pub(super) fn cache_last_blocks(&mut self, index: usize) {
        let run = &mut self.run;
        let is_late = run.settings.rules.as_ref().is_some_and(Rules::caches_late);
        let known = &run.trace.requests()[index];
        let Some(request) = run.running.iter_mut().find(|it| it.index == index) else { return };
        if !is_late || known.output_length == 0 {
            return;
        }
        while request.num_generated() < known.output_length {
            request.generate(known, run.hash_sizes, &mut run.next_unique_token);
        }
        let computed = request.num_computed_tokens.min(request.num_tokens - 1);
        run.cache.cache(&request.view(), computed);
    }

    /// Empties the cache. Requests that run in this run but did not run on the server start again.
    pub(super) fn reset(&mut self) {
        self.run.release_ended_blocks();
        self.preempt_victims();
        self.run.release_ended_blocks();
        while !self.run.cache.reset() {
            let Some(newest) = self.run.running.last().map(|it| it.index) else { break };
            self.preempt(newest);
            self.run.release_ended_blocks();
        }
    }

    /// Preempts the requests that the server preempted for a reset.
    pub(super) fn preempt_victims(&mut self) {
        while let Some(victim) = self.victims.pop_front() {
            self.preempt(victim);
        }
    }

    /// Preempts a request if it is running. Returns its position among the running requests.
    pub(super) fn preempt(&mut self, index: usize) -> Option<usize> {
        let place = self.run.running.iter().position(|it| it.index == index)?;
        let mut request = self.run.running.remove(place);
        match self.release_of(index) {
            Release::AfterSteps(num_steps) => {
                self.run.cache.preempt_after(index as u64, num_steps);
            }
            Release::Now | Release::AfterLoad => self.run.cache.preempt(index as u64),
        }
        self.run.note_preempted(index);
        self.run.record(|schedule| schedule.preempt(index));
        self.run.report.requests[index].preemptions += 1;
        request.num_computed_tokens = 0;
        request.next_call = 0;
        request.is_settled = false;
        request.is_waiting = true;
        let waits_there = !self.running.contains(&index);
        let has_ended = self.positions.get(&index).is_some_and(|position| position.has_ended);
        match waits_there && !has_ended {
            true => drop(self.parked.insert(index, request)),
            false => self.due.push_front(request),
        }
        Some(place)
    }
}

//! Runs that follow a recorded schedule: each request gets its tokens in the step in which the
//! server computed them.
//!
//! The schedule says up to which token a request is computed after each step. With the server's own
//! settings, every call of the manager is the server's. With other ones, hits and free blocks
//! differ: a request that hits more waits for its schedule; one that finds no blocks, or hits less,
//! catches up as soon as blocks and the step's budget allow it.

use std::collections::{HashMap, VecDeque};

use kvoxide_core::RequestView;

use super::run::{Run, chunk};
use super::settings::{Rules, Stopped};
use super::step_clock::StepClock;
use crate::active_request::ActiveRequest;
use crate::cache::{Cache, Hit, Slots};
use crate::chunks::Chunks;
use crate::clock::StepWork;
use crate::trace::{Preempted, Schedule, ScheduleEvent, Scheduled, Trace};

/// A run and the schedule that it follows.
pub struct Follower<'a, C> {
    pub run: Run<'a, C>,
    /// Requests of the schedules by their schedule and number.
    requests: HashMap<(u32, u32), usize>,
    /// The schedule that is followed.
    schedule: u32,
    /// The server's running requests, in its order.
    running: Vec<usize>,
    /// What the schedule says so far of requests that have not ended here.
    positions: HashMap<usize, Position>,
    /// Requests that the server had admitted and that wait here.
    due: VecDeque<ActiveRequest>,
    /// Requests that the server preempted and has not admitted again.
    parked: HashMap<usize, ActiveRequest>,
    /// Requests that the next step preempts, in the server's order.
    victims: VecDeque<usize>,
    /// Steps with tokens so far.
    num_steps: usize,
    /// Steps whose output the server does not know when it schedules the next one.
    num_in_flight: usize,
}

/// A place in a request's schedule, in tokens.
#[derive(Clone, Debug, Default)]
struct Position {
    /// Tokens that were computed before the server's latest step.
    start: usize,
    /// Tokens that were computed after it.
    end: usize,
    /// Tokens that were in flight when the latest step was scheduled.
    num_in_flight: usize,
    /// Steps with tokens that may be in flight, by their numbers.
    latest: VecDeque<(usize, usize)>,
    /// Whether the server had ended the request.
    has_ended: bool,
}

impl Position {
    /// Returns the tokens that the server knew when it scheduled the latest step: one that is not
    /// computed, unless a step that yields it was in flight.
    fn num_known(&self) -> usize {
        (self.start + 1).saturating_sub(self.num_in_flight)
    }

    /// Counts the tokens of the steps from `first` on as in flight, and forgets earlier steps.
    fn note_in_flight(&mut self, first: usize) {
        self.latest.retain(|&(step, _)| step >= first);
        self.num_in_flight = self.latest.iter().map(|&(_, num_tokens)| num_tokens).sum();
    }
}

impl<'a, C: Cache> Follower<'a, C> {
    /// Returns a follower that has not begun.
    pub fn new(run: Run<'a, C>) -> Self {
        let recorded = run.trace.requests().iter().enumerate().filter_map(|(index, request)| {
            let recorded = request.recorded?;
            Some(((recorded.schedule, recorded.number), index))
        });
        Self {
            requests: recorded.collect(),
            run,
            schedule: 0,
            running: Vec::new(),
            positions: HashMap::new(),
            due: VecDeque::new(),
            parked: HashMap::new(),
            victims: VecDeque::new(),
            num_steps: 0,
            num_in_flight: 0,
        }
    }

    /// Follows a schedule of the trace to its end; `step` is called around each step. The cache is
    /// empty at the start.
    pub fn follow(
        &mut self,
        index: usize,
        step: &mut impl FnMut(&mut Self, &[usize]) -> Result<(), Stopped>,
    ) -> Result<(), Stopped> {
        let trace: &'a Trace = self.run.trace;
        let schedule: &'a Schedule = &trace.schedules()[index];
        self.schedule = index as u32;
        self.num_in_flight = 0;
        self.reset();
        for event in &schedule.events {
            self.run.check_cancelled()?;
            match event {
                &ScheduleEvent::PlainSteps(count) => {
                    for _ in 0..count {
                        let _ = self.note_step(&[]);
                        step(self, &[])?;
                    }
                }
                ScheduleEvent::Step(scheduled) => {
                    let admitted = self.note_step(scheduled);
                    step(self, &admitted)?;
                }
                ScheduleEvent::Preempted(preempted) => self.note_preempted(preempted),
                &ScheduleEvent::InFlight(num_steps) => self.num_in_flight = num_steps as usize,
                ScheduleEvent::Reset(_) => self.reset(),
                &ScheduleEvent::Ended(number) => self.note_ended(number),
            }
        }
        self.running.clear();
        self.positions.values_mut().for_each(|position| position.has_ended = true);
        while !(self.run.running.is_empty() && self.due.is_empty()) {
            self.run.check_cancelled()?;
            step(self, &[])?;
        }
        self.parked.clear();
        self.positions.clear();
        Ok(())
    }

    /// Allocates the blocks of a step and computes it.
    pub fn start_step(&mut self) -> Result<(), Stopped> {
        let run = &mut self.run;
        run.scheduled.clear();
        run.work = StepWork::default();
        run.cache.step_starts();
        let mut step = StepClock::default();
        let mut budget = run.settings.max_batched_tokens;
        self.take_in_outputs();
        let preempts = self.serve_running(&mut budget, &mut step)?;
        if !preempts {
            self.admit_due(&mut budget, &mut step)?;
        }
        let report = &mut self.run.report;
        report.step.record(step.total);
        report.steps += 1;
        report.peak_used_blocks = report.peak_used_blocks.max(self.run.cache.occupancy().used);
        self.run.record(crate::clairvoyant::schedule::Schedule::step_allocated);
        Ok(())
    }

    /// Ends a step, and the requests that the server had ended and that are done here too.
    pub fn end_step(&mut self) -> Result<(), Stopped> {
        let run = &mut self.run;
        run.cache.step_has_run()?;
        for (request, &num_new) in run.running.iter_mut().zip(&run.scheduled) {
            request.num_computed_tokens += num_new;
            if num_new > 0
                && request.num_computed_tokens >= request.num_prompt_tokens
                && let Some(times) = &mut run.times
            {
                times.token(request.index);
            }
        }
        let is_done = |request: &ActiveRequest| {
            let position = self.positions.get(&request.index);
            position.is_none_or(|it| it.has_ended && it.end <= request.num_computed_tokens)
        };
        let done: Vec<_> =
            self.run.running.iter().filter(|it| is_done(it)).map(|it| it.index).collect();
        done.into_iter().for_each(|index| self.end(index));
        Ok(())
    }

    /// Notes what the server did in a step. Returns the requests that it admitted.
    fn note_step(&mut self, scheduled: &[Scheduled]) -> Vec<usize> {
        let first_in_flight = self.num_steps.saturating_sub(self.num_in_flight);
        for &index in &self.running {
            let position = self.positions.entry(index).or_default();
            position.note_in_flight(first_in_flight);
            (position.start, position.end) = (position.end, position.end + 1);
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

    /// Notes the tokens of a step that has any, for the time in which it is in flight.
    fn count_step(&mut self) {
        let mut has_tokens = false;
        for index in &self.running {
            let Some(position) = self.positions.get_mut(index) else { continue };
            if position.end > position.start {
                has_tokens = true;
                position.latest.push_back((self.num_steps, position.end - position.start));
            }
        }
        self.num_steps += usize::from(has_tokens);
    }

    /// Lets a request wait for its blocks, unless it runs.
    fn make_due(&mut self, index: usize) {
        if let Some(parked) = self.parked.remove(&index) {
            self.due.push_back(parked);
            return;
        }
        let is_known = self.run.running.iter().chain(&self.due).any(|it| it.index == index);
        if !is_known {
            let request = &self.run.trace.requests()[index];
            self.run.cache.arrives(index as u64, request.arrival, request.priority);
            let chain = self.run.hashes(index);
            self.due.push_back(ActiveRequest::new(index, request, chain));
        }
    }

    fn note_preempted(&mut self, preempted: &Preempted) {
        let Some(&index) = self.requests.get(&(self.schedule, preempted.request)) else { return };
        self.running.retain(|&it| it != index);
        self.victims.push_back(index);
        let end = self.positions.get(&index).map(|position| position.end);
        let is_here = |it: &ActiveRequest| it.index == index && Some(it.num_computed_tokens) == end;
        if let Some(place) = self.run.running.iter().position(is_here) {
            let num_settled = preempted.num_computed_tokens as usize;
            self.take_in(place, preempted.num_tokens as usize, num_settled);
        }
    }

    /// Takes in what the server sampled for running requests since the step before.
    fn take_in_outputs(&mut self) {
        for place in 0..self.run.running.len() {
            let request = &mut self.run.running[place];
            let Some(position) = self.positions.get(&request.index) else { continue };
            if position.start < request.num_computed_tokens
                && position.start >= request.num_prompt_tokens
                && (position.end > position.start)
            {
                // Drafts that were rejected are computed again.
                request.num_computed_tokens = position.start;
            }
            if request.num_computed_tokens == position.start {
                let num_settled = position.start.saturating_sub(position.num_in_flight);
                self.take_in(place, position.num_known(), num_settled);
            }
        }
    }

    /// Adds tokens to a running request until it has `num_known`. A scheduler that runs ahead or has
    /// drafts caches the settled ones then, not with the next step.
    fn take_in(&mut self, place: usize, num_known: usize, num_settled: usize) {
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

    fn note_ended(&mut self, number: u32) {
        let Some(&index) = self.requests.get(&(self.schedule, number)) else { return };
        self.running.retain(|&it| it != index);
        self.victims.retain(|&it| it != index);
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

    /// Serves a request whose steps are missing, because the recording began later, in one go.
    fn note_unseen(&mut self, index: usize) {
        let request = &self.run.trace.requests()[index];
        let end = (request.prompt.len() + request.output_length).saturating_sub(1).max(1);
        self.positions.insert(index, Position { end, has_ended: true, ..Position::default() });
        self.make_due(index);
    }

    fn end(&mut self, index: usize) {
        self.cache_last_blocks(index);
        self.positions.remove(&index);
        let running = self.run.running.iter().position(|it| it.index == index);
        let request = match running {
            Some(place) => Some(self.run.running.remove(place)),
            None => self.parked.remove(&index),
        };
        if let Some(request) = request {
            self.run.end(&request);
            let wanted = self.run.trace.requests()[index].output_length;
            self.run.report.requests[index].output_tokens = wanted;
        }
    }

    /// Caches what a request's last output completed, which a scheduler that runs ahead or has
    /// drafts does before it ends the request.
    fn cache_last_blocks(&mut self, index: usize) {
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

    /// Empties the cache. Requests that run here though they did not on the server start again.
    fn reset(&mut self) {
        while let Some(victim) = self.victims.pop_front() {
            self.preempt(victim);
        }
        while !self.run.cache.reset() {
            let Some(newest) = self.run.running.last().map(|it| it.index) else { break };
            self.preempt(newest);
        }
    }

    /// Preempts a request if it runs. Returns its place among the running ones.
    fn preempt(&mut self, index: usize) -> Option<usize> {
        let place = self.run.running.iter().position(|it| it.index == index)?;
        let mut request = self.run.running.remove(place);
        self.run.cache.free(index as u64);
        self.run.record(|schedule| schedule.preempt(index));
        self.run.report.requests[index].preemptions += 1;
        request.num_computed_tokens = 0;
        request.next_call = 0;
        request.is_waiting = true;
        let waits_there = !self.running.contains(&index);
        let has_ended = self.positions.get(&index).is_some_and(|position| position.has_ended);
        match waits_there && !has_ended {
            true => drop(self.parked.insert(index, request)),
            false => self.due.push_front(request),
        }
        Some(place)
    }

    /// Serves running requests. Returns whether one was preempted.
    fn serve_running(&mut self, budget: &mut usize, step: &mut StepClock) -> Result<bool, Stopped> {
        let mut preempts = false;
        while self.run.scheduled.len() < self.run.running.len() {
            let place = self.run.scheduled.len();
            if self.preempts_itself(place) {
                preempts = true;
                continue;
            }
            let num_new = self.tokens_of(place, *budget);
            if num_new == 0 {
                self.run.scheduled.push(0);
                continue;
            }
            if self.allocate(place, num_new, step)? {
                self.run.scheduled.push(num_new);
                *budget -= num_new;
                continue;
            }
            let Some(victim) = self.next_victim() else {
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
        // A larger pool has room for what the server had to preempt.
        self.victims.clear();
        Ok(preempts)
    }

    /// Preempts a request that did not fit itself, after the server's earlier victims. A larger pool
    /// than the server's has room for it.
    fn preempts_itself(&mut self, place: usize) -> bool {
        let settings = self.run.settings;
        let recorded = settings.rules.as_ref().map(|rules| rules.num_blocks);
        let is_larger = settings.num_blocks.is_none_or(|num| Some(num) > recorded);
        let index = self.run.running[place].index;
        let is_victim = !is_larger && self.victims.contains(&index);
        while is_victim && let Some(victim) = self.victims.pop_front() {
            self.preempt(victim);
            if victim == index {
                break;
            }
        }
        is_victim
    }

    /// Returns the tokens of a running request in this step.
    fn tokens_of(&mut self, place: usize, budget: usize) -> usize {
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
        match start == position.start && start + wanted == position.end {
            true => wanted,
            false => chunk(&self.run.chunks, &request.view(), start, wanted),
        }
    }

    fn slots(&self, num_new_tokens: usize, has_running: bool) -> Slots {
        let rules = self.run.settings.rules.as_ref();
        Slots {
            num_lookahead_tokens: rules.map_or(0, |rules| rules.num_lookahead_tokens),
            whole_must_fit: rules.is_none_or(|rules| rules.reserves_full_input),
            has_running,
            ..Slots::of(num_new_tokens)
        }
    }

    fn allocate(
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
            run.work.add(&view, start, num_new);
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

    /// Returns the request that makes room: the server's victim, else the newest one.
    fn next_victim(&mut self) -> Option<usize> {
        while let Some(victim) = self.victims.pop_front() {
            if self.run.running.iter().any(|it| it.index == victim) {
                return Some(victim);
            }
        }
        (self.run.running.len() > 1).then(|| self.run.running.last().map(|it| it.index))?
    }

    /// Rejects a request that outgrows the pool while it runs alone.
    fn reject_only(&mut self, place: usize) {
        let request = self.run.running.remove(place);
        self.run.cache.free(request.index as u64);
        self.run.record(|schedule| schedule.end(request.index));
        self.forget(request.index);
    }

    fn forget(&mut self, index: usize) {
        self.positions.remove(&index);
        self.running.retain(|&it| it != index);
        self.run.reject(index);
    }

    /// Admits requests that the server had admitted, in its order.
    fn admit_due(&mut self, budget: &mut usize, step: &mut StepClock) -> Result<(), Stopped> {
        while *budget > 0 && self.run.running.len() < self.run.settings.concurrency {
            let Some(mut request) = self.due.pop_front() else { break };
            let Some(position) = self.positions.get(&request.index) else { continue };
            let slots = self.slots(0, !self.run.running.is_empty());
            let run = &mut self.run;
            let known = &run.trace.requests()[request.index];
            let most_tokens = known.prompt.len() + known.output_length;
            // A new request is looked up by its prompt, whatever drafts its first step has.
            let was_admitted = run.report.requests[request.index].hit_tokens.is_some();
            while was_admitted && request.num_tokens < position.end.min(most_tokens) {
                request.generate(known, run.hash_sizes, &mut run.next_unique_token);
            }
            let num_in_flight_tokens = position.num_in_flight as isize;
            let view = RequestView { num_in_flight_tokens, ..request.view() };
            let num_replayed = run.settings.rules.as_ref().map_or(0, |it| it.prefix_replay_tokens);
            let (hit, num_new, fits) = step.time(&mut run.report.schedule, || {
                let mut hit = match request.skips_reading {
                    true => Hit::none(),
                    false => run.cache.look_up(&view)?,
                };
                if hit.length <= num_replayed {
                    hit = hit.dropped();
                }
                let num_replayed = num_replayed.min(hit.length);
                let start = hit.length - num_replayed;
                let num_new = first_tokens(&run.chunks, &request, &hit, start, position, *budget);
                let num_new_tokens = num_new.saturating_sub(num_replayed);
                let slots = Slots { num_new_tokens, ..slots };
                let view =
                    RequestView { shared_prefix_boundary: hit.shared_prefix_boundary, ..view };
                let fits = num_new > 0 && run.cache.allocate(&view, slots, Some(&hit))?;
                Ok((hit, num_new, fits))
            })?;
            match fits {
                true => {
                    *budget = budget.saturating_sub(num_new);
                    run.admit(request, &hit, num_new);
                    if let Some(request) = run.running.last_mut() {
                        request.num_computed_tokens -= num_replayed.min(hit.length);
                    }
                }
                false if run.running.is_empty() => self.forget(request.index),
                false => {
                    request.shared_prefix_boundary = hit.shared_prefix_boundary;
                    self.due.push_front(request);
                    break;
                }
            }
        }
        Ok(())
    }
}

/// Returns the tokens that a request computes in its first step, from `start` on: the server's where
/// the hit is the server's, else what brings it to where it was there.
fn first_tokens(
    chunks: &Option<Chunks>,
    request: &ActiveRequest,
    hit: &Hit,
    start: usize,
    position: &Position,
    budget: usize,
) -> usize {
    let wanted = position.end.saturating_sub(start);
    if start == position.start && wanted > 0 {
        return wanted;
    }
    let most = (request.num_tokens - start).min(budget);
    let view = RequestView { shared_prefix_boundary: hit.shared_prefix_boundary, ..request.view() };
    chunk(chunks, &view, start, wanted.clamp(1, most))
}

//! Runs a scheduler and its cache, step by step.

use std::collections::{HashMap, VecDeque};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use kvoxide_core::RequestView;

use super::settings::{Control, Settings, Stopped};
use super::step_clock::StepClock;
use crate::active_request::{ActiveRequest, Arrival};
use crate::cache::{Cache, Slots};
use crate::chunks::Chunks;
use crate::clairvoyant::schedule::Schedule;
use crate::clairvoyant::{Bound, BoundModel};
use crate::clock::{Nanoseconds, StepWork, Times};
use crate::report::{
    HOST_SAMPLES, RETENTION_POINTS, Report, RequestReport, RetentionPoint, TIMELINE_POINTS,
    TimelinePoint,
};
use crate::samples::Samples;
use crate::tokens::HashSizes;
use crate::trace::{Trace, TraceRequest};

/// The time at which the blocks of an ended request return to the pool.
#[derive(Clone, Copy, Debug)]
pub(super) enum Release {
    Now,
    /// After this many steps have ended.
    AfterSteps(usize),
    /// After the load of the request has ended.
    AfterLoad,
}

/// A run in progress: one scheduler and its cache.
pub struct Run<'a, C> {
    pub(super) trace: &'a Trace,
    pub(super) settings: &'a Settings,
    control: &'a Control,
    pub(super) cache: C,
    pub(super) hash_sizes: HashSizes,
    /// The blocks that a recorded server sampled.
    pub(super) samples: Option<Arc<Samples>>,
    /// The rules that split prefills in models with recurrent states.
    pub(super) chunks: Option<Chunks>,
    /// Resets of the cache, by the next request after each, and whether they preempt requests.
    pub(super) resets: HashMap<usize, bool>,
    /// The index of the next request of the trace.
    pub(super) next: usize,
    /// Arrived requests, if the run does not take them from the trace.
    pub(super) arrived: VecDeque<Arrival>,
    pub(super) waiting: VecDeque<ActiveRequest>,
    /// Requests whose blocks are being loaded from CPU memory.
    pub(super) loading: Vec<ActiveRequest>,
    /// Requests whose blocks were loaded, and that have not run since.
    pub(super) loaded: VecDeque<ActiveRequest>,
    /// Requests that have ended, and whose blocks are still being loaded.
    pub(super) ended_loading: Vec<u64>,
    pub(super) running: Vec<ActiveRequest>,
    /// For each running request, the number of tokens scheduled in this step.
    pub(super) scheduled: Vec<usize>,
    pub(super) next_unique_token: i64,
    pub(super) num_finished: usize,
    /// Under a clock, the requests that finished since they were last taken.
    finished: Vec<usize>,
    /// The number of tokens that admitted requests hit in blocks with generated tokens.
    pub(super) num_answer_tokens: u64,
    /// The work of the current step.
    pub(super) work: StepWork,
    /// How long the current step waits for stores to CPU memory.
    pub(super) fence: Nanoseconds,
    /// The times of requests, under a clock.
    pub(super) times: Option<Times>,
    /// The schedule for a bound, if one is computed.
    schedule: Option<Schedule>,
    pub(super) report: Report,
}

impl<'a, C: Cache> Run<'a, C> {
    /// Creates a run that has not started.
    pub fn new(
        trace: &'a Trace,
        settings: &'a Settings,
        control: &'a Control,
        cache: C,
        (hash_sizes, chunks): (HashSizes, Option<Chunks>),
    ) -> Self {
        let blank = |request: &TraceRequest| RequestReport {
            prompt_tokens: request.prompt.len(),
            ..RequestReport::default()
        };
        Self {
            trace,
            settings,
            control,
            cache,
            hash_sizes,
            samples: Samples::of(trace.schedules()).map(Arc::new),
            chunks,
            resets: HashMap::new(),
            next: 0,
            arrived: VecDeque::new(),
            waiting: VecDeque::new(),
            loading: Vec::new(),
            loaded: VecDeque::new(),
            ended_loading: Vec::new(),
            running: Vec::new(),
            scheduled: Vec::new(),
            next_unique_token: -1,
            num_finished: 0,
            finished: Vec::new(),
            num_answer_tokens: 0,
            work: StepWork::default(),
            fence: 0,
            times: None,
            schedule: None,
            report: Report {
                requests: trace.requests().iter().map(blank).collect(),
                report_from: settings.report_from,
                ..Report::default()
            },
        }
    }

    /// Empties the cache before each of these requests is admitted. The flag of a request says
    /// whether running requests are preempted for the reset, or end before it.
    pub fn reset_before(&mut self, resets: impl IntoIterator<Item = (usize, bool)>) {
        for (request, preempts) in resets {
            *self.resets.entry(request).or_default() |= preempts;
        }
    }

    /// Runs to the end. Computes the bound if a model for it is given.
    pub fn finish(mut self, bounded: Option<BoundModel>) -> Result<Report, Stopped> {
        if bounded.is_some() {
            self.keep_schedule();
        }
        let start = Instant::now();
        while self.num_finished < self.trace.requests().len() {
            self.check_cancelled()?;
            self.step()?;
        }
        self.close(start.elapsed(), bounded)
    }

    /// Starts to record the schedule for a bound.
    pub fn keep_schedule(&mut self) {
        self.schedule = Some(Schedule::new(self.hash_sizes.block_size));
    }

    pub fn check_cancelled(&self) -> Result<(), Stopped> {
        match self.control.cancelled.load(Ordering::Relaxed) {
            true => Err(Stopped::Cancelled),
            false => Ok(()),
        }
    }

    /// Returns the report of a run that took the time `wall`.
    pub fn close(mut self, wall: Duration, bounded: Option<BoundModel>) -> Result<Report, Stopped> {
        self.report.wall = wall;
        self.report.last = self.cache.occupancy();
        self.report.host = self.cache.host().map(|(host, _)| host.report());
        self.report.bound = match (bounded, self.schedule.take()) {
            (Some(groups), Some(schedule)) => Some(self.bound(groups, &schedule)?),
            _ if self.settings.has_bound => Some(self.hits_as_bound()),
            _ => None,
        };
        Ok(self.report)
    }

    fn bound(&self, groups: BoundModel, schedule: &Schedule) -> Result<Bound, Stopped> {
        let played = (self.trace, self.hash_sizes);
        let counts = self.report.counting().map(|request| request.is_some()).collect();
        let cancelled = &self.control.cancelled;
        groups.bound(played, schedule, counts, cancelled).ok_or(Stopped::Cancelled)
    }

    /// Returns the hits as a bound, for a cache that never evicts.
    fn hits_as_bound(&self) -> Bound {
        let hits = self.report.counting().map(|request| request?.hit_tokens);
        Bound { hit_tokens: hits.collect(), ..Bound::default() }
    }

    pub(super) fn record(&mut self, event: impl FnOnce(&mut Schedule)) {
        if let Some(schedule) = &mut self.schedule {
            event(schedule);
        }
    }

    fn step(&mut self) -> Result<(), Stopped> {
        self.start_step()?;
        self.end_step()
    }

    /// Takes the requests that finished since the last call, including rejected ones.
    pub fn take_finished(&mut self) -> Vec<usize> {
        mem::take(&mut self.finished)
    }

    /// Allocates the blocks of a step.
    pub fn start_step(&mut self) -> Result<(), Stopped> {
        let mut step = StepClock::default();
        self.scheduled.clear();
        self.work = StepWork::default();
        self.reset_if_due();
        self.cache.step_starts();
        let mut budget = self.settings.max_batched_tokens;
        let preempted = self.serve_running(&mut budget, &mut step)?;
        self.collect_loaded();
        if !preempted {
            self.admit_waiting(&mut budget, &mut step)?;
        }
        self.offer_to_host()?;
        self.report.step.record(step.total);
        self.report.steps += 1;
        let used = self.cache.occupancy().used;
        self.report.peak_used_blocks = self.report.peak_used_blocks.max(used);
        self.record(Schedule::step_allocated);
        Ok(())
    }

    /// Empties the cache if a reset comes before the next request.
    fn reset_if_due(&mut self) {
        let next = self.arrived.front().map_or(self.next, |arrival| arrival.request);
        let Some(&preempts) = self.resets.get(&next) else { return };
        if preempts {
            (0..self.running.len()).for_each(|_| self.preempt_newest());
        }
        let is_idle = self.running.is_empty()
            && self.loading.is_empty()
            && self.loaded.is_empty()
            && (preempts || self.waiting.is_empty());
        if is_idle && self.cache.reset() {
            self.resets.remove(&next);
        }
    }

    /// Ends a step.
    pub fn end_step(&mut self) -> Result<(), Stopped> {
        self.cache.step_has_run()?;
        self.end_host_step(self.times.as_ref().map_or(0, |times| times.now));
        self.generate();
        Ok(())
    }

    /// Serves running requests. Returns whether a request was preempted.
    fn serve_running(&mut self, budget: &mut usize, step: &mut StepClock) -> Result<bool, Stopped> {
        let mut preempted = false;
        while self.scheduled.len() < self.running.len() && *budget > 0 {
            let request = &self.running[self.scheduled.len()];
            let view = request.view();
            let start = view.num_computed_tokens;
            let most = (view.num_tokens - start).min(*budget);
            let num_new = chunk(&self.chunks, &view, start, most);
            if num_new == 0 {
                self.scheduled.push(0);
                continue;
            }
            if start < request.next_call && self.times.is_some() {
                self.work.add(&view, start, num_new);
                self.scheduled.push(num_new);
                *budget -= num_new;
                continue;
            }
            let fits = step.time(&mut self.report.schedule, || {
                self.cache.allocate(&view, Slots::of(num_new), None)
            })?;
            if fits {
                self.cache.note_computed(&view, start, start + num_new);
                self.work.add(&view, start, num_new);
                let index = request.index;
                if start >= request.num_prompt_tokens && start + 1 == request.num_tokens {
                    let next_call = self.cache.next_call(start + 1);
                    self.running[self.scheduled.len()].next_call = next_call;
                }
                let tokens_per_id = self.hash_sizes.tokens_per_id;
                let known = &self.trace.requests()[index];
                self.record(|schedule| {
                    let num_known = known.num_known_tokens(tokens_per_id);
                    schedule.extend(index, known.prompt.len(), num_known, start..start + num_new);
                });
                self.scheduled.push(num_new);
                *budget -= num_new;
            } else if self.running.len() == 1 && !self.has_waiting_blocks() {
                self.reject_running();
                return Ok(true);
            } else {
                self.preempt_newest();
                preempted = true;
            }
        }
        Ok(preempted)
    }

    /// Preempts the newest running request. It was not served in this step, because the oldest
    /// requests are served first.
    pub(super) fn preempt_newest(&mut self) {
        let Some(mut request) = self.running.pop() else { return };
        self.cache.preempt(request.index as u64);
        self.note_preempted(request.index);
        self.record(|schedule| schedule.preempt(request.index));
        self.report.requests[request.index].preemptions += 1;
        request.num_computed_tokens = 0;
        request.next_call = 0;
        request.expected_hit = 0;
        request.is_settled = false;
        request.is_waiting = true;
        self.waiting.push_front(request);
    }

    /// Rejects a request that does not fit into the pool even if it runs alone. Otherwise it would
    /// be preempted again and again.
    fn reject_running(&mut self) {
        if let Some(request) = self.running.pop() {
            self.cache.free(request.index as u64);
            self.record(|schedule| schedule.end(request.index));
            self.reject(request.index);
        }
    }

    pub(super) fn reject(&mut self, index: usize) {
        self.forget_in_host(index);
        self.report.requests[index].hit_tokens = None;
        self.count_finished(index);
    }

    /// Generates the tokens of a step and ends finished requests.
    fn generate(&mut self) {
        let mut position = 0;
        for i in 0..self.scheduled.len() {
            let request = &mut self.running[position];
            request.num_computed_tokens += self.scheduled[i];
            let is_complete = request.num_computed_tokens == request.num_tokens;
            let wanted = self.trace.requests()[request.index].output_length;
            if !is_complete {
                position += 1;
            } else if request.num_generated() < wanted {
                let known = &self.trace.requests()[request.index];
                request.generate(known, self.hash_sizes, &mut self.next_unique_token);
                position += 1;
                if let Some(times) = &mut self.times {
                    times.token(request.index);
                }
            } else {
                let request = self.running.remove(position);
                self.end(&request);
            }
        }
    }

    pub(super) fn end(&mut self, request: &ActiveRequest) {
        self.end_with(request, request.num_computed_tokens, Release::Now);
    }

    /// Ends a request. The output of `num_settled` tokens is known.
    pub(super) fn end_with(
        &mut self,
        request: &ActiveRequest,
        num_settled: usize,
        release: Release,
    ) {
        let id = request.index as u64;
        // With CPU memory, a server does this before a request ends.
        if self.cache.host().is_some() {
            self.cache.leave_windows(&request.view(), num_settled);
        }
        self.note_ended(request);
        match release {
            Release::Now => self.cache.free(id),
            Release::AfterSteps(num_steps) => self.cache.free_after(id, num_steps),
            Release::AfterLoad => self.ended_loading.push(id),
        }
        self.record(|schedule| schedule.end(request.index));
        self.report.requests[request.index].output_tokens = request.num_generated();
        self.count_finished(request.index);
    }

    fn count_finished(&mut self, index: usize) {
        self.num_finished += 1;
        if self.times.is_some() {
            self.finished.push(index);
        }
        self.control.finished.fetch_add(1, Ordering::Relaxed);
        let total = self.trace.requests().len();
        let finished = self.num_finished;
        let is_point = |most: usize| {
            let points = most.min(total);
            finished * points / total > (finished - 1) * points / total
        };
        if is_point(TIMELINE_POINTS) {
            let occupancy = self.cache.occupancy();
            self.report.timeline.push(TimelinePoint { finished, occupancy });
        }
        if is_point(HOST_SAMPLES)
            && let Some((host, manager)) = self.cache.host()
        {
            host.sample(manager);
        }
        if is_point(RETENTION_POINTS)
            && let Some(retention) = self.cache.retention()
        {
            let (prompt_tokens, hit_tokens) = self.report.admitted();
            let point = RetentionPoint { finished, prompt_tokens, hit_tokens, retention };
            self.report.retention.push(point);
        }
    }
}

/// Returns the number of tokens in a request's chunk from `start` on.
pub(super) fn chunk(
    chunks: &Option<Chunks>,
    request: &RequestView<'_>,
    start: usize,
    most: usize,
) -> usize {
    chunks.as_ref().map_or(most, |chunks| chunks.split(request, start, most))
}

//! The scheduler model: what vLLM's scheduler does to a manager, step by step.
//!
//! A step first serves the running requests in their order, each with the tokens it lacks (one
//! when it decodes, a chunk while it prefills), as long as the step's budget lasts. When blocks run
//! out, the newest running request is preempted: it gives its blocks back and waits again, first in
//! line. If nobody was preempted, waiting requests are admitted in their order. Every generated
//! token is unique and gets a slot of its own; a request ends when its last one has it. In models
//! with recurrent states, chunks end where states are cached.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kvoxide_core::{Error, GroupSpec, ManagerConfig, Policy, RequestView, Size};

use crate::active::Active;
use crate::bound::schedule::Schedule;
use crate::bound::{Bound, Groups};
use crate::cache::{Cache, Hit, ManagedCache};
use crate::chunks::Chunks;
use crate::report::{
    RETENTION_POINTS, Report, RequestReport, RetentionPoint, TIMELINE_POINTS, TimelinePoint,
};
use crate::tokens::HashSizes;
use crate::trace::{Trace, TraceRequest};

/// How a trace is played.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The KV cache groups.
    pub groups: Vec<GroupSpec>,
    /// Blocks of the pool, the null block included; `None` for a cache that never evicts.
    pub num_blocks: Option<usize>,
    /// Retention and recycling.
    pub policy: Policy,
    /// Most requests running at once.
    pub concurrency: usize,
    /// Most tokens of a step.
    pub max_batched_tokens: usize,
    /// Requests before this one warm the cache and are left out of sums.
    pub report_from: usize,
    /// Whether to find what a policy that knows the future could hit.
    pub has_bound: bool,
}

/// Shared with other threads during a run.
#[derive(Debug, Default)]
pub struct Control {
    /// Requests finished so far.
    pub finished: AtomicUsize,
    /// Set to stop the run at its next step.
    pub cancelled: AtomicBool,
}

/// Why a run ended early.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stopped {
    /// The settings cannot work, or the manager refused a call.
    #[error(transparent)]
    Refused(#[from] Error),
    /// [`Control::cancelled`] was set.
    #[error("the run was cancelled")]
    Cancelled,
}

/// Plays a trace to its end.
pub fn run(trace: &Trace, settings: &Settings, control: &Control) -> Result<Report, Stopped> {
    if settings.concurrency == 0 || settings.max_batched_tokens == 0 {
        return Err(
            Error::Config("concurrency and max_batched_tokens must be at least 1".into()).into()
        );
    }
    let longest = trace.requests().iter().map(|r| r.prompt.len() + r.output_length).max();
    let longest = longest.unwrap_or(1).max(1);
    let has_states = settings.groups.iter().any(|group| group.kind == "mamba");
    // What a state leaves of a prefix depends on the steps, so that it has to be played.
    let room_for_all = has_states.then(|| num_blocks_for_all(trace, settings));
    let config = ManagerConfig {
        max_in_flight_tokens: Some(settings.max_batched_tokens),
        policy: settings.policy.clone(),
        ..ManagerConfig::new(
            settings.num_blocks.or(room_for_all).unwrap_or(usize::from(u16::MAX)),
            settings.groups.clone(),
            longest,
        )
    };
    config.check_holds_a_request()?;
    // Also checks the settings of a run without a pool.
    let mut managed = ManagedCache::new(config)?;
    let chunks = Chunks::of(managed.manager(), settings.max_batched_tokens);
    let tokens_per_id =
        trace.tokens_per_id().map_err(|unknown| Error::Config(unknown.to_string()))?;
    let hash_sizes = HashSizes { block_size: managed.hash_block_size(), tokens_per_id };
    let sizes = (hash_sizes, chunks);
    let is_bounded = settings.has_bound && settings.num_blocks.is_some();
    let bounded = is_bounded.then(|| Groups::of(managed.manager()));
    match settings.num_blocks.or(room_for_all) {
        Some(_) => {
            managed.explain(trace, tokens_per_id);
            Run::new(trace, settings, control, managed, sizes).finish(bounded)
        }
        None => Run::new(trace, settings, control, managed.unlimited(), sizes).finish(None),
    }
}

/// A pool in which every request's blocks have a place of their own, the blocks included that
/// states are copied to.
fn num_blocks_for_all(trace: &Trace, settings: &Settings) -> usize {
    let lengths = || trace.requests().iter().map(|r| r.prompt.len() + r.output_length);
    let blocks = |group: &GroupSpec| -> usize {
        let drafts = group.size(Size::NumSpeculativeBlocks).unwrap_or(0);
        let beside = 4 + drafts;
        lengths().map(|length| length.div_ceil(group.block_size.max(1)) + beside).sum()
    };
    let all = settings.groups.iter().map(blocks).sum::<usize>() + 1;
    all.min(kvoxide_core::MAX_BLOCKS)
}

/// A run in progress.
struct Run<'a, C> {
    trace: &'a Trace,
    settings: &'a Settings,
    control: &'a Control,
    cache: C,
    hash_sizes: HashSizes,
    /// Where chunks of prefills end, if that is not the same everywhere.
    chunks: Option<Chunks>,
    /// The next request of the trace that has not arrived.
    next: usize,
    waiting: VecDeque<Active>,
    running: Vec<Active>,
    /// Tokens scheduled in this step for each running request, in their order.
    scheduled: Vec<usize>,
    next_unique_token: i64,
    num_finished: usize,
    /// What a bound is found from.
    schedule: Option<Schedule>,
    report: Report,
}

impl<'a, C: Cache> Run<'a, C> {
    fn new(
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
            chunks,
            next: 0,
            waiting: VecDeque::new(),
            running: Vec::new(),
            scheduled: Vec::new(),
            next_unique_token: -1,
            num_finished: 0,
            schedule: None,
            report: Report {
                requests: trace.requests().iter().map(blank).collect(),
                report_from: settings.report_from,
                ..Report::default()
            },
        }
    }

    /// Plays to the end, and finds the bound for the groups if it is asked for them.
    fn finish(mut self, bounded: Option<Groups>) -> Result<Report, Stopped> {
        self.schedule = bounded.is_some().then(|| Schedule::new(self.hash_sizes.block_size));
        let start = Instant::now();
        while self.num_finished < self.trace.requests().len() {
            if self.control.cancelled.load(Ordering::Relaxed) {
                return Err(Stopped::Cancelled);
            }
            self.step()?;
        }
        self.report.wall = start.elapsed();
        self.report.last = self.cache.occupancy();
        self.report.bound = match (bounded, self.schedule.take()) {
            (Some(groups), Some(schedule)) => Some(self.bound(groups, &schedule)?),
            _ if self.settings.has_bound => Some(self.hits_as_bound()),
            _ => None,
        };
        Ok(self.report)
    }

    fn bound(&self, groups: Groups, schedule: &Schedule) -> Result<Bound, Stopped> {
        let played = (self.trace, self.hash_sizes);
        let counts = self.report.counting().map(|request| request.is_some()).collect();
        let cancelled = &self.control.cancelled;
        groups.bound(played, schedule, counts, cancelled).ok_or(Stopped::Cancelled)
    }

    /// Of a pool that never evicts.
    fn hits_as_bound(&self) -> Bound {
        let hits = self.report.counting().map(|request| request?.hit_tokens);
        Bound { hit_tokens: hits.collect(), ..Bound::default() }
    }

    fn record(&mut self, event: impl FnOnce(&mut Schedule)) {
        if let Some(schedule) = &mut self.schedule {
            event(schedule);
        }
    }

    fn step(&mut self) -> Result<(), Stopped> {
        let mut step = StepClock::default();
        self.scheduled.clear();
        self.cache.step_starts();
        let mut budget = self.settings.max_batched_tokens;
        let preempted = self.serve_running(&mut budget, &mut step)?;
        if !preempted {
            self.admit_waiting(&mut budget, &mut step)?;
        }
        self.report.step.record(step.total);
        self.report.steps += 1;
        let used = self.cache.occupancy().used;
        self.report.peak_used_blocks = self.report.peak_used_blocks.max(used);
        self.record(Schedule::step_allocated);
        self.cache.step_has_run()?;
        self.settle();
        Ok(())
    }

    /// Serves running requests; returns whether one was preempted.
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
            let fits =
                step.time(&mut self.report.schedule, || self.cache.allocate(&view, num_new, None))?;
            if fits {
                self.cache.note_computed(&view, start, start + num_new);
                let (index, num_prompt) = (request.index, request.num_prompt_tokens);
                self.record(|schedule| schedule.extend(index, num_prompt, start..start + num_new));
                self.scheduled.push(num_new);
                *budget -= num_new;
            } else if self.running.len() == 1 {
                self.reject_running();
                return Ok(true);
            } else {
                self.preempt_newest();
                preempted = true;
            }
        }
        Ok(preempted)
    }

    /// The newest running request gives its blocks back. It cannot have been served in this step:
    /// requests are served oldest first.
    fn preempt_newest(&mut self) {
        let Some(mut request) = self.running.pop() else { return };
        self.cache.free(request.index as u64);
        self.record(|schedule| schedule.preempt(request.index));
        self.report.requests[request.index].preemptions += 1;
        request.num_computed_tokens = 0;
        request.is_waiting = true;
        self.waiting.push_front(request);
    }

    /// A request that outgrows the pool while it runs alone would be preempted for ever.
    fn reject_running(&mut self) {
        if let Some(request) = self.running.pop() {
            self.cache.free(request.index as u64);
            self.record(|schedule| schedule.end(request.index));
            self.reject(request.index);
        }
    }

    fn reject(&mut self, index: usize) {
        self.report.requests[index].hit_tokens = None;
        self.count_finished();
    }

    fn admit_waiting(&mut self, budget: &mut usize, step: &mut StepClock) -> Result<(), Stopped> {
        while *budget > 0 && self.running.len() < self.settings.concurrency {
            let Some(mut request) = self.next_waiting() else { break };
            let view = request.view();
            let (hit, num_new, fits) = step.time(&mut self.report.schedule, || {
                let hit = self.cache.look_up(&view)?;
                let view =
                    RequestView { shared_prefix_boundary: hit.shared_prefix_boundary, ..view };
                let most = (view.num_tokens - hit.length).min(*budget);
                let num_new = chunk(&self.chunks, &view, hit.length, most);
                let fits = num_new > 0 && self.cache.allocate(&view, num_new, Some(&hit))?;
                Ok((hit, num_new, fits))
            })?;
            match fits {
                true => {
                    *budget -= num_new;
                    self.admit(request, &hit, num_new);
                }
                false if self.running.is_empty() => self.reject(request.index),
                false => {
                    request.shared_prefix_boundary = hit.shared_prefix_boundary;
                    self.waiting.push_front(request);
                    break;
                }
            }
        }
        Ok(())
    }

    /// The first in line: preempted requests, then the trace in its order. Hashed on arrival.
    fn next_waiting(&mut self) -> Option<Active> {
        self.waiting.pop_front().or_else(|| {
            let request = self.trace.requests().get(self.next)?;
            self.next += 1;
            Some(Active::new(self.next - 1, request, self.hash_sizes))
        })
    }

    fn admit(&mut self, mut request: Active, hit: &Hit, num_new: usize) {
        request.shared_prefix_boundary = hit.shared_prefix_boundary;
        request.num_computed_tokens = hit.length;
        request.is_waiting = false;
        self.record(|schedule| schedule.admit(request.index, hit.length + num_new));
        let report = &mut self.report.requests[request.index];
        // The look-up of a request that comes back after a preemption hits its own blocks.
        if report.hit_tokens.is_none() {
            report.hit_tokens = Some(hit.length);
            report.losses = self.cache.losses(&request.view(), hit);
        }
        self.cache.note_computed(&request.view(), hit.length, hit.length + num_new);
        self.running.push(request);
        self.scheduled.push(num_new);
    }

    /// What the step computed takes effect: tokens are generated, requests end.
    fn settle(&mut self) {
        let mut position = 0;
        for i in 0..self.scheduled.len() {
            let request = &mut self.running[position];
            request.num_computed_tokens += self.scheduled[i];
            let is_complete = request.num_computed_tokens == request.num_tokens;
            let wanted = self.trace.requests()[request.index].output_length;
            if !is_complete {
                position += 1;
            } else if request.num_generated() < wanted {
                request.chain.push(self.next_unique_token);
                self.next_unique_token -= 1;
                request.num_tokens += 1;
                position += 1;
            } else {
                let request = self.running.remove(position);
                self.end(&request);
            }
        }
    }

    fn end(&mut self, request: &Active) {
        self.cache.free(request.index as u64);
        self.record(|schedule| schedule.end(request.index));
        self.report.requests[request.index].output_tokens = request.num_generated();
        self.count_finished();
    }

    fn count_finished(&mut self) {
        self.num_finished += 1;
        self.control.finished.store(self.num_finished, Ordering::Relaxed);
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
        if is_point(RETENTION_POINTS)
            && let Some(retention) = self.cache.retention()
        {
            let (prompt_tokens, hit_tokens) = self.report.admitted();
            let point = RetentionPoint { finished, prompt_tokens, hit_tokens, retention };
            self.report.retention.push(point);
        }
    }
}

/// Tokens of the chunk of a request from `start` on.
fn chunk(chunks: &Option<Chunks>, request: &RequestView<'_>, start: usize, most: usize) -> usize {
    chunks.as_ref().map_or(most, |chunks| chunks.split(request, start, most))
}

/// Adds up the scheduling calls of a step.
#[derive(Default)]
struct StepClock {
    total: Duration,
}

impl StepClock {
    fn time<T>(
        &mut self,
        each: &mut crate::report::Durations,
        call: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        let start = Instant::now();
        let result = call();
        let elapsed = start.elapsed();
        each.record(elapsed);
        self.total += elapsed;
        result
    }
}

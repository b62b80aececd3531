//! Runs that follow a recorded schedule: each request gets its tokens in the step in which the
//! server computed them.
//!
//! The schedule says up to which token a request is computed after each step. With the server's own
//! settings, the run makes the same calls of the manager as the server. With other settings, hits
//! and free blocks differ. A request that hits more waits for its schedule. A request that finds no
//! blocks, or hits less, catches up as soon as blocks and the step's budget allow it.

mod schedule;
mod serving;

mod attempts;

mod position;

use std::collections::{HashMap, VecDeque};

use position::Position;

use super::run::Run;
use super::settings::Stopped;
use super::step_clock::StepClock;
use crate::active_request::ActiveRequest;
use crate::cache::Cache;
use crate::clock::StepWork;
use crate::trace::{Schedule, ScheduleEvent, Trace};

/// A run and the schedule that it follows.
pub struct Follower<'a, C> {
    pub run: Run<'a, C>,
    /// Requests of the schedules, by their schedule and number.
    requests: HashMap<(u32, u32), usize>,
    /// The index of the current schedule.
    schedule: u32,
    /// The server's running requests, in its order.
    running: Vec<usize>,
    /// The positions in the schedule of requests that have not ended in this run.
    positions: HashMap<usize, Position>,
    /// Requests that the server had admitted and that wait in this run.
    due: VecDeque<ActiveRequest>,
    /// Requests whose loads the server began, in that order, and that it has not admitted since.
    loading: Vec<ActiveRequest>,
    /// Requests that the server preempted and has not admitted again.
    parked: HashMap<usize, ActiveRequest>,
    /// How many preemptions the server had made when it last preempted a request.
    preempted: HashMap<usize, usize>,
    /// The number of the server's preemptions.
    num_preempted: usize,
    /// Requests that the next step preempts, in the server's order.
    victims: VecDeque<usize>,
    /// The number of steps with tokens so far.
    num_steps: usize,
    /// The work of the server's step that is being replayed.
    server_work: StepWork,
    /// The number of steps whose output the server does not know when it schedules the next step.
    num_in_flight: usize,
}

impl<'a, C: Cache> Follower<'a, C> {
    /// Returns a follower that has not begun.
    pub fn new(mut run: Run<'a, C>) -> Self {
        let schedules = run.trace.schedules();
        if schedules.iter().any(Schedule::has_transfers) {
            run.keep_recorded_transfers(schedules.iter().any(Schedule::has_leaving_stores));
        }
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
            loading: Vec::new(),
            parked: HashMap::new(),
            preempted: HashMap::new(),
            num_preempted: 0,
            victims: VecDeque::new(),
            num_steps: 0,
            server_work: StepWork::default(),
            num_in_flight: 0,
        }
    }

    /// Follows a schedule of the trace to its end. `step` is called for each step of the schedule.
    /// The cache is empty at the start.
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
        self.run.reset_host();
        for (place, event) in schedule.events.iter().enumerate() {
            self.run.check_cancelled()?;
            let later = &schedule.events[place + 1..];
            match event {
                &ScheduleEvent::PlainSteps(count) => {
                    for left in (0..count).rev() {
                        let _ = self.note_step(&[]);
                        step(self, &[])?;
                        self.note_outputs(if left == 0 { later } else { &[] });
                    }
                }
                ScheduleEvent::Step(scheduled) => {
                    let admitted = self.note_step(scheduled);
                    step(self, &admitted)?;
                    self.note_outputs(later);
                }
                ScheduleEvent::Preempted(preempted) => self.note_preempted(preempted),
                ScheduleEvent::Loading(numbers) => self.note_loading(numbers),
                &ScheduleEvent::InFlight(num_steps) => self.num_in_flight = num_steps as usize,
                ScheduleEvent::Reset(_) => self.reset(),
                ScheduleEvent::ResetFailed => self.preempt_victims(),
                ScheduleEvent::HostReset => self.run.reset_host(),
                ScheduleEvent::Finished(numbers) => self.note_finished(numbers),
                ScheduleEvent::Transferred(ended) => self.note_transferred(ended),
                &ScheduleEvent::Asked(num_blocks) => self.run.ask_for_stores(num_blocks.into()),
                &ScheduleEvent::Storing(num_stores) => self.run.note_stores(num_stores),
                ScheduleEvent::Stored(steps_ago) => self.run.end_leaving_stores(steps_ago),
                &ScheduleEvent::Ended(number) => self.note_ended(number),
            }
        }
        self.server_work = StepWork::default();
        self.num_in_flight = 0;
        self.run.release_ended_blocks();
        self.running.clear();
        self.positions.values_mut().for_each(|position| position.has_ended = true);
        let loading = std::mem::take(&mut self.loading);
        loading.iter().for_each(|request| self.run.end(request));
        while !(self.run.running.is_empty() && self.due.is_empty()) {
            self.run.check_cancelled()?;
            step(self, &[])?;
        }
        self.parked.clear();
        self.preempted.clear();
        self.positions.clear();
        Ok(())
    }

    /// Returns the work of the server's step that is being replayed. It is empty once the schedule
    /// has ended.
    pub(crate) fn server_work(&self) -> &StepWork {
        &self.server_work
    }

    /// Allocates the blocks of a step and computes it.
    pub fn start_step(&mut self) -> Result<(), Stopped> {
        // The server processes outputs before it starts a step.
        self.take_in_outputs();
        let run = &mut self.run;
        run.scheduled.clear();
        run.work = StepWork::default();
        run.cache.step_starts();
        let mut step = StepClock::default();
        let mut budget = run.settings.max_batched_tokens;
        let preempts = self.serve_running(&mut budget, &mut step)?;
        if !preempts {
            self.admit_due(&mut budget, &mut step)?;
            self.settle_first_loaded(budget)?;
        }
        self.run.offer_to_host()?;
        let report = &mut self.run.report;
        report.step.record(step.total);
        report.steps += 1;
        report.peak_used_blocks = report.peak_used_blocks.max(self.run.cache.occupancy().used);
        self.run.record(crate::clairvoyant::schedule::Schedule::step_allocated);
        Ok(())
    }

    /// Ends a step. Also ends the requests that the server had ended and that are completed in this
    /// run too.
    pub fn end_step(&mut self) -> Result<(), Stopped> {
        let run = &mut self.run;
        run.cache.step_has_run()?;
        run.end_host_step(0);
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
}

//! Replays recorded schedules. Each instance follows the schedulers that were recorded for it.

use std::time::Instant;

use super::Serving;
use super::fleet::joined;
use super::served::{InstanceReport, Served};
use crate::cache::Cache;
use crate::clairvoyant::BoundModel;
use crate::clock::{Nanoseconds, StepTime, StepWork, Times};
use crate::report::Report;
use crate::scheduler::{Follower, Run, Stopped};
use crate::trace::{StepDuration, Trace};

/// Steps of a server that was killed whose durations may be missing: those in flight.
const MOST_IN_FLIGHT: usize = 16;

/// The durations of the steps of one schedule.
struct StepClock<'a> {
    step_time: StepTime,
    /// The recorded durations of the steps to come; `None` if all of them are modelled.
    recorded: Option<&'a [StepDuration]>,
    /// Steps of the schedule without a recorded duration.
    num_missing: usize,
    /// Whether recorded durations belong to other steps than the schedule's.
    differs: bool,
}

impl StepClock<'_> {
    /// Returns how long a step takes here. Where the server's work was the same, that is as long as
    /// it took there.
    fn duration(&mut self, here: &StepWork, there: &StepWork) -> Nanoseconds {
        let modelled = self.step_time.of(here);
        let Some(recorded) = self.recorded.as_mut().filter(|_| there.running > 0) else {
            return modelled;
        };
        let Some((step, later)) = recorded.split_first() else {
            self.num_missing += 1;
            return modelled;
        };
        *recorded = later;
        self.differs |= step.running as usize != there.running;
        if here.running == 0 {
            return 0;
        }
        (step.nanoseconds + modelled).saturating_sub(self.step_time.of(there))
    }

    /// Returns whether the durations matched the steps.
    fn is_right(&self) -> bool {
        let has_left = self.recorded.is_some_and(|left| !left.is_empty());
        !self.differs && !has_left && self.num_missing <= MOST_IN_FLIGHT
    }
}

/// Follows the recorded schedules. A step starts no earlier than the recorded arrivals of its
/// requests. Where the steps should take what they took on the server, and that is not known, there
/// are no times.
pub(crate) fn follow<'a, C: Cache>(
    trace: &'a Trace,
    serving: &Serving,
    runs: Vec<Run<'a, C>>,
    bounded: Option<BoundModel>,
) -> Result<(Report, Served), Stopped> {
    let started = Instant::now();
    let first = trace.requests().iter().filter_map(|request| request.arrival).min().unwrap_or(0);
    let arrival = |request: usize| {
        let arrival = trace.requests()[request].arrival.unwrap_or(first);
        arrival.saturating_sub(first).saturating_mul(1_000)
    };
    let num_instances = runs.len();
    let of_instance = |instance: Option<u32>| instance.unwrap_or(0) as usize % num_instances;
    let mut makespan: Nanoseconds = 0;
    let mut is_right = true;
    let (mut reports, mut own_times) = (Vec::new(), Vec::new());
    for (id, mut run) in runs.into_iter().enumerate() {
        run.keep_times();
        if bounded.is_some() {
            run.keep_schedule();
        }
        if let Some(times) = run.times_mut() {
            (0..times.requests.len()).for_each(|it| times.requests[it].arrived = arrival(it));
        }
        let mut follower = Follower::new(run);
        let mut now: Nanoseconds = 0;
        let schedules = trace.schedules().iter().enumerate();
        for (index, schedule) in schedules.filter(|(_, it)| of_instance(Some(it.instance)) == id) {
            let mut clock = StepClock {
                step_time: serving.step_time,
                recorded: serving.as_recorded.then_some(&schedule.durations[..]),
                num_missing: 0,
                differs: false,
            };
            follower.follow(index, &mut |follower, admitted| {
                now = admitted.iter().map(|&request| arrival(request)).fold(now, Nanoseconds::max);
                follower.start_step()?;
                let work = *follower.run.work();
                let duration = clock.duration(&work, follower.server_work());
                now = now.saturating_add(duration);
                if let Some(times) = follower.run.times_mut() {
                    times.step_ends(now, duration, work.running);
                }
                follower.end_step()
            })?;
            is_right &= clock.is_right();
        }
        makespan = makespan.max(now);
        let mut run = follower.run;
        let times = run.times_mut().map(|times| times.clone());
        own_times.push(times.unwrap_or_else(|| unreachable!("kept since the start")));
        reports.push(run.close(started.elapsed(), bounded.clone())?);
    }
    if !is_right {
        makespan = 0;
        own_times.iter_mut().for_each(Times::forget);
    }
    let instances = trace.requests().iter().map(|request| of_instance(request.instance));
    let instance_of: Vec<_> = instances.collect();
    let mut times = Times::new(trace.requests().len());
    let mut served = Vec::new();
    for (id, (report, own)) in reports.iter().zip(&own_times).enumerate() {
        let is_served = |request: usize| instance_of[request] == id;
        served.push(InstanceReport::of(report, own, makespan, 1, is_served));
        times.join(own, (0..instance_of.len()).filter(|&request| is_served(request)));
    }
    let report = joined(reports, &instance_of, Vec::new());
    let all = InstanceReport::of(&report, &times, makespan, num_instances, |_| true);
    Ok((report, Served { times, instance_of, all, instances: served }))
}

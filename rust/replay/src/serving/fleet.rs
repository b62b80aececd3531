//! Runs instances under one clock, which advances from one arrival or end of a step to the next.

use std::time::Instant;

use super::arrivals::Source;
use super::resets::Resets;
use super::served::{InstanceReport, Served};
use super::{Arrivals, Serving};
use crate::active_request::Arrival;
use crate::cache::{Cache, Occupancy};
use crate::clairvoyant::BoundModel;
use crate::clock::{Nanoseconds, StepTime, Times};
use crate::report::{Report, TIMELINE_POINTS, TimelinePoint};
use crate::router::{Candidate, Router};
use crate::scheduler::{Run, Stopped};
use crate::trace::Trace;

/// Instances, and the requests that have not arrived yet.
pub(crate) struct Fleet<'a, C> {
    trace: &'a Trace,
    step_time: StepTime,
    source: Source,
    /// Whether the only instance takes requests from the trace inside its steps.
    takes_from_trace: bool,
    router: Router,
    resets: Resets,
    instances: Vec<Instance<'a, C>>,
    instance_of: Vec<usize>,
    num_arrived: usize,
    timeline: Vec<TimelinePoint>,
    now: Nanoseconds,
}

struct Instance<'a, C> {
    run: Run<'a, C>,
    /// The start and end of its current step.
    step: Option<(Nanoseconds, Nanoseconds)>,
}

impl<'a, C: Cache> Fleet<'a, C> {
    /// Creates idle instances.
    pub fn new(
        trace: &'a Trace,
        serving: &Serving,
        mut runs: Vec<Run<'a, C>>,
        concurrency: usize,
    ) -> Result<Self, Stopped> {
        let num_instances = runs.len();
        let source = Source::new(serving.arrivals, trace, concurrency * num_instances)?;
        let takes_from_trace = num_instances == 1 && serving.arrivals == Arrivals::Full;
        for run in &mut runs {
            run.keep_times();
            run.keep_transfer_times();
            if !takes_from_trace {
                run.wait_for_arrivals();
            }
        }
        let instances = runs.into_iter().map(|run| Instance { run, step: None }).collect();
        Ok(Self {
            trace,
            step_time: serving.step_time,
            source,
            takes_from_trace,
            router: Router::new(serving.routing, num_instances, trace)?,
            resets: Resets::new(serving.routing, num_instances, trace),
            instances,
            instance_of: vec![0; trace.requests().len()],
            num_arrived: 0,
            timeline: Vec::new(),
            now: 0,
        })
    }

    /// Runs all instances to the end.
    pub fn finish(mut self, bounded: Option<BoundModel>) -> Result<(Report, Served), Stopped> {
        let start = Instant::now();
        if bounded.is_some() {
            self.instances.iter_mut().for_each(|instance| instance.run.keep_schedule());
        }
        while let Some(now) = self.next_event() {
            self.now = now;
            self.check_cancelled()?;
            self.end_steps()?;
            self.release_followers();
            self.add_to_timeline();
            self.take_arrivals()?;
            self.start_steps()?;
            self.release_followers();
        }
        self.close(start, bounded)
    }

    fn check_cancelled(&self) -> Result<(), Stopped> {
        self.instances.first().map_or(Ok(()), |instance| instance.run.check_cancelled())
    }

    /// Returns the time of the next arrival or end of a step. While an instance has nothing to
    /// compute, also the end of the next transfer that it waits for.
    fn next_event(&mut self) -> Option<Nanoseconds> {
        let next_arrival = self.next_arrival();
        let ends = self.instances.iter_mut().filter_map(|instance| match instance.step {
            Some((_, end)) => Some(end),
            None => instance.run.next_transfer_end(),
        });
        ends.chain(next_arrival).min()
    }

    fn next_arrival(&self) -> Option<Nanoseconds> {
        self.source.next_time(self.now, self.num_arrived.saturating_sub(self.num_finished()))
    }

    fn num_finished(&self) -> usize {
        self.instances.iter().map(|instance| instance.run.num_finished()).sum()
    }

    /// Adds the occupancy of all pools together to the timeline. It has as many points as for a
    /// single run.
    fn add_to_timeline(&mut self) {
        let (finished, total) = (self.num_finished(), self.trace.requests().len());
        let points = TIMELINE_POINTS.min(total);
        if finished * points / total.max(1) > self.timeline.len() {
            let pools = self.instances.iter().map(|instance| instance.run.occupancy());
            let occupancy = pools.fold(Occupancy::default(), sum);
            self.timeline.push(TimelinePoint { finished, occupancy });
        }
    }

    fn end_steps(&mut self) -> Result<(), Stopped> {
        let now = self.now;
        for Instance { run, step } in &mut self.instances {
            if let Some((start, _)) = step.take_if(|&mut (_, end)| end == now) {
                let running = run.work().running;
                if let Some(times) = run.times_mut() {
                    times.step_ends(now, now - start, running);
                }
                run.end_step()?;
            }
        }
        Ok(())
    }

    /// Lets requests arrive that wait for finished or rejected ones.
    fn release_followers(&mut self) {
        if !self.source.has_waiting() {
            return;
        }
        for Instance { run, .. } in &mut self.instances {
            for request in run.take_finished() {
                let times = run.times_mut().map(|times| times.requests[request]);
                let answered = times.and_then(|it| it.first_token.map(|_| it.last_token));
                self.source.answered(request, answered.unwrap_or(self.now), self.now);
            }
        }
    }

    fn take_arrivals(&mut self) -> Result<(), Stopped> {
        while self.next_arrival().is_some_and(|time| time <= self.now) {
            let Some(request) = self.source.take() else { break };
            self.num_arrived += 1;
            let arrived_at = self.now;
            let chosen = self.route(request)?;
            self.instance_of[request] = chosen;
            if let Some(times) = self.instances[chosen].run.times_mut() {
                times.requests[request].arrived = arrived_at;
            }
        }
        Ok(())
    }

    /// Sends a request to an instance. Returns the instance.
    fn route(&mut self, request: usize) -> Result<usize, Stopped> {
        self.resets.arrives(request);
        let chosen = self.choose(request)?;
        let reset = self.resets.take(chosen);
        self.instances[chosen].run.reset_before(reset.map(|preempts| (request, preempts)));
        Ok(chosen)
    }

    fn choose(&mut self, request: usize) -> Result<usize, Stopped> {
        if let [only] = &mut self.instances[..] {
            if !self.takes_from_trace {
                only.run.push_arrival(Arrival { request, ..Arrival::default() });
            }
            return Ok(0);
        }
        let chain = self.router.needs_hits().then(|| self.instances[0].run.hashes(request));
        let candidates = self.instances.iter().map(|Instance { run, .. }| {
            let hit = chain.as_ref().map_or(Ok(0), |chain| run.hit(request, chain))?;
            Ok(Candidate { load: run.load(), hit })
        });
        let candidates = candidates.collect::<Result<Vec<_>, Stopped>>()?;
        let num_prompt_tokens = self.trace.requests()[request].prompt.len();
        let chosen = self.router.choose(request, num_prompt_tokens, &candidates);
        let expected_hit = candidates[chosen].hit;
        self.instances[chosen].run.push_arrival(Arrival { request, chain, expected_hit });
        Ok(chosen)
    }

    fn start_steps(&mut self) -> Result<(), Stopped> {
        let (now, step_time) = (self.now, self.step_time);
        for Instance { run, step } in &mut self.instances {
            if step.is_some() {
                continue;
            }
            run.set_now(now);
            if run.has_work() || run.has_last_offers() {
                run.start_step()?;
                if run.waits_for_transfers() {
                    run.end_idle_step(now);
                    continue;
                }
                let duration = step_time.of(run.work()).saturating_add(run.fence());
                *step = Some((now, now.saturating_add(duration)));
            }
        }
        Ok(())
    }

    fn close(
        self,
        start: Instant,
        bounded: Option<BoundModel>,
    ) -> Result<(Report, Served), Stopped> {
        let Self { instances, instance_of, now: makespan, trace, timeline, .. } = self;
        let num_instances = instances.len();
        let wall = start.elapsed();
        let mut times = Times::new(trace.requests().len());
        let (mut reports, mut served) = (Vec::new(), Vec::new());
        for (id, Instance { mut run, .. }) in instances.into_iter().enumerate() {
            let own = run.times_mut().map(|times| times.clone());
            let own = own.unwrap_or_else(|| unreachable!("kept since the start"));
            let report = run.close(wall, bounded.clone())?;
            let is_served = |request: usize| instance_of[request] == id;
            served.push(InstanceReport::of(&report, &own, makespan, 1, is_served));
            times.join(&own, (0..instance_of.len()).filter(|&request| is_served(request)));
            reports.push(report);
        }
        let report = joined(reports, &instance_of, timeline);
        let all = InstanceReport::of(&report, &times, makespan, num_instances, |_| true);
        Ok((report, Served { times, instance_of, all, instances: served }))
    }
}

/// Returns the joint report of all instances.
pub(super) fn joined(
    reports: Vec<Report>,
    instance_of: &[usize],
    timeline: Vec<TimelinePoint>,
) -> Report {
    let mut reports = reports.into_iter().enumerate();
    let Some((_, mut all)) = reports.next() else { return Report::default() };
    if reports.len() > 0 {
        all.timeline = timeline;
        all.retention.clear();
    }
    for (id, other) in reports {
        let served = (0..instance_of.len()).filter(|&request| instance_of[request] == id);
        served.for_each(|request| all.requests[request] = other.requests[request]);
        if let (Some(sum), Some(host)) = (&mut all.host, &other.host) {
            sum.add(host);
        }
        all.steps += other.steps;
        all.peak_used_blocks = all.peak_used_blocks.max(other.peak_used_blocks);
        all.last = sum(all.last, other.last);
        all.schedule.join(&other.schedule);
        all.step.join(&other.step);
    }
    all
}

fn sum(a: Occupancy, b: Occupancy) -> Occupancy {
    Occupancy {
        capacity: a.capacity + b.capacity,
        used: a.used + b.used,
        cached: a.cached + b.cached,
        pinned: a.pinned + b.pinned,
        evictions: a.evictions + b.evictions,
    }
}

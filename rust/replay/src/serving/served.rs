//! What came of serving.

use serde::{Deserialize, Serialize};

use crate::clock::{Latencies, Nanoseconds, Times, seconds};
use crate::report::Report;

/// What the clock showed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Served {
    /// Of all requests.
    pub times: Times,
    /// The instance of each request of the trace.
    pub instance_of: Vec<usize>,
    /// What all instances did together.
    pub all: InstanceReport,
    /// What each instance did.
    pub instances: Vec<InstanceReport>,
}

/// What one instance did, or all of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InstanceReport {
    /// Requests that it served; those that it rejected are no part of any figure.
    pub requests: usize,
    /// Tokens of their prompts.
    pub prompt_tokens: usize,
    /// Of those, the tokens found cached.
    pub hit_tokens: usize,
    /// Tokens generated.
    pub output_tokens: usize,
    /// How often one was preempted.
    pub preemptions: usize,
    /// Cached blocks that were evicted.
    pub evictions: u64,
    /// Steps.
    pub steps: usize,
    /// From the first arrival to the end of the last step, in seconds.
    pub makespan: f64,
    /// Share of all instances' time that was spent in steps.
    pub utilisation: f64,
    /// Requests in a step, on average over an instance's time.
    pub running: f64,
    /// What requests waited.
    pub latencies: Latencies,
}

impl InstanceReport {
    /// Of one instance, with its own counts in `report`, or of all.
    pub fn of(
        report: &Report,
        times: &Times,
        makespan: Nanoseconds,
        num_instances: usize,
        is_here: impl Fn(usize) -> bool,
    ) -> Self {
        let counting = || {
            let here = move |&(index, _): &(usize, _)| is_here(index);
            report.counting().enumerate().filter(here)
        };
        let requests: Vec<_> = counting().filter_map(|(i, request)| Some((i, request?))).collect();
        let sum = |count: fn(&crate::report::RequestReport) -> usize| -> usize {
            requests.iter().map(|(_, request)| count(request)).sum()
        };
        let available = makespan as f64 * num_instances as f64;
        let share = |time: f64| if available > 0.0 { time / available } else { 0.0 };
        Self {
            requests: requests.len(),
            prompt_tokens: sum(|request| request.prompt_tokens),
            hit_tokens: sum(|request| request.hit_tokens.unwrap_or(0)),
            output_tokens: sum(|request| request.output_tokens),
            preemptions: sum(|request| request.preemptions),
            evictions: report.last.evictions,
            steps: report.steps,
            makespan: seconds(makespan),
            utilisation: share(times.busy as f64),
            running: share(times.request_time as f64),
            latencies: Latencies::of(times, requests.iter().map(|&(index, _)| index)),
        }
    }
}

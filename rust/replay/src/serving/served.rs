//! The reports of a replay over time.

use serde::{Deserialize, Serialize};

use crate::clock::{Latencies, Nanoseconds, Times, seconds};
use crate::report::Report;

/// The times and the reports of all instances.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Served {
    /// The times of all requests.
    pub times: Times,
    /// The instance of each request of the trace.
    pub instance_of: Vec<usize>,
    /// The report of all instances together.
    pub all: InstanceReport,
    /// The report of each instance.
    pub instances: Vec<InstanceReport>,
}

/// The report of one instance, or of all instances together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InstanceReport {
    /// The number of served requests. Rejected requests count in no number.
    pub requests: usize,
    /// The number of prompt tokens.
    pub prompt_tokens: usize,
    /// The number of prompt tokens that were hit.
    pub hit_tokens: usize,
    /// The number of generated tokens.
    pub output_tokens: usize,
    /// The number of preemptions.
    pub preemptions: usize,
    /// The number of evicted blocks.
    pub evictions: u64,
    /// The number of steps.
    pub steps: usize,
    /// The number of seconds from the first arrival to the end of the last step.
    pub makespan: f64,
    /// The share of the instances' time that was spent in steps.
    pub utilisation: f64,
    /// The average number of requests in a step, over an instance's time.
    pub running: f64,
    /// The latencies of requests.
    pub latencies: Latencies,
}

impl InstanceReport {
    /// Returns the report of the requests that `is_served` selects.
    pub fn of(
        report: &Report,
        times: &Times,
        makespan: Nanoseconds,
        num_instances: usize,
        is_served: impl Fn(usize) -> bool,
    ) -> Self {
        let counting = || {
            let selected = move |&(index, _): &(usize, _)| is_served(index);
            report.counting().enumerate().filter(selected)
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

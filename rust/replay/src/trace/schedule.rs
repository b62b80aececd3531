//! The schedules of recorded servers: the requests that ran in each step, in order.

use serde::{Deserialize, Serialize};

use super::fields::{LineError, wrong};
use super::request::TraceRequest;

/// The limit for the numbers of requests and tokens in a line.
const MOST: u64 = 1 << 32;
/// The number of bits of the ids of sampled blocks.
const MAX_ID_BITS: u32 = 40;

/// The actions of one scheduler, from its start to its end.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Schedule {
    /// The instance of the scheduler.
    pub instance: u32,
    /// The time at which the scheduler started, in microseconds.
    pub start: u64,
    /// The events, in order.
    pub events: Vec<Event>,
    /// The durations of all steps with tokens, in order; empty if they were not recorded.
    pub durations: Vec<StepDuration>,
    /// The first id of the schedule's requests.
    pub first_id: i64,
    /// The ids of the blocks that adaptive retention sampled, each with the number of densities at
    /// which it is sampled.
    pub samples: Vec<(i64, u8)>,
}

/// The duration of a step. It counts from the end of the previous step if requests were left then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepDuration {
    /// The duration in nanoseconds.
    pub nanoseconds: u64,
    /// The number of requests that had tokens in the step.
    pub running: u32,
}

/// One event of a scheduler. Requests are identified by the numbers that the recording gave them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// Steps in which each running request computed one token.
    PlainSteps(u32),
    /// A step in which these requests did not compute exactly one more token.
    Step(Vec<Scheduled>),
    /// The next step preempts a request.
    Preempted(Preempted),
    /// From the next step on, the outputs of this many earlier steps are not known when a step is
    /// scheduled.
    InFlight(u32),
    /// In the next step, the loads of these requests from CPU memory begin.
    Loading(Vec<u32>),
    /// In the next step, requests that have ended offer their last blocks to CPU memory in this
    /// order.
    Finished(Vec<u32>),
    /// Transfers from or to CPU memory have ended.
    Transferred(Vec<Transferred>),
    /// In the next step, blocks are stored for loads that wait for it. This many are asked for.
    Asked(u32),
    /// In the next step, this many stores begin that belong to no request.
    Storing(u32),
    /// Stores that belong to no request have ended. Each began this many steps ago; 0 is the latest
    /// step.
    Stored(Vec<u32>),
    /// The prefix cache is emptied.
    Reset(Reset),
    /// Running requests were preempted for a reset of the prefix cache, which failed.
    ResetFailed,
    /// CPU memory is emptied.
    HostReset,
    /// A request releases its blocks.
    Ended(u32),
}

/// The oldest transfer of a request in one direction has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transferred {
    /// The request.
    pub request: u32,
    /// Whether it was a store, not a load.
    pub is_store: bool,
}

/// A reset of the prefix cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reset {
    /// Whether running requests were preempted for it.
    pub preempts: bool,
    /// The time of the reset, in microseconds.
    pub time: u64,
}

/// A preemption of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preempted {
    /// The request.
    pub request: u32,
    /// The number of tokens of the request.
    pub num_tokens: u32,
    /// The number of computed tokens, without tokens in flight.
    pub num_computed_tokens: u32,
}

/// The part of a request in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scheduled {
    /// The request.
    pub request: u32,
    /// The number of scheduled tokens.
    pub num_tokens: u32,
    /// The number of tokens that were computed before, if the request does not continue where its
    /// last step ended.
    pub start: Option<u32>,
}

/// The place of a request in a recorded schedule, in addition to its length and blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    /// The scheduler that served the request, as an index of [`super::Trace::schedules`].
    pub schedule: u32,
    /// The request's number in the schedule.
    pub number: u32,
    /// Whether the request was aborted.
    #[serde(default)]
    pub is_aborted: bool,
}

/// A line of a recording that is not a request.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Schedule { schedule: Vec<Entry> },
    Reset { reset: String, timestamp: f64 },
    Sampled { sampled: Vec<Vec<u64>> },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Entry {
    PlainSteps(u64),
    Step(Vec<Vec<u64>>),
    Preempted { preempted: u64, tokens: u64, computed: u64 },
    InFlight { in_flight: u64 },
    Loading { loading: Vec<u64> },
    Transferred { transferred: Vec<(u64, u64)> },
    Finished { finished: Vec<u64> },
    Asked { asked: u64 },
    Storing { storing: u64 },
    Stored { stored: Vec<u64> },
}

impl Schedule {
    /// Adds the events of a line.
    pub fn push_line(&mut self, line: &[u8]) -> Result<(), LineError> {
        let line: Line = serde_json::from_slice(line)
            .map_err(|error| wrong("schedule", format!("is not part of a schedule: {error}")))?;
        match line {
            Line::Schedule { schedule } => {
                let events = schedule.into_iter().map(event).collect::<Result<Vec<_>, _>>()?;
                self.events.extend(events);
            }
            Line::Reset { reset, timestamp } => self.events.push(self.reset(&reset, timestamp)?),
            Line::Sampled { sampled } => {
                let samples = self.samples_of(sampled)?;
                self.samples.extend(samples);
            }
        }
        Ok(())
    }

    /// Returns the sampled ids of a line. It has them by the number of densities less 1.
    fn samples_of(&self, sampled: Vec<Vec<u64>>) -> Result<Vec<(i64, u8)>, LineError> {
        let mut samples = Vec::new();
        for (ids, num_samples) in sampled.into_iter().zip(1..) {
            for id in ids {
                let most = || format!("has the id {id}; the limit is 2^{MAX_ID_BITS} - 1");
                let id = i64::try_from(id).ok().filter(|id| id >> MAX_ID_BITS == 0);
                let id = id.ok_or_else(|| wrong("sampled", most()))?;
                samples.push((self.first_id + id, num_samples));
            }
        }
        Ok(samples)
    }

    fn reset(&self, kind: &str, timestamp: f64) -> Result<Event, LineError> {
        let preempts = match kind {
            "idle" => false,
            "preempting" => true,
            "failed" => return Ok(Event::ResetFailed),
            "host" => return Ok(Event::HostReset),
            _ => {
                let known = "\"idle\", \"preempting\", \"failed\" or \"host\"";
                return Err(wrong("reset", format!("is {kind:?}; it can be {known}")));
            }
        };
        if !(0.0..1e15).contains(&timestamp) {
            return Err(wrong("timestamp", format!("is {timestamp}; expected milliseconds")));
        }
        let time = self.start.saturating_add((timestamp * 1e3).round() as u64);
        Ok(Event::Reset(Reset { preempts, time }))
    }

    /// Forgets all events except the resets.
    pub fn keep_resets(&mut self) {
        self.events.retain(|event| matches!(event, Event::Reset(_)));
    }

    /// Returns whether transfers were recorded.
    pub fn has_transfers(&self) -> bool {
        let is_of_transfers = |event: &Event| {
            use Event::{Loading, Stored, Storing, Transferred};
            matches!(event, Loading(_) | Transferred(_) | Storing(_) | Stored(_))
        };
        self.events.iter().any(is_of_transfers)
    }

    /// Returns whether stores were recorded that belong to no request.
    pub fn has_leaving_stores(&self) -> bool {
        self.events.iter().any(|event| matches!(event, Event::Storing(_)))
    }

    /// Returns the number of requests that ended.
    pub fn num_ended(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, Event::Ended(_))).count()
    }

    /// Returns the resets with their times.
    pub fn resets(&self) -> impl Iterator<Item = Reset> {
        self.events.iter().filter_map(|event| match event {
            Event::Reset(reset) => Some(*reset),
            _ => None,
        })
    }
}

fn event(entry: Entry) -> Result<Event, LineError> {
    match entry {
        Entry::PlainSteps(count) => number(count).map(Event::PlainSteps),
        Entry::Preempted { preempted, tokens, computed } => Ok(Event::Preempted(Preempted {
            request: number(preempted)?,
            num_tokens: number(tokens)?,
            num_computed_tokens: number(computed)?,
        })),
        Entry::InFlight { in_flight } => number(in_flight).map(Event::InFlight),
        Entry::Loading { loading } => numbers(loading).map(Event::Loading),
        Entry::Finished { finished } => numbers(finished).map(Event::Finished),
        Entry::Asked { asked } => number(asked).map(Event::Asked),
        Entry::Storing { storing } => number(storing).map(Event::Storing),
        Entry::Stored { stored } => numbers(stored).map(Event::Stored),
        Entry::Transferred { transferred } => {
            let of = |(request, kind)| {
                let is_store = match kind {
                    0 | 1 => kind == 1,
                    _ => return Err(wrong("transferred", format!("is {kind}; it can be 0 or 1"))),
                };
                Ok(Transferred { request: number(request)?, is_store })
            };
            transferred.into_iter().map(of).collect::<Result<_, _>>().map(Event::Transferred)
        }
        Entry::Step(scheduled) => {
            scheduled.iter().map(|each| part(each)).collect::<Result<_, _>>().map(Event::Step)
        }
    }
}

fn part(numbers: &[u64]) -> Result<Scheduled, LineError> {
    let (request, num_tokens, start) = match *numbers {
        [request, num_tokens] => (request, num_tokens, None),
        [request, num_tokens, start] => (request, num_tokens, Some(start)),
        _ => {
            let message = format!("has a request with {} numbers; expected 2 or 3", numbers.len());
            return Err(wrong("schedule", message));
        }
    };
    let start = start.map(number).transpose()?;
    Ok(Scheduled { request: number(request)?, num_tokens: number(num_tokens)?, start })
}

fn numbers(values: Vec<u64>) -> Result<Vec<u32>, LineError> {
    values.into_iter().map(number).collect()
}

fn number(value: u64) -> Result<u32, LineError> {
    let in_range = u32::try_from(value).ok().filter(|_| value < MOST);
    in_range
        .ok_or_else(|| wrong("schedule", format!("has the number {value}; the limit is 2^32 - 1")))
}

/// A reset, with the first request that arrived after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResetBefore {
    /// The request's index in the trace.
    pub request: usize,
    /// The instance whose cache is emptied.
    pub instance: u32,
    /// Whether running requests are preempted for it.
    pub preempts: bool,
}

/// Returns the resets of schedules, each with the request that follows it, in the order of these
/// requests. A scheduler that starts after another one of its instance starts with an empty cache.
pub fn resets_before(schedules: &[Schedule], requests: &[TraceRequest]) -> Vec<ResetBefore> {
    let is_restart = |index: usize, schedule: &Schedule| {
        schedules[..index].iter().any(|earlier| earlier.instance == schedule.instance)
    };
    let of_schedule = |(index, schedule): (usize, &Schedule)| {
        let restart = Reset { preempts: false, time: schedule.start };
        let restart = is_restart(index, schedule).then_some(restart);
        let resets: Vec<_> = restart.into_iter().chain(schedule.resets()).collect();
        let instance = schedule.instance;
        resets.into_iter().filter_map(move |Reset { preempts, time }| {
            let is_after = |request: &TraceRequest| {
                request.instance == Some(instance)
                    && request.arrival.is_some_and(|arrival| arrival >= time)
            };
            let request = requests.iter().position(is_after)?;
            Some(ResetBefore { request, instance, preempts })
        })
    };
    let mut resets: Vec<_> = schedules.iter().enumerate().flat_map(of_schedule).collect();
    resets.sort_by_key(|reset| (reset.request, reset.instance));
    resets
}

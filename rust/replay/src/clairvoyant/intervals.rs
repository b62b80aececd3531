//! Finds the intervals of a schedule in which free prefixes must stay cached to be hit. Also counts
//! the blocks that are free in these intervals.

use std::sync::atomic::{AtomicBool, Ordering};

use super::blocks_in_use::{BlocksInUse, Holding};
use super::hit_rules::HitRules;
use super::prefix_numbers::Prefixes;
use super::schedule::{Event, Schedule};
use super::selection::ReuseInterval;
use super::tables::{Progress, Table};
use crate::tokens::HashSizes;
use crate::trace::Trace;

/// The input of a bound in addition to the schedule.
#[derive(Debug)]
pub struct BoundInput<'a> {
    /// The trace.
    pub trace: &'a Trace,
    /// The sizes of the trace's hashes.
    pub hash_sizes: HashSizes,
    /// The number of blocks in the pool, including the null block.
    pub num_blocks: usize,
    /// The block tables of the groups.
    pub tables: Vec<Table>,
    /// The rules for hits.
    pub rules: HitRules,
    /// For each request, whether it counts.
    pub counts: Vec<bool>,
}

/// The intervals of a schedule.
#[derive(Debug)]
pub struct Intervals {
    /// The units that are hit if they stay cached.
    pub intervals: Vec<ReuseInterval>,
    /// For each step, the most free units that the pool holds after the step's allocation.
    pub capacity: Vec<usize>,
    /// For each request, the number of tokens that it hits if nothing is evicted; `None` for
    /// requests that do not count.
    pub reachable: Vec<Option<usize>>,
}

/// Returns the intervals of a schedule; `None` if the run was cancelled.
pub fn find(
    input: &BoundInput<'_>,
    schedule: &Schedule,
    cancelled: &AtomicBool,
) -> Option<Intervals> {
    let mut scan = ScheduleScan::new(input);
    for &event in schedule.events() {
        if event == Event::StepAllocated && cancelled.load(Ordering::Relaxed) {
            return None;
        }
        scan.apply(event);
    }
    Some(scan.found)
}

/// A prefix. It is represented by its last unit.
#[derive(Clone, Copy, Debug, Default)]
struct Unit {
    /// The number of running requests that have computed the unit.
    num_users: u32,
    /// The allocated step of its last use or hit; `None` if it was never computed.
    used_at: Option<u32>,
    /// Whether a state existed at the unit's end.
    has_state: bool,
}

/// A running or preempted request.
struct ActiveRequest {
    prefixes: Vec<u32>,
    num_prompt_tokens: usize,
    num_known_tokens: usize,
    /// The number of computed units of the request's known tokens.
    num_units: usize,
    holding: Holding,
}

struct ScheduleScan<'a> {
    input: &'a BoundInput<'a>,
    prefixes: Prefixes,
    units: Vec<Unit>,
    usage: BlocksInUse,
    requests: Vec<Option<ActiveRequest>>,
    /// The number of steps allocated so far.
    now: u32,
    found: Intervals,
}

impl<'a> ScheduleScan<'a> {
    fn new(input: &'a BoundInput<'a>) -> Self {
        let num_requests = input.trace.requests().len();
        Self {
            input,
            prefixes: Prefixes::new(input.hash_sizes, input.rules.unit),
            units: Vec::new(),
            usage: BlocksInUse::new(input.tables.clone(), input.rules.unit),
            requests: std::iter::repeat_with(|| None).take(num_requests).collect(),
            now: 0,
            found: Intervals {
                intervals: Vec::new(),
                capacity: Vec::new(),
                reachable: input.counts.iter().map(|counts| counts.then_some(0)).collect(),
            },
        }
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::Admitted { request, num_tokens } => {
                if self.requests[request as usize].is_none() {
                    self.admit(request as usize);
                }
                self.extend(request as usize, num_tokens as usize);
            }
            Event::Extended { request, num_tokens } => {
                self.extend(request as usize, num_tokens as usize);
            }
            Event::Preempted { request } => {
                let active = self.requests[request as usize].take();
                self.requests[request as usize] = active.map(|active| self.release(active));
            }
            Event::Ended { request } => {
                if let Some(active) = self.requests[request as usize].take() {
                    self.release(active);
                }
            }
            Event::StepAllocated => self.end_step(),
        }
    }

    /// Admits a request for the first time.
    fn admit(&mut self, request: usize) {
        let known = &self.input.trace.requests()[request];
        let prefixes = self.prefixes.of_request(known);
        let num_prompt_tokens = known.prompt.len();
        self.units.resize(self.prefixes.len(), Unit::default());
        self.usage.resize(self.prefixes.len());
        if self.input.counts[request] && self.input.rules.is_cacheable {
            self.look_up(request, &prefixes, num_prompt_tokens - 1);
        }
        self.requests[request] = Some(ActiveRequest {
            prefixes,
            num_prompt_tokens,
            num_known_tokens: known.num_known_tokens(self.input.hash_sizes.tokens_per_id),
            num_units: 0,
            holding: Holding::new(),
        });
    }

    fn look_up(&mut self, request: usize, prefixes: &[u32], max_length: usize) {
        let rules = &self.input.rules;
        let num_units = self.longest_hit(&prefixes[..prefixes.len().min(max_length / rules.unit)]);
        let num_tokens = (num_units * rules.unit).max(rules.num_free_tokens(max_length));
        self.found.reachable[request] = Some(num_tokens);
        if rules.cost.is_some() {
            self.add_intervals(request as u32, &prefixes[..num_units]);
        }
    }

    /// Returns the number of units of the longest hit in a pool that never evicts.
    fn longest_hit(&self, prefixes: &[u32]) -> usize {
        let rules = &self.input.rules;
        let unit = |&prefix: &u32| self.units[prefix as usize];
        let num_seen = prefixes.iter().take_while(|prefix| unit(prefix).used_at.is_some()).count();
        let is_hit = |&num_units: &usize| {
            let has_state = || unit(&prefixes[num_units - 1]).has_state;
            (num_units * rules.unit).is_multiple_of(rules.alignment)
                && (!rules.needs_state || has_state())
        };
        (1..=num_seen).rev().find(is_hit).unwrap_or(0)
    }

    /// Adds the intervals from the last use of prefixes to their hit by a request in this step.
    fn add_intervals(&mut self, request: u32, prefixes: &[u32]) {
        let first = self.found.intervals.len();
        for &prefix in prefixes {
            let unit = &mut self.units[prefix as usize];
            let Some(from) = unit.used_at.replace(self.now) else { continue };
            if unit.num_users > 0 {
                continue;
            }
            match self.found.intervals[first..].last_mut() {
                Some(last) if last.from == from => last.num_units += 1,
                _ => {
                    let interval = ReuseInterval { from, until: self.now, request, num_units: 1 };
                    self.found.intervals.push(interval);
                }
            }
        }
    }

    /// Gives a request slots for its first `num_tokens` tokens.
    fn extend(&mut self, request: usize, num_tokens: usize) {
        let Some(active) = &mut self.requests[request] else { return };
        let rules = &self.input.rules;
        let num_units = num_tokens.min(active.num_known_tokens) / rules.unit;
        for &prefix in &active.prefixes[active.num_units.min(num_units)..num_units] {
            let unit = &mut self.units[prefix as usize];
            unit.num_users += 1;
            unit.used_at = Some(self.now);
            unit.has_state |= rules.exports_states;
        }
        active.num_units = num_units;
        if num_units > 0 && num_units * rules.unit == num_tokens {
            self.units[active.prefixes[num_units - 1] as usize].has_state = true;
        }
        if rules.cost.is_some() {
            let ActiveRequest { num_prompt_tokens, num_known_tokens, .. } = *active;
            // The schedule has no decode steps inside a hash block.
            let at_most = match num_tokens < num_prompt_tokens {
                true => num_tokens,
                false => num_tokens.next_multiple_of(self.input.hash_sizes.block_size),
            };
            let progress = Progress { num_tokens, at_most, num_prompt_tokens, num_known_tokens };
            self.usage.hold(&mut active.holding, &active.prefixes, progress);
        }
    }

    fn release(&mut self, mut active: ActiveRequest) -> ActiveRequest {
        for &prefix in &active.prefixes[..active.num_units] {
            let unit = &mut self.units[prefix as usize];
            unit.num_users -= 1;
            unit.used_at = Some(self.now);
        }
        self.usage.release(&mut active.holding, &active.prefixes);
        active.num_units = 0;
        active
    }

    fn end_step(&mut self) {
        if let Some(cost) = self.input.rules.cost {
            let num_usable = self.input.num_blocks - 1;
            let num_free = num_usable.saturating_sub(self.usage.num_blocks());
            self.found.capacity.push(cost.num_units(num_free));
        }
        self.now += 1;
    }
}

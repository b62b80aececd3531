//! Goes through a schedule: what every request could hit, what of that has to wait in the pool
//! and how long, and how much room there is.

use std::sync::atomic::{AtomicBool, Ordering};

use super::prefixes::Prefixes;
use super::rules::HitRules;
use super::schedule::{Event, Schedule};
use super::tables::{Progress, Table};
use super::usage::{Holding, Usage};
use super::waits::Wait;
use crate::tokens::HashSizes;
use crate::trace::Trace;

/// What a schedule is a schedule of.
#[derive(Debug)]
pub struct Plan<'a> {
    /// The trace that was played.
    pub trace: &'a Trace,
    /// Its hashes.
    pub hash_sizes: HashSizes,
    /// Blocks of the pool, the null block included.
    pub num_blocks: usize,
    /// What the groups hold.
    pub tables: Vec<Table>,
    /// What they hit.
    pub rules: HitRules,
    /// Which requests' hits count.
    pub counts: Vec<bool>,
}

/// What a schedule leaves to decide.
#[derive(Debug)]
pub struct Swept {
    /// What is hit if it waits.
    pub waits: Vec<Wait>,
    /// The most units that can wait after each step's allocation.
    pub room: Vec<usize>,
    /// Tokens that each request hits if nothing is evicted; `None` where its hits do not count.
    pub reachable: Vec<Option<usize>>,
}

/// Goes through a schedule; `None` if that was cancelled.
pub fn sweep(plan: &Plan<'_>, schedule: &Schedule, cancelled: &AtomicBool) -> Option<Swept> {
    let mut sweep = Sweep::new(plan);
    for &event in schedule.events() {
        if event == Event::StepAllocated && cancelled.load(Ordering::Relaxed) {
            return None;
        }
        sweep.play(event);
    }
    Some(sweep.swept)
}

/// A prefix, named by its last unit.
#[derive(Clone, Copy, Debug, Default)]
struct Unit {
    /// Running requests that have computed it.
    num_users: u32,
    /// When it was in use or hit for the last time, in allocated steps; `None` if it was never
    /// computed.
    used_at: Option<u32>,
    /// Whether a state was there at its end.
    has_state: bool,
}

/// A request that runs or was preempted.
struct Active {
    prefixes: Vec<u32>,
    num_prompt_tokens: usize,
    num_known_tokens: usize,
    /// Units of its known tokens that it has computed.
    num_units: usize,
    holding: Holding,
}

struct Sweep<'a> {
    plan: &'a Plan<'a>,
    prefixes: Prefixes,
    units: Vec<Unit>,
    usage: Usage,
    requests: Vec<Option<Active>>,
    /// Steps allocated so far.
    now: u32,
    swept: Swept,
}

impl<'a> Sweep<'a> {
    fn new(plan: &'a Plan<'a>) -> Self {
        let num_requests = plan.trace.requests().len();
        Self {
            plan,
            prefixes: Prefixes::new(plan.hash_sizes, plan.rules.unit),
            units: Vec::new(),
            usage: Usage::new(plan.tables.clone(), plan.rules.unit),
            requests: std::iter::repeat_with(|| None).take(num_requests).collect(),
            now: 0,
            swept: Swept {
                waits: Vec::new(),
                room: Vec::new(),
                reachable: plan.counts.iter().map(|counts| counts.then_some(0)).collect(),
            },
        }
    }

    fn play(&mut self, event: Event) {
        match event {
            Event::Admitted { request, num_tokens } => {
                if self.requests[request as usize].is_none() {
                    self.arrive(request as usize);
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

    /// A request is admitted for the first time.
    fn arrive(&mut self, request: usize) {
        let known = &self.plan.trace.requests()[request];
        let prefixes = self.prefixes.of_request(known);
        let num_prompt_tokens = known.prompt.len();
        self.units.resize(self.prefixes.len(), Unit::default());
        self.usage.learn(self.prefixes.len());
        if self.plan.counts[request] && self.plan.rules.is_cacheable {
            self.look_up(request, &prefixes, num_prompt_tokens - 1);
        }
        self.requests[request] = Some(Active {
            prefixes,
            num_prompt_tokens,
            num_known_tokens: known.num_known_tokens(self.plan.hash_sizes.tokens_per_id),
            num_units: 0,
            holding: Holding::new(),
        });
    }

    fn look_up(&mut self, request: usize, prefixes: &[u32], max_length: usize) {
        let rules = &self.plan.rules;
        let num_units = self.longest_hit(&prefixes[..max_length / rules.unit]);
        let num_tokens = (num_units * rules.unit).max(rules.num_free_tokens(max_length));
        self.swept.reachable[request] = Some(num_tokens);
        if rules.cost.is_some() {
            self.wait_for(request as u32, &prefixes[..num_units]);
        }
    }

    /// Units of the longest hit in a pool that never evicts.
    fn longest_hit(&self, prefixes: &[u32]) -> usize {
        let rules = &self.plan.rules;
        let unit = |&prefix: &u32| self.units[prefix as usize];
        let num_seen = prefixes.iter().take_while(|prefix| unit(prefix).used_at.is_some()).count();
        let is_hit = |&num_units: &usize| {
            let has_state = || unit(&prefixes[num_units - 1]).has_state;
            (num_units * rules.unit).is_multiple_of(rules.alignment)
                && (!rules.needs_state || has_state())
        };
        (1..=num_seen).rev().find(is_hit).unwrap_or(0)
    }

    /// A request that is admitted now hits these prefixes if they waited since they were last used.
    fn wait_for(&mut self, request: u32, prefixes: &[u32]) {
        let first = self.swept.waits.len();
        for &prefix in prefixes {
            let unit = &mut self.units[prefix as usize];
            let Some(from) = unit.used_at.replace(self.now) else { continue };
            if unit.num_users > 0 {
                continue;
            }
            match self.swept.waits[first..].last_mut() {
                Some(last) if last.from == from => last.num_units += 1,
                _ => {
                    let wait = Wait { from, until: self.now, request, num_units: 1 };
                    self.swept.waits.push(wait);
                }
            }
        }
    }

    /// A request has slots for `num_tokens`.
    fn extend(&mut self, request: usize, num_tokens: usize) {
        let Some(active) = &mut self.requests[request] else { return };
        let rules = &self.plan.rules;
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
            let Active { num_prompt_tokens, num_known_tokens, .. } = *active;
            // Decode steps inside a hash block are not in the schedule.
            let at_most = match num_tokens < num_prompt_tokens {
                true => num_tokens,
                false => num_tokens.next_multiple_of(self.plan.hash_sizes.block_size),
            };
            let progress = Progress { num_tokens, at_most, num_prompt_tokens, num_known_tokens };
            self.usage.hold(&mut active.holding, &active.prefixes, progress);
        }
    }

    fn release(&mut self, mut active: Active) -> Active {
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
        if let Some(cost) = self.plan.rules.cost {
            let num_usable = self.plan.num_blocks - 1;
            let num_free = num_usable.saturating_sub(self.usage.num_blocks());
            self.swept.room.push(cost.num_units(num_free));
        }
        self.now += 1;
    }
}

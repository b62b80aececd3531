//! What the lines of a trace so far mean for the next one.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::ops::Range;

use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

use super::fields::{LineError, integer, wrong};
use super::ids::HashIds;
use super::prompt::Prompt;
use super::request::TraceRequest;
use super::times::Times;

/// Larger ids are numbered anew, so that the tokens of every id are numbers of 64 bits.
const LARGEST_ID: i64 = 1 << 34;

/// What the lines so far mean for the next one, and the requests of the current one.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// The requests of the current line.
    pub requests: Vec<TraceRequest>,
    /// Index of the next request of the trace.
    pub next: usize,
    /// The name by which later lines may wait for the request of the current line.
    pub name: Option<u64>,
    /// Whether a line set the priority of its blocks.
    pub has_priorities: bool,
    /// Whether lines are in another order than requests arrive.
    pub is_unordered: bool,
    /// What the first line says, where it is a head.
    pub head: Option<Head>,
    /// When the request of the current line was served, if an agent made it.
    pub span: Option<Span>,
    /// When the requests of agents were served, by their indices.
    pub spans: HashMap<u32, Span>,
    /// Whether no line comes any more.
    pub is_finished: bool,
    /// The times of the requests.
    pub times: Times,
    /// The tokens of the latest request of each session, where lines say how many come back.
    sequences: HashMap<u64, HashIds>,
    /// How many tokens got an id of their own in such lines.
    num_tokens: i64,
    /// Whether lines are in order of time.
    pub order: Order,
    /// Hashes of the names of records that come more than once.
    pub seen: HashSet<u64>,
    /// Which roles a record had a value for, by their numbers.
    pub has_value: [bool; 7],
    /// How many records have no ids.
    pub num_without_ids: usize,
    /// The requests of the latest run, where lines are runs one after the other.
    pub run: Option<Range<u32>>,
    /// How many records were left out, by the reason.
    left_out: Vec<(&'static str, usize)>,
    /// Requests by their name.
    named: HashMap<u64, u32>,
    /// Requests of lines to come, for which others wait, by their name.
    awaited: HashMap<u64, Vec<Awaited>>,
    /// Those for which requests of the current line wait.
    newly_awaited: Vec<(u64, Awaited)>,
    /// How many there were.
    num_awaited: u32,
    /// The latest request of each session.
    latest: HashMap<u64, u32>,
    /// Numbers of ids that are large or text, or of one line alone.
    ids: HashMap<u64, i64, foldhash::fast::FixedState>,
    /// How many ids have got such a number.
    num_ids: i64,
    /// Whether equal ids in other lines are other blocks.
    has_own_ids: bool,
    /// Fields that were said to be unused.
    unused: Vec<String>,
    notes: Vec<String>,
}

/// Whether the times of requests so far only grow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Order {
    latest: u64,
    has_late: bool,
}

impl Order {
    /// Take the next request in.
    fn add(&mut self, request: &TraceRequest) {
        let arrival = request.arrival.unwrap_or(0);
        self.has_late |= arrival < self.latest;
        self.latest = self.latest.max(arrival);
    }

    /// Whether a request may have come before the one of an earlier line.
    pub fn may_be_late(self) -> bool {
        self.has_late
    }
}

/// What the head of a trace says of all lines.
#[derive(Clone, Debug)]
pub struct Head {
    /// The tokens of an id.
    pub tokens_per_id: usize,
    /// The model that answers the requests so far.
    pub model: Option<Value>,
}

/// The time in which a request of an agent was served, in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// The agent's session.
    pub session: u64,
    /// The session that began it.
    pub parent: Option<u64>,
    /// When the request arrived.
    pub start: u64,
    /// When it was answered.
    pub end: u64,
}

/// A request of a line to come.
#[derive(Clone, Debug)]
struct Awaited {
    /// What stands for its index so far, a number of its own.
    placeholder: u32,
    /// The request that waits for it.
    follower: u32,
    /// Its name as text.
    text: String,
}

impl Reading {
    /// Returns an id that is equal where the values are: small numbers are their own, and all others
    /// become negative ones.
    pub fn id(&mut self, value: &Value) -> Option<i64> {
        let key = match value {
            Value::String(text) if !text.is_empty() => xxh3_64(text.as_bytes()),
            _ => match integer(value) {
                Some(id @ 0..LARGEST_ID) if !self.has_own_ids => return Some(id),
                Some(id) => u64::try_from(id).ok()?,
                None => value.as_u64()?,
            },
        };
        let number = || {
            self.num_ids += 1;
            self.num_ids - LARGEST_ID
        };
        Some(*self.ids.entry(key).or_insert_with(number))
    }

    /// Makes the ids of the current line other blocks than equal ids of all other lines.
    pub fn own_ids(&mut self) {
        self.has_own_ids = true;
        self.ids.clear();
    }

    /// Returns the latest request of a session.
    pub fn latest(&self, session: u64) -> Option<u32> {
        self.latest.get(&session).copied()
    }

    /// Returns the index of the request that has a name, or what stands for it until its line comes.
    pub fn named(&mut self, value: &Value) -> u32 {
        let name = name(value);
        if let Some(&request) = self.named.get(&name) {
            return request;
        }
        let placeholder = u32::MAX - self.num_awaited - self.newly_awaited.len() as u32;
        let follower = self.index() as u32;
        let awaited = Awaited { placeholder, follower, text: value.to_string() };
        self.newly_awaited.push((name, awaited));
        placeholder
    }

    /// Returns the first request that waits for one of no line so far, and the name of that one.
    pub fn first_awaited(&self) -> Option<(u32, &str)> {
        let first = self.awaited.values().flatten().min_by_key(|it| it.follower)?;
        Some((first.follower, &first.text))
    }

    /// Gives the request of the current line a name that no other has.
    pub fn set_name(&mut self, field: &str, value: &Value) -> Result<(), LineError> {
        let name = name(value);
        self.name = Some(name);
        match self.named.contains_key(&name) {
            false => Ok(()),
            true => Err(wrong(field, format!("is {value}, as in an earlier line"))),
        }
    }

    /// Give the requests of the trace their times in the unit that all of them show.
    pub fn settle_times(&mut self, requests: &mut [TraceRequest]) {
        self.order.has_late |= self.times.settle(requests);
    }

    /// Index of the request that is read next.
    pub fn index(&self) -> usize {
        self.next + self.requests.len()
    }

    /// Leave a record out, and count it under the reason.
    pub fn leave_out(&mut self, reason: &'static str) {
        match self.left_out.iter_mut().find(|(other, _)| *other == reason) {
            Some((_, count)) => *count += 1,
            None => self.left_out.push((reason, 1)),
        }
    }

    /// Return a prompt and its output with an id per token: `prefix` tokens are those of the
    /// session's latest request, as far as that has as many, and all others are new.
    pub fn ids_after(
        &mut self,
        session: u64,
        prefix: usize,
        length: usize,
        output: usize,
    ) -> Prompt {
        if prefix > length {
            self.note("prefixes that are longer than their prompt are cut to its length");
        }
        let before = self.sequences.remove(&session).unwrap_or_default();
        let num_known = prefix.min(length).min(before.len());
        if num_known < prefix.min(length) {
            self.note(
                "cached tokens that the session's request before did not have are played as new",
            );
        }
        let num_new = (length + output - num_known) as i64;
        let new = self.num_tokens..self.num_tokens + num_new;
        self.num_tokens += num_new;
        let ids = HashIds::of_runs(before.runs_to(num_known).chain([new]));
        // A server never computes the last token of an output.
        let num_generated = output.saturating_sub(1);
        let hash_ids = HashIds::of_runs(ids.runs_to(length + num_generated));
        self.sequences.insert(session, ids);
        Prompt::HashIds { length, hash_ids, num_output_ids: Some(num_generated) }
    }

    /// Says that a field is not used, once.
    pub fn leave_unused(&mut self, name: &str) {
        if !self.is_unused(name) {
            self.unused.push(name.to_owned());
            self.note(&format!("field '{name}' is not used"));
        }
    }

    /// Whether a field was said to be unused.
    pub fn is_unused(&self, name: &str) -> bool {
        self.unused.iter().any(|other| other == name)
    }

    /// Says something about the trace, once.
    pub fn note(&mut self, text: &str) {
        if !self.notes.iter().any(|note| note == text) {
            self.notes.push(text.to_owned());
        }
    }

    /// What there is to say about the trace.
    pub fn notes(&self) -> Vec<String> {
        let note = "the trace has no ids of blocks: prompts share nothing, and nothing is hit";
        let without_ids = (self.num_without_ids > 0).then(|| note.to_owned());
        let left_out = self.left_out.iter().map(|(why, count)| format!("left out: {count} {why}"));
        let notes = self.notes.iter().cloned().chain(without_ids);
        notes.chain(self.times.notes().iter().cloned()).chain(left_out).collect()
    }

    /// Begins a line.
    pub fn begin(&mut self, next: usize) {
        self.requests.clear();
        self.newly_awaited.clear();
        if mem::take(&mut self.has_own_ids) {
            self.ids.clear();
        }
        self.next = next;
        self.times.forget_from(next);
        (self.name, self.span) = (None, None);
    }

    /// Notes that the requests of the line are in the trace, the last of its `requests`. Those which
    /// wait for one of them learn its index.
    pub fn accept(&mut self, requests: &mut [TraceRequest]) {
        self.num_awaited += self.newly_awaited.len() as u32;
        self.is_unordered |= !self.newly_awaited.is_empty();
        for (name, awaited) in self.newly_awaited.drain(..) {
            self.awaited.entry(name).or_default().push(awaited);
        }
        for (request, index) in requests[self.next..].iter().zip(self.next as u32..) {
            self.order.add(request);
            if let Some(session) = request.conversation.filter(|it| it.continues.is_none()) {
                self.latest.insert(session.id, index);
            }
        }
        let Some(last) = requests.len().checked_sub(1) else { return };
        if let Some(span) = self.span {
            self.spans.insert(last as u32, span);
        }
        let Some(name) = self.name else { return };
        self.named.insert(name, last as u32);
        for Awaited { placeholder, follower, .. } in self.awaited.remove(&name).unwrap_or_default()
        {
            let waits = requests.get_mut(follower as usize).and_then(|it| it.wait.as_mut());
            let after = waits.into_iter().flat_map(|wait| &mut wait.after);
            after.filter(|it| it.request == placeholder).for_each(|it| it.request = last as u32);
        }
    }
}

fn name(value: &Value) -> u64 {
    xxh3_64(value.to_string().as_bytes())
}

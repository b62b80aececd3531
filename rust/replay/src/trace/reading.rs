//! The state that the lines of a trace pass on to the next line.

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

/// The limit for ids. Larger ids are renumbered, so that the tokens of every id are 64-bit numbers.
const LARGEST_ID: i64 = 1 << 34;

/// The state that earlier lines pass on to the next line, and the requests of the current line.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// The requests of the current line.
    pub requests: Vec<TraceRequest>,
    /// The index of the next request of the trace.
    pub next: usize,
    /// The name by which later lines may wait for the request of the current line.
    pub name: Option<u64>,
    /// Whether a line set the priority of its blocks.
    pub has_priorities: bool,
    /// Whether the lines are not in the order in which requests arrive.
    pub is_unordered: bool,
    /// The content of the first line, if it is a head.
    pub head: Option<Head>,
    /// The time in which the request of the current line was served, if an agent sent it.
    pub span: Option<Span>,
    /// The times in which requests of agents were served, by the requests' indices.
    pub spans: HashMap<u32, Span>,
    /// Whether all lines were read.
    pub is_finished: bool,
    /// The times of the requests.
    pub times: Times,
    /// The tokens of the latest request of each session, if lines say how many of them the next
    /// prompt contains.
    sequences: HashMap<u64, HashIds>,
    /// The number of tokens that got their own id in such lines.
    num_tokens: i64,
    /// Whether the lines are in order of time.
    pub order: Order,
    /// Hashes of the names of records that can occur more than once.
    pub seen: HashSet<u64>,
    /// The roles for which a record had a value, by the roles' numbers.
    pub has_value: [bool; 7],
    /// The number of records without ids.
    pub num_without_ids: usize,
    /// The requests of the latest run, if lines are runs one after the other.
    pub run: Option<Range<u32>>,
    /// The number of records that were left out, by reason.
    left_out: Vec<(&'static str, usize)>,
    /// Requests by their name.
    named: HashMap<u64, u32>,
    /// Requests of later lines for which others wait, by their name.
    awaited: HashMap<u64, Vec<Awaited>>,
    /// Requests of later lines for which requests of the current line wait.
    newly_awaited: Vec<(u64, Awaited)>,
    /// The number of awaited requests so far.
    num_awaited: u32,
    /// The latest request of each session.
    latest: HashMap<u64, u32>,
    /// Numbers of ids that are large or text, or that are valid in one line only.
    ids: HashMap<u64, i64, foldhash::fast::FixedState>,
    /// The number of ids that have such a number.
    num_ids: i64,
    /// Whether equal ids in other lines are other blocks.
    has_own_ids: bool,
    /// Fields that a note already named as unused.
    unused: Vec<String>,
    notes: Vec<String>,
}

/// Whether the times of requests so far only increase.
#[derive(Clone, Copy, Debug, Default)]
pub struct Order {
    latest: u64,
    has_late: bool,
}

impl Order {
    /// Adds the next request.
    fn add(&mut self, request: &TraceRequest) {
        let arrival = request.arrival.unwrap_or(0);
        self.has_late |= arrival < self.latest;
        self.latest = self.latest.max(arrival);
    }

    /// Returns whether a request may have arrived before a request of an earlier line.
    pub fn may_be_late(self) -> bool {
        self.has_late
    }
}

/// The head of a trace, which applies to all lines.
#[derive(Clone, Debug)]
pub struct Head {
    /// The number of tokens per id.
    pub tokens_per_id: usize,
    /// The model that answers the requests so far.
    pub model: Option<Value>,
}

/// The time in which a request of an agent was served, in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// The agent's session.
    pub session: u64,
    /// The session that started this one.
    pub parent: Option<u64>,
    /// The time at which the request arrived.
    pub start: u64,
    /// The time at which the request was answered.
    pub end: u64,
}

/// A request of a later line.
#[derive(Clone, Debug)]
struct Awaited {
    /// A unique number in place of the request's index, which is not known yet.
    placeholder: u32,
    /// The request that waits for it.
    follower: u32,
    /// The name as text.
    text: String,
}

impl Reading {
    /// Returns an id that is equal for equal values. Small numbers are their own ids; all other
    /// values get negative ids.
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

    /// Makes the ids of the current line distinct from equal ids of all other lines.
    pub fn own_ids(&mut self) {
        self.has_own_ids = true;
        self.ids.clear();
    }

    /// Returns the latest request of a session.
    pub fn latest(&self, session: u64) -> Option<u32> {
        self.latest.get(&session).copied()
    }

    /// Returns the index of the request with a name, or a placeholder until the request's line is
    /// read.
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

    /// Returns the first request that waits for a request without a line so far, and the name of
    /// the awaited request.
    pub fn first_awaited(&self) -> Option<(u32, &str)> {
        let first = self.awaited.values().flatten().min_by_key(|it| it.follower)?;
        Some((first.follower, &first.text))
    }

    /// Names the request of the current line. Returns an error if an earlier request has this name.
    pub fn set_name(&mut self, field: &str, value: &Value) -> Result<(), LineError> {
        let name = name(value);
        self.name = Some(name);
        match self.named.contains_key(&name) {
            false => Ok(()),
            true => Err(wrong(
                field,
                format!("is {value}, as in an earlier line; give each request its own"),
            )),
        }
    }

    /// Gives the requests of the trace their times in the unit that is inferred from all of them.
    pub fn apply_inferred_unit(&mut self, requests: &mut [TraceRequest]) {
        self.order.has_late |= self.times.apply_inferred_unit(requests);
    }

    /// Returns the index of the next request to read.
    pub fn index(&self) -> usize {
        self.next + self.requests.len()
    }

    /// Leaves a record out, and count it under the reason.
    pub fn leave_out(&mut self, reason: &'static str) {
        match self.left_out.iter_mut().find(|(other, _)| *other == reason) {
            Some((_, count)) => *count += 1,
            None => self.left_out.push((reason, 1)),
        }
    }

    /// Returns a prompt and its output with an id per token. The first `prefix` tokens are from the
    /// session's latest request, as far as it has them. All other tokens are new.
    pub fn ids_after(
        &mut self,
        session: u64,
        prefix: usize,
        length: usize,
        output: usize,
    ) -> Prompt {
        if prefix > length {
            self.note("prefixes longer than their prompt are cut to its length");
        }
        let before = self.sequences.remove(&session).unwrap_or_default();
        let num_known = prefix.min(length).min(before.len());
        if num_known < prefix.min(length) {
            self.note(
                "cached tokens that the session's previous request did not have are replayed as new",
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

    /// Notes once that a field is not used.
    pub fn leave_unused(&mut self, name: &str) {
        if !self.is_unused(name) {
            self.unused.push(name.to_owned());
            self.note(&format!("field '{name}' is not used"));
        }
    }

    /// Returns whether a field was noted as unused.
    pub fn is_unused(&self, name: &str) -> bool {
        self.unused.iter().any(|other| other == name)
    }

    /// Adds a note about the trace, once.
    pub fn note(&mut self, text: &str) {
        if !self.notes.iter().any(|note| note == text) {
            self.notes.push(text.to_owned());
        }
    }

    /// Returns the notes about the trace.
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

    /// Notes that the requests of the line are in the trace, as the last of `requests`. Requests
    /// that wait for one of them get its index.
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

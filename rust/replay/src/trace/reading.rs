//! What the lines of a trace so far mean for the next one.

use std::collections::HashMap;
use std::mem;

use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

use super::fields::{LineError, integer, wrong};
use super::request::TraceRequest;

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
    /// Requests by their name.
    named: HashMap<u64, u32>,
    /// The latest request of each session.
    latest: HashMap<u64, u32>,
    /// Numbers of ids that are large or text, or of one line alone.
    ids: HashMap<u64, i64, foldhash::fast::FixedState>,
    /// How many ids have got such a number.
    num_ids: i64,
    /// Whether equal ids in other lines are other blocks.
    has_own_ids: bool,
    notes: Vec<String>,
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

    /// Returns the request of an earlier line that has a name.
    pub fn named(&self, field: &str, value: &Value) -> Result<u32, LineError> {
        let message = || format!("names {value}, the request_id of no earlier line");
        self.named.get(&name(value)).copied().ok_or_else(|| wrong(field, message()))
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

    /// Says something about the trace, once.
    pub fn note(&mut self, text: &str) {
        if !self.notes.iter().any(|note| note == text) {
            self.notes.push(text.to_owned());
        }
    }

    /// What there is to say about the trace.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Begins a line.
    pub fn begin(&mut self, next: usize) {
        self.requests.clear();
        if mem::take(&mut self.has_own_ids) {
            self.ids.clear();
        }
        self.next = next;
        self.name = None;
    }

    /// The requests of the line are in the trace.
    pub fn accept(&mut self, requests: &[TraceRequest]) {
        for (index, request) in requests.iter().enumerate() {
            let index = (self.next + index) as u32;
            if let Some(session) = request.conversation.filter(|it| it.continues.is_none()) {
                self.latest.insert(session.id, index);
            }
            if let Some(name) = self.name {
                self.named.insert(name, index);
            }
        }
    }
}

fn name(value: &Value) -> u64 {
    xxh3_64(value.to_string().as_bytes())
}

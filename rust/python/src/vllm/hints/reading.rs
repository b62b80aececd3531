//! Everything that one request asks for: its session, its claims, and the actions of its envelopes.

use std::cell::Cell;
use std::ops::Range;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyString;

use kvoxide_core::{RequestRetention, RetentionPriority};

use super::fields::Read;
use super::handling::{Found, Handled, Handling, Hint};
use super::{SessionHasher, claims, envelope, session_number};
use crate::vllm::attributes::Reader;

/// The longest id of a session, in characters.
const MAX_SESSION_ID: usize = 1024;

/// A hint that a request gives.
pub(super) enum Asked {
    Retain { tokens: Vec<Range<usize>>, priority: RetentionPriority },
    Release(Range<usize>),
    EndSession,
}

/// The retention that a request gets, and how each of its hints was handled.
pub(super) struct HintReading<'a, 'py> {
    request: &'a Reader<'a, 'py>,
    num_prompt_tokens: Cell<Option<usize>>,
    /// The highest priority that a request may get; 0 means that hints are ignored.
    max_priority: u8,
    /// The number of actions of envelopes so far.
    pub(super) num_actions: usize,
    pub(super) retention: Option<RequestRetention>,
    pub(super) handled: Vec<Handled<'py>>,
}

impl<'a, 'py> HintReading<'a, 'py> {
    /// Reads the hints of a request.
    #[inline]
    pub(super) fn of(
        request: &'a Reader<'a, 'py>,
        max_priority: u8,
        sessions: &SessionHasher,
    ) -> Self {
        let mut reading = Self {
            request,
            num_prompt_tokens: Cell::new(None),
            max_priority,
            num_actions: 0,
            retention: None,
            handled: Vec::new(),
        };
        let py = request.py();
        match request.find_optional(intern!(py, "session_id")) {
            Ok(None) => {}
            Ok(Some(id)) => reading.read_session(&id, sessions),
            Err(_) => reading.add_unreadable("session_id"),
        }
        match request.find_optional(intern!(py, "sampling_params")) {
            Ok(None) => {}
            Ok(Some(params)) => claims::read(&mut reading, &params),
            Err(_) => reading.add_unreadable("sampling_params"),
        }
        match request.find_optional(intern!(py, "kv_hints")) {
            Ok(None) => {}
            Ok(Some(hints)) => envelope::read(&mut reading, "kv_hints", &hints),
            Err(_) => reading.add_unreadable("kv_hints"),
        }
        reading
    }

    #[cold]
    pub(super) fn add_unreadable(&mut self, name: &'static str) {
        self.add(Hint::Other, 1, Handling::Malformed(Found::unreadable(name, "readable")));
    }

    #[inline(never)]
    fn read_session(&mut self, id: &Bound<'py, PyAny>, sessions: &SessionHasher) {
        let short = id
            .cast::<PyString>()
            .ok()
            .filter(|id| id.len().is_ok_and(|num_characters| num_characters <= MAX_SESSION_ID));
        match short.and_then(|id| id.to_str().ok()) {
            Some("") => {}
            Some(id) => {
                let session = session_number(sessions, id);
                self.retention = Some(RequestRetention::default().in_session(session));
            }
            None => {
                // Ids of sessions can be secrets, so they are not logged.
                let expected = "a string of at most 1,024 characters";
                let found = Found::unreadable("session_id", expected);
                self.add(Hint::SessionId, 1, Handling::Malformed(found));
            }
        }
    }

    /// Returns the number of prompt tokens; 0 if it cannot be read.
    pub(super) fn num_prompt_tokens(&self) -> usize {
        let known = self.num_prompt_tokens.get();
        known.unwrap_or_else(|| {
            let read = self.request.count(intern!(self.request.py(), "num_prompt_tokens"));
            let num_tokens = read.unwrap_or(0);
            self.num_prompt_tokens.set(Some(num_tokens));
            num_tokens
        })
    }

    /// Notes how hints were handled that change nothing.
    #[cold]
    pub(super) fn add(&mut self, hint: Hint, count: usize, handling: Handling<'py>) {
        self.handled.push(Handled { hint, handling, count, num_protected_tokens: 0 });
    }

    /// Grants a hint as far as the server allows. `asked` is not called if it ignores all hints.
    #[inline(never)]
    pub(super) fn grant(&mut self, hint: Hint, asked: impl FnOnce(&Self) -> Read<'py, Asked>) {
        if self.max_priority == 0 {
            return self.add(hint, 1, Handling::Ignored);
        }
        let asked = match asked(self) {
            Ok(asked) => asked,
            Err(refused) => return self.add(hint, 1, refused),
        };
        let before = self.retention.take().unwrap_or_default();
        let (mut handling, mut num_protected_tokens) = (Handling::Taken, 0);
        self.retention = Some(match asked {
            Asked::Release(tokens) => before.giving_up(tokens),
            Asked::EndSession => before.ending_session(),
            Asked::Retain { tokens, priority } => {
                let granted = priority.lowered_to(self.max_priority);
                let (asked, allowed) = (priority.priority(), granted.priority());
                if granted != priority {
                    handling = Handling::Lowered { asked, granted: allowed };
                }
                if granted.is_high() {
                    num_protected_tokens = num_tokens_of(&tokens, self.num_prompt_tokens());
                }
                let add =
                    |retention: RequestRetention, tokens| retention.with_priority(tokens, granted);
                tokens.into_iter().fold(before, add)
            }
        });
        self.handled.push(Handled { hint, handling, count: 1, num_protected_tokens });
    }
}

/// Returns the number of tokens of a prompt that ranges contain. Ranges may overlap.
fn num_tokens_of(ranges: &[Range<usize>], num_prompt_tokens: usize) -> usize {
    let sizes = ranges.iter().map(|range| range.end.min(num_prompt_tokens) - range.start);
    sizes.sum::<usize>().min(num_prompt_tokens)
}

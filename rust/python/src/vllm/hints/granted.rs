//! The hints that requests were granted, for recordings.

use hashbrown::HashMap;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use kvoxide_core::{RequestRetention, RetentionPriority, SessionId};

use super::SessionHasher;
use super::reading::HintReading;
use crate::vllm::attributes::Requests;

/// The number of sessions in a generation. Two generations are kept.
const MAX_SESSIONS: usize = 1 << 18;

/// Reads the hints that requests were granted. It numbers sessions by their first use.
#[pyclass(module = "kvoxide._core_vllm", name = "VllmGrantedHints")]
pub(crate) struct VllmGrantedHints {
    requests: Requests,
    max_priority: u8,
    hasher: SessionHasher,
    numbers: SessionNumbers,
}

#[pymethods]
impl VllmGrantedHints {
    #[new]
    fn new(max_priority: u8) -> Self {
        Self {
            requests: Requests::new(None),
            max_priority,
            hasher: SessionHasher::default(),
            numbers: SessionNumbers::default(),
        }
    }

    /// Returns the fields of a recorded request that say which hints it was granted.
    fn of_request<'py>(&mut self, request: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
        let fields = PyDict::new(request.py());
        let reader = self.requests.reader(request)?;
        let reading = HintReading::of(&reader, self.max_priority, &self.hasher);
        let Some(granted) = reading.retention else { return Ok(fields) };
        if let Some(session) = granted.session() {
            fields.set_item("session", self.numbers.of(session))?;
        }
        add_priorities(&fields, &granted)?;
        if granted.ends_session() {
            // The end of a session gives all tokens up.
            fields.set_item("session_end", true)?;
        } else if granted.gives_up_any() {
            let released = granted.given_up().iter();
            let released = released.map(|range| (range.start, bound(range.end)));
            fields.set_item("release", released.collect::<Vec<_>>())?;
        }
        Ok(fields)
    }
}

fn add_priorities(fields: &Bound<'_, PyDict>, granted: &RequestRetention) -> PyResult<()> {
    match granted.priorities() {
        [] => Ok(()),
        [(tokens, priority)] if *tokens == (0..usize::MAX) => {
            fields.set_item("priority", priority.priority())?;
            ttl(*priority).map_or(Ok(()), |ttl| fields.set_item("ttl", ttl))
        }
        ranges => {
            let ranges = ranges.iter().map(|(tokens, priority)| {
                (tokens.start, bound(tokens.end), priority.priority(), ttl(*priority))
            });
            fields.set_item("retain", ranges.collect::<Vec<_>>())
        }
    }
}

fn bound(end: usize) -> Option<usize> {
    (end != usize::MAX).then_some(end)
}

/// Returns the time to live in seconds.
fn ttl(priority: RetentionPriority) -> Option<f64> {
    priority.lifetime().map(|milliseconds| milliseconds as f64 / 1000.0)
}

type Generation = HashMap<SessionId, u64, foldhash::fast::FixedState>;

/// The numbers of sessions. The sessions that were unused for longest are forgotten.
#[derive(Default)]
struct SessionNumbers {
    new: Generation,
    old: Generation,
    next: u64,
}

impl SessionNumbers {
    fn of(&mut self, session: SessionId) -> u64 {
        if let Some(&number) = self.new.get(&session) {
            return number;
        }
        let number = self.old.remove(&session).unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        if self.new.len() >= MAX_SESSIONS {
            self.old = std::mem::take(&mut self.new);
        }
        self.new.insert(session, number);
        number
    }
}

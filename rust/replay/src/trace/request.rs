//! One request of a trace.

use std::ops::Range;

use kvoxide_core::{RequestRetention, RetentionPriority};
use serde::{Deserialize, Serialize};

use super::prompt::Prompt;
use super::schedule::Recorded;
use crate::conversation::Conversation;
use crate::outcomes::Outcomes;

/// The maximum number of tokens in a prompt and in an output.
pub const MAX_LENGTH: usize = 1 << 28;

/// One request of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceRequest {
    /// Time of arrival in microseconds, if the trace has it.
    pub arrival: Option<u64>,
    /// The conversation, if the trace has it.
    pub conversation: Option<Conversation>,
    /// The prompt.
    pub prompt: Prompt,
    /// The number of output tokens.
    pub output_length: usize,
    /// The priority of its blocks, if the request sets one.
    pub priority: Option<RetentionPriority>,
    /// The hints for ranges of its tokens, if it gives any.
    pub ranges: Option<Box<HintedRanges>>,
    /// Tokens per id, if the format of the trace determines this number.
    pub tokens_per_id: Option<usize>,
    /// The instance that served the request, from 0, if it was recorded.
    pub instance: Option<u32>,
    /// Whether the request computes its prompt without reading the cache.
    pub skips_reading: bool,
    /// Whether the request is the last one of its session.
    pub ends_session: bool,
    /// The outcomes that the server recorded.
    pub outcomes: Option<Box<Outcomes>>,
    /// The request's place in a recorded schedule.
    pub recorded: Option<Recorded>,
    /// The events for which the request waits, usually instead of a time of arrival.
    pub wait: Option<Box<Wait>>,
}

/// The hints of a request for ranges of its tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HintedRanges {
    /// The priorities of ranges.
    pub priorities: Vec<(Range<usize>, RetentionPriority)>,
    /// The ranges that the request gives up when it ends.
    pub given_up: Vec<Range<usize>>,
}

/// The wait of a request for others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// The events for which the request waits; at least one.
    pub after: Vec<After>,
    /// The meaning of the request's time of arrival.
    pub time: WaitTime,
}

/// The meaning of the time of arrival of a request that waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum WaitTime {
    /// The time only orders the requests.
    #[default]
    Unknown,
    /// The request arrives at this time at the earliest.
    Earliest,
    /// The request arrived at this time. It can arrive then without waiting.
    Recorded,
}

/// An event of another request, after which a request may arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct After {
    /// The index of the other request. If that request never comes, no request has this index.
    pub request: u32,
    /// The kind of event.
    pub event: Event,
    /// The number of microseconds from the event to the arrival.
    pub delay: u64,
}

/// A kind of event of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Event {
    /// The request arrives.
    Arrival,
    /// The last token of the request's output is generated.
    Answer,
}

impl Wait {
    /// Returns the wait for the answers of requests, if there are any. `time` is the meaning of the
    /// time of arrival.
    pub fn for_answers(requests: Vec<u32>, delay: u64, time: WaitTime) -> Option<Box<Self>> {
        let after = |request| After { request, event: Event::Answer, delay };
        Self::of(requests.into_iter().map(after).collect(), time)
    }

    /// Returns the wait for events, if there are any. `time` is the meaning of the time of arrival.
    pub fn of(after: Vec<After>, time: WaitTime) -> Option<Box<Self>> {
        (!after.is_empty()).then(|| Box::new(Self { after, time }))
    }
}

impl TraceRequest {
    /// Returns what the request asks for its blocks, if it asks for anything. It belongs to the
    /// session of its conversation.
    pub fn retention(&self) -> Option<RequestRetention> {
        let session = self.conversation.map(|conversation| conversation.id);
        let is_plain = self.priority.is_none() && self.ranges.is_none() && !self.ends_session;
        if session.is_none() && is_plain {
            return None;
        }
        let mut retention = self.priority.map_or_else(RequestRetention::default, Into::into);
        for ranges in self.ranges.iter() {
            for (tokens, priority) in &ranges.priorities {
                retention = retention.with_priority(tokens.clone(), *priority);
            }
            for tokens in &ranges.given_up {
                retention = retention.giving_up(tokens.clone());
            }
        }
        if let Some(session) = session {
            retention = retention.in_session(session);
        }
        Some(if self.ends_session { retention.ending_session() } else { retention })
    }

    /// Returns a request without a time.
    pub fn of_prompt(prompt: Prompt, output_length: usize) -> Self {
        Self {
            arrival: None,
            conversation: None,
            prompt,
            output_length,
            priority: None,
            ranges: None,
            tokens_per_id: None,
            instance: None,
            skips_reading: false,
            ends_session: false,
            outcomes: None,
            recorded: None,
            wait: None,
        }
    }

    /// Returns a request with a prompt of tokens and without a time.
    pub fn of_tokens(tokens: Vec<i64>, output_length: usize) -> Self {
        Self::of_prompt(Prompt::of_tokens(tokens), output_length)
    }

    /// Returns the number of known prompt and output tokens. All other tokens are unique.
    pub fn num_known_tokens(&self, tokens_per_id: usize) -> usize {
        self.prompt.num_known(tokens_per_id).min(self.prompt.len() + self.output_length)
    }
}

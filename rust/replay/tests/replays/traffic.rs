//! Random requests: prompts that share prefixes, and the turns of conversations.

use std::ops::Range;

use kvoxide_replay::Trace;
use kvoxide_replay::trace::TraceRequest;
use proptest::prelude::*;

/// A request. Its prompt has the first tokens of its family, then tokens of a branch.
#[derive(Clone, Debug)]
pub struct Request {
    /// In milliseconds.
    pub arrival: u64,
    pub family: i64,
    pub num_shared: usize,
    pub branch: i64,
    pub num_own: usize,
    pub num_output: usize,
}

impl Request {
    fn plain(&self) -> TraceRequest {
        // A prompt is shorter than this.
        let token = |family: i64, position: usize| family * 10_000 + position as i64;
        let end = self.num_shared + self.num_own;
        let shared = (0..self.num_shared).map(|position| token(self.family, position));
        let own = (self.num_shared..end).map(|position| token(1_000 + self.branch, position));
        TraceRequest::of_tokens(shared.chain(own).collect(), self.num_output)
    }

    fn timed(&self) -> TraceRequest {
        TraceRequest { arrival: Some(self.arrival * 1_000), ..self.plain() }
    }
}

/// Generates requests of three families, with these numbers of tokens.
pub fn requests(
    count: Range<usize>,
    shared: Range<usize>,
    own: Range<usize>,
    output: Range<usize>,
) -> impl Strategy<Value = Vec<Request>> {
    let request = (0..300_u64, 0..3_i64, shared, 0..4_i64, own, output).prop_map(
        |(arrival, family, num_shared, branch, num_own, num_output)| Request {
            arrival,
            family,
            num_shared,
            branch,
            num_own,
            num_output,
        },
    );
    prop::collection::vec(request, count)
}

/// Returns a trace of the requests, without their times.
pub fn trace(requests: &[Request]) -> Trace {
    trace_of(requests.iter().map(Request::plain))
}

/// Returns a trace of the requests, with the times of their arrivals.
pub fn timed_trace(requests: &[Request]) -> Trace {
    trace_of(requests.iter().map(Request::timed))
}

/// Returns a trace of requests with tokens.
pub fn trace_of(requests: impl IntoIterator<Item = TraceRequest>) -> Trace {
    let mut trace = Trace::default();
    requests.into_iter().for_each(|request| trace.push(request).expect("tokens"));
    trace
}

/// A turn of a conversation.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    pub conversation: usize,
    /// The tokens that it adds to the prompt and the output of the turn before.
    pub num_added: usize,
    pub num_output: usize,
}

/// Generates turns of conversations.
pub fn turns(
    num_conversations: usize,
    added: impl Strategy<Value = usize>,
    output: Range<usize>,
) -> impl Strategy<Value = Vec<Turn>> {
    let turn =
        (0..num_conversations, added, output).prop_map(|(conversation, num_added, num_output)| {
            Turn { conversation, num_added, num_output }
        });
    prop::collection::vec(turn, 1..24)
}

//! Traces of requests.

mod answers;
mod dialect;
mod fields;
mod ids;
mod prompt;
mod reader;
mod reading;
mod request;
mod schedule;
#[cfg(test)]
mod tests_of_lines;
mod times;
mod turns;
mod waits;

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

pub use fields::LineError;
pub use ids::HashIds;
pub use prompt::Prompt;
pub use reader::{FormatDetails, Reader};
pub use request::{After, Event, HintedRanges, MAX_LENGTH, TraceRequest, Wait, WaitTime};
pub use schedule::{
    Event as ScheduleEvent, Preempted, Recorded, ResetBefore, Schedule, Scheduled, StepDuration,
    Transferred,
};
pub use times::Unit;

use crate::conversation::Conversation;
use crate::id_width::{IdWidths, MAX_WIDTH, TraceWidths};
use answers::Answers;
use fields::wrong;

/// The requests of a trace, in the order of their replay.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Trace {
    requests: Vec<TraceRequest>,
    widths: TraceWidths,
    /// Whether the caller gave the tokens per id.
    is_width_given: bool,
    /// Whether prompts are stored with one id per token.
    has_id_per_token: bool,
    largest_id: i64,
    part: Part,
    /// The recorded schedules, each in its own part.
    schedules: Vec<Schedule>,
}

/// A part of a trace: the numbers that are added to ids and times of its requests, and the instance
/// that served them.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Part {
    number: u64,
    first_id: i64,
    delay: u64,
    instance: Option<u32>,
}

impl Trace {
    /// Returns an empty trace whose ids represent `tokens_per_id` tokens each.
    pub fn with_tokens_per_id(tokens_per_id: usize) -> Self {
        let widths = TraceWidths::of(IdWidths::only(tokens_per_id));
        Self { widths, is_width_given: true, ..Self::default() }
    }

    /// Returns the requests.
    pub fn requests(&self) -> &[TraceRequest] {
        &self.requests
    }

    /// Adds a request, or returns an error if it contradicts earlier ones or comes after
    /// [`Self::return_answers`].
    pub fn push(&mut self, mut request: TraceRequest) -> Result<(), LineError> {
        if self.has_id_per_token {
            return Err(wrong(
                "",
                "the trace already contains its answers and cannot take more lines".into(),
            ));
        }
        let Part { number, first_id, delay, instance } = self.part;
        self.widths = self.widths_with(&request)?;
        if let Prompt::HashIds { length, hash_ids, num_output_ids } = request.prompt {
            let hash_ids = hash_ids.shifted(first_id);
            self.largest_id = self.largest_id.max(hash_ids.max().unwrap_or(0));
            request.prompt = Prompt::HashIds { length, hash_ids, num_output_ids };
        }
        request.arrival = request.arrival.map(|arrival| arrival.saturating_add(delay));
        request.conversation = request.conversation.map(|it| it.in_part(number));
        request.instance = request.instance.or(instance);
        let has_schedule = !self.schedules.is_empty();
        request.recorded = request.recorded.filter(|_| has_schedule);
        if let (Some(recorded), Some(schedule)) = (&mut request.recorded, self.schedules.last_mut())
        {
            schedule.events.push(ScheduleEvent::Ended(recorded.number));
        }
        if let Some(recorded) = &mut request.recorded {
            recorded.schedule = (self.schedules.len() - 1) as u32;
        }
        self.requests.push(request);
        Ok(())
    }

    /// Begins a part. Its requests share no ids with earlier requests, arrive `delay` microseconds
    /// after their own times, and were served by `instance`.
    pub fn start_part(&mut self, delay: u64, instance: Option<u32>) {
        let has_ids = |request: &TraceRequest| request.prompt.num_ids() > 0;
        let first_id = match self.requests.iter().any(has_ids) {
            true => self.largest_id + 1,
            false => 0,
        };
        self.part = Part { number: self.part.number + 1, first_id, delay, instance };
    }

    /// Begins the schedule of the current part.
    pub fn start_schedule(&mut self) {
        let Part { first_id, delay, instance, .. } = self.part;
        let instance = instance.unwrap_or(0);
        let start = delay;
        self.schedules.push(Schedule { instance, start, first_id, ..Schedule::default() });
    }

    /// Adds a line to the schedule of the current part.
    pub fn push_schedule(&mut self, line: &[u8]) -> Result<(), LineError> {
        match self.schedules.last_mut() {
            Some(schedule) => schedule.push_line(line),
            None => Err(wrong("schedule", "belongs to a part without a schedule".into())),
        }
    }

    /// Adds the durations of the next steps of the current part's schedule.
    pub fn push_durations(&mut self, durations: impl IntoIterator<Item = StepDuration>) {
        if let Some(schedule) = self.schedules.last_mut() {
            schedule.durations.extend(durations);
        }
    }

    /// Returns the recorded schedules.
    pub fn schedules(&self) -> &[Schedule] {
        &self.schedules
    }

    /// Returns the recorded resets of the prefix cache, each with the request that follows it.
    pub fn resets(&self) -> Vec<ResetBefore> {
        schedule::resets_before(&self.schedules, &self.requests)
    }

    /// Returns whether requests wait for the answers of others, and all others have a time of
    /// arrival.
    pub fn is_closed_loop(&self) -> bool {
        let waits = |request: &TraceRequest| {
            let after = request.wait.as_ref().map_or(&[][..], |wait| &wait.after);
            after.iter().any(|after| after.event == Event::Answer)
        };
        self.requests.iter().any(waits)
            && self.requests.iter().all(|it| it.arrival.is_some() || it.wait.is_some())
    }

    /// Returns whether every request has its place in a recorded schedule, and the schedulers of
    /// each instance ran one after the other.
    pub fn has_schedule(&self) -> bool {
        let mut ends: HashMap<u32, u64> = HashMap::new();
        let last = |index: usize| {
            let of_schedule = |request: &&TraceRequest| {
                request.recorded.is_some_and(|recorded| recorded.schedule as usize == index)
            };
            let arrivals = self.requests.iter().filter(of_schedule).filter_map(|it| it.arrival);
            arrivals.max().unwrap_or(0)
        };
        let mut is_apart = |(index, schedule): (usize, &Schedule)| {
            let end = ends.entry(schedule.instance).or_default();
            let is_later = *end <= schedule.start;
            *end = last(index).max(schedule.start);
            is_later
        };
        !self.schedules.is_empty()
            && self.requests.iter().all(|request| request.recorded.is_some())
            && self.schedules.iter().enumerate().all(&mut is_apart)
    }

    /// Sorts the requests by arrival. Requests without a time come first. The sort is stable.
    pub fn sort_by_arrival(&mut self) {
        let mut order: Vec<_> = (0..self.requests.len() as u32).collect();
        order.sort_by_key(|&index| self.requests[index as usize].arrival);
        self.reorder(&order);
    }

    /// Keeps the first `num_requests` requests.
    pub fn truncate(&mut self, num_requests: usize) {
        self.requests.truncate(num_requests);
        if self.requests.len() < self.num_recorded() {
            self.schedules.iter_mut().for_each(Schedule::keep_resets);
            self.requests.iter_mut().for_each(|request| request.recorded = None);
        }
    }

    /// Returns the number of requests that ended in the recorded schedules.
    fn num_recorded(&self) -> usize {
        self.schedules.iter().map(Schedule::num_ended).sum()
    }

    /// Returns whether tokens of an output are known.
    pub fn has_answers(&self) -> bool {
        self.requests.iter().any(|request| request.prompt.has_output())
    }

    /// Returns the number of requests that continue the conversation of an earlier one, or `None`
    /// if no request has a conversation.
    pub fn num_follow_ups(&self) -> Option<usize> {
        let mut earlier = HashSet::new();
        let is_follow_up = |conversation: Conversation| {
            let continues = conversation.continues.unwrap_or(conversation.id);
            let is_known = earlier.contains(&continues);
            earlier.insert(conversation.id);
            is_known
        };
        let conversations = self.requests.iter().filter_map(|request| request.conversation);
        let are_follow_ups: Vec<_> = conversations.map(is_follow_up).collect();
        let count = are_follow_ups.iter().filter(|&&is_follow_up| is_follow_up).count();
        (!are_follow_ups.is_empty()).then_some(count)
    }

    /// Adds the outputs that later prompts of the same conversation contain, and returns their
    /// number. Nothing changes if an output is already known.
    pub fn return_answers(&mut self) -> Result<usize, LineError> {
        if self.has_answers() {
            return Ok(0);
        }
        if self.requests.iter().all(|request| request.conversation.is_none()) {
            let message = "is in no line; give each line a session_id, or a chat_id and a \
                           parent_chat_id";
            return Err(wrong("session_id", message.into()));
        }
        let answers = Answers::find(&self.requests, self.tokens_per_id()?);
        let num_found = answers.num_found();
        let prompts: Vec<_> = (0..self.requests.len()).map(|index| answers.prompt(index)).collect();
        for (request, prompt) in self.requests.iter_mut().zip(prompts) {
            request.prompt = prompt;
        }
        self.has_id_per_token = true;
        Ok(num_found)
    }

    /// Returns the number of tokens that each id of the [requests](Self::requests) represents. It
    /// is 1 after [`Self::return_answers`].
    pub fn tokens_per_stored_id(&self) -> Result<usize, LineError> {
        if self.has_id_per_token { Ok(1) } else { self.tokens_per_id() }
    }

    /// Returns the numbers of tokens per id that are possible for the requests so far.
    pub fn id_widths(&self) -> IdWidths {
        self.widths.range()
    }

    /// Returns the tokens per id of the lines, or Mooncake's number if no request has ids. Returns
    /// an error if several numbers are possible.
    pub fn tokens_per_id(&self) -> Result<usize, LineError> {
        let widths = self.id_widths();
        let IdWidths { least, most } = widths;
        let range = || match most {
            MAX_WIDTH => format!("{least} or more"),
            _ => format!("{least} to {most}"),
        };
        let message = || format!("can have {} tokens per id; give their number", range());
        widths.chosen().ok_or_else(|| wrong("hash_ids", message()))
    }

    /// Counts the prompts that follow another prompt of their session. Returns how many of them do
    /// not begin with the first whole id of the previous prompt, and how many there are.
    pub fn num_restarts(&self) -> Result<(usize, usize), LineError> {
        let width = self.tokens_per_stored_id()?;
        let mut latest: HashMap<u64, &Prompt> = HashMap::new();
        let (mut num_restarts, mut num_turns) = (0, 0);
        for request in &self.requests {
            let Some(session) = request.conversation else { continue };
            let prompt = &request.prompt;
            if session.continues.is_some() || prompt.num_known(width) == 0 {
                continue;
            }
            if let Some(before) = latest.insert(session.id, prompt) {
                num_turns += 1;
                let known = |prompt: &Prompt| prompt.num_known(width).min(prompt.len());
                let first = known(before).min(width) / width * width;
                let has_first = known(prompt) >= first;
                let is_next = has_first && before.common_end(prompt, 0, first, width) >= first;
                num_restarts += usize::from(!is_next);
            }
        }
        Ok((num_restarts, num_turns))
    }

    /// Returns whether the ids of every prompt count from 0, although the prompts are not all equal
    /// or of one session.
    pub fn counts_from_zero(&self) -> bool {
        let counts = |request: &TraceRequest| match &request.prompt {
            Prompt::HashIds { hash_ids, .. } => hash_ids.count_from_zero(),
            Prompt::Tokens { .. } => false,
        };
        let Some((first, others)) = self.requests.split_first() else { return false };
        let is_other = |request: &TraceRequest| {
            first.conversation.is_none() || request.conversation != first.conversation
        };
        let differs = |request: &TraceRequest| request.prompt.num_ids() != first.prompt.num_ids();
        self.requests.iter().all(counts)
            && others.iter().any(is_other)
            && others.iter().any(differs)
    }

    /// Returns the numbers of tokens per id that are possible with another request.
    fn widths_with(&self, request: &TraceRequest) -> Result<TraceWidths, LineError> {
        let (length, num_ids) = (request.prompt.len(), request.prompt.num_ids());
        let of_format = request.tokens_per_id.filter(|_| !self.is_width_given);
        let limits = of_format.map_or_else(IdWidths::default, IdWidths::only);
        if num_ids == 0 {
            return Ok(self.widths);
        }
        let is_of_whole = self.widths.is_of_whole();
        let contradiction =
            |before| wrong("hash_ids", contradiction(before, is_of_whole, length, num_ids));
        let widths = self.widths.with(limits, length, num_ids).map_err(contradiction)?;
        check_output_ids(request, widths.range())?;
        Ok(widths)
    }
}

fn contradiction(widths: IdWidths, is_of_whole: bool, length: usize, num_ids: usize) -> String {
    let IdWidths { least, most } = widths;
    let needed = |width: usize| match is_of_whole {
        true => length / width,
        false => length.div_ceil(width),
    };
    let (fewest, expected) = (needed(most), needed(least));
    let range = |from: usize, to: usize| match from == to {
        true => from.to_string(),
        false => format!("{from} to {to}"),
    };
    let widths = format!("{}, one for each {}", range(fewest, expected), range(least, most));
    let whole =
        if is_of_whole { ", because earlier lines have ids only of whole blocks" } else { "" };
    format!("has {num_ids} ids; {length} tokens need {widths}{whole}")
}

/// Checks that ids of the output do not continue after the output.
fn check_output_ids(request: &TraceRequest, widths: IdWidths) -> Result<(), LineError> {
    let Prompt::HashIds { length, num_output_ids: Some(count), .. } = request.prompt else {
        return Ok(());
    };
    let end = (length + request.output_length).div_ceil(widths.least);
    let most = end - request.prompt.num_ids().min(end);
    if count <= most {
        return Ok(());
    }
    let generated = request.output_length;
    let message =
        format!("has {count} ids; {generated} tokens after the prompt can have 0 to {most}");
    Err(wrong("output_hash_ids", message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_ids(length: usize, ids: std::ops::Range<i64>) -> TraceRequest {
        TraceRequest::of_prompt(Prompt::of_ids(length, ids), 1)
    }

    #[test]
    fn the_requests_of_a_trace_determine_the_tokens_per_id() {
        let mut trace = Trace::default();
        assert_eq!(trace.tokens_per_id(), Ok(512));
        trace.push(of_ids(300, 0..5)).expect("the first");
        assert_eq!(trace.tokens_per_id(), Ok(64));
        trace.push(of_ids(300, 5..10)).expect("ids of 60 to 74 tokens too");
        let refused = trace.push(of_ids(600, 0..2)).expect_err("ids of 300 to 599 tokens");
        assert_eq!(refused.message, "has 2 ids; 600 tokens need 9 to 10, one for each 60 to 74");
        assert_eq!(trace.requests().len(), 2);
        let mut trace = Trace::default();
        trace.push(of_ids(199, 0..1)).expect("ids of 199 tokens or more, or of 100 to 199");
        trace.push(of_ids(301, 0..3)).expect("whole blocks of 100 tokens");
        let refused = trace.push(of_ids(600, 0..5)).expect_err("ids of 101 to 120 tokens");
        assert_eq!(
            refused.message,
            "has 5 ids; 600 tokens need 6, one for each 100, because earlier lines have ids only \
             of whole blocks"
        );
        let mut trace = Trace::with_tokens_per_id(100);
        trace.push(of_ids(600, 0..6)).expect("ids of 100 tokens");
        let refused = trace.push(of_ids(600, 0..2)).expect_err("ids of 300 to 599 tokens");
        assert_eq!(refused.message, "has 2 ids; 600 tokens need 6, one for each 100");
    }

    #[test]
    fn ids_that_count_the_blocks_of_each_prompt_are_told() {
        let trace = |prompts: &[TraceRequest]| {
            let mut trace = Trace::default();
            prompts.iter().for_each(|prompt| trace.push(prompt.clone()).expect("a prompt"));
            trace.counts_from_zero()
        };
        let of = |name: &str, count| {
            let conversation = Some(Conversation::of_name(name));
            TraceRequest { conversation, ..of_ids(512 * count as usize, 0..count) }
        };
        assert!(trace(&[of_ids(1024, 0..2), of_ids(1536, 0..3)]));
        assert!(trace(&[of("a", 2), of("b", 3)]));
        assert!(!trace(&[of("a", 2), of("a", 3)]), "a session goes on");
        assert!(!trace(&[of_ids(1024, 0..2), of_ids(1024, 0..2)]), "a prompt comes again");
        assert!(!trace(&[of_ids(1024, 0..2), of_ids(1536, 1..4)]));
        assert!(!trace(&[of_ids(1024, 0..2)]) && !trace(&[]));
    }

    #[test]
    fn tokens_per_id_that_requests_leave_open_have_to_be_given() {
        let mut trace = Trace::default();
        trace.push(of_ids(600, 0..1)).expect("one id");
        let unknown = trace.tokens_per_id().expect_err("600 or more");
        assert_eq!(unknown.message, "can have 600 or more tokens per id; give their number");
        trace.push(of_ids(1100, 0..2)).expect("ids of 600 to 1,099 tokens");
        assert_eq!(trace.tokens_per_id(), Ok(1024));
        trace.push(of_ids(1300, 0..2)).expect("ids of 650 to 1,099 tokens");
        trace.push(of_ids(1000, 0..2)).expect("ids of 650 to 999 tokens");
        let unknown = trace.tokens_per_id().expect_err("no power of two");
        assert_eq!(unknown.message, "can have 650 to 999 tokens per id; give their number");
    }

    #[test]
    fn a_format_may_determine_the_tokens_per_id() {
        let of_format = || TraceRequest { tokens_per_id: Some(16), ..of_ids(20, 0..2) };
        let mut trace = Trace::default();
        trace.push(of_format()).expect("ids of 16 tokens");
        assert_eq!(trace.tokens_per_id(), Ok(16));
        let wrong = TraceRequest { tokens_per_id: Some(16), ..of_ids(40, 0..2) };
        let refused = trace.push(wrong.clone()).expect_err("40 tokens");
        assert_eq!(refused.message, "has 2 ids; 40 tokens need 3, one for each 16");
        let mut given = Trace::with_tokens_per_id(20);
        given.push(wrong).expect("as somebody said");
        let mut others = Trace::with_tokens_per_id(512);
        assert!(others.push(of_format()).is_err());
        let mut others = Trace::default();
        others.push(of_ids(1000, 0..2)).expect("ids of 500 to 999 tokens");
        let refused = others.push(of_format()).expect_err("ids of 16 tokens");
        assert_eq!(refused.field, "hash_ids");
    }

    #[test]
    fn parts_have_their_own_ids_and_times() {
        let mut trace = Trace::with_tokens_per_id(16);
        let at = |arrival| TraceRequest { arrival: Some(arrival), ..of_ids(40, 0..3) };
        trace.start_part(0, None);
        trace.push(at(50)).expect("a request");
        trace.start_part(20, Some(1));
        trace.push(at(10)).expect("a request");
        trace.push(at(60)).expect("a request");
        trace.sort_by_arrival();
        let tokens = |request: &TraceRequest| request.prompt.token(39, 16);
        let seen: Vec<_> = trace.requests().iter().map(|r| (r.arrival, tokens(r))).collect();
        assert_eq!(seen, [(Some(30), 87), (Some(50), 39), (Some(80), 87)]);
        let instances: Vec<_> = trace.requests().iter().map(|r| r.instance).collect();
        assert_eq!(instances, [Some(1), None, Some(1)]);
        let again: Trace =
            serde_json::from_value(serde_json::to_value(&trace).expect("JSON")).expect("a trace");
        assert_eq!(again.requests(), trace.requests());
    }

    #[test]
    fn output_ids_end_with_the_output() {
        let request = |output_length, count: i64| TraceRequest {
            prompt: Prompt::HashIds {
                length: 20,
                hash_ids: (0..2 + count).collect(),
                num_output_ids: Some(count as usize),
            },
            output_length,
            ..of_ids(20, 0..2)
        };
        let mut trace = Trace::with_tokens_per_id(16);
        for (output_length, most) in [(0, 0), (12, 0), (13, 1), (28, 1), (29, 2)] {
            trace.push(request(output_length, most)).expect("as many as fit");
            let refused = trace.push(request(output_length, most + 1)).expect_err("too many");
            assert_eq!(refused.field, "output_hash_ids");
        }
    }
}

//! Finds the turn that each request of a session continues, and lets the request wait for its
//! answer.
//!
//! A request continues the longest earlier prompt of its session with which its own prompt begins.
//! Requests of a session that do not continue each other do not wait for each other's answers: an
//! agent sent them at the same time, or to different contexts.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::Trace;
use super::fields::LineError;
use super::prompt::Prompt;
use super::request::{After, Event, TraceRequest, Wait, WaitTime};

/// The maximum number of earlier prompts that are compared with a prompt.
const MAX_COMPARED: usize = 64;

impl Trace {
    /// Lets the turns of sessions wait for the answers that they continue, in sessions whose lines
    /// have times and no waits. Returns the number of requests that now wait for an answer.
    ///
    /// A turn arrives after the answer that it continues. Its distance to that turn's arrival is at
    /// least the recorded one, since it is not known which part of it was the answer. A request
    /// that continues nothing keeps its distance to the session's previous arrival, so that its
    /// place in a session that runs late stays the same.
    pub fn close_loop(&mut self) -> Result<usize, LineError> {
        let width = self.tokens_per_stored_id()?;
        let waits = session_waits(&self.requests, width);
        let is_turn = |after: &After| after.event == Event::Answer;
        let num_turns = waits.iter().filter(|(_, wait)| wait.after.iter().any(is_turn)).count();
        for (index, wait) in waits {
            self.requests[index].wait = Some(wait);
        }
        Ok(num_turns)
    }
}

/// Returns the waits of requests, with their indices.
fn session_waits(requests: &[TraceRequest], width: usize) -> Vec<(usize, Box<Wait>)> {
    let waiting = requests.iter().filter(|request| request.wait.is_some());
    let with_waits: HashSet<_> = waiting.filter_map(|it| Some(it.conversation?.id)).collect();
    let mut order: Vec<_> = (0..requests.len()).collect();
    order.sort_by_key(|&index| requests[index].arrival);
    let mut sessions: HashMap<u64, Session> = HashMap::new();
    let mut found = Vec::new();
    for index in order {
        let request = &requests[index];
        let (Some(own), Some(arrival)) = (request.conversation, request.arrival) else { continue };
        if with_waits.contains(&own.id) {
            continue;
        }
        let earlier = sessions.get(&own.continues.unwrap_or(own.id));
        let gap = |other: usize| arrival - requests[other].arrival.unwrap_or(arrival);
        if let Some(session) = earlier {
            let is_named = own.continues.is_some();
            let continued = session.continued(requests, index, width, is_named);
            let continued = continued.filter(|&other| gap(other) > 0);
            let answer = continued.map(|other| (other, Event::Answer, 0));
            let kept = continued.unwrap_or(session.latest);
            let after = answer.into_iter().chain([(kept, Event::Arrival, gap(kept))]);
            let after =
                after.map(|(other, event, delay)| After { request: other as u32, event, delay });
            let wait = Wait::of(after.collect(), WaitTime::Recorded);
            found.extend(wait.map(|wait| (index, wait)));
        }
        sessions.entry(own.id).or_default().add(index, request.prompt.len());
    }
    found
}

/// The earlier requests of a session.
#[derive(Default)]
struct Session {
    latest: usize,
    /// The lengths of their prompts, and their indices.
    by_length: BTreeSet<(usize, usize)>,
}

impl Session {
    fn add(&mut self, index: usize, length: usize) {
        self.latest = index;
        self.by_length.insert((length, index));
    }

    /// Returns the request that another one continues. That is the latest one if the line names it,
    /// or if its ids do not say.
    fn continued(
        &self,
        requests: &[TraceRequest],
        index: usize,
        width: usize,
        is_named: bool,
    ) -> Option<usize> {
        let prompt = &requests[index].prompt;
        let latest = Some(self.latest);
        if is_named {
            return latest;
        }
        let shorter = self.by_length.range(..(prompt.len(), 0)).rev().map(|&(_, other)| other);
        let begins = |&other: &usize| begins_with(prompt, &requests[other].prompt, width);
        let longest = shorter.take(MAX_COMPARED).find(begins);
        longest.or(latest.filter(|&other| num_whole(&requests[other].prompt, width) == 0))
    }
}

/// Returns whether a prompt begins with all whole ids of an earlier prompt, which has some.
fn begins_with(prompt: &Prompt, earlier: &Prompt, width: usize) -> bool {
    let whole = num_whole(earlier, width);
    let known = prompt.num_known(width).min(prompt.len());
    whole > 0 && known >= whole && earlier.common_end(prompt, 0, whole, width) >= whole
}

/// Returns the number of prompt tokens in whole ids.
fn num_whole(prompt: &Prompt, width: usize) -> usize {
    let known = prompt.num_known(width).min(prompt.len());
    match prompt {
        Prompt::Tokens { .. } => known,
        Prompt::HashIds { .. } => known / width * width,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::Conversation;

    /// Returns a trace of requests of one session: times in microseconds and ids of 16 tokens.
    fn trace(rows: &[(u64, &[i64])]) -> Trace {
        let mut trace = Trace::with_tokens_per_id(16);
        for &(arrival, ids) in rows {
            let prompt = Prompt::of_ids(ids.len() * 16, ids.iter().copied());
            let conversation = Some(Conversation::of_name("a"));
            let arrival = Some(arrival);
            let request = TraceRequest::of_prompt(prompt, 8);
            trace.push(TraceRequest { arrival, conversation, ..request }).expect("a request");
        }
        trace
    }

    /// Returns for each request the answers and the arrivals for which it waits, with their delays.
    fn waits(trace: &Trace) -> Vec<Vec<(Event, u32, u64)>> {
        let after = |request: &TraceRequest| {
            let after = request.wait.iter().flat_map(|wait| &wait.after);
            after.map(|it| (it.event, it.request, it.delay)).collect()
        };
        trace.requests().iter().map(after).collect()
    }

    use Event::{Answer, Arrival};

    #[test]
    fn a_turn_waits_for_the_longest_prompt_that_it_begins_with() {
        let mut trace = trace(&[(0, &[1]), (5, &[1, 2]), (9, &[1, 2, 3]), (12, &[1, 4])]);
        assert_eq!(trace.close_loop(), Ok(3));
        let expected = [
            vec![],
            vec![(Answer, 0, 0), (Arrival, 0, 5)],
            vec![(Answer, 1, 0), (Arrival, 1, 4)],
            vec![(Answer, 0, 0), (Arrival, 0, 12)],
        ];
        assert_eq!(waits(&trace), expected);
        assert!(trace.is_closed_loop());
        assert_eq!(trace.close_loop(), Ok(0), "the session has waits now");
    }

    #[test]
    fn parallel_requests_do_not_wait_for_each_others_answers() {
        let rows: [(u64, &[i64]); 5] =
            [(0, &[1, 2]), (1, &[7, 8]), (4, &[1, 2, 3]), (6, &[7, 8, 9]), (6, &[1, 2, 3, 4])];
        let mut trace = trace(&rows);
        assert_eq!(trace.close_loop(), Ok(3));
        let expected = [
            vec![],
            vec![(Arrival, 0, 1)],
            vec![(Answer, 0, 0), (Arrival, 0, 4)],
            vec![(Answer, 1, 0), (Arrival, 1, 5)],
            vec![(Answer, 2, 0), (Arrival, 2, 2)],
        ];
        assert_eq!(waits(&trace), expected);
    }

    #[test]
    fn without_ids_a_session_is_a_sequence() {
        let mut trace = trace(&[(0, &[]), (5, &[]), (5, &[])]);
        let lengths = trace.requests.iter_mut().zip([40, 30, 60]);
        lengths.for_each(|(request, length)| request.prompt = Prompt::of_ids(length, []));
        assert_eq!(trace.close_loop(), Ok(1));
        let second = vec![(Answer, 0, 0), (Arrival, 0, 5)];
        assert_eq!(waits(&trace), [vec![], second, vec![(Arrival, 1, 0)]]);
    }

    #[test]
    fn a_chat_waits_for_the_chat_that_its_line_names() {
        let mut trace = trace(&[(0, &[1]), (1, &[2]), (5, &[3])]);
        let chat = |id, continues| Some(Conversation { id, continues, is_of_part: false });
        let chats = [chat(1, None), chat(2, None), chat(3, Some(1))];
        trace.requests.iter_mut().zip(chats).for_each(|(it, chat)| it.conversation = chat);
        assert_eq!(trace.close_loop(), Ok(1));
        assert_eq!(waits(&trace)[1..], [vec![], vec![(Answer, 0, 0), (Arrival, 0, 5)]]);
    }

    #[test]
    fn sessions_whose_lines_say_how_they_wait_stay_unchanged() {
        let mut trace = trace(&[(0, &[1]), (5, &[1, 2]), (9, &[1, 2, 3])]);
        trace.requests[1].wait = Wait::for_answers(vec![0], 7, WaitTime::Unknown);
        assert_eq!(trace.close_loop(), Ok(0));
        assert_eq!(waits(&trace), [vec![], vec![(Answer, 0, 7)], vec![]]);
    }
}

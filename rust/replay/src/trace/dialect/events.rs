//! Dynamo's events (`DYN_REQUEST_TRACE`): a line for each ended request, and lines for tools.
//! Source: <https://github.com/ai-dynamo/dynamo>, `lib/data-gen/src/request_trace`

use std::collections::HashMap;

use serde_json::Value;

use super::rows::{MILLISECONDS, ids, required_width};
use crate::conversation::Conversation;
use crate::trace::fields::{Fields, LineError, field, given, length, microseconds, time, wrong};
use crate::trace::prompt::Prompt;
use crate::trace::reading::{Reading, Span};
use crate::trace::request::{TraceRequest, Wait, WaitTime};

const SCHEMA: &str = "dynamo.request.trace.v1";

/// Returns whether events have a type with this name.
pub fn is_type(name: &str) -> bool {
    ["request_end", "request_payload", "tool_start", "tool_end", "tool_error"].contains(&name)
}

/// Reads an event.
pub fn read(fields: &Fields, reading: &mut Reading) -> Result<(), LineError> {
    let event = given(fields, "event").and_then(Value::as_object).unwrap_or(fields);
    match field(event, "event_type")?.as_str() {
        Some("request_payload" | "tool_start") => return Ok(()),
        Some("tool_end" | "tool_error") => {
            reading.note("events of tools are not used; waits between requests include them");
            return Ok(());
        }
        Some("request_end") => {}
        _ => return Err(wrong("event_type", "is not an event of a request or tool".into())),
    }
    if field(event, "schema")? != SCHEMA {
        return Err(wrong("schema", format!("must be {SCHEMA}")));
    }
    let fields = object(event, "request")?;
    let request = request(fields, reading)?;
    let start = time(fields, "request_received_ms", MILLISECONDS)?;
    let took = microseconds(fields, "total_time_ms", MILLISECONDS)?.unwrap_or(0);
    let context = given(event, "agent_context").and_then(Value::as_object);
    let session = |name: &str| Some(Conversation::of_value(given(context?, name)?));
    let conversation = session("session_id");
    let parent = session("parent_session_id").map(|parent| parent.id);
    let span = |own: Conversation| Span { session: own.id, parent, start, end: start + took };
    reading.span = conversation.map(span);
    reading.set_name("request_id", field(fields, "request_id")?)?;
    reading.is_unordered = true;
    reading.requests.push(TraceRequest { arrival: Some(start), conversation, ..request });
    Ok(())
}

fn object<'a>(fields: &'a Fields, name: &str) -> Result<&'a Fields, LineError> {
    field(fields, name)?.as_object().ok_or_else(|| wrong(name, "is not a JSON object".into()))
}

/// Returns the request of an event, whose hashes are ids of its blocks.
fn request(fields: &Fields, reading: &mut Reading) -> Result<TraceRequest, LineError> {
    let replay = object(fields, "replay")?;
    let width = required_width(replay, "trace_block_size")?;
    let length_of = |fields, name: &str, least| length(field(fields, name)?, name, least);
    let input = length_of(replay, "input_length", 1)?;
    let output = length_of(fields, "output_tokens", 0)?;
    let mut hashes = |name: &str, num_tokens: usize| {
        let Some(value) = given(replay, name) else { return Ok(None) };
        let (hashes, needed) = (ids(value, name, reading)?, num_tokens.div_ceil(width));
        let message = || format!("has {} ids; {num_tokens} tokens need {needed}", hashes.len());
        if hashes.len() == needed { Ok(Some(hashes)) } else { Err(wrong(name, message())) }
    };
    let of_prompt = hashes("input_sequence_hashes", input)?;
    let of_prompt = of_prompt.ok_or_else(|| wrong("input_sequence_hashes", "is missing".into()))?;
    let prompt = match hashes("completion_sequence_hashes", input + output)? {
        None => Prompt::of_ids(input, of_prompt),
        Some(all) if all[..input / width] != of_prompt[..input / width] => {
            let message = "must begin with the hashes of the prompt's whole blocks";
            return Err(wrong("completion_sequence_hashes", message.into()));
        }
        // Generated tokens complete the prompt's last block, so the block then has another hash
        // than the prompt's end alone.
        Some(all) => Prompt::HashIds {
            length: input,
            num_output_ids: Some(all.len() - of_prompt.len()),
            hash_ids: all.into_iter().collect(),
        },
    };
    Ok(TraceRequest { tokens_per_id: Some(width), ..TraceRequest::of_prompt(prompt, output) })
}

/// Lets requests of agents wait for the requests whose answers they need:
///
/// - Each request waits for the previous one of its session.
/// - The first request of a session waits for the latest one of the parent session.
/// - The first request of a parent after another session waits for the last one of that session.
pub fn connect(requests: &mut [TraceRequest], spans: &HashMap<u32, Span>) {
    let mut sessions: HashMap<u64, Vec<u32>> = HashMap::new();
    let mut read: Vec<_> = spans.keys().copied().collect();
    read.sort_by_key(|index| (spans[index].start, spans[index].end, *index));
    for &index in &read {
        sessions.entry(spans[&index].session).or_default().push(index);
    }
    let mut after: HashMap<u32, Vec<u32>> = HashMap::new();
    let mut add = |index: u32, other: u32| after.entry(index).or_default().push(other);
    for (session, own) in &sessions {
        own.windows(2).for_each(|pair| add(pair[1], pair[0]));
        let parent = own.iter().find_map(|index| spans[index].parent);
        let parent = parent.filter(|parent| parent != session);
        let Some(parents) = parent.and_then(|parent| sessions.get(&parent)) else { continue };
        let began = |index: &&u32| spans[index].start;
        let last = own.iter().max_by_key(|index| (spans[index].end, spans[index].start));
        let (first, Some(&last)) = (own[0], last) else { continue };
        if let Some(&parent) = parents.iter().rfind(|&it| began(&it) <= spans[&first].start) {
            add(first, parent);
        }
        if let Some(&parent) = parents.iter().find(|&it| began(&it) >= spans[&last].end) {
            add(parent, last);
        }
    }
    for (index, mut after) in after {
        after.sort_unstable();
        let ended = after.iter().map(|other| spans[other].end).max().unwrap_or(0);
        let delay = spans[&index].start.saturating_sub(ended);
        if let Some(request) = requests.get_mut(index as usize) {
            request.wait = Wait::for_answers(after, delay, WaitTime::Recorded);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::tests_of_lines::read_whole as read;

    fn event(name: &str, start: u64, took: u64, context: &str, hashes: &str) -> String {
        format!(
            r#"{{"schema": "{SCHEMA}", "event_type": "request_end", "event_time_unix_ms": 99,
                "event_source": "dynamo"{context},
                "request": {{"request_id": "{name}", "output_tokens": 6,
                    "request_received_ms": {start}, "total_time_ms": {took},
                    "replay": {{"trace_block_size": 4, "input_length": 6, {hashes}}}}}}}"#
        )
    }

    fn of_session(name: &str, start: u64, took: u64, session: &str, parent: &str) -> String {
        let context = format!(
            r#", "agent_context": {{"session_id": "{session}", "parent_session_id": {parent}}}"#
        );
        event(name, start, took, &context, r#""input_sequence_hashes": [7, 8]"#)
    }

    #[test]
    fn requests_are_in_the_order_in_which_they_began() {
        let known = r#""input_sequence_hashes": [7, 8], "completion_sequence_hashes": [7, 9, 10]"#;
        let first = event("a", 5, 30, "", known);
        let second = event("b", 1, 60, "", r#""input_sequence_hashes": [7, 9]"#);
        let tool = r#"{"event_type": "tool_end", "tool": {}}"#.to_owned();
        let wrapped = format!(r#"{{"timestamp": 3, "event": {second}}}"#);
        let (trace, reader) = read(&[first, tool, wrapped]).expect("events");
        assert_eq!((reader.dialect(), trace.tokens_per_id()), (Some("dynamo"), Ok(4)));
        assert_eq!(reader.notes().len(), 1, "{:?}", reader.notes());
        let arrivals: Vec<_> = trace.requests().iter().map(|it| it.arrival).collect();
        assert_eq!(arrivals, [Some(1_000), Some(5_000)]);
        let [second, first] = [0, 1].map(|index| &trace.requests()[index]);
        assert_eq!([second, first].map(|it| it.num_known_tokens(4)), [6, 12]);
        let common = first.prompt.common_end(&second.prompt, 0, 6, 4);
        assert_eq!(common, 6, "what was generated completes the block");
    }

    #[test]
    fn agents_wait_for_the_answers_that_they_need() {
        let lines = [
            of_session("child", 15, 20, "c", r#""p""#),
            of_session("a", 0, 10, "p", "null"),
            of_session("b", 12, 10, "p", "null"),
            of_session("d", 50, 10, "p", "null"),
        ];
        let (trace, _) = read(&lines).expect("events");
        let arrivals: Vec<_> = trace.requests().iter().map(|it| it.arrival).collect();
        assert_eq!(arrivals, [Some(0), Some(12_000), Some(15_000), Some(50_000)]);
        let waits: Vec<_> = trace.requests().iter().map(|it| it.wait.clone()).collect();
        let wait =
            |after: &[u32], delay| Wait::for_answers(after.to_vec(), delay, WaitTime::Recorded);
        let (b, child, d) = (wait(&[0], 2_000), wait(&[1], 0), wait(&[2, 1], 15_000));
        assert_eq!(waits, [None, b, child, d]);
    }

    #[test]
    fn damaged_events_are_refused() {
        let good = event("a", 0, 9, "", r#""input_sequence_hashes": [7, 8]"#);
        read(std::slice::from_ref(&good)).expect("an event");
        assert_eq!(read(&[good.clone(), good.clone()]).expect_err("twice").field, "request_id");
        let completed = r#"[7, 8], "completion_sequence_hashes": [6, 9, 9]"#;
        for (from, to, field) in [
            ("request_end", "request_began", "event_type"),
            (".v1", ".v2", "schema"),
            ("[7, 8]", "[7]", "input_sequence_hashes"),
            ("[7, 8]", completed, "completion_sequence_hashes"),
            ("input_sequence", "sequence", "input_sequence_hashes"),
            ("request_received_ms", "received", "request_received_ms"),
            ("\"output_tokens\": 6", "\"output_tokens\": -1", "output_tokens"),
            ("\"request\"", "\"answer\"", "request"),
            ("\"trace_block_size\": 4", "\"trace_block_size\": 0", "trace_block_size"),
        ] {
            assert_eq!(read(&[good.replace(from, to)]).expect_err(field).field, field);
        }
    }
}

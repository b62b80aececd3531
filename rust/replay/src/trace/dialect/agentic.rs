//! Dynamo's traces of agents: a head, and rows that name the requests for which they wait. Source:
//! <https://github.com/ai-dynamo/aisimulate>, `crates/core/src/replay/loadgen`

use serde_json::Value;

use super::rows::{MILLISECONDS, required_width, untimed};
use crate::conversation::Conversation;
use crate::trace::fields::{Fields, LineError, each, field, given, time, wrong};
use crate::trace::reading::{Head, Reading};
use crate::trace::request::{After, Event, TraceRequest, Wait, WaitTime};

const SCHEMA: &str = "dynamo.agentic_mooncake";
const VERSION: u64 = 2;

/// Fields of rows. A row has at least one of them.
pub const ROW_MARKS: [&str; 3] = ["play_id", "not_before_ms", "dependencies"];

/// Returns whether a line is a row.
pub fn is_row(fields: &Fields) -> bool {
    ROW_MARKS.iter().filter(|name| fields.contains_key(**name)).count() > 1
}

/// Reads the head, which holds no request.
pub fn read_head(fields: &Fields, reading: &mut Reading) -> Result<(), LineError> {
    let must_be = |name: &str, expected: &Value| match field(fields, name)? {
        value if value == expected => Ok(()),
        value => Err(wrong(name, format!("is {value}; expected {expected}"))),
    };
    must_be("schema", &SCHEMA.into())?;
    must_be("version", &VERSION.into())?;
    must_be("hash_id_scope", &"local".into())?;
    if reading.head.is_some() || reading.next > 0 {
        return Err(wrong("schema", "is a header, which must be the first line".into()));
    }
    let tokens_per_id = required_width(fields, "block_size")?;
    reading.head = Some(Head { tokens_per_id, model: None });
    reading.is_unordered = true;
    Ok(())
}

/// Returns the request of a row after the head. The request arrives at its time or later, and after
/// its delays from the arrivals or answers that the row names.
pub fn request(fields: &Fields, reading: &mut Reading) -> Result<TraceRequest, LineError> {
    let tokens_per_id = Some(tokens_per_id(fields, reading)?);
    let request = untimed(fields, field(fields, "hash_ids"), reading)?;
    let session = format!("{} {}", field(fields, "play_id")?, field(fields, "session_id")?);
    let conversation = Some(Conversation::of_name(&session));
    let arrival = Some(time(fields, "not_before_ms", MILLISECONDS)?);
    let name = field(fields, "request_id")?;
    let wait = wait(fields, name, reading)?;
    reading.set_name("request_id", name)?;
    Ok(TraceRequest { arrival, conversation, tokens_per_id, wait, ..request })
}

/// Returns the number of tokens per id from the head. Adds a note if models differ.
fn tokens_per_id(fields: &Fields, reading: &mut Reading) -> Result<usize, LineError> {
    let Some(Head { tokens_per_id, model }) = &mut reading.head else {
        let message = format!("needs a first line with the schema {SCHEMA} and a block_size");
        return Err(wrong("play_id", message));
    };
    let tokens_per_id = *tokens_per_id;
    if let Some(own) = given(fields, "model")
        && model.get_or_insert_with(|| own.clone()) != own
    {
        reading.note("requests for several models are replayed as requests for one model");
    }
    Ok(tokens_per_id)
}

/// Returns the events for which the request with a name waits, in addition to its time.
fn wait(
    fields: &Fields,
    name: &Value,
    reading: &mut Reading,
) -> Result<Option<Box<Wait>>, LineError> {
    let Some(dependencies) = given(fields, "dependencies") else { return Ok(None) };
    let objects = each(dependencies, "dependencies", "objects", Value::as_object)?;
    let after = objects.iter().map(|dependency| after(dependency, name, reading));
    Ok(Wait::of(after.collect::<Result<_, _>>()?, WaitTime::Earliest))
}

/// Returns the event for which the request waits because of a dependency.
fn after(dependency: &Fields, own: &Value, reading: &mut Reading) -> Result<After, LineError> {
    let event = match field(dependency, "trigger")?.as_str() {
        Some("dispatch") => Event::Arrival,
        Some("completion") => Event::Answer,
        _ => return Err(wrong("trigger", "must be dispatch or completion".into())),
    };
    let delay = time(dependency, "delay_ms", MILLISECONDS)?;
    match field(dependency, "request_id")? {
        name if name == own => Err(wrong(
            "dependencies",
            format!("is {name}, the request itself; name another request"),
        )),
        name => Ok(After { request: reading.named(name), event, delay }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::tests_of_lines::read_whole as read;

    const HEAD: &str = r#"{"schema": "dynamo.agentic_mooncake", "version": 2, "block_size": 64,
        "hash_id_scope": "local", "source": {"format": "test", "digest": "none"}}"#;

    fn row(name: &str, time: u64, dependencies: &str) -> String {
        format!(
            r#"{{"request_id": "{name}", "play_id": "p", "session_id": "s", "model": "m",
                "input_length": 100, "output_length": 2, "hash_ids": [1, 2],
                "not_before_ms": {time}, "dependencies": [{dependencies}]}}"#
        )
    }

    fn after(name: &str, trigger: &str, delay: u64) -> String {
        format!(
            r#"{{"request_id": "{name}", "trigger": "{trigger}", "delay_ms": {delay},
                "relation": "spawn"}}"#
        )
    }

    #[test]
    fn rows_behind_a_head_are_in_the_order_of_their_waits() {
        let both = [after("a", "completion", 20), after("b", "dispatch", 5)].join(", ");
        let rows =
            [row("c", 30, &both), row("b", 10, &after("a", "dispatch", 10)), row("a", 0, "")];
        let (trace, reader) = read(&[HEAD, &rows[0], &rows[1], &rows[2]]).expect("a trace");
        assert_eq!((reader.dialect(), trace.tokens_per_id()), (Some("dynamo"), Ok(64)));
        assert_eq!(reader.notes(), [""; 0]);
        let arrivals: Vec<_> = trace.requests().iter().map(|request| request.arrival).collect();
        assert_eq!(arrivals, [Some(0), Some(10_000), Some(30_000)]);
        let waits: Vec<_> = trace.requests().iter().map(|request| request.wait.clone()).collect();
        let after = |request, event, delay| After { request, event, delay };
        let wait = |after| Wait::of(after, WaitTime::Earliest);
        let both = vec![after(0, Event::Answer, 20_000), after(1, Event::Arrival, 5_000)];
        assert_eq!(waits, [None, wait(vec![after(0, Event::Arrival, 10_000)]), wait(both)]);
    }

    #[test]
    fn equal_sessions_of_two_plays_are_two() {
        let other = row("b", 0, "").replace(r#""p""#, r#""q""#).replace(r#""m""#, r#""n""#);
        let (trace, reader) = read(&[HEAD, &row("a", 0, ""), &other]).expect("a trace");
        let [first, second] = [0, 1].map(|index| trace.requests()[index].conversation);
        assert_ne!(first, second);
        assert_eq!(
            reader.notes(),
            ["requests for several models are replayed as requests for one model"]
        );
    }

    #[test]
    fn what_is_no_such_trace_is_refused() {
        let (good, own) = (row("a", 0, ""), row("a", 0, &after("a", "dispatch", 0)));
        let later = row("a", 0, &after("b", "joined", 0));
        let no_time = good.replace("not_before_ms", "timestamp");
        for (lines, field) in [
            (vec![good.as_str()], "play_id"),
            (vec![HEAD, &good, HEAD], "schema"),
            (vec![HEAD, &good, &good], "request_id"),
            (vec![HEAD, &own], "dependencies"),
            (vec![HEAD, &later], "trigger"),
            (vec![HEAD, &no_time], "not_before_ms"),
        ] {
            assert_eq!(read(&lines).expect_err(field).field, field);
        }
        for (from, to, field) in [
            ("agentic_mooncake", "other", "schema"),
            (": 2", ": 3", "version"),
            ("local", "global", "hash_id_scope"),
            (": 64", ": 0", "block_size"),
        ] {
            assert_eq!(read(&[&HEAD.replace(from, to)]).expect_err(field).field, field);
        }
    }
}

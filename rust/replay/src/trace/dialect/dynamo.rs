//! Dynamo's rows: Mooncake's rows with names of requests, the requests for which they wait, tokens
//! of the output, and scheduling hints. Dynamo's rows of agents and its events are also read.
//! Source: <https://github.com/ai-dynamo/dynamo>, `lib/data-gen/src/mooncake.rs`

use serde_json::Value;

use super::rows::{IN_MILLISECONDS, ROW_FIELDS, ids, request};
use super::{Dialect, Form, Lines, agentic, events};
use crate::id_width::IdWidths;
use crate::trace::fields::{Fields, LineError, given, integer, wrong};
use crate::trace::prompt::Prompt;
use crate::trace::reading::Reading;
use crate::trace::request::TraceRequest;

pub const DYNAMO: Dialect = Dialect {
    name: "dynamo",
    about: "Dynamo's lines: Mooncake's with waits and orders; traces of its agents; request events",
    sign: "Mooncake's fields with one such as wait_for, or a schema or event_type of Dynamo",
    example: r#"{"request_id": "a", "timestamp": 0, "input_length": 40, "output_length": 3, "hash_ids": [1, 2, 3]}
{"request_id": "b", "wait_for": ["a"], "tool_wait_ms": 500, "input_length": 60, "output_length": 3, "hash_ids": [1, 2, 4, 5]}
"#,
    form: Form::Lines(Lines {
        fields: &[
            ROW_FIELDS,
            &ROW_MARKS,
            &agentic::ROW_MARKS,
            &[
                "request_id",
                "delay",
                "type",
                "turn",
                "priority",
                "input_tokens",
                "output_tokens",
                "created_time",
                "version",
                "hash_id_scope",
                "source",
                "model",
                "event_time_unix_ms",
                "event_source",
                "request",
                "tool",
                "agent_context",
                "event",
                "event_type",
                "schema",
                "tool_events",
                "branches",
                "prefix_reset",
                "request_kind",
                "source_play_ordinal",
                "recorded_api_time_ms",
            ],
        ],
        is_like,
        extends_mooncake: true,
        read,
        table: None,
    }),
};

/// Fields of rows that Mooncake's lines do not have.
const ROW_MARKS: [&str; 7] = [
    "wait_for",
    "tool_wait_ms",
    "output_token_ids",
    "strict_priority",
    "policy_class",
    "routing_constraints",
    "delay_ms",
];

/// Returns whether a line is a row with one of Dynamo's fields, or one of Dynamo's heads or events.
fn is_like(fields: &Fields) -> bool {
    let has = |name: &&str| fields.contains_key(*name);
    if has(&"hash_ids") && !agentic::is_row(fields) {
        return ROW_MARKS.iter().any(&has) || has_scheduling_priority(fields);
    }
    let event = fields.get("event").and_then(Value::as_object).unwrap_or(fields);
    let is_of_dynamo = |schema: &Value| schema.as_str().is_some_and(|it| it.starts_with("dynamo."));
    agentic::is_row(fields)
        || fields.get("schema").is_some_and(is_of_dynamo)
        || event.get("schema").is_some_and(is_of_dynamo)
        || event.get("event_type").and_then(Value::as_str).is_some_and(events::is_type)
}

/// Returns whether a line's priority is not one that blocks can have, or is given together with a
/// delay.
fn has_scheduling_priority(fields: &Fields) -> bool {
    let Some(priority) = fields.get("priority").and_then(integer) else { return false };
    let is_other = !(0..=100).contains(&priority) || fields.contains_key("delay");
    is_other && fields.contains_key("hash_ids") && !fields.contains_key("ttl")
}

fn read(fields: &Fields, reading: &mut Reading) -> Result<(), LineError> {
    let is_row = fields.contains_key("hash_ids");
    if !is_row && (fields.contains_key("event_type") || fields.contains_key("event")) {
        return events::read(fields, reading);
    }
    if !is_row && fields.contains_key("schema") {
        return agentic::read_head(fields, reading);
    }
    let has_head = reading.head.is_some();
    let mut request = match has_head || agentic::is_row(fields) {
        true => agentic::request(fields, reading)?,
        false => request(fields, IN_MILLISECONDS, reading)?,
    };
    for name in ["priority", "strict_priority", "policy_class", "routing_constraints"] {
        if given(fields, name).is_some() {
            reading.note(&format!("{name} is Dynamo's order of scheduling, which is not replayed"));
        }
    }
    if let Some(value) = given(fields, "output_token_ids") {
        let tokens = ids(value, "output_token_ids", reading)?;
        if tokens.len() != request.output_length {
            let message =
                format!("has {} tokens; output_length is {}", tokens.len(), request.output_length);
            return Err(wrong("output_token_ids", message));
        }
        add_output(&mut request, &tokens, reading);
    }
    reading.requests.push(request);
    Ok(())
}

/// Adds the output of a row. Dynamo repeats the id of a block for each of its tokens, in prompts
/// and outputs. Therefore as many equal tokens as an id has are one block.
fn add_output(request: &mut TraceRequest, tokens: &[i64], reading: &mut Reading) {
    let Prompt::HashIds { length, hash_ids, num_output_ids: None } = &request.prompt else {
        return;
    };
    let (length, num_ids) = (*length, hash_ids.len());
    let Some(last) = num_ids.checked_sub(1).map(|last| hash_ids.at(last)) else { return };
    let mut runs: Vec<_> = tokens.chunk_by(|a, b| a == b).map(|run| (run[0], run.len())).collect();
    if runs.first().is_some_and(|&(id, _)| id == last) {
        runs.remove(0);
    }
    let whole = runs.split_last().map_or(&[][..], |(_, whole)| whole);
    let width = whole.first().map(|&(_, width)| width);
    let is_possible = |width: usize| {
        let widths = [IdWidths::of_prompt(length, num_ids), IdWidths::of_whole(length, num_ids)];
        widths.iter().any(|widths| widths.has(width))
            && request.tokens_per_id.is_none_or(|given| given == width)
            && runs.iter().all(|&(_, tokens)| tokens <= width)
            && whole.iter().all(|&(_, tokens)| tokens == width)
    };
    if width.is_none_or(is_possible) {
        let output = runs.iter().map(|&(id, _)| id);
        let ids = hash_ids.iter().chain(output).collect();
        request.prompt =
            Prompt::HashIds { length, hash_ids: ids, num_output_ids: Some(runs.len()) };
        request.tokens_per_id = request.tokens_per_id.or(width);
    } else {
        reading.note("output_token_ids are not ids of blocks; these outputs are unique");
    }
}

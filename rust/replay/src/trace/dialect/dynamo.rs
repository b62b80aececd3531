//! Dynamo's rows: Mooncake's with names of requests, what these wait for, tokens of the output, and
//! orders of scheduling; also the rows of its agents, and its events.
//! Source: <https://github.com/ai-dynamo/dynamo>, `lib/data-gen/src/mooncake.rs`

use super::rows::{ROW_FIELDS, ids, request};
use super::{Dialect, Form, Objects, agentic, events};
use crate::id_width::IdWidths;
use crate::trace::fields::{Fields, LineError, given, integer, wrong};
use crate::trace::prompt::Prompt;
use crate::trace::reading::Reading;
use crate::trace::request::TraceRequest;

pub const DYNAMO: Dialect = Dialect {
    name: "dynamo",
    form: Form::Objects(Objects {
        marks: &[
            "request_id",
            "wait_for",
            "tool_wait_ms",
            "output_token_ids",
            "strict_priority",
            "policy_class",
            "routing_constraints",
            "delay_ms",
            "tool_events",
            "branches",
            "prefix_reset",
            "request_kind",
            "event_type",
            "event",
            "schema",
            "play_id",
            "not_before_ms",
            "dependencies",
            "source_play_ordinal",
            "recorded_api_time_ms",
        ],
        fields: &[
            ROW_FIELDS,
            &[
                "delay",
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
            ],
        ],
        is_like: has_scheduling_priority,
        extends_mooncake: true,
        read,
    }),
};

/// Whether the priority of a line is none that blocks can have, or one beside a delay.
fn has_scheduling_priority(fields: &Fields) -> bool {
    let Some(priority) = fields.get("priority").and_then(integer) else { return false };
    let is_other = !(0..=100).contains(&priority) || fields.contains_key("delay");
    is_other && fields.contains_key("hash_ids") && !fields.contains_key("ttl")
}

fn read(fields: &Fields, reading: &mut Reading) -> Result<(), LineError> {
    if fields.contains_key("event_type") || fields.contains_key("event") {
        return events::read(fields, reading);
    }
    if fields.contains_key("schema") {
        return agentic::read_head(fields, reading);
    }
    let has_head = reading.head.is_some();
    let is_of_agent = has_head || agentic::ROW_MARKS.iter().any(|it| fields.contains_key(*it));
    let mut request = match is_of_agent {
        true => agentic::request(fields, reading)?,
        false => request(fields, reading)?,
    };
    for name in ["priority", "strict_priority", "policy_class", "routing_constraints"] {
        if given(fields, name).is_some() {
            reading.note(&format!("{name} is Dynamo's order of scheduling, which is not played"));
        }
    }
    if let Some(value) = given(fields, "output_token_ids") {
        let tokens = ids(value, "output_token_ids", reading)?;
        if tokens.len() != request.output_length {
            let message = format!("has {} tokens of {}", tokens.len(), request.output_length);
            return Err(wrong("output_token_ids", message));
        }
        add_output(&mut request, &tokens, reading);
    }
    reading.requests.push(request);
    Ok(())
}

/// Adds the output of a row. Dynamo repeats the id of a block for each of its tokens, in prompts and
/// outputs, so that as many equal tokens as an id stands for are a block.
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
        reading.note("output_token_ids are not ids of blocks; these outputs are like no others");
    }
}

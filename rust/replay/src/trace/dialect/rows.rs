//! Rows with a length and ids of blocks, which several dialects share.

use kvoxide_core::RetentionPriority;
use serde_json::Value;

use super::cell::Cell;
use crate::conversation::Conversation;
use crate::id_width::MAX_WIDTH;
use crate::trace::fields::{
    Fields, LineError, each, field, given, integer, length, microseconds, within, wrong,
};
use crate::trace::prompt::Prompt;
use crate::trace::reading::Reading;
use crate::trace::request::{TraceRequest, Wait, WaitTime};
use crate::trace::times::{Scale, Unit};

pub const MILLISECONDS: f64 = 1e3;

/// The scale of Mooncake's times.
pub const IN_MILLISECONDS: Scale = Scale::Default(Unit::Milliseconds);

/// The fields of a row in every dialect that has such rows.
pub const ROW_FIELDS: &[&str] = &[
    "prompt_token_ids",
    "timestamp",
    "input_length",
    "output_length",
    "hash_ids",
    "output_hash_ids",
    "session_id",
    "session_end",
    "block_size",
];

/// Names of Mooncake's fields, and the other names that Dynamo's reader accepts for them.
const OTHER_NAMES: [(&str, &str); 4] = [
    ("input_length", "input_tokens"),
    ("output_length", "output_tokens"),
    ("timestamp", "created_time"),
    ("delay", "delay_ms"),
];

/// Fields that make a request wait for others, or others wait for it.
const WAITING_FIELDS: [&str; 6] =
    ["delay", "delay_ms", "tool_wait_ms", "wait_for", "request_id", "session_id"];

/// Returns a field by Mooncake's name, or by the other name that Dynamo's reader accepts.
fn find<'a>(fields: &'a Fields, name: &'static str) -> Option<&'a Value> {
    Some(find_named(fields, name)?.1)
}

fn find_named<'a>(fields: &'a Fields, name: &'static str) -> Option<(&'static str, &'a Value)> {
    let other = || OTHER_NAMES.iter().find(|(ours, _)| *ours == name);
    let named = |name: &'static str| Some((name, fields.get(name)?));
    named(name).or_else(|| named(other()?.1))
}

/// Returns the request of a row with ids, whose time is a number on this scale.
pub fn request(
    fields: &Fields,
    scale: Scale,
    reading: &mut Reading,
) -> Result<TraceRequest, LineError> {
    request_of(fields, field(fields, "hash_ids"), scale, reading)
}

/// Returns the request of a row that has only Mooncake's four fields.
pub fn plain_request(
    fields: &Fields,
    scale: Scale,
    reading: &mut Reading,
) -> Result<TraceRequest, LineError> {
    let output_length = output_length(fields);
    let (length, hash_ids) = length_and_ids(fields, field(fields, "hash_ids"), reading)?;
    let prompt = prompt_of(length, hash_ids, None);
    let request = TraceRequest::of_prompt(prompt, output_length?);
    Ok(TraceRequest { arrival: arrival(fields, scale, reading)?, ..request })
}

/// Returns the request of a row with these ids.
pub fn request_of(
    fields: &Fields,
    ids: Result<&Value, LineError>,
    scale: Scale,
    reading: &mut Reading,
) -> Result<TraceRequest, LineError> {
    let request = untimed(fields, ids, reading)?;
    let request = TraceRequest { arrival: arrival(fields, scale, reading)?, ..request };
    // One pass over the few names of a line is cheaper than a look-up of each of these fields.
    match fields.keys().any(|name| WAITING_FIELDS.contains(&name.as_str())) {
        true => waiting(fields, request, reading),
        false => Ok(request),
    }
}

/// Returns the request of a row with these ids, without its time and the requests for which it
/// waits.
pub fn untimed(
    fields: &Fields,
    ids: Result<&Value, LineError>,
    reading: &mut Reading,
) -> Result<TraceRequest, LineError> {
    let output_length = output_length(fields);
    let num_output = output_length.as_ref().copied().unwrap_or(0);
    let prompt = prompt(fields, ids, num_output, reading)?;
    let has_ids = matches!(prompt, Prompt::HashIds { .. });
    let tokens_per_id = if has_ids { width(fields, "block_size")? } else { None };
    let conversation = Conversation::of_line(fields);
    let ends_session = flag(fields, "session_end")?;
    let request = TraceRequest::of_prompt(prompt, output_length?);
    Ok(TraceRequest { conversation, ends_session, tokens_per_id, ..request })
}

/// Returns the value of a field that is true or false; false without the field.
pub fn flag(fields: &Fields, name: &str) -> Result<bool, LineError> {
    match given(fields, name) {
        None => Ok(false),
        Some(&Value::Bool(flag)) => Ok(flag),
        Some(value) => Err(wrong(name, format!("is {value}; expected true or false"))),
    }
}

/// Returns the time of arrival in microseconds, if a row has one.
fn arrival(fields: &Fields, scale: Scale, reading: &mut Reading) -> Result<Option<u64>, LineError> {
    let time = find_named(fields, "timestamp").filter(|(_, time)| !time.is_null());
    time.map(|(name, time)| Cell::Json(time).time(name, scale, reading)).transpose()
}

/// Returns the tokens of an output; 0 if the value is `null`.
fn output_length(fields: &Fields) -> Result<usize, LineError> {
    match find(fields, "output_length") {
        None => Err(wrong("output_length", "is missing".into())),
        Some(Value::Null) => Ok(0),
        Some(value) => length(value, "output_length", 0),
    }
}

/// Returns the tokens per id in a field, if it is given.
fn width(fields: &Fields, name: &str) -> Result<Option<usize>, LineError> {
    let Some(value) = given(fields, name) else { return Ok(None) };
    let message =
        || format!("is {value}; expected the number of tokens per id, from 1 to {MAX_WIDTH}");
    let width = within(value, 1..=MAX_WIDTH);
    width.map(Some).ok_or_else(|| wrong(name, message()))
}

/// Returns the tokens per id in a required field.
pub fn required_width(fields: &Fields, name: &str) -> Result<usize, LineError> {
    width(fields, name)?.ok_or_else(|| wrong(name, "is missing".into()))
}

/// Returns the priority that a row sets for the blocks of its request.
pub fn priority(fields: &Fields) -> Result<Option<RetentionPriority>, LineError> {
    let (priority, ttl) = (given(fields, "priority"), given(fields, "ttl"));
    if priority.is_none() && ttl.is_none() {
        return Ok(None);
    }
    let default = Value::from(RetentionPriority::DEFAULT_PRIORITY);
    let priority = priority.unwrap_or(&default);
    let Some(priority) = priority.as_i64() else {
        return Err(wrong("priority", format!("is {priority}; expected an integer from 0 to 100")));
    };
    let seconds = ttl.map(|ttl| {
        ttl.as_f64().ok_or_else(|| wrong("ttl", format!("is {ttl}; expected a number of seconds")))
    });
    let seconds = seconds.transpose()?;
    let field = if RetentionPriority::new(priority, None).is_err() { "priority" } else { "ttl" };
    RetentionPriority::new(priority, seconds)
        .map(Some)
        .map_err(|error| wrong(field, format!("is not valid: {error}")))
}

fn tokens_prompt(value: &Value) -> Result<Prompt, LineError> {
    let tokens = each(value, "prompt_token_ids", "integers", integer)?;
    if tokens.is_empty() {
        return Err(wrong("prompt_token_ids", "is empty; a prompt has at least one token".into()));
    }
    Ok(Prompt::of_tokens(tokens))
}

fn prompt(
    fields: &Fields,
    hash_ids: Result<&Value, LineError>,
    output_length: usize,
    reading: &mut Reading,
) -> Result<Prompt, LineError> {
    if let Some(tokens) = fields.get("prompt_token_ids") {
        return tokens_prompt(tokens);
    }
    let (length, mut hash_ids) = length_and_ids(fields, hash_ids, reading)?;
    let mut num_output_ids = None;
    if let Some(output) = given(fields, "output_hash_ids") {
        let output = ids(output, "output_hash_ids", reading)?;
        if output.len() > output_length {
            let count = output.len();
            let message =
                format!("has {count} ids; {output_length} tokens can have 0 to {output_length}");
            return Err(wrong("output_hash_ids", message));
        }
        if hash_ids.is_empty() && !output.is_empty() {
            let message = "has ids, but the prompt has none";
            return Err(wrong("output_hash_ids", message.into()));
        }
        num_output_ids = Some(output.len());
        hash_ids.extend(output);
    }
    Ok(prompt_of(length, hash_ids, num_output_ids))
}

/// Returns the length and the ids of a prompt.
fn length_and_ids(
    fields: &Fields,
    hash_ids: Result<&Value, LineError>,
    reading: &mut Reading,
) -> Result<(usize, Vec<i64>), LineError> {
    let missing = || wrong("input_length", "is missing".into());
    let length = length(find(fields, "input_length").ok_or_else(missing)?, "input_length", 1)?;
    let hash_ids = prompt_ids(hash_ids?, "hash_ids", length, reading)?;
    if hash_ids.is_empty() {
        reading.note("prompts without ids share nothing: none of their tokens is hit");
    }
    Ok((length, hash_ids))
}

fn prompt_of(length: usize, hash_ids: Vec<i64>, num_output_ids: Option<usize>) -> Prompt {
    Prompt::HashIds { length, hash_ids: hash_ids.into_iter().collect(), num_output_ids }
}

/// Returns the ids of a prompt.
pub fn prompt_ids(
    value: &Value,
    name: &str,
    length: usize,
    reading: &mut Reading,
) -> Result<Vec<i64>, LineError> {
    let ids = ids(value, name, reading)?;
    let message = || format!("has {} ids; {length} tokens need 1 to {length}", ids.len());
    if ids.len() > length { Err(wrong(name, message())) } else { Ok(ids) }
}

/// Returns ids of blocks. Only their equality matters.
pub fn ids(value: &Value, name: &str, reading: &mut Reading) -> Result<Vec<i64>, LineError> {
    each(value, name, "integers of at least 0, or text", |value| reading.id(value)).map_err(
        |error| {
            let negative = value.as_array().into_iter().flatten().filter_map(integer);
            match negative.into_iter().find(|&id| id < 0) {
                Some(id) => wrong(name, format!("has the id {id}; ids are at least 0")),
                None => error,
            }
        },
    )
}

/// Adds to a request the requests for which it waits. These are the requests that it names, or the
/// previous one of its session if it has a delay instead of a time.
fn waiting(
    fields: &Fields,
    request: TraceRequest,
    reading: &mut Reading,
) -> Result<TraceRequest, LineError> {
    let name = if fields.contains_key("delay_ms") { "delay_ms" } else { "delay" };
    let delay = microseconds(fields, name, MILLISECONDS)?;
    let after = match given(fields, "wait_for") {
        Some(Value::Array(names)) => {
            let own = given(fields, "request_id");
            if let Some(name) = names.iter().find(|&name| Some(name) == own) {
                return Err(wrong(
                    "wait_for",
                    format!("is {name}, the request itself; name another request"),
                ));
            }
            names.iter().map(|name| reading.named(name)).collect()
        }
        Some(_) => return Err(wrong("wait_for", "must be an array of request_ids".into())),
        None => Vec::new(),
    };
    let has_time = request.arrival.is_some() && delay.is_none();
    let session = request.conversation.filter(|it| it.continues.is_none() && !has_time);
    let before = || session.and_then(|session| reading.latest(session.id));
    let after = if after.is_empty() { before().into_iter().collect() } else { after };
    let tool_wait = microseconds(fields, "tool_wait_ms", MILLISECONDS)?.unwrap_or(0);
    if let Some(value) = given(fields, "request_id") {
        reading.set_name("request_id", value)?;
    }
    let time = request.arrival.map_or(WaitTime::Unknown, |_| WaitTime::Recorded);
    let arrival = request.arrival.or(delay);
    let wait = Wait::for_answers(after, delay.unwrap_or(0) + tool_wait, time);
    Ok(TraceRequest { arrival, wait, ..request })
}

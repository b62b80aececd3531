//! Mooncake's traces (FAST'25), with the additional fields of kvoxide's own lines: tokens instead
//! of ids, ids of the output, tokens per id, priorities of blocks, sessions and delays. Source:
//! <https://github.com/kvcache-ai/Mooncake/tree/main/FAST25-release/traces>

use super::records::{LOG, Records, Role};
use super::rows::{IN_MILLISECONDS, ROW_FIELDS, plain_request, priority, request};
use serde_json::Value;

use super::aiperf::TEXTS;
use super::{Dialect, Form, Lines};
use crate::trace::fields::{Fields, LineError};
use crate::trace::reading::Reading;
use crate::trace::times::Scale;

pub const MOONCAKE: Dialect = Dialect {
    name: "mooncake",
    about: "Mooncake's lines, or the same as a table: times in ms, lengths, ids of 512 tokens",
    sign: "input_length, output_length and hash_ids; other fields are allowed",
    example: r#"{"timestamp": 0, "input_length": 1200, "output_length": 3, "hash_ids": [1, 2, 3]}
{"timestamp": 10000, "input_length": 1200, "output_length": 3, "hash_ids": [1, 2, 4]}
"#,
    form: Form::Lines(Lines {
        fields: &[
            ROW_FIELDS,
            &[
                "priority",
                "ttl",
                "input_tokens",
                "output_tokens",
                "created_time",
                "delay",
                "type",
                "turn",
                "request_id",
            ],
        ],
        is_like: |fields| {
            let has = |names: &[&str]| names.iter().any(|name| fields.contains_key(*name));
            (has(&CORE) || (has(&OTHER_LENGTHS) && has(&OTHER_FIELDS))) && !is_of_text(fields)
        },
        extends_mooncake: false,
        read,
        table: Some(&TABLE),
    }),
};

/// Fields of Mooncake. A line has at least one of them.
const CORE: [&str; 4] = ["input_length", "output_length", "hash_ids", "prompt_token_ids"];

/// Alternatives to these fields. Logs of many tools have them, so a line also needs one more field.
const OTHER_LENGTHS: [&str; 2] = ["input_tokens", "output_tokens"];
const OTHER_FIELDS: [&str; 5] = ["timestamp", "created_time", "delay", "delay_ms", "wait_for"];

/// The fields of Mooncake's own lines, sorted by name.
const OWN: [&str; 4] = ["hash_ids", "input_length", "output_length", "timestamp"];

/// Returns whether a line has exactly these fields. Then no other field has to be searched for.
pub fn is_plain(fields: &Fields) -> bool {
    fields.len() == OWN.len() && fields.keys().zip(OWN).all(|(name, own)| name == own)
}

/// Returns whether a line has the fields that only Mooncake's lines and their extensions have.
pub fn is_row(fields: &Fields) -> bool {
    let has = |name: &str| fields.contains_key(name);
    let has_ids = || fields.get("hash_ids").is_some_and(Value::is_array);
    let has_length = || has("input_length") || has("input_tokens");
    (has_length() && has_ids()) || (has("prompt_token_ids") && has("output_length"))
}

const TABLE: Records = Records {
    roles: &[
        (Role::Time, &["timestamp", "created_time"]),
        (Role::Input, &["input_length", "input_tokens"]),
        (Role::Output, &["output_length", "output_tokens"]),
        (Role::Session, &["session_id"]),
        (Role::Ids, &["hash_ids"]),
        (Role::BlockSize, &["block_size"]),
    ],
    scale: IN_MILLISECONDS,
    table: Some(&["timestamp", "created_time", "hash_ids"]),
    has_known_columns: true,
    ..LOG
};

/// Returns whether a line has a text and lacks a length.
fn is_of_text(fields: &Fields) -> bool {
    let has = |names: [&str; 2]| names.iter().any(|name| fields.contains_key(*name));
    let has_lengths =
        has(["input_length", "input_tokens"]) && has(["output_length", "output_tokens"]);
    !has_lengths
        && !fields.contains_key("prompt_token_ids")
        && TEXTS.iter().any(|name| fields.contains_key(*name))
}

pub fn read(fields: &Fields, reading: &mut Reading) -> Result<(), LineError> {
    read_with(fields, IN_MILLISECONDS, reading)
}

/// Reads a line whose time is a number on this scale.
pub fn read_with(fields: &Fields, scale: Scale, reading: &mut Reading) -> Result<(), LineError> {
    if is_plain(fields) {
        let request = plain_request(fields, scale, reading)?;
        reading.requests.push(request);
        return Ok(());
    }
    let mut request = request(fields, scale, reading)?;
    request.priority = priority(fields)?;
    reading.has_priorities |= request.priority.is_some();
    reading.requests.push(request);
    Ok(())
}

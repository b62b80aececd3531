//! AIPerf's rows: Mooncake's with delays, or without ids.
//! Source: <https://github.com/ai-dynamo/aiperf>, `src/aiperf/dataset/loader/models.py`

use serde_json::Value;

use super::rows::request_of;
use super::{Dialect, Form, Objects, mooncake};
use crate::trace::fields::{Fields, LineError, is_text};
use crate::trace::reading::Reading;

pub const AIPERF: Dialect = Dialect {
    name: "aiperf",
    form: Form::Objects(Objects {
        marks: TEXTS,
        fields: &[
            "prompt_token_ids",
            "type",
            "timestamp",
            "delay",
            "session_id",
            "input_length",
            "output_length",
            "hash_ids",
            "extra",
            "role",
            "block_size",
            "output_hash_ids",
        ],
        is_like: |fields| fields.contains_key("delay") && !fields.contains_key("ttl"),
        extends_mooncake: true,
        read,
    }),
};

const TEXTS: &[&str] =
    &["text_input", "messages", "payload", "message_mode", "turns", "text", "texts", "tools"];

fn read(fields: &Fields, reading: &mut Reading) -> Result<(), LineError> {
    if let Some(text) = TEXTS.iter().find(|name| fields.contains_key(**name)) {
        return Err(is_text(AIPERF.name, text));
    }
    if fields.contains_key("priority") || fields.contains_key("ttl") {
        return mooncake::read(fields, reading);
    }
    let none = Value::Array(Vec::new());
    let ids = fields.get("hash_ids").unwrap_or(&none);
    let request = request_of(fields, Ok(ids), reading)?;
    reading.requests.push(request);
    Ok(())
}

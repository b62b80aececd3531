//! AIPerf's rows: Mooncake's with delays, or without ids.
//! Source: <https://github.com/ai-dynamo/aiperf>, `src/aiperf/dataset/loader/models.py`

use serde_json::Value;

use super::rows::{ROW_FIELDS, request_of};
use super::{Dialect, Form, Objects, mooncake};
use crate::trace::fields::{Fields, LineError, check_no_text};
use crate::trace::reading::Reading;

pub const AIPERF: Dialect = Dialect {
    name: "aiperf",
    form: Form::Objects(Objects {
        marks: TEXTS,
        fields: &[ROW_FIELDS, &["type", "delay", "extra", "role"]],
        is_like: |fields| fields.contains_key("delay") && !fields.contains_key("ttl"),
        extends_mooncake: true,
        read,
    }),
};

const TEXTS: &[&str] =
    &["text_input", "messages", "payload", "message_mode", "turns", "text", "texts", "tools"];

fn read(fields: &Fields, reading: &mut Reading) -> Result<(), LineError> {
    check_no_text(AIPERF.name, fields, TEXTS)?;
    if fields.contains_key("priority") || fields.contains_key("ttl") {
        return mooncake::read(fields, reading);
    }
    let none = Value::Array(Vec::new());
    let ids = fields.get("hash_ids").unwrap_or(&none);
    let request = request_of(fields, Ok(ids), reading)?;
    reading.requests.push(request);
    Ok(())
}

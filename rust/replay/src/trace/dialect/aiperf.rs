//! AIPerf's rows: Mooncake's rows with delays, or without ids. Source:
//! <https://github.com/ai-dynamo/aiperf>, `src/aiperf/dataset/loader/models.py`

use serde_json::Value;

use super::rows::{IN_MILLISECONDS, ROW_FIELDS, request_of};
use super::{Dialect, Form, Lines, mooncake};
use crate::trace::fields::{Fields, LineError, check_no_text};
use crate::trace::reading::Reading;

pub const AIPERF: Dialect = Dialect {
    name: "aiperf",
    about: "AIPerf's lines: Mooncake's with delays after the previous answer, or without ids",
    sign: "Mooncake's fields with a delay, or without hash_ids in all lines",
    example: r#"{"session_id": "a", "timestamp": 0, "input_length": 40, "output_length": 3, "hash_ids": [1]}
{"session_id": "a", "delay": 500, "input_length": 60, "output_length": 3, "hash_ids": [1]}
"#,
    form: Form::Lines(Lines {
        fields: &[
            ROW_FIELDS,
            &[
                "type",
                "delay",
                "extra",
                "role",
                "request_id",
                "input_tokens",
                "output_tokens",
                "created_time",
            ],
        ],
        is_like: |fields| {
            let is_row = fields.contains_key("input_length") || fields.contains_key("input_tokens");
            let has_delay = fields.contains_key("delay") && !fields.contains_key("ttl");
            let has_text = || OWN_TEXTS.iter().any(|name| fields.contains_key(*name));
            if is_row { has_delay } else { !fields.contains_key("prompt_token_ids") && has_text() }
        },
        extends_mooncake: true,
        read,
        table: None,
    }),
};

/// Fields with text in AIPerf's data sets and in other data sets.
pub const TEXTS: &[&str] = &[
    "text_input",
    "messages",
    "payload",
    "message_mode",
    "turns",
    "text",
    "texts",
    "prompt",
    "conversations",
    "input",
    "payloads",
    "body",
];

/// Fields with text that only AIPerf's lines have.
const OWN_TEXTS: &[&str] = &["text_input", "payload", "message_mode", "texts"];

fn read(fields: &Fields, reading: &mut Reading) -> Result<(), LineError> {
    if !fields.contains_key("input_length") && !fields.contains_key("input_tokens") {
        check_no_text(AIPERF.name, fields, TEXTS)?;
    }
    if fields.contains_key("priority") || fields.contains_key("ttl") {
        return mooncake::read(fields, reading);
    }
    let none = Value::Array(Vec::new());
    let ids = fields.get("hash_ids").unwrap_or(&none);
    let request = request_of(fields, Ok(ids), IN_MILLISECONDS, reading)?;
    reading.requests.push(request);
    Ok(())
}

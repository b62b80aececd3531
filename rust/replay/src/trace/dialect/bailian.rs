//! Qwen-Bailian's traces: rows of blocks of 16 tokens, with times in seconds and the chat that each
//! continues. Source: <https://github.com/alibaba-edu/qwen-bailian-usagetraces-anon>

use serde_json::Value;

use super::rows::{ROW_FIELDS, priority, request};
use super::{Dialect, Form, Lines};
use crate::conversation::Conversation;
use crate::trace::fields::{Fields, LineError, integer};
use crate::trace::reading::Reading;
use crate::trace::times::{Scale, Unit};

const TOKENS_PER_ID: usize = 16;
const SCALE: Scale = Scale::Default(Unit::Seconds);

pub const BAILIAN: Dialect = Dialect {
    name: "bailian",
    about: "Qwen-Bailian's lines: times in seconds, ids of 16 tokens, the id of the previous chat",
    sign: "Mooncake's fields with chat_id and one of parent_chat_id, turn and type",
    example: r#"{"chat_id": 1, "parent_chat_id": -1, "timestamp": 0.5, "input_length": 20, "output_length": 3, "type": "text", "turn": 1, "hash_ids": [0, 1]}
{"chat_id": 2, "parent_chat_id": 1, "timestamp": 60.5, "input_length": 40, "output_length": 3, "type": "text", "turn": 2, "hash_ids": [0, 2, 3]}
"#,
    form: Form::Lines(Lines {
        fields: &[ROW_FIELDS, &["chat_id", "parent_chat_id", "type", "turn", "priority", "ttl"]],
        is_like,
        extends_mooncake: false,
        read,
        table: None,
    }),
};

/// Returns whether a line names a chat, together with its parent chat, turn or type. If the line
/// has ids, their number has to fit ids of 16 tokens.
fn is_like(fields: &Fields) -> bool {
    let names_chat = ["parent_chat_id", "turn", "type"].iter().any(|it| fields.contains_key(*it));
    let has = |name: &str| fields.get(name).and_then(integer);
    let num_ids = fields.get("hash_ids").and_then(Value::as_array).map(Vec::len);
    let num_tokens = has("input_length").and_then(|length| usize::try_from(length).ok());
    let expected =
        num_tokens.map(|tokens| [tokens.div_ceil(TOKENS_PER_ID), tokens / TOKENS_PER_ID]);
    let is_possible = match (num_ids, expected) {
        (Some(0), _) | (_, None) => true,
        (Some(count), Some(expected)) => expected.contains(&count),
        (None, _) => false,
    };
    fields.contains_key("chat_id") && names_chat && is_possible
}

fn read(fields: &Fields, reading: &mut Reading) -> Result<(), LineError> {
    let mut request = request(fields, SCALE, reading)?;
    request.conversation = request.conversation.or_else(|| Conversation::of_chat(fields));
    request.tokens_per_id = request.tokens_per_id.or(Some(TOKENS_PER_ID));
    request.priority = priority(fields)?;
    reading.requests.push(request);
    Ok(())
}

//! The conversation that a request of a trace belongs to.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use xxhash_rust::xxh3::xxh3_64;

/// What a line says of its conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conversation {
    /// Stands for the line's `session_id`, or for its `chat_id`.
    pub id: u64,
    /// Stands for the chat that this one continues.
    pub continues: Option<u64>,
}

impl Conversation {
    /// Of the fields of a line, if one names it: `session_id`, the same in all requests of a
    /// conversation, or Qwen-Bailian's `chat_id`, which each request has for itself, with the
    /// `parent_chat_id` of the one before it, -1 for none.
    pub fn of_line(fields: &Map<String, Value>) -> Option<Self> {
        if let Some(session) = fields.get("session_id") {
            return Some(Self { id: number(session), continues: None });
        }
        let chat = fields.get("chat_id")?;
        let has_parent = |parent: &&Value| !parent.is_null() && parent.as_i64() != Some(-1);
        let parent = fields.get("parent_chat_id").filter(has_parent);
        Some(Self { id: number(chat), continues: parent.map(number) })
    }
}

/// Names may be numbers, words or anything else.
fn number(value: &Value) -> u64 {
    xxh3_64(value.to_string().as_bytes())
}

//! The conversation that a request of a trace belongs to.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use xxhash_rust::xxh3::xxh3_64;

/// The conversation that a line of a trace names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conversation {
    /// A hash of the line's `session_id`, or of its `chat_id`.
    pub id: u64,
    /// A hash of the `chat_id` that this chat continues.
    pub continues: Option<u64>,
}

impl Conversation {
    /// Returns the conversation with a name.
    pub fn of_name(name: &str) -> Self {
        Self { id: xxh3_64(name.as_bytes()), continues: None }
    }

    /// Returns the conversation that a value names.
    pub fn of_value(value: &Value) -> Self {
        Self { id: number(value), continues: None }
    }

    /// Returns a part of the conversation with a number.
    pub fn of_numbers(number: u64, part: u64) -> Self {
        Self::of_name(&format!("{number} {part}"))
    }

    /// Returns the conversation that a line names by `session_id`, which all requests of a
    /// conversation share.
    pub fn of_line(fields: &Map<String, Value>) -> Option<Self> {
        let session = fields.get("session_id").filter(|session| !session.is_null());
        session.map(Self::of_value)
    }

    /// Returns the conversation that a line names by Qwen-Bailian's `chat_id`, one per request, and
    /// `parent_chat_id`, that of the previous request, -1 for none.
    pub fn of_chat(fields: &Map<String, Value>) -> Option<Self> {
        let chat = fields.get("chat_id")?;
        let has_parent = |parent: &&Value| !parent.is_null() && parent.as_i64() != Some(-1);
        let parent = fields.get("parent_chat_id").filter(has_parent);
        Some(Self { id: number(chat), continues: parent.map(number) })
    }
}

/// Returns a hash of a name, which may be any JSON value.
fn number(value: &Value) -> u64 {
    xxh3_64(value.to_string().as_bytes())
}

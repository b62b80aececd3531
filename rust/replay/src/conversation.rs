//! Finds the conversation to which a request of a trace belongs.

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
    /// Whether `id` is a number that only requests of the same part of the trace share.
    pub is_of_part: bool,
}

impl Conversation {
    /// Returns the conversation with a name.
    pub fn of_name(name: &str) -> Self {
        Self { id: xxh3_64(name.as_bytes()), continues: None, is_of_part: false }
    }

    /// Returns the conversation that a value names.
    pub fn of_value(value: &Value) -> Self {
        Self { id: number(value), continues: None, is_of_part: false }
    }

    /// Returns the conversation with this number in its part of the trace.
    pub fn of_number_in_part(number: u64) -> Self {
        Self { id: number, continues: None, is_of_part: true }
    }

    /// Returns the conversation, which is in this part of the trace.
    pub fn in_part(self, part: u64) -> Self {
        if self.is_of_part { Self::of_numbers(self.id, part) } else { self }
    }

    /// Returns the conversation with this number and this part.
    pub fn of_numbers(number: u64, part: u64) -> Self {
        Self::of_name(&format!("{number} {part}"))
    }

    /// Returns the conversation that a line names by `session_id`. All requests of a conversation
    /// have the same one.
    pub fn of_line(fields: &Map<String, Value>) -> Option<Self> {
        let session = fields.get("session_id").filter(|session| !session.is_null());
        session.map(Self::of_value)
    }

    /// Returns the conversation that a line names by two fields of Qwen-Bailian. `chat_id` differs
    /// for each request. `parent_chat_id` is the `chat_id` of the previous request, or -1 if there
    /// is none.
    pub fn of_chat(fields: &Map<String, Value>) -> Option<Self> {
        let chat = fields.get("chat_id")?;
        let has_parent = |parent: &&Value| !parent.is_null() && parent.as_i64() != Some(-1);
        let parent = fields.get("parent_chat_id").filter(has_parent);
        Some(Self { id: number(chat), continues: parent.map(number), is_of_part: false })
    }
}

/// Returns a hash of a name, which can be any JSON value.
fn number(value: &Value) -> u64 {
    xxh3_64(value.to_string().as_bytes())
}

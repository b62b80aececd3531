//! Logs of Claude Code's sessions, whose answers give the tokens read from the cache. Source:
//! <https://docs.anthropic.com/en/api/messages> for the usage; the lines have the format of the
//! files below `~/.claude/projects`.

use serde_json::Value;

use super::cell::lookup;
use super::records::{LOG, Records, Role};
use super::{Dialect, Form};
use crate::conversation::Conversation;
use crate::trace::fields::Fields;
use crate::trace::reading::Reading;

pub const CLAUDE_CODE: Dialect = Dialect {
    name: "claude code",
    about: "Claude Code's logs of sessions; tokens that were read from the cache come back",
    sign: "sessionId with a type, and answers whose message has a usage",
    example: r#"{"type": "user", "sessionId": "s", "timestamp": "2026-07-01T10:00:00.000Z", "message": {"role": "user", "content": "hello"}}
{"type": "assistant", "sessionId": "s", "timestamp": "2026-07-01T10:00:03.000Z", "message": {"id": "m1", "role": "assistant", "usage": {"input_tokens": 5, "cache_creation_input_tokens": 1000, "cache_read_input_tokens": 0, "output_tokens": 70}}}
{"type": "assistant", "sessionId": "s", "timestamp": "2026-07-01T10:00:09.000Z", "message": {"id": "m2", "role": "assistant", "usage": {"input_tokens": 5, "cache_creation_input_tokens": 200, "cache_read_input_tokens": 1000, "output_tokens": 30}}}
"#,
    form: Form::Records(Records {
        roles: &[
            (Role::Time, &["timestamp"]),
            (Role::Input, &["message.usage.input_tokens"]),
            (Role::Output, &["message.usage.output_tokens"]),
            (Role::Session, &["sessionId"]),
            (Role::Prefix, &["message.usage.cache_read_input_tokens"]),
        ],
        has_record: |fields| {
            let is_own = ["sessionId", "type"].iter().all(|name| fields.contains_key(*name));
            let is_summary = fields.get("type").is_some_and(|kind| kind == "summary")
                && fields.contains_key("leafUuid");
            is_summary
                || (is_own && (fields.contains_key("message") || fields.contains_key("uuid")))
        },
        records: answers,
        may_be_empty: true,
        ..LOG
    }),
};

/// Parts of a prompt that the usage counts separately.
const CACHED: [&str; 2] = ["cache_read_input_tokens", "cache_creation_input_tokens"];

/// Returns the answer in a line, with the tokens of the whole prompt. An answer is written once for
/// each of its parts; only the first part counts.
fn answers(mut fields: Fields, reading: &mut Reading) -> Vec<Fields> {
    let name = lookup(&fields, "message.id").cloned();
    let usage = fields.get_mut("message").and_then(|message| message.get_mut("usage"));
    let Some(usage) = usage.and_then(Value::as_object_mut) else {
        reading.leave_out("lines without an answer");
        return Vec::new();
    };
    if name.is_some_and(|name| !reading.seen.insert(Conversation::of_value(&name).id)) {
        reading.leave_out("further parts of answers");
        return Vec::new();
    }
    let cached: u64 = CACHED.iter().filter_map(|name| usage.get(*name)?.as_u64()).sum();
    if let Some(new) = usage.get("input_tokens").and_then(Value::as_u64) {
        usage.insert("input_tokens".into(), (new + cached).into());
    }
    usage.entry(CACHED[0]).or_insert(0.into());
    vec![fields]
}

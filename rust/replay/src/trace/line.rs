//! Lines of traces: Mooncake's JSONL (FAST'25), Qwen-Bailian's, recordings of servers, and JSONL
//! with token ids.

use std::ops::RangeInclusive;

use kvoxide_core::RetentionPriority;
use serde_json::{Map, Value};
use thiserror::Error;

use super::ids::HashIds;
use super::prompt::Prompt;
use super::request::{MAX_LENGTH, TraceRequest};
use crate::conversation::Conversation;
use crate::id_width::{MAX_WIDTH, MOONCAKE, QWEN_BAILIAN};

/// What Windows programs put before the first line.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// Names that Dynamo's reader also takes for a field of Mooncake's.
const OTHER_NAMES: [(&str, &str); 3] = [
    ("input_length", "input_tokens"),
    ("output_length", "output_tokens"),
    ("timestamp", "created_time"),
];

/// An error in a line.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}{message}", if field.is_empty() { String::new() } else { format!("field '{field}': ") })]
pub struct LineError {
    /// The field at fault; empty for the line itself.
    pub field: String,
    /// What is wrong, and what is expected.
    pub message: String,
}

impl TraceRequest {
    /// Reads one line: a JSON object with `output_length` and either `input_length` and
    /// `hash_ids`, or `prompt_token_ids`; `output_hash_ids`, `block_size` (tokens per id),
    /// `priority`, `ttl` and `timestamp` are optional. Other fields are ignored.
    pub fn from_line(line: &[u8]) -> Result<Self, LineError> {
        let line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
        let value: Value = serde_json::from_slice(line)
            .map_err(|error| wrong("", format!("not a JSON object: {error}")))?;
        let Value::Object(fields) = value else {
            return Err(wrong("", "not a JSON object".into()));
        };
        let output_length = output_length(&fields);
        let prompt = match fields.contains_key("prompt_token_ids") {
            true => tokens_prompt(&fields)?,
            false => hash_ids_prompt(&fields, output_length.as_ref().copied().unwrap_or(0))?,
        };
        let tokens_per_id = match prompt {
            Prompt::HashIds { .. } => tokens_per_id(&fields)?,
            Prompt::Tokens { .. } => None,
        };
        Ok(Self {
            arrival: arrival(&fields),
            conversation: Conversation::of_line(&fields),
            priority: priority(&fields)?,
            prompt,
            output_length: output_length?,
            tokens_per_id,
            instance: None,
        })
    }
}

fn is_qwen_bailians(fields: &Map<String, Value>) -> bool {
    fields.contains_key("chat_id")
}

/// Returns the tokens of an output; none where `null` stands for it.
fn output_length(fields: &Map<String, Value>) -> Result<usize, LineError> {
    match field(fields, "output_length")? {
        Value::Null => Ok(0),
        _ => length(fields, "output_length", 0),
    }
}

/// Returns the tokens per id that a line or its format determines.
fn tokens_per_id(fields: &Map<String, Value>) -> Result<Option<usize>, LineError> {
    let Some(value) = given(fields, "block_size") else {
        return Ok(is_qwen_bailians(fields).then_some(QWEN_BAILIAN));
    };
    let message = || format!("is {value}; expected the tokens of an id, from 1 to {MAX_WIDTH}");
    let width = within(value, 1..=MAX_WIDTH);
    width.map(Some).ok_or_else(|| wrong("block_size", message()))
}

/// Returns the time in microseconds. Lines have milliseconds, Qwen-Bailian's seconds.
fn arrival(fields: &Map<String, Value>) -> Option<u64> {
    let unit = if is_qwen_bailians(fields) { 1e6 } else { 1e3 };
    let timestamp = find(fields, "timestamp")?.as_f64()?;
    (timestamp >= 0.0).then(|| (timestamp * unit).round() as u64)
}

/// Returns the priority that a line sets for the blocks of its request.
fn priority(fields: &Map<String, Value>) -> Result<Option<RetentionPriority>, LineError> {
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
        .map_err(|error| wrong(field, error.to_string()))
}

fn tokens_prompt(fields: &Map<String, Value>) -> Result<Prompt, LineError> {
    let tokens = integers(fields, "prompt_token_ids")?;
    if tokens.is_empty() {
        return Err(wrong("prompt_token_ids", "is empty; a prompt has at least one token".into()));
    }
    Ok(Prompt::of_tokens(tokens))
}

fn hash_ids_prompt(fields: &Map<String, Value>, output_length: usize) -> Result<Prompt, LineError> {
    let length = length(fields, "input_length", 1)?;
    let ids = ids(fields, "hash_ids")?;
    if ids.is_empty() || ids.len() > length {
        let message = format!("has {} ids; {length} tokens need 1 to {length}", ids.len());
        return Err(wrong("hash_ids", message));
    }
    let output = match given(fields, "output_hash_ids") {
        Some(_) => Some(self::ids(fields, "output_hash_ids")?),
        None => None,
    };
    let num_output_ids = output.as_ref().map(Vec::len);
    if let Some(count) = num_output_ids.filter(|&count| count > output_length) {
        let message = format!("has {count} ids; {output_length} tokens have 0 to {output_length}");
        return Err(wrong("output_hash_ids", message));
    }
    let hash_ids: HashIds = ids.into_iter().chain(output.into_iter().flatten()).collect();
    Ok(Prompt::HashIds { length, hash_ids, num_output_ids })
}

fn ids(fields: &Map<String, Value>, name: &str) -> Result<Vec<i64>, LineError> {
    let ids = integers(fields, name)?;
    if let Some(id) = ids.iter().find(|&&id| id < 0) {
        let limit = i64::MAX / MOONCAKE as i64;
        return Err(wrong(name, format!("has the id {id}; ids are 0 to {}", limit - 1)));
    }
    Ok(ids)
}

fn length(fields: &Map<String, Value>, name: &str, least: usize) -> Result<usize, LineError> {
    let value = field(fields, name)?;
    let message = || format!("is {value}; expected an integer from {least} to {MAX_LENGTH}");
    within(value, least..=MAX_LENGTH).ok_or_else(|| wrong(name, message()))
}

fn integers(fields: &Map<String, Value>, name: &str) -> Result<Vec<i64>, LineError> {
    let Value::Array(values) = field(fields, name)? else {
        return Err(wrong(name, "is not an array of integers".into()));
    };
    let each = |value: &Value| {
        integer(value).ok_or_else(|| wrong(name, format!("has {value}; expected integers")))
    };
    values.iter().map(each).collect()
}

fn within(value: &Value, range: RangeInclusive<usize>) -> Option<usize> {
    let number = usize::try_from(integer(value)?).ok()?;
    range.contains(&number).then_some(number)
}

/// Returns an integer, which may be written like 600.0.
fn integer(value: &Value) -> Option<i64> {
    let exact = |number: f64| {
        let is_exact = number.fract() == 0.0 && number.abs() < (1_u64 << 53) as f64;
        is_exact.then_some(number as i64)
    };
    value.as_i64().or_else(|| value.as_f64().and_then(exact))
}

fn field<'a>(fields: &'a Map<String, Value>, name: &str) -> Result<&'a Value, LineError> {
    find(fields, name).ok_or_else(|| wrong(name, "is missing".into()))
}

/// Returns a field under Mooncake's name or Dynamo's other one.
fn find<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    let other = || OTHER_NAMES.iter().find(|(ours, _)| *ours == name);
    fields.get(name).or_else(|| fields.get(other()?.1))
}

/// Returns an optional field; `null` is as good as none.
fn given<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    fields.get(name).filter(|value| !value.is_null())
}

pub(super) fn wrong(field: &str, message: String) -> LineError {
    LineError { field: field.to_owned(), message }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field_at_fault(line: &str) -> String {
        TraceRequest::from_line(line.as_bytes()).expect_err("a damaged line").field
    }

    fn read(line: &str) -> TraceRequest {
        TraceRequest::from_line(line.as_bytes()).expect("a good line")
    }

    #[test]
    fn a_mooncake_line_gives_the_tokens_of_its_ids() {
        let line =
            r#"{"timestamp": 3, "input_length": 600, "output_length": 7, "hash_ids": [2, 5]}"#;
        let request = TraceRequest::from_line(line.as_bytes()).expect("a good line");
        assert_eq!(request.output_length, 7);
        assert_eq!(request.prompt.len(), 600);
        let tokens = [0, 511, 512, 599].map(|t| request.prompt.token(t, 512));
        assert_eq!(tokens, [1024, 1535, 2560, 2647]);
        let tokens = [0, 299, 300, 599].map(|t| request.prompt.token(t, 300));
        assert_eq!(tokens, [600, 899, 1500, 1799]);
    }

    #[test]
    fn a_line_may_set_a_priority_and_a_time_to_live() {
        let read_priority = |fields: &str| {
            let line = format!(r#"{{"prompt_token_ids": [1], "output_length": 1{fields}}}"#);
            TraceRequest::from_line(line.as_bytes())
                .map(|request| (request.priority, request.arrival))
        };
        assert_eq!(read_priority(""), Ok((None, None)));
        let expected = |priority, ttl| RetentionPriority::new(priority, ttl).ok();
        assert_eq!(
            read_priority(r#", "priority": 80, "ttl": 1.5, "timestamp": 7"#),
            Ok((expected(80, Some(1.5)), Some(7_000)))
        );
        assert_eq!(read_priority(r#", "priority": 0, "ttl": null"#), Ok((expected(0, None), None)));
        for (fields, field) in [
            (r#", "priority": 101"#, "priority"),
            (r#", "priority": 50.5"#, "priority"),
            (r#", "priority": "high""#, "priority"),
            (r#", "priority": 80, "ttl": 0"#, "ttl"),
            (r#", "ttl": "long""#, "ttl"),
        ] {
            assert_eq!(read_priority(fields).expect_err(fields).field, field);
        }
    }

    #[test]
    fn a_token_line_gives_its_tokens() {
        let line = br#"{"prompt_token_ids": [5, -1], "output_length": 0}"#;
        let request = TraceRequest::from_line(line).expect("a good line");
        assert_eq!(request.prompt, Prompt::of_tokens(vec![5, -1]));
    }

    #[test]
    fn a_damaged_line_names_its_field() {
        assert_eq!(field_at_fault("{"), "");
        assert_eq!(field_at_fault("[1]"), "");
        assert_eq!(field_at_fault(r#"{"output_length": 1}"#), "input_length");
        assert_eq!(
            field_at_fault(r#"{"input_length": 0, "output_length": 1, "hash_ids": []}"#),
            "input_length"
        );
        assert_eq!(
            field_at_fault(r#"{"input_length": 513, "output_length": 1, "hash_ids": []}"#),
            "hash_ids"
        );
        assert_eq!(
            field_at_fault(r#"{"input_length": 3, "output_length": 1, "hash_ids": [-1]}"#),
            "hash_ids"
        );
        assert_eq!(field_at_fault(r#"{"input_length": 3, "hash_ids": [1]}"#), "output_length");
        assert_eq!(
            field_at_fault(r#"{"prompt_token_ids": [1.5], "output_length": 1}"#),
            "prompt_token_ids"
        );
        assert_eq!(
            field_at_fault(r#"{"prompt_token_ids": [1], "output_length": -1}"#),
            "output_length"
        );
    }

    #[test]
    fn a_recorded_line_has_ids_of_the_output() {
        let request = read(
            r#"{"timestamp": 3.25, "input_length": 20, "output_length": 30, "hash_ids": [0, 1],
                "output_hash_ids": [2]}"#,
        );
        assert_eq!((request.arrival, request.tokens_per_id), (Some(3_250), None));
        assert_eq!((request.prompt.num_ids(), request.num_known_tokens(16)), (2, 48));
        let hash_ids = |ids| format!(r#""input_length": 9, "output_length": 1, "hash_ids": {ids}"#);
        let none = read(&format!("{{{}, \"output_hash_ids\": []}}", hash_ids("[7]")));
        assert_eq!(none.num_known_tokens(16), 10, "the prompt's last id goes on behind it");
        assert_eq!(read(&format!("{{{}}}", hash_ids("[7]"))).num_known_tokens(16), 9);
        for ids in ["[1, 2]", "[-1]", "5", "[1.5]"] {
            let line = format!("{{{}, \"output_hash_ids\": {ids}}}", hash_ids("[7]"));
            assert_eq!(field_at_fault(&line), "output_hash_ids", "{ids}");
        }
    }

    #[test]
    fn lines_of_dynamo_and_of_spreadsheets_are_mooncakes() {
        let same = [
            r#"{"input_length": 20, "output_length": 0, "timestamp": 3, "hash_ids": [4, 9]}"#,
            r#"{"input_tokens": 20, "output_tokens": 0, "created_time": 3, "hash_ids": [4, 9]}"#,
            r#"{"input_length": 20.0, "output_length": null, "timestamp": 3, "hash_ids": [4.0, 9]}"#,
            "\u{feff}{\"input_length\": 20, \"output_tokens\": 0, \"timestamp\": 3, \"hash_ids\": [4, 9]}",
        ];
        same.iter().for_each(|line| assert_eq!(read(line), read(same[0]), "{line}"));
        assert_eq!(field_at_fault(r#"{"input_length": 20.5, "hash_ids": [4, 9]}"#), "input_length");
        let both =
            r#"{"input_length": 1, "input_tokens": 20, "output_length": 1, "hash_ids": [4]}"#;
        assert_eq!(read(both).prompt.len(), 1, "Mooncake's own name counts");
    }

    #[test]
    fn a_line_may_say_how_many_tokens_an_id_has() {
        let of = |size: &str| {
            let rest = r#""input_length": 20, "output_length": 1, "hash_ids": [4, 9]"#;
            format!(r#"{{"block_size": {size}, {rest}}}"#)
        };
        assert_eq!(read(&of("16")).tokens_per_id, Some(16));
        assert_eq!(read(&of("null")).tokens_per_id, None);
        for size in ["0", "-1", "1.5", "\"16\"", "1e12"] {
            assert_eq!(field_at_fault(&of(size)), "block_size", "{size}");
        }
    }

    #[test]
    fn lines_with_a_chat_id_are_qwen_bailians() {
        let request = read(
            r#"{"chat_id": 5, "parent_chat_id": -1, "timestamp": 2.5, "input_length": 20,
                "output_length": 3, "type": "text", "turn": 1, "hash_ids": [0, 1]}"#,
        );
        assert_eq!((request.arrival, request.tokens_per_id), (Some(2_500_000), Some(16)));
    }
}

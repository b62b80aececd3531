//! Traces of requests: Mooncake's JSONL (FAST'25) and JSONL with token ids.

use serde_json::{Map, Value};
use thiserror::Error;

/// Tokens that one id of a Mooncake trace stands for.
pub const TOKENS_PER_HASH_ID: usize = 512;

/// One request of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceRequest {
    /// Its prompt.
    pub prompt: Prompt,
    /// Tokens it generates.
    pub output_length: usize,
}

/// A prompt, as the trace gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// Token `t` is `hash_ids[t / 512] * 512 + t % 512`, so that equal ids are equal tokens at
    /// every block size.
    HashIds {
        /// Number of tokens.
        length: usize,
        /// One id per 512 tokens.
        hash_ids: Vec<i64>,
    },
    /// The token ids themselves.
    Tokens(Vec<i64>),
}

impl Prompt {
    /// Number of tokens.
    pub fn len(&self) -> usize {
        match self {
            Self::HashIds { length, .. } => *length,
            Self::Tokens(tokens) => tokens.len(),
        }
    }

    /// Whether there is no token.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The token at a position.
    pub fn token(&self, position: usize) -> i64 {
        match self {
            Self::HashIds { hash_ids, .. } => {
                let offset = position % TOKENS_PER_HASH_ID;
                hash_ids[position / TOKENS_PER_HASH_ID] * TOKENS_PER_HASH_ID as i64 + offset as i64
            }
            Self::Tokens(tokens) => tokens[position],
        }
    }
}

/// Requests in arrival order.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// The requests.
    pub requests: Vec<TraceRequest>,
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}{message}", if field.is_empty() { String::new() } else { format!("field '{field}': ") })]
pub struct LineError {
    /// The field at fault; empty for the line itself.
    pub field: String,
    /// What is wrong and what is expected.
    pub message: String,
}

/// The longest prompt and output, in tokens.
pub const MAX_LENGTH: usize = 1 << 28;

impl TraceRequest {
    /// Reads one line: a JSON object with `output_length` and either `input_length` and
    /// `hash_ids`, or `prompt_token_ids`. Other fields are passed over.
    pub fn from_line(line: &[u8]) -> Result<Self, LineError> {
        let value: Value = serde_json::from_slice(line)
            .map_err(|error| wrong("", format!("not a JSON object: {error}")))?;
        let Value::Object(fields) = value else {
            return Err(wrong("", "not a JSON object".into()));
        };
        let prompt = match fields.contains_key("prompt_token_ids") {
            true => tokens_prompt(&fields)?,
            false => hash_ids_prompt(&fields)?,
        };
        Ok(Self { prompt, output_length: length(&fields, "output_length", 0)? })
    }
}

fn tokens_prompt(fields: &Map<String, Value>) -> Result<Prompt, LineError> {
    let tokens = integers(fields, "prompt_token_ids")?;
    if tokens.is_empty() {
        return Err(wrong("prompt_token_ids", "is empty; a prompt has at least one token".into()));
    }
    Ok(Prompt::Tokens(tokens))
}

fn hash_ids_prompt(fields: &Map<String, Value>) -> Result<Prompt, LineError> {
    let length = length(fields, "input_length", 1)?;
    let hash_ids = integers(fields, "hash_ids")?;
    let expected = length.div_ceil(TOKENS_PER_HASH_ID);
    if hash_ids.len() != expected {
        let message = format!(
            "has {} ids; {length} tokens need {expected}, one for each {TOKENS_PER_HASH_ID}",
            hash_ids.len()
        );
        return Err(wrong("hash_ids", message));
    }
    let limit = i64::MAX / TOKENS_PER_HASH_ID as i64;
    if let Some(id) = hash_ids.iter().find(|&&id| !(0..limit).contains(&id)) {
        return Err(wrong("hash_ids", format!("has the id {id}; ids are 0 to {}", limit - 1)));
    }
    Ok(Prompt::HashIds { length, hash_ids })
}

fn length(fields: &Map<String, Value>, name: &str, least: usize) -> Result<usize, LineError> {
    let value = field(fields, name)?;
    match value.as_u64().and_then(|length| usize::try_from(length).ok()) {
        Some(length) if (least..=MAX_LENGTH).contains(&length) => Ok(length),
        _ => {
            let message = format!("is {value}; expected an integer from {least} to {MAX_LENGTH}");
            Err(wrong(name, message))
        }
    }
}

fn integers(fields: &Map<String, Value>, name: &str) -> Result<Vec<i64>, LineError> {
    let Value::Array(values) = field(fields, name)? else {
        return Err(wrong(name, "is not an array of integers".into()));
    };
    let integer = |value: &Value| {
        value.as_i64().ok_or_else(|| wrong(name, format!("has {value}; expected integers")))
    };
    values.iter().map(integer).collect()
}

fn field<'a>(fields: &'a Map<String, Value>, name: &str) -> Result<&'a Value, LineError> {
    fields.get(name).ok_or_else(|| wrong(name, "is missing".into()))
}

fn wrong(field: &str, message: String) -> LineError {
    LineError { field: field.to_owned(), message }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field_at_fault(line: &str) -> String {
        TraceRequest::from_line(line.as_bytes()).expect_err("a damaged line").field
    }

    #[test]
    fn a_mooncake_line_gives_the_tokens_of_its_ids() {
        let line =
            r#"{"timestamp": 3, "input_length": 600, "output_length": 7, "hash_ids": [2, 5]}"#;
        let request = TraceRequest::from_line(line.as_bytes()).expect("a good line");
        assert_eq!(request.output_length, 7);
        assert_eq!(request.prompt.len(), 600);
        let tokens = [0, 511, 512, 599].map(|t| request.prompt.token(t));
        assert_eq!(tokens, [1024, 1535, 2560, 2647]);
    }

    #[test]
    fn a_token_line_gives_its_tokens() {
        let line = br#"{"prompt_token_ids": [5, -1], "output_length": 0}"#;
        let request = TraceRequest::from_line(line).expect("a good line");
        assert_eq!(request.prompt, Prompt::Tokens(vec![5, -1]));
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
            field_at_fault(r#"{"input_length": 513, "output_length": 1, "hash_ids": [1]}"#),
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
}

//! Traces of requests: Mooncake's JSONL (FAST'25) and JSONL with token ids.

use serde_json::{Map, Value};
use thiserror::Error;

use kvoxide_core::Claim;

use crate::conversation::Conversation;
use crate::id_width::{IdWidths, MAX_WIDTH, MOONCAKE};

/// One request of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceRequest {
    /// When it arrived, in microseconds, where the trace says it.
    pub arrival: Option<u64>,
    /// The conversation that it belongs to, where the trace says it.
    pub conversation: Option<Conversation>,
    /// Its prompt.
    pub prompt: Prompt,
    /// Tokens it generates.
    pub output_length: usize,
    /// What it asks for its blocks.
    pub claim: Option<Claim>,
}

/// A prompt, as the trace gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// Token `t` is `hash_ids[t / w] * w + t % w`, where an id stands for `w` tokens, so that equal
    /// ids are equal tokens at every block size.
    HashIds {
        /// Number of tokens.
        length: usize,
        /// One id per `w` tokens.
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

    /// The token at a position, where an id stands for `tokens_per_id`.
    pub fn token(&self, position: usize, tokens_per_id: usize) -> i64 {
        match self {
            Self::HashIds { hash_ids, .. } => {
                let first = hash_ids[position / tokens_per_id] * tokens_per_id as i64;
                first + (position % tokens_per_id) as i64
            }
            Self::Tokens(tokens) => tokens[position],
        }
    }
}

/// Requests in arrival order.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    requests: Vec<TraceRequest>,
    id_widths: IdWidths,
    largest_id: i64,
}

impl Trace {
    /// A trace whose ids stand for so many tokens each.
    pub fn with_tokens_per_id(tokens_per_id: usize) -> Self {
        Self { id_widths: IdWidths::only(tokens_per_id), ..Self::default() }
    }

    /// The requests.
    pub fn requests(&self) -> &[TraceRequest] {
        &self.requests
    }

    /// Adds a request. One that does not go with those before it is refused.
    pub fn push(&mut self, request: TraceRequest) -> Result<(), LineError> {
        if let Prompt::HashIds { length, hash_ids } = &request.prompt {
            let widths = IdWidths::of_prompt(*length, hash_ids.len());
            let Some(widths) = self.id_widths.and(widths) else {
                return Err(wrong("hash_ids", self.contradiction(*length, hash_ids.len())));
            };
            let largest = hash_ids.iter().copied().fold(self.largest_id, i64::max);
            check_id(largest, widths.least)?;
            (self.id_widths, self.largest_id) = (widths, largest);
        }
        self.requests.push(request);
        Ok(())
    }

    /// Forgets all requests but the first.
    pub fn truncate(&mut self, num_requests: usize) {
        self.requests.truncate(num_requests);
    }

    /// How many tokens an id can stand for, as far as the requests tell.
    pub fn id_widths(&self) -> IdWidths {
        self.id_widths
    }

    /// How many tokens an id stands for; Mooncake's number where no request has ids.
    pub fn tokens_per_id(&self) -> Result<usize, LineError> {
        let IdWidths { least, most } = self.id_widths;
        let Some(width) = self.id_widths.chosen() else {
            let range = match most {
                MAX_WIDTH => format!("{least} or more"),
                _ => format!("{least} to {most}"),
            };
            let message = format!("ids stand for {range} tokens each; say how many");
            return Err(wrong("hash_ids", message));
        };
        check_id(self.largest_id, width)?;
        Ok(width)
    }

    fn contradiction(&self, length: usize, num_ids: usize) -> String {
        let IdWidths { least, most } = self.id_widths;
        let (fewest, expected) = (length.div_ceil(most), length.div_ceil(least));
        let range = |from: usize, to: usize| match from == to {
            true => from.to_string(),
            false => format!("{from} to {to}"),
        };
        let widths = format!("{}, one for each {}", range(fewest, expected), range(least, most));
        format!("has {num_ids} ids; {length} tokens need {widths}")
    }
}

/// Tokens are numbers of 64 bits.
fn check_id(id: i64, width: usize) -> Result<(), LineError> {
    let limit = i64::MAX / width as i64;
    match id < limit {
        true => Ok(()),
        false => Err(wrong("hash_ids", format!("has the id {id}; ids are 0 to {}", limit - 1))),
    }
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
    /// A prompt of tokens that arrives at no special time.
    pub fn of_tokens(tokens: Vec<i64>, output_length: usize) -> Self {
        let prompt = Prompt::Tokens(tokens);
        Self { arrival: None, conversation: None, prompt, output_length, claim: None }
    }

    /// Reads one line: a JSON object with `output_length` and either `input_length` and
    /// `hash_ids`, or `prompt_token_ids`; `priority`, `ttl` and `timestamp` are optional. Other
    /// fields are passed over.
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
        Ok(Self {
            arrival: arrival(&fields),
            conversation: Conversation::of_line(&fields),
            claim: claim(&fields)?,
            prompt,
            output_length: length(&fields, "output_length", 0)?,
        })
    }
}

/// In microseconds, from milliseconds; in lines with a `chat_id`, Qwen-Bailian's, from seconds.
fn arrival(fields: &Map<String, Value>) -> Option<u64> {
    let unit = if fields.contains_key("chat_id") { 1e6 } else { 1e3 };
    let timestamp = fields.get("timestamp")?.as_f64()?;
    (timestamp >= 0.0).then(|| (timestamp * unit).round() as u64)
}

/// What a line asks for the blocks of its request, if for anything.
fn claim(fields: &Map<String, Value>) -> Result<Option<Claim>, LineError> {
    let given = |name: &str| fields.get(name).filter(|value| !value.is_null());
    let (priority, ttl) = (given("priority"), given("ttl"));
    if priority.is_none() && ttl.is_none() {
        return Ok(None);
    }
    let default = Value::from(Claim::DEFAULT_PRIORITY);
    let priority = priority.unwrap_or(&default);
    let Some(priority) = priority.as_i64() else {
        return Err(wrong("priority", format!("is {priority}; expected an integer from 0 to 100")));
    };
    let seconds = ttl.map(|ttl| {
        ttl.as_f64().ok_or_else(|| wrong("ttl", format!("is {ttl}; expected a number of seconds")))
    });
    let seconds = seconds.transpose()?;
    let field = if Claim::new(priority, None).is_err() { "priority" } else { "ttl" };
    Claim::new(priority, seconds).map(Some).map_err(|error| wrong(field, error.to_string()))
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
    if hash_ids.is_empty() || hash_ids.len() > length {
        let message = format!("has {} ids; {length} tokens need 1 to {length}", hash_ids.len());
        return Err(wrong("hash_ids", message));
    }
    if let Some(id) = hash_ids.iter().find(|&&id| id < 0) {
        let limit = i64::MAX / MOONCAKE as i64;
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
        let tokens = [0, 511, 512, 599].map(|t| request.prompt.token(t, 512));
        assert_eq!(tokens, [1024, 1535, 2560, 2647]);
        let tokens = [0, 299, 300, 599].map(|t| request.prompt.token(t, 300));
        assert_eq!(tokens, [600, 899, 1500, 1799]);
    }

    #[test]
    fn a_line_may_claim_a_priority_for_a_time() {
        let claimed = |fields: &str| {
            let line = format!(r#"{{"prompt_token_ids": [1], "output_length": 1{fields}}}"#);
            TraceRequest::from_line(line.as_bytes()).map(|request| (request.claim, request.arrival))
        };
        assert_eq!(claimed(""), Ok((None, None)));
        let claim = |priority, ttl| Claim::new(priority, ttl).ok();
        assert_eq!(
            claimed(r#", "priority": 80, "ttl": 1.5, "timestamp": 7"#),
            Ok((claim(80, Some(1.5)), Some(7_000)))
        );
        assert_eq!(claimed(r#", "priority": 0, "ttl": null"#), Ok((claim(0, None), None)));
        for (fields, field) in [
            (r#", "priority": 101"#, "priority"),
            (r#", "priority": 50.5"#, "priority"),
            (r#", "priority": "high""#, "priority"),
            (r#", "priority": 80, "ttl": 0"#, "ttl"),
            (r#", "ttl": "long""#, "ttl"),
        ] {
            assert_eq!(claimed(fields).expect_err(fields).field, field);
        }
    }

    fn of_ids(length: usize, ids: std::ops::Range<i64>) -> TraceRequest {
        let prompt = Prompt::HashIds { length, hash_ids: ids.collect() };
        TraceRequest { arrival: None, conversation: None, claim: None, prompt, output_length: 1 }
    }

    #[test]
    fn the_requests_of_a_trace_tell_how_many_tokens_an_id_stands_for() {
        let mut trace = Trace::default();
        assert_eq!(trace.tokens_per_id(), Ok(512));
        trace.push(of_ids(300, 0..5)).expect("the first");
        assert_eq!(trace.tokens_per_id(), Ok(64));
        trace.push(of_ids(300, 5..10)).expect("ids of 60 to 74 tokens too");
        let refused = trace.push(of_ids(600, 0..2)).expect_err("ids of 300 to 599 tokens");
        assert_eq!(refused.message, "has 2 ids; 600 tokens need 9 to 10, one for each 60 to 74");
        assert_eq!(trace.requests().len(), 2);
        let mut trace = Trace::with_tokens_per_id(100);
        trace.push(of_ids(600, 0..6)).expect("ids of 100 tokens");
        let refused = trace.push(of_ids(600, 0..2)).expect_err("ids of 300 to 599 tokens");
        assert_eq!(refused.message, "has 2 ids; 600 tokens need 6, one for each 100");
    }

    #[test]
    fn what_the_requests_do_not_tell_has_to_be_said() {
        let mut trace = Trace::default();
        trace.push(of_ids(600, 0..1)).expect("one id");
        let unknown = trace.tokens_per_id().expect_err("600 or more");
        assert_eq!(unknown.message, "ids stand for 600 or more tokens each; say how many");
        trace.push(of_ids(1100, 0..2)).expect("ids of 600 to 1,099 tokens");
        assert_eq!(trace.tokens_per_id(), Ok(1024));
        trace.push(of_ids(1300, 0..2)).expect("ids of 650 to 1,099 tokens");
        trace.push(of_ids(1000, 0..2)).expect("ids of 650 to 999 tokens");
        let unknown = trace.tokens_per_id().expect_err("no power of two");
        assert_eq!(unknown.message, "ids stand for 650 to 999 tokens each; say how many");
    }

    #[test]
    fn an_id_whose_tokens_are_beyond_64_bits_is_refused() {
        let mut trace = Trace::with_tokens_per_id(512);
        let last = i64::MAX / 512 - 1;
        assert!(trace.push(of_ids(1, last..last + 1)).is_ok());
        assert!(trace.push(of_ids(1, last + 1..last + 2)).is_err());
        let mut trace = Trace::default();
        trace.push(of_ids(1, last + 1..last + 2)).expect("with 511 tokens per id");
        assert!(trace.tokens_per_id().is_err());
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
}

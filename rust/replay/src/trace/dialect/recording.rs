//! The lines that a server recorded with `KVOXIDE_RECORD`: Mooncake's lines with ids of the output.

use kvoxide_core::Outcome;
use serde_json::Value;

use super::hints::{HINT_FIELDS, hinted_ranges, session};
use super::rows::{ROW_FIELDS, flag};
use super::{Dialect, Form, Lines, mooncake};
use crate::outcomes::Outcomes;
use crate::trace::fields::{Fields, LineError, given, within, wrong};
use crate::trace::reading::Reading;
use crate::trace::request::MAX_LENGTH;
use crate::trace::schedule::Recorded;
use crate::trace::times::{Scale, Unit};

pub const RECORDING: Dialect = Dialect {
    name: "recording",
    about: "a recording of a server (KVOXIDE_RECORD): a folder, or one of its files",
    sign: "a folder with files requests-*.jsonl*",
    example: r#"{"timestamp": 3.25, "input_length": 20, "output_length": 30, "hash_ids": [0, 1], "output_hash_ids": [2], "block_size": 16}
"#,
    form: Form::Lines(Lines {
        fields: &[
            ROW_FIELDS,
            HINT_FIELDS,
            &["status", "priority", "ttl", "request", "skips_cache", "outcomes"],
        ],
        is_like: |_| false,
        extends_mooncake: false,
        read,
        table: None,
    }),
};

/// Reads a line. Its request waits for no other request: all requests have a time, by which they
/// are sorted later.
fn read(fields: &Fields, reading: &mut Reading) -> Result<(), LineError> {
    mooncake::read_with(fields, Scale::Sure(Unit::Milliseconds), reading)?;
    let number = match given(fields, "request") {
        None => None,
        Some(value) => {
            let number = within(value, 0..=u32::MAX as usize);
            let message = || format!("is {value}; expected the number of a request");
            Some(number.ok_or_else(|| wrong("request", message()))? as u32)
        }
    };
    let is_aborted = given(fields, "status").is_some_and(|status| status == "aborted");
    let skips_reading = flag(fields, "skips_cache")?;
    let outcomes = given(fields, "outcomes").map(outcomes).transpose()?;
    let (conversation, ranges) = (session(fields)?, hinted_ranges(fields)?);
    for request in &mut reading.requests {
        if let Some(outcomes) = &outcomes {
            check_sum(outcomes, request.prompt.len())?;
        }
        request.outcomes = outcomes.clone();
        request.wait = None;
        request.conversation = request.conversation.or(conversation);
        request.ranges = ranges.clone();
        request.skips_reading = skips_reading;
        request.recorded = number.map(|number| Recorded { schedule: 0, number, is_aborted });
    }
    Ok(())
}

/// Reads the outcomes of a prompt. An outcome that is missing has no tokens.
fn outcomes(value: &Value) -> Result<Box<Outcomes>, LineError> {
    let Value::Object(given) = value else {
        let message = format!("is {value}; expected an object with numbers of tokens");
        return Err(wrong("outcomes", message));
    };
    let mut outcomes = Box::<Outcomes>::default();
    for (name, tokens) in given {
        let Some(place) = Outcome::ALL.iter().position(|known| known.name() == name) else {
            let message =
                format!("has {name:?}; expected {}", Outcome::ALL.map(Outcome::name).join(", "));
            return Err(wrong("outcomes", message));
        };
        let number = within(tokens, 0..=MAX_LENGTH);
        let message = || format!("has {name} {tokens}; expected an integer from 0 to {MAX_LENGTH}");
        outcomes.tokens[place] = number.ok_or_else(|| wrong("outcomes", message()))? as u32;
    }
    Ok(outcomes)
}

fn check_sum(outcomes: &Outcomes, num_prompt_tokens: usize) -> Result<(), LineError> {
    let sum = outcomes.num_tokens();
    let message =
        || format!("has {sum} tokens, but the prompt (input_length) has {num_prompt_tokens}");
    (sum == num_prompt_tokens).then_some(()).ok_or_else(|| wrong("outcomes", message()))
}

//! The session and the hints of a recorded request.

use std::ops::Range;

use kvoxide_core::RetentionPriority;
use serde_json::Value;

use crate::conversation::Conversation;
use crate::trace::fields::{Fields, LineError, given, integer, wrong};
use crate::trace::request::HintedRanges;

/// The fields of hints for ranges of tokens, and of the number of a session.
pub const HINT_FIELDS: &[&str] = &["session", "retain", "release"];

/// Returns the session of a request. Its number is unique within the scheduler that served it.
pub fn session(fields: &Fields) -> Result<Option<Conversation>, LineError> {
    let Some(value) = given(fields, "session") else { return Ok(None) };
    let message = || wrong("session", format!("is {value}; expected the number of a session"));
    let number = integer(value).and_then(|number| u64::try_from(number).ok());
    Ok(Some(Conversation::of_number_in_part(number.ok_or_else(message)?)))
}

/// Returns the hints for ranges of a request's tokens, if there are any.
pub fn hinted_ranges(fields: &Fields) -> Result<Option<Box<HintedRanges>>, LineError> {
    let priorities = ranges(fields, "retain", "[start, end, priority, ttl]", priority_of_range)?;
    let given_up = ranges(fields, "release", "[start, end]", |values| match values {
        [start, end] => token_range(start, end),
        _ => None,
    })?;
    let is_none = priorities.is_empty() && given_up.is_empty();
    Ok((!is_none).then(|| Box::new(HintedRanges { priorities, given_up })))
}

fn ranges<T>(
    fields: &Fields,
    name: &str,
    expected: &str,
    read: impl Fn(&[Value]) -> Option<T>,
) -> Result<Vec<T>, LineError> {
    let Some(value) = given(fields, name) else { return Ok(Vec::new()) };
    let message = |found: &Value| wrong(name, format!("has {found}; expected arrays {expected}"));
    let entries = value.as_array().ok_or_else(|| message(value))?;
    let read = |entry: &Value| {
        let found = entry.as_array().and_then(|values| read(values));
        found.ok_or_else(|| message(entry))
    };
    entries.iter().map(read).collect()
}

fn priority_of_range(values: &[Value]) -> Option<(Range<usize>, RetentionPriority)> {
    let [start, end, priority, ttl] = values else { return None };
    let seconds = if ttl.is_null() { None } else { Some(ttl.as_f64()?) };
    let priority = RetentionPriority::new(integer(priority)?, seconds).ok()?;
    Some((token_range(start, end)?, priority))
}

/// Returns a range of tokens. Without an end it has all tokens from its start on.
fn token_range(start: &Value, end: &Value) -> Option<Range<usize>> {
    let start = usize::try_from(integer(start)?).ok()?;
    let end = match end {
        Value::Null => usize::MAX,
        end => usize::try_from(integer(end)?).ok()?,
    };
    (end > start).then_some(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(text: &str) -> Fields {
        serde_json::from_str(text).expect("an object")
    }

    #[test]
    fn a_request_has_the_ranges_and_the_session_of_its_line() {
        let line = r#"{"session": 3, "retain": [[0, 64, 80, 2.5], [16, null, 20, null]],
            "release": [[32, 48], [64, null]]}"#;
        let line = fields(line);
        let priority = |priority, ttl| RetentionPriority::new(priority, ttl).expect("a priority");
        let found = hinted_ranges(&line).expect("valid ranges").expect("ranges");
        let retained = [(0..64, priority(80, Some(2.5))), (16..usize::MAX, priority(20, None))];
        assert_eq!(found.priorities, retained);
        assert_eq!(found.given_up, [32..48, 64..usize::MAX]);
        let session = session(&line).expect("a number").expect("a session");
        assert_eq!(session.in_part(0), session.in_part(0));
        assert_ne!(session.in_part(0), session.in_part(1), "each scheduler has its own numbers");
    }

    #[test]
    fn a_line_without_hints_has_no_ranges_and_no_session() {
        for text in ["{}", r#"{"session": null, "retain": [], "release": null}"#] {
            assert_eq!(hinted_ranges(&fields(text)), Ok(None), "{text}");
            assert_eq!(session(&fields(text)), Ok(None), "{text}");
        }
    }

    #[test]
    fn invalid_values_are_refused_with_the_name_of_the_field() {
        for text in [
            r#"{"retain": 5}"#,
            r#"{"retain": [5]}"#,
            r#"{"retain": [[0, 16, 80]]}"#,
            r#"{"retain": [[0, 16, 101, null]]}"#,
            r#"{"retain": [[0, 16, 80, 0]]}"#,
            r#"{"retain": [[0, 16, 80, "long"]]}"#,
            r#"{"retain": [[16, 16, 80, null]]}"#,
            r#"{"retain": [[-1, 16, 80, null]]}"#,
            r#"{"release": [[16, 0]]}"#,
            r#"{"release": [[0, 16, 80, null]]}"#,
            r#"{"release": [["0", null]]}"#,
        ] {
            let field = if text.contains("retain") { "retain" } else { "release" };
            assert_eq!(hinted_ranges(&fields(text)).expect_err(text).field, field, "{text}");
        }
        for text in [r#"{"session": -1}"#, r#"{"session": "a"}"#, r#"{"session": 0.5}"#] {
            assert_eq!(session(&fields(text)).expect_err(text).field, "session");
        }
    }
}

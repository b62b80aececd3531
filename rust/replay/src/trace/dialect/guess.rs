//! Guesses which columns or fields of an unknown format a replay needs, for messages.

use serde_json::Value;

use super::records::Role;
use crate::trace::fields::{Fields, LineError, wrong};

/// The maximum number of names that a message lists, and the depth to which fields are searched.
const MAX_NAMES: usize = 16;
const MAX_DEPTH: usize = 3;

/// Parts of names that indicate a role, the best first. A name with a part of `against` does not
/// have the role.
struct Hint {
    role: Role,
    parts: &'static [&'static str],
    against: &'static [&'static str],
}

const HINTS: [Hint; 5] = [
    Hint {
        role: Role::Input,
        parts: &[
            "inputtokens",
            "prompttokens",
            "inputlength",
            "promptlen",
            "inputlen",
            "contexttokens",
            "requesttokens",
            "tokensin",
            "tokensprompt",
            "isl",
            "numinput",
            "numprompt",
            "promptsize",
            "prefilltokens",
            "input",
            "prompt",
            "context",
            "prefill",
        ],
        against: &["cache", "cost", "price", "time", "text", "output", "id"],
    },
    Hint {
        role: Role::Output,
        parts: &[
            "outputtokens",
            "completiontokens",
            "outputlength",
            "outputlen",
            "generatedtokens",
            "responsetokens",
            "generationtokens",
            "tokensout",
            "tokenscompletion",
            "osl",
            "numoutput",
            "decodetokens",
            "output",
            "completion",
            "generated",
            "generation",
            "response",
            "decode",
            "tokensize",
        ],
        against: &["cost", "price", "time", "text", "input", "id", "start"],
    },
    Hint {
        role: Role::Time,
        parts: &[
            "timestamp",
            "arrivaltime",
            "arrivedat",
            "arrival",
            "starttime",
            "requesttime",
            "createdat",
            "startedat",
            "created",
            "starttimeunix",
            "datetime",
            "time",
            "start",
            "date",
            "ts",
        ],
        against: &["end", "token", "first", "total", "duration", "latency", "elapsed", "finish"],
    },
    Hint {
        role: Role::Session,
        parts: &["sessionid", "conversationid", "chatid", "threadid", "session", "conversation"],
        against: &["num", "count", "parent"],
    },
    Hint {
        role: Role::Ids,
        parts: &["hashids", "blockhashes", "blockids", "hashes", "prefixhashes"],
        against: &[],
    },
];

/// Returns an error: why a format with these names is not read, and which columns would be enough.
pub fn unknown(what: &str, names: &[String], example: &str) -> LineError {
    let more = names.len().saturating_sub(MAX_NAMES);
    let mut found = names.iter().take(MAX_NAMES).cloned().collect::<Vec<_>>().join(", ");
    if more > 0 {
        found += &format!(" and {more} more");
    }
    let next = match suggestion(names) {
        Some(columns) => format!("try --columns {columns}"),
        None => format!(
            "name the columns with the tokens of prompts and outputs, as in {example}. `kvoxide \
             formats` lists all formats. Or record the server with KVOXIDE_RECORD"
        ),
    };
    wrong("", format!("the format is unknown; {what}: {found}; {next}"))
}

/// Returns a likely value of `--columns` for these names, if input and output are among them.
fn suggestion(names: &[String]) -> Option<String> {
    let mut taken: Vec<&str> = Vec::new();
    let mut columns = Vec::new();
    for hint in &HINTS {
        let name = names.iter().filter(|name| !taken.contains(&name.as_str()));
        let best = name.filter_map(|name| Some((hint.rank(name)?, name))).min_by_key(|it| it.0);
        match best {
            Some((_, name)) => {
                taken.push(name);
                columns.push(format!("{}={name}", hint.role.name()));
            }
            None if matches!(hint.role, Role::Input | Role::Output) => return None,
            None => {}
        }
    }
    let columns = columns.join(",");
    Some(if columns.contains(' ') { format!("'{columns}'") } else { columns })
}

impl Hint {
    /// Returns how well a name fits the role; lower is better.
    fn rank(&self, name: &str) -> Option<(usize, usize)> {
        let letters = |text: &str| {
            let letters = text.chars().filter(|it| it.is_alphanumeric());
            letters.flat_map(char::to_lowercase).collect::<String>()
        };
        let whole = letters(name);
        let is_against = |part: &&str| {
            // Short parts only match whole words: `id` does not match `provided`.
            match part.len() {
                ..=2 => words(name).iter().any(|word| word == part),
                _ => whole.contains(*part),
            }
        };
        if self.against.iter().any(is_against) {
            return None;
        }
        let fits = |part: &str| match part.len() {
            ..=3 => words(name).iter().any(|word| word == part),
            _ => whole.contains(part),
        };
        Some((self.parts.iter().position(|part| fits(part))?, whole.len()))
    }
}

/// Returns the words of a name such as `request_start` or `requestStart`.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut is_after_capital = false;
    for letter in name.chars() {
        let is_capital = letter.is_uppercase();
        if !letter.is_alphanumeric() || (is_capital && !is_after_capital) {
            words.push(String::new());
        }
        is_after_capital = is_capital;
        if let Some(word) = words.last_mut().filter(|_| letter.is_alphanumeric()) {
            word.extend(letter.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Returns the paths of an object's numbers and texts.
pub fn paths(fields: &Fields) -> Vec<String> {
    let mut paths = Vec::new();
    add_paths(fields, "", 1, &mut paths);
    paths
}

fn add_paths(fields: &Fields, before: &str, depth: usize, paths: &mut Vec<String>) {
    for (name, value) in fields {
        let path = format!("{before}{name}");
        match value {
            Value::Object(inner) if depth < MAX_DEPTH => {
                add_paths(inner, &format!("{path}."), depth + 1, paths);
            }
            _ => paths.push(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suggested(names: &str) -> Option<String> {
        suggestion(&names.split('|').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn similar_names_are_suggested() {
        for (names, columns) in [
            (
                "when_ts|prompt_len|gen_len|output_len",
                "input=prompt_len,output=output_len,time=when_ts",
            ),
            (
                "request_created_at|total_tokens|prompt_tokens|completion_tokens|cost_in_usd",
                "input=prompt_tokens,output=completion_tokens,time=request_created_at",
            ),
            (
                "id|start_time|end_time|inputs|inputTokens|outputs|outputTokens|session_id",
                "input=inputTokens,output=outputTokens,time=start_time,session=session_id",
            ),
            (
                "created_at|tokens_prompt|tokens_completion|native_tokens_cached",
                "input=tokens_prompt,output=tokens_completion,time=created_at",
            ),
            (
                "Arrival (s)|Input tokens|Output tokens",
                "'input=Input tokens,output=Output tokens,time=Arrival (s)'",
            ),
            (
                "arrival_timestamp|prompt_size|token_size",
                "input=prompt_size,output=token_size,time=arrival_timestamp",
            ),
            ("ISL|OSL", "input=ISL,output=OSL"),
            (
                "usage.in.tokens_in|usage.tokens_out",
                "input=usage.in.tokens_in,output=usage.tokens_out",
            ),
        ] {
            assert_eq!(suggested(names).as_deref(), Some(columns), "{names}");
        }
        for names in ["a|b", "prompt_tokens|model", "output_tokens", "input_cost|output_cost"] {
            assert_eq!(suggested(names), None, "{names}");
        }
    }
}

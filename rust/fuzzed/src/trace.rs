//! Checks the reader of traces: it accepts exactly the lines of its format, and replays of them
//! run.

use kvoxide_core::{GroupSpec, Policy};
use kvoxide_replay::trace::{HashIds, MAX_LENGTH, Prompt, Reader, Trace, TraceRequest};
use kvoxide_replay::{Control, Settings, run as replay};
use serde_json::{Value, json};

/// The most requests, and the most tokens, of a trace that is replayed.
const MAX_REPLAYED: usize = 8;
const MAX_REPLAYED_TOKENS: usize = 2_000;

/// Reads every line. Replays the requests that were read.
pub fn run(data: &[u8]) {
    let mut trace = Trace::default();
    let mut prompts = Vec::new();
    for line in data.split(|&byte| byte == b'\n') {
        let line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
        match serde_json::from_slice(line) {
            Ok(Value::Object(fields)) if fields.keys().all(|key| KEYS.contains(&key.as_str())) => {
                push(&mut trace, &mut prompts, line, &fields);
            }
            _ => read_alone(line),
        }
    }
    check_replay(&trace);
    if trace.return_answers().is_ok() {
        check_replay(&trace);
    }
    read_as_file(data);
}

/// Adds a line with fields that the second implementation knows.
fn push(
    trace: &mut Trace,
    prompts: &mut Vec<Lengths>,
    line: &[u8],
    fields: &serde_json::Map<String, Value>,
) {
    let mut reader = Reader::of_dialect("mooncake").expect("a dialect");
    let num_requests = trace.requests().len();
    let read = trace.push_line(&mut reader, line);
    let num_read = trace.requests().len() - num_requests;
    assert_eq!(num_read, usize::from(read.is_ok()));
    if let Err(error) = &read {
        assert!(FIELDS.contains(&error.field.as_str()), "{error:?}");
    }
    if !is_request(fields) {
        return assert!(read.is_err(), "{fields:?}");
    }
    let request = TraceRequest::from_line(line).expect("a line of the format");
    check_request(&request);
    let num_prompts = prompts.len();
    prompts.extend(lengths(&request));
    let is_possible = prompts.len() == num_prompts || is_possible(prompts);
    assert_eq!(read.is_ok(), is_possible, "{read:?}");
    if read.is_err() {
        prompts.pop();
    }
}

/// Reads a line in the dialect that it resembles.
fn read_alone(line: &[u8]) {
    let mut trace = Trace::default();
    let read = trace.push_line(&mut Reader::default(), line);
    assert!(read.is_ok() || trace.requests().is_empty());
}

/// Reads all lines as one trace whose dialect the reader detects.
fn read_as_file(data: &[u8]) {
    let lines: Vec<_> = data.split(|&byte| byte == b'\n').collect();
    let (mut trace, mut reader) = (Trace::default(), Reader::default());
    if !reader.find_dialect(&lines) {
        return read_alone(data);
    }
    for line in lines {
        let before = trace.requests().len();
        let read = trace.push_line(&mut reader, line);
        assert!(read.is_ok() || trace.requests().len() == before);
    }
    let before = trace.requests().len();
    let left_out = trace.finish(&mut reader, true).expect("requests are left out");
    assert_eq!(trace.requests().len() + left_out, before);
    assert_eq!(trace.first_never_arriving(), None);
    check_replay(&trace);
}

/// The fields that the second implementation knows.
const KEYS: [&str; 8] = [
    "input_length",
    "input_tokens",
    "output_length",
    "output_tokens",
    "hash_ids",
    "output_hash_ids",
    "prompt_token_ids",
    "block_size",
];

/// The sizes of a prompt that consists of hash ids.
struct Lengths {
    tokens: usize,
    generated: usize,
    num_ids: usize,
    num_output_ids: usize,
    width: Option<usize>,
}

fn lengths(request: &TraceRequest) -> Option<Lengths> {
    let Prompt::HashIds { length, num_output_ids, .. } = &request.prompt else { return None };
    let num_ids = request.prompt.num_ids();
    (num_ids > 0).then(|| Lengths {
        tokens: *length,
        generated: request.output_length,
        num_ids,
        num_output_ids: num_output_ids.unwrap_or(0),
        width: request.tokens_per_id,
    })
}

/// Returns whether some number of tokens per id fits all prompts, and the output of the last
/// prompt. Ids are for all tokens of a prompt, or else only for whole blocks.
///
/// Each prompt has a smallest number that fits it. If any number fits all prompts, the largest of
/// these smallest numbers does.
fn is_possible(prompts: &[Lengths]) -> bool {
    let given = || prompts.iter().filter_map(|prompt| prompt.width);
    if given().any(|width| Some(width) != given().next()) {
        return false;
    }
    let least_of_all = |prompt: &Lengths| prompt.tokens.div_ceil(prompt.num_ids);
    let least_of_whole = |prompt: &Lengths| prompt.tokens / (prompt.num_ids + 1) + 1;
    let chosen = |least: &dyn Fn(&Lengths) -> usize| {
        given().next().or(prompts.iter().map(least).max()).unwrap_or(1)
    };
    let (all, whole) = (chosen(&least_of_all), chosen(&least_of_whole));
    let fits_all = prompts.iter().all(|it| it.tokens.div_ceil(all) == it.num_ids);
    let fits_whole = prompts.iter().all(|it| it.tokens / whole == it.num_ids);
    let width = if fits_all { all } else { whole };
    let has_output = |it: &Lengths| {
        let most = (it.tokens + it.generated).div_ceil(width);
        it.num_output_ids == 0 || it.num_ids + it.num_output_ids <= most
    };
    (fits_all || fits_whole) && prompts.last().is_none_or(has_output)
}

const FIELDS: [&str; 7] = [
    "",
    "input_length",
    "output_length",
    "hash_ids",
    "output_hash_ids",
    "prompt_token_ids",
    "block_size",
];

/// Returns whether a line has the format. This is a second implementation of the format.
fn is_request(fields: &serde_json::Map<String, Value>) -> bool {
    let field = |name: &str| {
        let other = name.replace("_length", "_tokens");
        fields.get(name).or_else(|| fields.get(&other))
    };
    let length = |name: &str, least: i64| {
        let length = field(name).and_then(integer);
        length.filter(|length| (least..=1 << 28).contains(length))
    };
    let integers = |name: &str| -> Option<Vec<i64>> {
        fields.get(name)?.as_array()?.iter().map(integer).collect()
    };
    let num_ids = |name: &str| -> Option<i64> {
        let ids = fields.get(name)?.as_array()?;
        let is_id = |id: &Value| match id {
            Value::String(text) => !text.is_empty(),
            _ => id.is_u64() || integer(id).is_some_and(|id| id >= 0),
        };
        ids.iter().all(is_id).then_some(ids.len() as i64)
    };
    let has_width = || match fields.get("block_size") {
        None | Some(Value::Null) => true,
        Some(width) => integer(width).is_some_and(|width| (1..=1 << 28).contains(&width)),
    };
    let has_output_ids = || match fields.get("output_hash_ids") {
        None | Some(Value::Null) => true,
        Some(_) => num_ids("output_hash_ids").is_some_and(|count| {
            let generated = length("output_length", 0).unwrap_or(0);
            count <= generated && (count == 0 || num_ids("hash_ids") != Some(0))
        }),
    };
    let has_prompt = match fields.contains_key("prompt_token_ids") {
        true => integers("prompt_token_ids").is_some_and(|tokens| !tokens.is_empty()),
        false => match (length("input_length", 1), num_ids("hash_ids")) {
            (Some(length), Some(count)) => count <= length && has_output_ids() && has_width(),
            _ => false,
        },
    };
    let has_no_output = || matches!(field("output_length"), Some(Value::Null));
    has_prompt && (length("output_length", 0).is_some() || has_no_output())
}

/// Returns an integer. It can be written as a float.
fn integer(value: &Value) -> Option<i64> {
    let of_float = || {
        let number = value.as_f64()?;
        let integer = number as i64;
        let is_exact = integer.unsigned_abs() < 1 << 53 && integer as f64 == number;
        is_exact.then_some(integer)
    };
    value.as_i64().or_else(of_float)
}

fn check_request(request: &TraceRequest) {
    let length = request.prompt.len();
    assert!((1..=MAX_LENGTH.max(length)).contains(&length) && request.output_length <= MAX_LENGTH);
    let line = match &request.prompt {
        Prompt::Tokens { tokens, .. } => {
            assert_eq!(request.prompt.token(length - 1, 1), tokens[length - 1]);
            json!({"prompt_token_ids": tokens, "output_length": request.output_length})
        }
        Prompt::HashIds { length, hash_ids, num_output_ids } => {
            let num_ids = request.prompt.num_ids();
            if hash_ids.iter().any(|id| id < 0) {
                return; // numbered anew
            }
            if num_ids > 0 {
                let width = length.div_ceil(num_ids);
                let (last, id) = ((length - 1) % width, hash_ids.at((length - 1) / width));
                let token = id * width as i64 + last as i64;
                assert_eq!(request.prompt.token(length - 1, width), token);
            }
            let ids: Vec<_> = hash_ids.iter().collect();
            assert_eq!(&ids.iter().copied().collect::<HashIds>(), hash_ids);
            json!({
                "input_length": length, "hash_ids": ids[..num_ids],
                "output_length": request.output_length,
                "output_hash_ids": num_output_ids.map(|_| &ids[num_ids..]),
            })
        }
    };
    let again = TraceRequest::from_line(line.to_string().as_bytes());
    let again = again.map(|again| TraceRequest { tokens_per_id: request.tokens_per_id, ..again });
    assert_eq!(again.as_ref(), Ok(request));
}

fn check_replay(trace: &Trace) {
    let tokens = |request: &TraceRequest| request.prompt.len() + request.output_length;
    let is_short = trace.requests().len() <= MAX_REPLAYED;
    if !is_short || trace.requests().iter().map(tokens).sum::<usize>() > MAX_REPLAYED_TOKENS {
        return;
    }
    let settings = Settings {
        groups: vec![GroupSpec::full(16), GroupSpec::sliding_window(8, 20)],
        num_blocks: Some(150),
        policy: Policy { pin_min_drop_size: Some(2), ..Policy::every_tail() },
        concurrency: 3,
        max_batched_tokens: 64,
        report_from: 0,
        has_bound: true,
        follows_schedule: false,
        baseline: None,
        host: None,
        enable_caching: true,
        rules: None,
        release: None,
    };
    let replayed = replay(trace, &settings, &Control::default());
    assert_eq!(replayed.is_ok(), trace.tokens_per_stored_id().is_ok(), "{replayed:?}");
    let Ok(report) = replayed else { return };
    let replayed = report.requests.len();
    assert_eq!(replayed, trace.requests().len());
    let hits: usize = report.counted().filter_map(|request| request.hit_tokens).sum();
    let bound = report.bound.expect("it was asked for");
    assert!(hits <= bound.num_hit_tokens(), "{hits} tokens hit, {bound:?}");
}

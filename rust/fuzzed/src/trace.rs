//! The reader of traces: it accepts exactly the lines of its format, and replays run on them.

use kvoxide_core::{GroupSpec, Policy};
use kvoxide_replay::scheduler::{Control, Settings, run as replay};
use kvoxide_replay::trace::{HashIds, MAX_LENGTH, Prompt, Trace, TraceRequest};
use serde_json::{Value, json};

/// Most requests and tokens of a trace that is replayed.
const MAX_REPLAYED: usize = 8;
const MAX_REPLAYED_TOKENS: usize = 2_000;

/// Reads every line, and replays the requests that were read.
pub fn run(data: &[u8]) {
    let mut trace = Trace::default();
    let mut prompts = Vec::new();
    for line in data.split(|&byte| byte == b'\n') {
        let read = TraceRequest::from_line(line);
        assert_eq!(read.is_ok(), is_request(line), "{read:?}");
        match read {
            Ok(request) => {
                check_request(&request);
                let pushed = trace.push(request.clone());
                prompts.extend(lengths(&request));
                assert_eq!(pushed.is_ok(), is_possible(&prompts), "{pushed:?}");
                if pushed.is_err() {
                    prompts.pop();
                }
            }
            Err(error) => assert!(FIELDS.contains(&error.field.as_str()), "{error:?}"),
        }
    }
    check_replay(&trace);
    if trace.return_answers().is_ok() {
        check_replay(&trace);
    }
}

/// The sizes of a prompt that consists of hash ids.
struct Lengths {
    tokens: usize,
    generated: usize,
    num_ids: usize,
    num_output_ids: usize,
    largest_id: i64,
    width: Option<usize>,
}

fn lengths(request: &TraceRequest) -> Option<Lengths> {
    let Prompt::HashIds { length, hash_ids, num_output_ids } = &request.prompt else { return None };
    let num_output_ids = num_output_ids.unwrap_or(0);
    Some(Lengths {
        tokens: *length,
        generated: request.output_length,
        num_ids: hash_ids.len() - num_output_ids,
        num_output_ids,
        largest_id: hash_ids.iter().max()?,
        width: request.tokens_per_id,
    })
}

/// Whether some number of tokens per id fits all prompts. If any does, the largest of the prompts'
/// least ones fits.
fn is_possible(prompts: &[Lengths]) -> bool {
    let mut widths = prompts.iter().filter_map(|prompt| prompt.width);
    let given = widths.next();
    if widths.any(|width| Some(width) != given) {
        return false;
    }
    let least = prompts.iter().map(|prompt| prompt.tokens.div_ceil(prompt.num_ids)).max();
    let Some(width) = given.or(least) else { return true };
    let fits = |prompt: &Lengths| {
        prompt.tokens.div_ceil(width) == prompt.num_ids
            && prompt.largest_id < i64::MAX / width as i64
            && (prompt.num_output_ids == 0
                || prompt.num_ids + prompt.num_output_ids
                    <= (prompt.tokens + prompt.generated).div_ceil(width))
    };
    prompts.iter().all(fits)
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

/// Whether a line has the format: a second implementation of it.
fn is_request(line: &[u8]) -> bool {
    let line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
    let Ok(Value::Object(fields)) = serde_json::from_slice::<Value>(line) else { return false };
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
    let has_width = || match fields.get("block_size") {
        None | Some(Value::Null) => true,
        Some(width) => integer(width).is_some_and(|width| (1..=1 << 28).contains(&width)),
    };
    let has_output_ids = || match fields.get("output_hash_ids") {
        None | Some(Value::Null) => true,
        Some(_) => integers("output_hash_ids").is_some_and(|ids| {
            let generated = length("output_length", 0).unwrap_or(0);
            ids.len() as i64 <= generated && ids.iter().all(|&id| id >= 0)
        }),
    };
    let has_prompt = match fields.contains_key("prompt_token_ids") {
        true => integers("prompt_token_ids").is_some_and(|tokens| !tokens.is_empty()),
        false => match (length("input_length", 1), integers("hash_ids")) {
            (Some(length), Some(ids)) => {
                (1..=length).contains(&(ids.len() as i64))
                    && ids.iter().all(|&id| id >= 0)
                    && has_output_ids()
                    && has_width()
            }
            _ => false,
        },
    };
    let has_no_output = || matches!(field("output_length"), Some(Value::Null));
    has_prompt && (length("output_length", 0).is_some() || has_no_output())
}

/// An integer, also in the notation of a float.
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
            let width = length.div_ceil(num_ids);
            let (last, id) = ((length - 1) % width, hash_ids.at((length - 1) / width));
            if id < i64::MAX / width as i64 {
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
        policy: Policy { pin_min_drop_size: Some(2), ..Policy::default() },
        concurrency: 3,
        max_batched_tokens: 64,
        report_from: 0,
        has_bound: true,
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

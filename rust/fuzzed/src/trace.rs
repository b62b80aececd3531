//! The reader of traces: it takes exactly what its format is, and what it takes can be played.

use kvoxide_core::{GroupSpec, Policy};
use kvoxide_replay::scheduler::{Control, Settings, run as play};
use kvoxide_replay::trace::{MAX_LENGTH, Prompt, Trace, TraceRequest};
use serde_json::{Value, json};

/// Requests and tokens of a trace that is short enough to be played.
const MAX_PLAYED: usize = 8;
const MAX_PLAYED_TOKENS: usize = 2_000;

/// Reads every line, and plays the requests that were read.
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
    check_play(&trace);
}

/// Tokens and ids of a prompt that has ids.
fn lengths(request: &TraceRequest) -> Option<(usize, i64, usize)> {
    match &request.prompt {
        Prompt::HashIds { length, hash_ids } => {
            Some((*length, hash_ids.iter().copied().max()?, hash_ids.len()))
        }
        Prompt::Tokens(_) => None,
    }
}

/// Whether some number of tokens per id fits all prompts: if any does, the least that each of them
/// allows by itself, and the largest of these, is one.
fn is_possible(prompts: &[(usize, i64, usize)]) -> bool {
    let least = prompts.iter().map(|&(length, _, num_ids)| length.div_ceil(num_ids)).max();
    let Some(width) = least else { return true };
    let fits = |&(length, id, num_ids): &(usize, i64, usize)| {
        length.div_ceil(width) == num_ids && id < i64::MAX / width as i64
    };
    prompts.iter().all(fits)
}

const FIELDS: [&str; 5] = ["", "input_length", "output_length", "hash_ids", "prompt_token_ids"];

/// The format, written down once more.
fn is_request(line: &[u8]) -> bool {
    let Ok(Value::Object(fields)) = serde_json::from_slice::<Value>(line) else { return false };
    let length = |name: &str, least: u64| {
        let length = fields.get(name).and_then(Value::as_u64);
        length.filter(|length| (least..=1 << 28).contains(length))
    };
    let integers = |name: &str| -> Option<Vec<i64>> {
        fields.get(name)?.as_array()?.iter().map(Value::as_i64).collect()
    };
    let has_prompt = match fields.contains_key("prompt_token_ids") {
        true => integers("prompt_token_ids").is_some_and(|tokens| !tokens.is_empty()),
        false => match (length("input_length", 1), integers("hash_ids")) {
            (Some(length), Some(ids)) => {
                (1..=length).contains(&(ids.len() as u64)) && ids.iter().all(|&id| id >= 0)
            }
            _ => false,
        },
    };
    has_prompt && length("output_length", 0).is_some()
}

fn check_request(request: &TraceRequest) {
    let length = request.prompt.len();
    assert!((1..=MAX_LENGTH.max(length)).contains(&length) && request.output_length <= MAX_LENGTH);
    let line = match &request.prompt {
        Prompt::Tokens(tokens) => {
            assert_eq!(request.prompt.token(length - 1, 1), tokens[length - 1]);
            json!({"prompt_token_ids": tokens, "output_length": request.output_length})
        }
        Prompt::HashIds { length, hash_ids } => {
            let width = length.div_ceil(hash_ids.len());
            let (last, id) = ((length - 1) % width, hash_ids[(length - 1) / width]);
            if id < i64::MAX / width as i64 {
                let token = id * width as i64 + last as i64;
                assert_eq!(request.prompt.token(length - 1, width), token);
            }
            json!({
                "input_length": length, "hash_ids": hash_ids,
                "output_length": request.output_length,
            })
        }
    };
    let again = TraceRequest::from_line(line.to_string().as_bytes());
    assert_eq!(again.as_ref(), Ok(request));
}

fn check_play(trace: &Trace) {
    let tokens = |request: &TraceRequest| request.prompt.len() + request.output_length;
    let is_short = trace.requests().len() <= MAX_PLAYED;
    if !is_short || trace.requests().iter().map(tokens).sum::<usize>() > MAX_PLAYED_TOKENS {
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
    let played = play(trace, &settings, &Control::default());
    assert_eq!(played.is_ok(), trace.tokens_per_id().is_ok(), "{played:?}");
    let Ok(report) = played else { return };
    let played = report.requests.len();
    assert_eq!(played, trace.requests().len());
    let hits: usize = report.counted().filter_map(|request| request.hit_tokens).sum();
    let bound = report.bound.expect("it was asked for");
    assert!(hits <= bound.num_hit_tokens(), "{hits} tokens hit, {bound:?}");
}

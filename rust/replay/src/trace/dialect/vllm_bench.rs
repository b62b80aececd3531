//! Results of `vllm bench serve` and SGLang's `bench_serving`, with the lengths of all requests.
//! Each run is one JSON object, and begins when the previous run has been answered.

use serde_json::Value;

use super::cell::Cell;
use super::records::is_error;
use super::{Dialect, Form, Lines};
use crate::trace::fields::{Fields, LineError, each, field, given, length, wrong};
use crate::trace::prompt::Prompt;
use crate::trace::reading::Reading;
use crate::trace::request::{After, Event, TraceRequest, Wait, WaitTime};

pub const VLLM_BENCH: Dialect = Dialect {
    name: "vllm bench",
    about: "results of vllm bench serve and of SGLang's bench_serving, with the lengths of requests",
    sign: "input_lens and output_lens, or request_throughput with total_input_tokens",
    example: r#"{"backend": "vllm", "request_throughput": 1.0, "total_input_tokens": 3000, "input_lens": [1000, 1000, 1000], "output_lens": [5, 0, 5], "start_times": [100.0, 110.0, 120.0], "errors": ["", "TimeoutError", ""]}
{"backend": "vllm", "request_throughput": 1.0, "total_input_tokens": 2000, "input_lens": [1000, 1000], "output_lens": [5, 5], "start_times": [500.0, 510.0], "errors": ["", ""]}
"#,
    form: Form::Lines(Lines {
        fields: &[],
        is_like: |fields| {
            let has = |name: &str| fields.contains_key(name);
            let throughput = fields.get("request_throughput");
            has("input_lens") || has("output_lens") || throughput.is_some_and(Value::is_number)
        },
        extends_mooncake: false,
        read,
        table: None,
    }),
};

fn read(fields: &Fields, reading: &mut Reading) -> Result<(), LineError> {
    let lengths = |name: &str| {
        let missing = |_| wrong(name, format!("is missing; run {}", with_details(fields)));
        each(field(fields, name).map_err(missing)?, name, "numbers", Some)
    };
    let (inputs, outputs) = (lengths("input_lens")?, lengths("output_lens")?);
    let per_request = |name: &str| {
        let Some(value) = given(fields, name) else { return Ok(Vec::new()) };
        let values = each(value, name, "values", Some)?;
        match values.len() {
            0 => Ok(values),
            count if count == inputs.len() => Ok(values),
            count => {
                Err(wrong(name, format!("has {count} values, but input_lens has {}", inputs.len())))
            }
        }
    };
    if inputs.len() != outputs.len() {
        let message = format!("has {} lengths, but input_lens has {}", outputs.len(), inputs.len());
        return Err(wrong("output_lens", message));
    }
    let (starts, errors) = (per_request("start_times")?, per_request("errors")?);
    let mut requests = Vec::new();
    for (index, (&input, &output)) in inputs.iter().zip(&outputs).enumerate() {
        if errors.get(index).is_some_and(|error| is_error(Cell::Json(error))) {
            reading.leave_out("requests that failed");
            continue;
        }
        let prompt = Prompt::of_ids(length(input, "input_lens", 1)?, []);
        let start = starts.get(index).map(|start| time(start)).transpose()?;
        requests.push((start, TraceRequest::of_prompt(prompt, length(output, "output_lens", 0)?)));
    }
    add_run(requests, reading);
    reading.note("results of a benchmark have no prompts: they share nothing, and nothing is hit");
    Ok(())
}

/// Returns the tool that wrote a result, with the option that makes it write the lengths of
/// requests.
fn with_details(fields: &Fields) -> &'static str {
    match fields.get("backend").and_then(Value::as_str) {
        Some(backend) if backend.contains("sglang") => {
            "python -m sglang.bench_serving with --output-details"
        }
        _ => "vllm bench with --save-detailed",
    }
}

fn time(value: &Value) -> Result<f64, LineError> {
    let time = value.as_f64().filter(|time| time.is_finite());
    time.ok_or_else(|| wrong("start_times", format!("has {value}; expected seconds")))
}

/// Adds the requests of a run, with their starts in seconds. Requests of a later run wait for all
/// answers of the previous run.
fn add_run(mut requests: Vec<(Option<f64>, TraceRequest)>, reading: &mut Reading) {
    requests.sort_by(|(a, _), (b, _)| a.unwrap_or(0.0).total_cmp(&b.unwrap_or(0.0)));
    let first_start = requests.first().and_then(|(start, _)| *start);
    let first = reading.index() as u32;
    let before = reading.run.clone();
    for (start, mut request) in requests {
        let delay = start.zip(first_start).map(|(start, first)| ((start - first) * 1e6).round());
        request.arrival = delay.map(|delay| delay as u64);
        let delay = request.arrival.unwrap_or(0);
        let is_first = reading.index() as u32 == first;
        request.wait = match (&before, is_first) {
            (None, _) => None,
            (Some(before), true) => {
                Wait::for_answers(before.clone().collect(), 0, WaitTime::Unknown)
            }
            (Some(_), false) => {
                let after = vec![After { request: first, event: Event::Arrival, delay }];
                Wait::of(after, WaitTime::Unknown)
            }
        };
        reading.requests.push(request);
    }
    let run = first..reading.index() as u32;
    if !run.is_empty() {
        if before.is_some() {
            reading
                .note("the file has several runs; each begins when the previous one is answered");
        }
        reading.run = Some(run);
    }
}

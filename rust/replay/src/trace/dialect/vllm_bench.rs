//! What `vllm bench serve` writes and reads: results with the lengths of all requests, and data
//! sets of texts.

use super::{Dialect, Form, Objects};
use crate::trace::fields::{Fields, LineError, check_no_text, each, field, length, wrong};
use crate::trace::prompt::Prompt;
use crate::trace::reading::Reading;
use crate::trace::request::TraceRequest;

/// Fields of data sets (`--dataset-name custom` and `sharegpt`).
const TEXTS: &[&str] = &["prompt", "conversations"];

pub const VLLM_BENCH: Dialect = Dialect {
    name: "vllm bench",
    form: Form::Objects(Objects {
        marks: &[
            "prompt",
            "conversations",
            "input_lens",
            "output_lens",
            "start_times",
            "request_throughput",
            "total_input_tokens",
        ],
        fields: &[],
        is_like: |_| false,
        extends_mooncake: false,
        read,
    }),
};

fn read(fields: &Fields, reading: &mut Reading) -> Result<(), LineError> {
    check_no_text(VLLM_BENCH.name, fields, TEXTS)?;
    let values = |name: &str| {
        let missing = |_| wrong(name, "is missing; run vllm bench with --save-detailed".into());
        each(field(fields, name).map_err(missing)?, name, "numbers", Some)
    };
    let (inputs, outputs) = (values("input_lens")?, values("output_lens")?);
    if inputs.len() != outputs.len() {
        let message = format!("has {} lengths, input_lens {}", outputs.len(), inputs.len());
        return Err(wrong("output_lens", message));
    }
    let starts = values("start_times").unwrap_or_default();
    let first = starts.iter().filter_map(|start| start.as_f64()).fold(f64::INFINITY, f64::min);
    for (index, (&input, &output)) in inputs.iter().zip(&outputs).enumerate() {
        let prompt = Prompt::of_ids(length(input, "input_lens", 1)?, []);
        let start = starts.get(index).and_then(|start| start.as_f64());
        let request = TraceRequest {
            arrival: start.map(|start| ((start - first) * 1e6).round() as u64),
            ..TraceRequest::of_prompt(prompt, length(output, "output_lens", 0)?)
        };
        reading.requests.push(request);
    }
    reading.note("results of vllm bench have no prompts: they share nothing, and nothing is hit");
    Ok(())
}

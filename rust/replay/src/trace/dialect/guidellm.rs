//! GuideLLM's reports: benchmarks and their requests. Source:
//! <https://github.com/vllm-project/guidellm>, `src/guidellm/schemas`

use serde_json::Value;

use super::records::{LOG, Records, Role};
use super::{Dialect, Form};
use crate::trace::fields::Fields;
use crate::trace::reading::Reading;
use crate::trace::times::{Scale, Unit};

pub const GUIDELLM: Dialect = Dialect {
    name: "guidellm",
    about: "GuideLLM's benchmarks.json: times and lengths of the answered requests",
    sign: "benchmarks whose requests are grouped as successful, errored and incomplete",
    example: r#"{"benchmarks": [{"requests": {"successful": [{"request_id": "a", "request_start_time": 1790000000.5, "input_metrics": {"text_tokens": 256}, "output_metrics": {"text_tokens": 128}}, {"request_id": "b", "request_start_time": 1790000004.25, "input_metrics": {"text_tokens": 250}, "output_metrics": {"text_tokens": 120}}], "errored": [], "incomplete": []}}]}
"#,
    form: Form::Records(Records {
        roles: &[
            (
                Role::Time,
                &[
                    "request_start_time",
                    "info.timings.request_start",
                    "info.timings.resolve_start",
                    "start_time",
                ],
            ),
            (
                Role::Input,
                &["input_metrics.text_tokens", "input_metrics.total_tokens", "prompt_tokens"],
            ),
            (
                Role::Output,
                &["output_metrics.text_tokens", "output_metrics.total_tokens", "output_tokens"],
            ),
        ],
        scale: Scale::Sure(Unit::Seconds),
        has_record: |fields| {
            let benchmarks = fields.get("benchmarks").and_then(Value::as_array);
            benchmarks
                .and_then(|all| all.first())
                .is_some_and(|first| first.get("requests").is_some())
        },
        records: requests,
        ..LOG
    }),
};

/// Returns the answered requests of all benchmarks.
fn requests(fields: Fields, reading: &mut Reading) -> Vec<Fields> {
    let benchmarks = fields.get("benchmarks").and_then(Value::as_array).into_iter().flatten();
    let groups = benchmarks.filter_map(|benchmark| benchmark.get("requests")?.as_object());
    let mut answered = Vec::new();
    for (name, requests) in groups.flatten() {
        for request in requests.as_array().into_iter().flatten().filter_map(Value::as_object) {
            match name.as_str() {
                "successful" | "completed" => answered.push(request.clone()),
                _ => reading.leave_out("requests that failed or did not finish"),
            }
        }
    }
    if answered.is_empty() {
        reading.note("the report has no answered requests; it may have been written without them");
    }
    answered
}

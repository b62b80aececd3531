//! Reports about many requests at once. They are recognised so that the error can name the file of
//! the same tool that can be replayed.

use serde_json::Value;

use super::{Dialect, Form};
use crate::trace::fields::{Fields, LineError, wrong};

/// A report.
#[derive(Debug)]
pub struct Report {
    /// Returns whether an object is of the report.
    pub is_like: fn(&Fields) -> bool,
    /// Returns whether a table with these columns is of the report.
    pub has_columns: fn(&[String]) -> bool,
    /// A description of the report, the reason why it cannot be replayed, and the next step.
    pub why: &'static str,
}

impl Report {
    /// Returns the error that says why the report cannot be replayed.
    pub fn refusal(&self, name: &str) -> LineError {
        wrong("", format!("the line looks like format {name}: {}", self.why))
    }
}

/// Returns the error for the report whose tables have these columns.
pub fn of_columns(names: &[String]) -> Option<LineError> {
    super::DIALECTS.iter().find_map(|dialect| match &dialect.form {
        Form::Report(report) if (report.has_columns)(names) => Some(report.refusal(dialect.name)),
        _ => None,
    })
}

/// Returns whether an object has averages of metrics, each with its unit.
fn has_averages(fields: &Fields) -> bool {
    let is_average = |value: &Value| value.get("unit").is_some() && value.get("avg").is_some();
    fields.values().any(is_average)
}

fn has_one(names: &[String], others: &[&str]) -> bool {
    names.iter().any(|name| others.contains(&name.as_str()))
}

/// Source: <https://github.com/triton-inference-server/perf_analyzer>, `genai-perf`.
pub const GENAI_PERF: Dialect = Dialect {
    name: "genai-perf",
    about: "GenAI-Perf's profile_export.json and its summaries, without the tokens of each request",
    sign: "experiments with a service_kind, or averages with GenAI-Perf's input_config",
    example: r#"{"service_kind": "openai", "endpoint": "v1/chat/completions", "experiments": [{"experiment": {"mode": "concurrency", "value": 1}, "requests": [{"timestamp": 1790000000125000000, "response_timestamps": [1790000000225000000]}]}]}
"#,
    form: Form::Report(Report {
        is_like: |fields| {
            let config = fields.get("input_config").and_then(Value::as_object);
            let is_genai_perf = |config: &Fields| {
                ["formatted_model_name", "model_selection_strategy", "artifact_dir"]
                    .iter()
                    .any(|name| config.contains_key(*name))
            };
            let has_experiments = fields.get("experiments").is_some_and(Value::is_array);
            (has_experiments && fields.contains_key("service_kind"))
                || (has_averages(fields) && config.is_some_and(is_genai_perf))
        },
        has_columns: |_| false,
        why: "a file of GenAI-Perf, which has texts and averages, not the tokens of each request. \
              Run AIPerf, its successor, and replay the profile_export.jsonl that it writes. Or \
              record the server with KVOXIDE_RECORD",
    }),
};

/// Source: <https://github.com/ai-dynamo/aiperf>, `src/aiperf/exporters`.
pub const AIPERF_SUMMARY: Dialect = Dialect {
    name: "aiperf summary",
    about: "AIPerf's profile_export_aiperf.json or .csv: averages, which are not replayed",
    sign: "metrics with unit and avg, or columns Metric and avg",
    example: r#"{"schema_version": "1.0", "aiperf_version": "0.13.0", "request_latency": {"unit": "ms", "avg": 812.5, "p50": 790.1}, "input_sequence_length": {"unit": "tokens", "avg": 550.0}, "input_config": {"endpoint": {"model_names": ["m"]}}}
"#,
    form: Form::Report(Report {
        is_like: has_averages,
        has_columns: |names| has_one(names, &["Metric"]) && has_one(names, &["avg"]),
        why: "the summary of a run of AIPerf or GenAI-Perf, which has averages and no single \
              request. Replay AIPerf's profile_export.jsonl of the same run, which has times and \
              lengths",
    }),
};

/// Source: <https://mlflow.org/docs/latest/genai/tracing/>.
pub const MLFLOW: Dialect = Dialect {
    name: "mlflow",
    about: "MLflow's traces, whose tokens are sums over all calls of a trace",
    sign: "info with a trace_id, or trace_metadata, or columns such as execution_duration",
    example: r#"{"info": {"trace_id": "tr-1", "request_time": "2026-07-01T10:00:00Z", "execution_duration": "1.5s", "state": "OK"}, "data": {"spans": []}}
"#,
    form: Form::Report(Report {
        is_like: |fields| {
            let info = fields.get("info").and_then(Value::as_object);
            let is_info = |info: &Fields| {
                ["trace_id", "request_id"].iter().any(|name| info.contains_key(*name))
            };
            let names: Vec<_> = fields.keys().cloned().collect();
            (fields.contains_key("data") && info.is_some_and(is_info)) || has_mlflow_names(&names)
        },
        has_columns: has_mlflow_names,
        why: "traces of MLflow, whose tokens are sums over all calls of a trace. Export the spans \
              with OpenTelemetry and replay them. Or write a line per call with its time and \
              tokens, and name the fields with --columns",
    }),
};

fn has_mlflow_names(names: &[String]) -> bool {
    has_one(names, &["trace_id", "request_id"])
        && has_one(names, &["trace_metadata", "execution_duration", "execution_time_ms"])
}

/// Source: <https://prometheus.io/docs/prometheus/latest/querying/api/>.
pub const METRICS: Dialect = Dialect {
    name: "metrics",
    about: "metrics (Prometheus, Grafana, OpenTelemetry) and OpenAI's usage: sums over requests",
    sign: "resourceMetrics, data with a resultType, or columns such as vllm:prompt_tokens_total",
    example: r#""Time","vllm:prompt_tokens_total","vllm:generation_tokens_total"
"2026-09-21 12:00:00","120300","4020"
"#,
    form: Form::Report(Report {
        is_like: |fields| {
            let has_results =
                fields.get("data").is_some_and(|data| data.get("resultType").is_some());
            let is_bucket = fields.get("object").is_some_and(|object| object == "bucket");
            fields.contains_key("resourceMetrics") || has_results || is_bucket
        },
        has_columns: |names| {
            let is_metric = |name: &String| {
                let parts = ["vllm:", "sglang:", "__name__", "num_model_requests"];
                parts.iter().any(|part| name.contains(part))
            };
            names.iter().any(is_metric)
        },
        why: "metrics or a bill, which are sums over many requests. Record the server with \
              KVOXIDE_RECORD, or replay a log that has a line per request",
    }),
};

//! Logs of gateways and observers that count the tokens of each request: LiteLLM, Langfuse,
//! OpenAI's answers, Baseten and AIPerf's results.

use serde_json::Value;

use super::cell::{Cell, lookup};
use super::records::{LOG, Records, Role, is_error};
use super::{Dialect, Form};
use crate::trace::fields::Fields;
use crate::trace::reading::Reading;
use crate::trace::times::{Scale, Unit};

fn has(fields: &Fields, name: &str) -> bool {
    lookup(fields, name).is_some_and(|value| !value.is_null())
}

fn has_one(fields: &Fields, names: &[&str]) -> bool {
    names.iter().any(|name| has(fields, name))
}

fn is_text(cell: Cell<'_>, texts: &[&str]) -> bool {
    cell.text().is_some_and(|text| texts.iter().any(|other| other.eq_ignore_ascii_case(text)))
}

/// Source: <https://docs.litellm.ai/docs/proxy/cost_tracking>.
pub const LITELLM: Dialect = Dialect {
    name: "litellm",
    about: "LiteLLM's spend logs, as JSON or CSV; failed requests are left out",
    sign: "prompt_tokens and completion_tokens with startTime, spend or call_type",
    example: r#"{"request_id": "r1", "call_type": "acompletion", "startTime": "2026-07-01T10:00:00.123Z", "endTime": "2026-07-01T10:00:04Z", "model": "m", "prompt_tokens": 1200, "completion_tokens": 55, "total_tokens": 1255, "spend": 0.01, "session_id": "s"}
{"request_id": "r2", "call_type": "acompletion", "startTime": "2026-07-01T10:00:09.123Z", "endTime": "2026-07-01T10:00:14Z", "model": "m", "prompt_tokens": 1500, "completion_tokens": 70, "total_tokens": 1570, "spend": 0.01, "session_id": "s"}
"#,
    form: Form::Records(Records {
        roles: &[
            (Role::Time, &["startTime", "start_time"]),
            (Role::Input, &["prompt_tokens"]),
            (Role::Output, &["completion_tokens"]),
            (Role::Session, &["session_id", "trace_id"]),
        ],
        has_record: |fields| {
            has(fields, "prompt_tokens")
                && has_one(fields, &["startTime", "spend", "call_type", "response_cost"])
        },
        table: Some(&["startTime", "spend", "call_type"]),
        left_out: &[
            ("status", |cell| is_text(cell, &["failure"]), "requests that failed"),
            ("call_type", is_other_call, "calls that generate no text, such as embeddings"),
            // LangSmith's chains have the sums of their calls.
            ("run_type", |cell| !is_text(cell, &["llm"]), "runs that are not calls of a model"),
        ],
        may_be_empty: true,
        ..LOG
    }),
};

/// Returns whether a type of LiteLLM's calls generates no text.
fn is_other_call(cell: Cell<'_>) -> bool {
    let others = ["embedding", "rerank", "moderation", "image", "speech", "transcription"];
    cell.text().is_some_and(|name| others.iter().any(|other| name.contains(other)))
}

/// Source: <https://langfuse.com/docs/api-and-data-platform/features/blob-storage-export-fields>.
pub const LANGFUSE: Dialect = Dialect {
    name: "langfuse",
    about: "Langfuse's exports of observations, as JSON or CSV; only generations are replayed",
    sign: "startTime with traceId or type, and usage of input and output tokens",
    example: r#"{"id": "a", "traceId": "t", "type": "GENERATION", "startTime": "2026-07-01T10:00:00.123Z", "usage": {"input": 1200, "output": 55, "total": 1255}, "model": "m"}
{"id": "b", "traceId": "t", "type": "SPAN", "startTime": "2026-07-01T10:00:02Z"}
{"id": "c", "traceId": "t", "type": "GENERATION", "startTime": "2026-07-01T10:00:05Z", "usageDetails": {"input": 300, "input_cached_tokens": 1000, "output": 20, "total": 1320}}
"#,
    form: Form::Records(Records {
        roles: &[
            (Role::Time, &["startTime", "start_time"]),
            (
                Role::Input,
                &[
                    "usageDetails.input",
                    "usage_details.input",
                    "usage.input",
                    "usage.promptTokens",
                    "promptTokens",
                    "inputUsage",
                    "inputTokens",
                    "input_usage",
                ],
            ),
            (
                Role::Output,
                &[
                    "usageDetails.output",
                    "usage_details.output",
                    "usage.output",
                    "usage.completionTokens",
                    "completionTokens",
                    "outputUsage",
                    "outputTokens",
                    "output_usage",
                ],
            ),
            (Role::Session, &["sessionId", "session_id", "traceId", "trace_id"]),
        ],
        has_record: |fields| {
            has_one(fields, &["startTime", "start_time"])
                && has_one(fields, &["traceId", "trace_id", "type"])
                && (has_one(fields, &["usage", "usageDetails", "usage_details", "promptTokens"])
                    || is_observation(fields))
        },
        records: |mut fields, _| {
            for name in ["usageDetails", "usage_details"] {
                add_cached(fields.get_mut(name));
            }
            vec![fields]
        },
        table: Some(&["traceId", "trace_id"]),
        left_out: &[
            (
                "type",
                |cell| !is_text(cell, &["GENERATION", "EMBEDDING"]),
                "observations that are not generations",
            ),
            ("level", |cell| is_text(cell, &["ERROR"]), "requests that failed"),
        ],
        may_be_empty: true,
        ..LOG
    }),
};

/// Returns whether an object has the type of one of Langfuse's observations.
fn is_observation(fields: &Fields) -> bool {
    let types = ["GENERATION", "SPAN", "EVENT", "AGENT", "TOOL", "CHAIN", "RETRIEVER", "EMBEDDING"];
    fields.get("type").and_then(Value::as_str).is_some_and(|kind| types.contains(&kind))
}

/// Adds the tokens of all kinds of input to `input`, which only counts uncached tokens.
fn add_cached(details: Option<&mut Value>) {
    let parsed = match &details {
        Some(Value::String(text)) => serde_json::from_str(text).ok(),
        _ => None,
    };
    let Some(details) = details else { return };
    if let Some(parsed) = parsed {
        *details = parsed;
    }
    let Some(details) = details.as_object_mut() else { return };
    let inputs = details.iter().filter(|(name, _)| name.starts_with("input"));
    let input: u64 = inputs.filter_map(|(_, tokens)| tokens.as_u64()).sum();
    if input > 0 {
        details.insert("input".into(), input.into());
    }
}

/// Adds the tokens that were read from or written to Anthropic's cache to the input tokens. The
/// usage counts them separately.
fn add_cached_tokens(usage: Option<&mut Value>) {
    let Some(usage) = usage.and_then(Value::as_object_mut) else { return };
    let names = ["input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"];
    let tokens = names.map(|name| usage.get(name).and_then(Value::as_u64));
    if let [Some(_), ..] = tokens {
        usage.insert("input_tokens".into(), tokens.iter().flatten().sum::<u64>().into());
    }
}

/// Source: <https://platform.openai.com/docs/guides/batch>.
pub const OPENAI: Dialect = Dialect {
    name: "openai",
    about: "answers of OpenAI's API with their usage, and the output files of its batches",
    sign: "usage with input and output tokens, in a line or its response.body",
    example: r#"{"id": "b1", "custom_id": "r1", "response": {"status_code": 200, "body": {"created": 1790000000, "usage": {"prompt_tokens": 1200, "completion_tokens": 55}}}, "error": null}
{"id": "b2", "custom_id": "r2", "response": {"status_code": 200, "body": {"created": 1790000009, "usage": {"prompt_tokens": 900, "completion_tokens": 30}}}, "error": null}
"#,
    form: Form::Records(Records {
        roles: &[
            (Role::Time, &["created", "created_at", "timestamp", "response.body.created"]),
            (
                Role::Input,
                &[
                    "usage.prompt_tokens",
                    "usage.input_tokens",
                    "response.body.usage.prompt_tokens",
                    "response.body.usage.input_tokens",
                ],
            ),
            (
                Role::Output,
                &[
                    "usage.completion_tokens",
                    "usage.output_tokens",
                    "response.body.usage.completion_tokens",
                    "response.body.usage.output_tokens",
                ],
            ),
            (Role::Session, &["session_id", "conversation_id"]),
        ],
        scale: Scale::Default(Unit::Seconds),
        records: |mut fields, _| {
            add_cached_tokens(fields.get_mut("usage"));
            vec![fields]
        },
        has_record: |fields| {
            let usages = ["usage", "response.body.usage"];
            let has_tokens = |usage: &&str| {
                let names = ["prompt_tokens", "input_tokens"];
                names.iter().any(|name| has(fields, &format!("{usage}.{name}")))
            };
            usages.iter().any(has_tokens)
                || (has(fields, "custom_id") && has_one(fields, &["response", "error"]))
        },
        left_out: &[
            ("error", is_error, "requests that failed"),
            (
                "response.status_code",
                |cell| cell.number().is_some_and(|status| status >= 400.0),
                "requests that failed",
            ),
        ],
        may_be_empty: true,
        ..LOG
    }),
};

/// Source: <https://github.com/ai-dynamo/aiperf>, `src/aiperf/dataset/loader/baseten_trace.py`.
pub const BASETEN: Dialect = Dialect {
    name: "baseten",
    about: "Baseten's traces, as Parquet, Arrow, CSV or JSON lines: times, lengths, hashes of blocks",
    sign: "timestamp_start_unix_ms, input_tokens and output_tokens",
    example: r#"{"timestamp_start_unix_ms": 1790000000125, "input_tokens": 40, "output_tokens": 5, "total_hashes": [11, 12, 13], "block_size": 16, "provided_session_id": "s"}
{"timestamp_start_unix_ms": 1790000009125, "input_tokens": 60, "output_tokens": 8, "total_hashes": [11, 12, 14, 15], "block_size": 16, "provided_session_id": "s"}
"#,
    form: Form::Records(Records {
        roles: &[
            (Role::Time, &["timestamp_start_unix_ms"]),
            (Role::Input, &["input_tokens"]),
            (Role::Output, &["output_tokens"]),
            (Role::Session, &["provided_session_id", "poor_man_session_id"]),
            (Role::Ids, &["total_hashes"]),
            (Role::BlockSize, &["block_size"]),
        ],
        scale: Scale::Sure(Unit::Milliseconds),
        has_record: |fields| has(fields, "timestamp_start_unix_ms") && has(fields, "input_tokens"),
        table: Some(&["timestamp_start_unix_ms"]),
        may_be_empty: true,
        ..LOG
    }),
};

/// Source: <https://github.com/ai-dynamo/aiperf>, `src/aiperf/common/models/record_models.py`.
pub const AIPERF_RESULTS: Dialect = Dialect {
    name: "aiperf results",
    about: "AIPerf's profile_export.jsonl: times, conversations and lengths of its requests",
    sign: "metadata with request_start_ns, and metrics",
    example: r#"{"metadata": {"session_num": 0, "conversation_id": "c", "turn_index": 0, "request_start_ns": 1790000000125000000, "request_end_ns": 1790000003125000000, "benchmark_phase": "profiling"}, "metrics": {"input_sequence_length": {"value": 550, "unit": "tokens"}, "output_sequence_length": {"value": 31, "unit": "tokens"}}, "error": null}
{"metadata": {"session_num": 0, "conversation_id": "c", "turn_index": 1, "request_start_ns": 1790000005125000000, "request_end_ns": 1790000006125000000, "benchmark_phase": "profiling"}, "metrics": {"input_sequence_length": {"value": 700, "unit": "tokens"}, "output_sequence_length": {"value": 12, "unit": "tokens"}}, "error": null}
"#,
    form: Form::Records(Records {
        roles: &[
            (Role::Time, &["metadata.request_start_ns", "metadata.timestamp_ns"]),
            (
                Role::Input,
                &["metrics.input_sequence_length.value", "metrics.input_sequence_length"],
            ),
            (
                Role::Output,
                &[
                    "metrics.output_sequence_length.value",
                    "metrics.output_token_count.value",
                    "metrics.output_sequence_length",
                ],
            ),
            (Role::Session, &["metadata.x_correlation_id", "metadata.conversation_id"]),
        ],
        scale: Scale::Sure(Unit::Nanoseconds),
        has_record: |fields| {
            has_one(fields, &["metadata.request_start_ns", "metadata.timestamp_ns"])
                && fields.contains_key("metrics")
        },
        left_out: &[
            ("error", is_error, "requests that failed"),
            (
                "metadata.was_cancelled",
                |cell| matches!(cell, Cell::Json(Value::Bool(true))),
                "requests that were cancelled",
            ),
            (
                "metadata.benchmark_phase",
                |cell| is_text(cell, &["warmup"]),
                "requests before the measurement (warmup)",
            ),
        ],
        ..LOG
    }),
};

/// Source: <https://huggingface.co/datasets/uwsyfi>, as AIPerf's `_tracelab_convert.py` reads it.
pub const TRACELAB: Dialect = Dialect {
    name: "tracelab",
    about: "TraceLab's rounds of coding agents; prefix_tokens come back from the previous round",
    sign: "input_tokens_total, prefix_tokens and newly_append_tokens",
    example: r#"{"provider": "c", "session_id": "s1", "round_id": 1, "model": "m", "input_tokens_total": 1000, "prefix_tokens": 0, "newly_append_tokens": 1000, "output_tokens": 300, "timing_events": [{"type": "user_message", "at": "2026-06-01T10:00:00Z"}], "tools": []}
{"provider": "c", "session_id": "s1", "round_id": 2, "model": "m", "input_tokens_total": 1500, "prefix_tokens": 1300, "newly_append_tokens": 200, "output_tokens": 100, "timing_events": [{"event_type": "tool_result", "timestamp": "2026-06-01T10:01:00Z"}], "tools": []}
"#,
    form: Form::Records(Records {
        roles: &[
            (Role::Time, &[SUBMITTED, "timestamp"]),
            (Role::Input, &["input_tokens_total"]),
            (Role::Output, &["output_tokens"]),
            (Role::Session, &["session_id"]),
            (Role::Prefix, &["prefix_tokens"]),
        ],
        has_record: |fields| {
            fields.contains_key("input_tokens_total")
                && has_one(fields, &["prefix_tokens", "newly_append_tokens"])
        },
        records: with_submission,
        table: Some(&["prefix_tokens"]),
        may_be_empty: true,
        ..LOG
    }),
};

/// Events after which a round can be sent to the model, and their names for a kind and a time.
const INPUT_EVENTS: [&str; 2] = ["user_message", "tool_result"];
const SUBMITTED: &str = "timing_events";

/// Replaces the events of a round by its submission time: the time of the latest input, or else of
/// the first event.
fn with_submission(mut fields: Fields, _: &mut Reading) -> Vec<Fields> {
    let events = fields.get(SUBMITTED).and_then(Value::as_array).cloned().unwrap_or_default();
    let text = |event: &Value, names: [&str; 2]| {
        names.iter().find_map(|name| event.get(name)?.as_str().map(str::to_owned))
    };
    let time = |event: &Value| text(event, ["timestamp", "at"]);
    let is_input = |event: &&Value| {
        text(event, ["event_type", "type"]).is_some_and(|kind| INPUT_EVENTS.contains(&&*kind))
    };
    let latest = events.iter().filter(is_input).filter_map(time).max();
    let submitted = latest.or_else(|| events.iter().filter_map(time).min());
    fields.remove(SUBMITTED);
    if let Some(submitted) = submitted {
        fields.insert(SUBMITTED.into(), submitted.into());
    }
    if !fields.contains_key("prefix_tokens")
        && let [Some(total), Some(new)] =
            ["input_tokens_total", "newly_append_tokens"].map(|name| fields.get(name)?.as_u64())
    {
        fields.insert("prefix_tokens".into(), total.saturating_sub(new).into());
    }
    vec![fields]
}

//! Spans of OpenTelemetry, each a call of a model. The formats are OTLP's own JSON, one span per
//! line, Jaeger's exports, and Exgentic's rows, which hold the spans of a session.

use serde_json::{Map, Value};

use super::records::{LOG, Records, Role};
use super::{Dialect, Form};
use crate::trace::fields::Fields;
use crate::trace::reading::Reading;
use crate::trace::times::{Scale, Unit};

/// Fields that lead to spans. `batches` is Tempo's name, and older versions have libraries instead
/// of scopes.
const NESTED: [&str; 7] = [
    "resourceSpans",
    "resource_spans",
    "batches",
    "scopeSpans",
    "scope_spans",
    "instrumentationLibrarySpans",
    "spans",
];
/// Attributes with the tokens of a prompt and of an output, as named by several conventions.
const INPUTS: [&str; 6] = [
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.prompt_tokens",
    "llm.usage.prompt_tokens",
    "llm.token_count.prompt",
    "llm.usage.input_tokens",
    "input_tokens",
];
const ROLES: &[(Role, &[&str])] = &[
    (
        Role::Time,
        &[
            "startTimeUnixNano",
            "start_time_unix_nano",
            "start_time_ns",
            "start_time",
            "startTime",
            "timestamp",
        ],
    ),
    (
        Role::Input,
        &[
            "attributes.gen_ai.usage.input_tokens",
            "attributes.gen_ai.usage.prompt_tokens",
            "attributes.llm.usage.prompt_tokens",
            "attributes.llm.token_count.prompt",
            "attributes.llm.usage.input_tokens",
            "attributes.input_tokens",
        ],
    ),
    (
        Role::Output,
        &[
            "attributes.gen_ai.usage.output_tokens",
            "attributes.gen_ai.usage.completion_tokens",
            "attributes.llm.usage.completion_tokens",
            "attributes.llm.token_count.completion",
            "attributes.llm.usage.output_tokens",
            "attributes.output_tokens",
        ],
    ),
    (
        Role::Session,
        &[
            "session_id",
            "attributes.gen_ai.conversation.id",
            "attributes.session.id",
            "traceId",
            "traceID",
            "trace_id",
            "context.trace_id",
        ],
    ),
];

/// Source: <https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/>.
pub const OTEL: Dialect = Dialect {
    name: "otel",
    about: "OpenTelemetry's spans of model calls: OTLP JSON, one span per line, or from Jaeger",
    sign: "resourceSpans, or spans with attributes such as gen_ai.usage.input_tokens",
    example: r#"{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "1", "spanId": "2", "name": "chat", "startTimeUnixNano": "1790000000125000000", "attributes": [{"key": "gen_ai.usage.input_tokens", "value": {"intValue": "1200"}}, {"key": "gen_ai.usage.output_tokens", "value": {"intValue": "55"}}]}]}]}]}
{"name": "chat m", "context": {"trace_id": "0x1"}, "start_time": "2026-09-21T14:13:29Z", "attributes": {"gen_ai.usage.input_tokens": 900, "gen_ai.usage.output_tokens": 20}}
"#,
    form: Form::Records(Records {
        roles: ROLES,
        scale: Scale::Default(Unit::Nanoseconds),
        has_record: |fields| {
            let has = |names: &[&str]| names.iter().any(|name| fields.contains_key(*name));
            let has_name = has(&["traceId", "traceID", "trace_id", "spanId", "span_id", "context"]);
            let is_span = has(&["attributes", "tags"]) && has_name && has(ROLES[0].1);
            holds_spans(fields) || is_span
        },
        records: model_calls,
        table: Some(&[]),
        may_be_empty: true,
        ..LOG
    }),
};

/// Source: <https://huggingface.co/datasets/Exgentic>, as AIPerf's `exgentic.py` reads it.
pub const EXGENTIC: Dialect = Dialect {
    name: "exgentic",
    about: "Exgentic's rows of agents' sessions, with the spans of their model calls",
    sign: "harness and session_id with spans",
    example: r#"{"harness": "h", "session_id": "s", "models": ["m"], "spans": [{"start_time": "2026-06-01T10:00:00+00:00", "end_time": "2026-06-01T10:00:02+00:00", "status": {"code": 0}, "attributes": {"gen_ai.usage.input_tokens": 900, "gen_ai.usage.output_tokens": 20}}, {"start_time": "2026-06-01T10:00:09+00:00", "end_time": "2026-06-01T10:00:12+00:00", "status": {"code": 0}, "attributes": {"gen_ai.usage.input_tokens": 1100, "gen_ai.usage.output_tokens": 40}}]}
"#,
    form: Form::Records(Records {
        roles: ROLES,
        scale: Scale::Default(Unit::Nanoseconds),
        has_record: |fields| {
            ["harness", "session_id", "spans"].iter().all(|name| fields.contains_key(*name))
        },
        records: model_calls,
        may_be_empty: true,
        ..LOG
    }),
};

/// Returns whether an object holds lists of spans, possibly within a `trace`, as in Tempo's API.
fn holds_spans(fields: &Fields) -> bool {
    let list = |name: &str| fields.get(name).and_then(Value::as_array);
    let has_scopes = |batch: &Value| {
        ["scopeSpans", "instrumentationLibrarySpans"].iter().any(|name| batch.get(*name).is_some())
    };
    ["resourceSpans", "resource_spans", "scopeSpans", "spans"]
        .into_iter()
        .any(|it| list(it).is_some())
        || list("batches").and_then(|batches| batches.first()).is_some_and(has_scopes)
        || fields.get("trace").and_then(Value::as_object).is_some_and(holds_spans)
}

/// Returns the spans of model calls in an object, sorted by their start.
fn model_calls(fields: Fields, reading: &mut Reading) -> Vec<Fields> {
    let session = fields.get("session_id").cloned();
    let mut spans = Vec::new();
    collect(fields, &mut spans);
    let mut calls = Vec::new();
    for mut span in spans {
        let attributes = ["attributes", "tags"].iter().find_map(|name| span.remove(*name));
        let attributes = attributes.map(flattened).unwrap_or_default();
        if has_failed(&span, &attributes) {
            reading.leave_out("requests that failed");
        } else if !is_call(&attributes) {
            reading.leave_out("spans without tokens, such as gen_ai.usage.input_tokens");
        } else {
            calls.push(with_attributes(span, attributes, session.as_ref()));
        }
    }
    calls
}

/// Adds the spans within an object. The object may itself be a span.
fn collect(mut fields: Fields, spans: &mut Vec<Fields>) {
    if let Some(Value::Object(inner)) = fields.remove("trace") {
        return collect(inner, spans);
    }
    let found: Vec<_> = NESTED.iter().filter_map(|name| fields.remove(*name)).collect();
    if found.is_empty() {
        return spans.push(fields);
    }
    for value in found {
        let Value::Array(values) = value else { continue };
        for value in values {
            if let Value::Object(inner) = value {
                collect(inner, spans);
            }
        }
    }
}

/// Returns a span with its attributes by name. A call that computes embeddings has no output.
fn with_attributes(mut span: Fields, mut attributes: Fields, session: Option<&Value>) -> Fields {
    if attributes.get("gen_ai.operation.name").is_some_and(|name| name == "embeddings") {
        attributes.entry("gen_ai.usage.output_tokens").or_insert(0.into());
    }
    // Jaeger writes microseconds under a name under which others write text.
    if span.contains_key("traceID")
        && let Some(time) = span.get("startTime").and_then(Value::as_u64)
    {
        span.insert("startTimeUnixNano".into(), time.saturating_mul(1000).into());
    }
    span.insert("attributes".into(), Value::Object(attributes));
    if let Some(session) = session {
        span.insert("session_id".into(), session.clone());
    }
    span
}

fn is_call(attributes: &Fields) -> bool {
    INPUTS.iter().any(|name| attributes.get(*name).is_some_and(|value| !value.is_null()))
}

fn has_failed(span: &Fields, attributes: &Fields) -> bool {
    let status = span.get("status");
    let code = status.and_then(|status| status.get("code").or_else(|| status.get("status_code")));
    let code = code.or_else(|| span.get("status_code")).or(status);
    let is_error = |value: &Value| {
        value.as_i64() == Some(2)
            || value.as_str().is_some_and(|text| text.to_ascii_uppercase().ends_with("ERROR"))
    };
    code.is_some_and(is_error) || attributes.get("error").is_some_and(|it| it == true)
}

/// Returns attributes by name: OTLP and Jaeger list them as keys and values.
fn flattened(attributes: Value) -> Fields {
    let values = match attributes {
        Value::Array(values) => values,
        Value::Object(fields) => return dotted(fields),
        Value::String(text) => {
            return serde_json::from_str(&text).map(dotted).unwrap_or_default();
        }
        _ => return Map::new(),
    };
    let pair = |pair: &Value| {
        let key = pair.get("key")?.as_str()?.to_owned();
        let value = pair.get("value")?;
        let inner = value.as_object().and_then(|typed| typed.values().next());
        Some((key, inner.unwrap_or(value).clone()))
    };
    values.iter().filter_map(pair).collect()
}

/// Returns fields in which the names of nested fields are joined by dots.
fn dotted(fields: Fields) -> Fields {
    let mut flat = Map::new();
    for (name, value) in fields {
        match value {
            Value::Object(inner) => {
                flat.extend(
                    dotted(inner).into_iter().map(|(key, it)| (format!("{name}.{key}"), it)),
                );
            }
            value => {
                flat.insert(name, value);
            }
        }
    }
    flat
}

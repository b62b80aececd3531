//! Captures of Amazon SageMaker's endpoints, whose answers give the number of tokens. Source:
//! <https://docs.aws.amazon.com/sagemaker/latest/dg/model-monitor-data-capture-endpoint.html>

use serde_json::Value;

use super::records::{LOG, Records, Role};
use super::{Dialect, Form};
use crate::trace::fields::Fields;
use crate::trace::reading::Reading;

pub const SAGEMAKER: Dialect = Dialect {
    name: "sagemaker",
    about: "SageMaker's data captures of chat endpoints, with the usage of each answer",
    sign: "captureData and eventMetadata",
    example: r#"{"captureData": {"endpointInput": {"data": "{\"messages\": []}", "encoding": "JSON"}, "endpointOutput": {"data": "{\"usage\": {\"prompt_tokens\": 900, \"completion_tokens\": 20}}", "encoding": "JSON"}}, "eventMetadata": {"eventId": "a", "inferenceTime": "2026-07-01T10:00:00Z"}, "eventVersion": "0"}
{"captureData": {"endpointOutput": {"data": "eyJ1c2FnZSI6IHsicHJvbXB0X3Rva2VucyI6IDgwMCwgImNvbXBsZXRpb25fdG9rZW5zIjogMzB9fQ==", "encoding": "BASE64"}}, "eventMetadata": {"eventId": "b", "inferenceTime": "2026-07-01T10:00:07Z"}, "eventVersion": "0"}
"#,
    form: Form::Records(Records {
        roles: &[
            (Role::Time, &["eventMetadata.inferenceTime"]),
            (Role::Input, &["usage.prompt_tokens", "usage.input_tokens"]),
            (Role::Output, &["usage.completion_tokens", "usage.output_tokens"]),
        ],
        has_record: |fields| {
            fields.contains_key("captureData") && fields.contains_key("eventMetadata")
        },
        records: with_usage,
        ..LOG
    }),
};

/// Copies the usage from the captured answer into the record.
fn with_usage(mut fields: Fields, _: &mut Reading) -> Vec<Fields> {
    let output = fields.get("captureData").and_then(|data| data.get("endpointOutput"));
    if let Some(usage) = output.and_then(answer).as_deref().and_then(usage) {
        fields.insert("usage".into(), usage);
    }
    vec![fields]
}

/// Returns the text of an answer. It is in base64 unless its encoding is another one.
fn answer(output: &Value) -> Option<String> {
    let data = output.get("data")?.as_str()?;
    match output.get("encoding").and_then(Value::as_str) {
        None | Some("BASE64") => String::from_utf8(decoded(data)?).ok(),
        _ => Some(data.to_owned()),
    }
}

/// Returns the last usage in an answer, or in the events of a streamed answer.
fn usage(answer: &str) -> Option<Value> {
    let of_text = |text: &str| {
        let value: Value = serde_json::from_str(text.trim()).ok()?;
        value.get("usage").filter(|usage| usage.is_object()).cloned()
    };
    let events = || answer.lines().map(|line| line.strip_prefix("data:").unwrap_or(line));
    of_text(answer).or_else(|| events().rev().find_map(of_text))
}

/// Returns the bytes of a text in base64.
fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut num_bits) = (0_u32, 0);
    for digit in text.trim_end_matches('=').bytes().filter(|byte| !byte.is_ascii_whitespace()) {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        num_bits += 6;
        if num_bits >= 8 {
            num_bits -= 8;
            bytes.push((bits >> num_bits) as u8);
            bits &= (1 << num_bits) - 1;
        }
    }
    Some(bytes)
}

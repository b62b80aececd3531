//! Formats whose prompts are text. Only the model's tokenizer knows their tokens. They are
//! recognised so that the error can name what else can be replayed.

use serde_json::Value;

use super::{Dialect, Form};
use crate::trace::fields::{Fields, LineError, is_text};

/// A format of texts.
#[derive(Debug)]
pub struct Text {
    /// The fields with text. An error names the first one that a line has.
    pub fields: &'static [&'static str],
    /// Returns whether a line is of the format.
    pub is_like: fn(&Fields) -> bool,
    /// Other files of the same origin that can be replayed.
    pub instead: &'static str,
}

impl Text {
    /// Returns the error that says why a line cannot be replayed.
    pub fn refusal(&self, name: &str, fields: &Fields) -> LineError {
        let has = |field: &&&str| fields.contains_key(**field);
        let field = self.fields.iter().find(has).or(self.fields.first()).copied();
        let error = is_text(name, field.unwrap_or_default());
        LineError { message: error.message + self.instead, ..error }
    }
}

fn has_all(fields: &Fields, names: &[&str]) -> bool {
    names.iter().all(|name| fields.contains_key(*name))
}

fn has_objects(fields: &Fields, list: &str, name: &str) -> bool {
    let first = fields.get(list).and_then(Value::as_array).and_then(|values| values.first());
    first.is_some_and(|first| first.get(name).is_some())
}

/// Source: <https://github.com/ai-dynamo/aiperf>, `src/aiperf/dataset/loader/dag_jsonl.py`.
pub const DAG_JSONL: Dialect = Dialect {
    name: "dag_jsonl",
    about: "AIPerf's conversations with branches: text, which is not replayed",
    sign: "session_id and turns with messages",
    example: r#"{"session_id": "a", "turns": [{"messages": [{"role": "user", "content": "hello"}], "max_tokens": 5, "forks": ["b"]}]}
"#,
    form: Form::Text(Text {
        fields: &["turns"],
        is_like: |fields| {
            has_all(fields, &["session_id", "turns"]) && has_objects(fields, "turns", "messages")
        },
        instead: "; or replay the profile_export.jsonl that AIPerf writes when it runs the file",
    }),
};

/// Source: <https://github.com/ai-dynamo/aiperf>, `src/aiperf/dataset/loader/inputs_json.py`.
pub const AIPERF_INPUTS: Dialect = Dialect {
    name: "aiperf inputs",
    about: "AIPerf's inputs.json: payloads with text, which are not replayed",
    sign: "session_id and payloads",
    example: r#"{"data": [{"session_id": "a", "payloads": [{"messages": [{"role": "user", "content": "hello"}], "max_tokens": 5}]}]}
"#,
    form: Form::Text(Text {
        fields: &["payloads"],
        is_like: |fields| has_all(fields, &["session_id", "payloads"]),
        instead: "; or replay the profile_export.jsonl of the same run, which has times and lengths",
    }),
};

/// Source: <https://platform.openai.com/docs/guides/batch>.
pub const OPENAI_BATCH: Dialect = Dialect {
    name: "openai batch",
    about: "input files of OpenAI's batches: text, which is not replayed",
    sign: "custom_id and a body",
    example: r#"{"custom_id": "r1", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "m", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 5}}
"#,
    form: Form::Text(Text {
        fields: &["body"],
        is_like: |fields| has_all(fields, &["custom_id", "body"]),
        instead: "; or replay the output file of the batch, which has the tokens that were used",
    }),
};

/// Source: <https://huggingface.co/datasets/sammshen/lmcache-agentic-traces>.
pub const LMCACHE: Dialect = Dialect {
    name: "lmcache",
    about: "LMCache's agentic traces: messages, which are not replayed",
    sign: "input with messages, or pre_gap",
    example: r#"{"session_id": "a", "input": [{"role": "user", "content": "hello"}], "output_length": 5, "pre_gap": 0.5}
"#,
    form: Form::Text(Text {
        fields: &["input"],
        is_like: |fields| {
            fields.contains_key("pre_gap") || fields.get("input").is_some_and(Value::is_array)
        },
        instead: "",
    }),
};

/// Data sets of `vllm bench serve` (`--dataset-name custom` and `sharegpt`).
pub const DATASET: Dialect = Dialect {
    name: "dataset",
    about: "data sets of prompts, such as ShareGPT: text, which is not replayed",
    sign: "prompt, conversations, or text in one of AIPerf's fields, without lengths",
    example: r#"[{"id": "a", "conversations": [{"from": "human", "value": "hello"}]}]
"#,
    form: Form::Text(Text {
        fields: &[
            "prompt",
            "conversations",
            "conversation",
            "messages",
            "text",
            "texts",
            "instruction",
            "turns",
        ],
        is_like: |fields| {
            let texts = ["prompt", "conversations", "messages", "instruction", "text"];
            let lists = ["conversation", "turns"];
            let is_list = |name: &&str| fields.get(*name).is_some_and(Value::is_array);
            texts.iter().any(|name| fields.contains_key(*name)) || lists.iter().any(is_list)
        },
        instead: "; or replay the result of vllm bench serve --save-detailed with the data set",
    }),
};

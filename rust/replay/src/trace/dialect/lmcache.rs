//! LMCache's agentic traces, whose prompts are messages.
//! Source: <https://huggingface.co/datasets/sammshen/lmcache-agentic-traces>

use super::{Dialect, Form, Objects};
use crate::trace::fields::is_text;

pub const LMCACHE: Dialect = Dialect {
    name: "lmcache",
    form: Form::Objects(Objects {
        marks: &["pre_gap"],
        fields: &[&["input", "session_id", "output_length", "model"]],
        is_like: |fields| fields.get("input").is_some_and(|input| input.is_array()),
        extends_mooncake: false,
        read: |_, _| Err(is_text(LMCACHE.name, "input")),
    }),
};

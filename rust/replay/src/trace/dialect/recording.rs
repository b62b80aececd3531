//! What a server recorded with `KVOXIDE_RECORD`: Mooncake's lines with ids of the output.

use super::{Dialect, Form, Objects, mooncake};

pub const RECORDING: Dialect = Dialect {
    name: "recording",
    form: Form::Objects(Objects {
        marks: &[],
        fields: &[
            "prompt_token_ids",
            "timestamp",
            "input_length",
            "output_length",
            "hash_ids",
            "output_hash_ids",
            "status",
            "priority",
            "ttl",
            "session_id",
        ],
        is_like: |_| false,
        extends_mooncake: false,
        read: mooncake::read,
    }),
};

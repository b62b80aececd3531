//! What a server recorded with `KVOXIDE_RECORD`: Mooncake's lines with ids of the output.

use super::rows::ROW_FIELDS;
use super::{Dialect, Form, Lines, mooncake};
use crate::trace::fields::{Fields, LineError};
use crate::trace::reading::Reading;
use crate::trace::times::{Scale, Unit};

pub const RECORDING: Dialect = Dialect {
    name: "recording",
    about: "what a server recorded with KVOXIDE_RECORD: a folder, or one of its files",
    sign: "a folder with files requests-*.jsonl*",
    example: r#"{"timestamp": 3.25, "input_length": 20, "output_length": 30, "hash_ids": [0, 1], "output_hash_ids": [2], "block_size": 16}
"#,
    form: Form::Lines(Lines {
        fields: &[ROW_FIELDS, &["status", "priority", "ttl"]],
        is_like: |_| false,
        extends_mooncake: false,
        read,
        table: None,
    }),
};

/// Reads a line, whose request waits for none: all have a time, by which they are sorted later.
fn read(fields: &Fields, reading: &mut Reading) -> Result<(), LineError> {
    mooncake::read_with(fields, Scale::Sure(Unit::Milliseconds), reading)?;
    reading.requests.iter_mut().for_each(|request| request.wait = None);
    Ok(())
}

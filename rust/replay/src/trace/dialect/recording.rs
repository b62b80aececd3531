//! What a server recorded with `KVOXIDE_RECORD`: Mooncake's lines with ids of the output.

use super::rows::ROW_FIELDS;
use super::{Dialect, Form, Objects, mooncake};
use crate::trace::fields::{Fields, LineError};
use crate::trace::reading::Reading;

pub const RECORDING: Dialect = Dialect {
    name: "recording",
    form: Form::Objects(Objects {
        marks: &[],
        fields: &[ROW_FIELDS, &["status", "priority", "ttl"]],
        is_like: |_| false,
        extends_mooncake: false,
        read,
    }),
};

/// Reads a line, whose request waits for none: all have a time, by which they are sorted later.
fn read(fields: &Fields, reading: &mut Reading) -> Result<(), LineError> {
    mooncake::read(fields, reading)?;
    reading.requests.iter_mut().for_each(|request| request.wait = None);
    Ok(())
}

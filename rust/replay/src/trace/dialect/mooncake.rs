//! Mooncake's traces (FAST'25), with what kvoxide's own lines say besides: tokens in the place of
//! ids, ids of the output, tokens per id, priorities of blocks, sessions and delays.
//! Source: <https://github.com/kvcache-ai/Mooncake/tree/main/FAST25-release/traces>

use super::rows::{ROW_FIELDS, priority, request};
use super::{Dialect, Form, Objects};
use crate::trace::fields::{Fields, LineError};
use crate::trace::reading::Reading;

pub const MOONCAKE: Dialect = Dialect {
    name: "mooncake",
    form: Form::Objects(Objects {
        marks: &[],
        fields: &[
            ROW_FIELDS,
            &[
                "priority",
                "ttl",
                "input_tokens",
                "output_tokens",
                "created_time",
                "delay",
                "type",
                "turn",
            ],
        ],
        is_like: |_| false,
        extends_mooncake: false,
        read,
    }),
};

pub fn read(fields: &Fields, reading: &mut Reading) -> Result<(), LineError> {
    let mut request = request(fields, reading)?;
    request.priority = priority(fields)?;
    reading.has_priorities |= request.priority.is_some();
    reading.requests.push(request);
    Ok(())
}

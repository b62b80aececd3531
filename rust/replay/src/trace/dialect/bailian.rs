//! Qwen-Bailian's traces: rows of blocks of 16 tokens, with times in seconds and the chat that each
//! continues. Source: <https://github.com/alibaba-edu/qwen-bailian-usagetraces-anon>

use super::rows::{ROW_FIELDS, priority, request};
use super::{Dialect, Form, Objects};
use crate::trace::fields::{Fields, LineError};
use crate::trace::reading::Reading;

const TOKENS_PER_ID: usize = 16;
const MILLISECONDS: u64 = 1000;

pub const BAILIAN: Dialect = Dialect {
    name: "bailian",
    form: Form::Objects(Objects {
        marks: &["chat_id", "parent_chat_id"],
        fields: &[ROW_FIELDS, &["type", "turn", "priority", "ttl"]],
        is_like: |_| false,
        extends_mooncake: false,
        read,
    }),
};

fn read(fields: &Fields, reading: &mut Reading) -> Result<(), LineError> {
    let mut request = request(fields, reading)?;
    request.arrival = request.arrival.map(|arrival| arrival.saturating_mul(MILLISECONDS));
    request.tokens_per_id = request.tokens_per_id.or(Some(TOKENS_PER_ID));
    request.priority = priority(fields)?;
    reading.requests.push(request);
    Ok(())
}

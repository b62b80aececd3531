//! BurstGPT's tables: lengths and times of requests, in later parts their conversations.
//! Source: <https://github.com/HPMLL/BurstGPT>

use super::{Columns, Dialect, Form};

pub const BURSTGPT: Dialect = Dialect {
    name: "burstgpt",
    form: Form::Table(Columns {
        time: "Timestamp",
        input: "Request tokens",
        output: "Response tokens",
        session: Some("Session ID"),
        unused: &["Elapsed time", "Model", "Total tokens", "Log Type"],
        microseconds: |seconds| {
            let seconds = seconds.parse::<f64>().ok()?;
            (0.0..1e12).contains(&seconds).then(|| (seconds * 1e6).round() as u64)
        },
    }),
};

//! Dialects: the formats of traces. Each dialect is a module or a part of one. Only this module
//! defines the meaning of the dialect's fields.

mod agentic;
mod aiperf;
mod azure;
mod bailian;
mod burstgpt;
mod cell;
mod claude_code;
mod columns;
mod dynamo;
mod events;
mod guess;
mod guidellm;
mod hints;
mod logs;
mod mooncake;
mod recording;
mod records;
mod reports;
mod rows;
mod sagemaker;
mod spans;
mod tables;
mod texts;
mod vllm_bench;
mod weka;

use super::fields::{Fields, LineError};
use super::reading::Reading;
pub use aiperf::AIPERF;
pub use columns::{COLUMNS, ColumnsError, roles_of};
pub use events::connect;
pub use guess::{paths, unknown};
pub use mooncake::{MOONCAKE, is_plain};
pub use records::{Records, Role, Roles};
pub use reports::{Report, of_columns as report_of_columns};
pub use tables::{Header, Table};
pub use texts::Text;

/// A format of traces.
#[derive(Debug)]
pub struct Dialect {
    /// The name.
    pub name: &'static str,
    /// A description in one line.
    pub about: &'static str,
    /// The properties by which a file of the format is recognised.
    pub sign: &'static str,
    /// A small example file.
    pub example: &'static str,
    /// The form of the lines, and how they are read.
    pub form: Form,
}

/// The form of lines.
#[derive(Debug)]
pub enum Form {
    /// JSON objects whose reader belongs to this dialect.
    Lines(Lines),
    /// Objects or rows of tables that give the lengths of a request.
    Records(Records),
    /// Texts, which cannot be replayed.
    Text(Text),
    /// Reports about many requests at once, which cannot be replayed.
    Report(Report),
}

/// JSON objects of a dialect.
#[derive(Debug)]
pub struct Lines {
    /// The fields that are read, and the fields that do not change the replay, in parts. Empty if
    /// other fields need no note.
    pub fields: &'static [&'static [&'static str]],
    /// Returns whether a line is of the dialect.
    pub is_like: fn(&Fields) -> bool,
    /// Whether lines are Mooncake's lines with more fields, so that a trace may begin with
    /// Mooncake's lines.
    pub extends_mooncake: bool,
    /// Reads the requests of a line.
    pub read: fn(&Fields, &mut Reading) -> Result<(), LineError>,
    /// The tables of the dialect, if it has any.
    pub table: Option<&'static Records>,
}

impl Lines {
    /// Returns whether a field is known.
    pub fn has_field(&self, name: &str) -> bool {
        self.fields.is_empty() || self.fields.iter().any(|part| part.contains(&name))
    }
}

/// All dialects, in the order in which lines are compared with them.
pub const DIALECTS: &[&Dialect] = &[
    &bailian::BAILIAN,
    &dynamo::DYNAMO,
    &aiperf::AIPERF,
    &recording::RECORDING,
    &weka::WEKA,
    &reports::MLFLOW,
    &reports::GENAI_PERF,
    &reports::AIPERF_SUMMARY,
    &reports::METRICS,
    &logs::TRACELAB,
    &claude_code::CLAUDE_CODE,
    &logs::BASETEN,
    &spans::EXGENTIC,
    &logs::LANGFUSE,
    &spans::OTEL,
    &sagemaker::SAGEMAKER,
    &logs::LITELLM,
    &logs::OPENAI,
    &logs::AIPERF_RESULTS,
    &guidellm::GUIDELLM,
    &vllm_bench::VLLM_BENCH,
    &azure::AZURE,
    &burstgpt::BURSTGPT,
    &mooncake::MOONCAKE,
    &texts::DAG_JSONL,
    &texts::AIPERF_INPUTS,
    &texts::OPENAI_BATCH,
    &texts::LMCACHE,
    &texts::DATASET,
];

/// Dialects whose lines have Mooncake's fields and more.
const ROWS: &[&Dialect] = &[&bailian::BAILIAN, &dynamo::DYNAMO, &aiperf::AIPERF];

impl Dialect {
    /// Returns the dialect with a name.
    pub fn named(name: &str) -> Option<&'static Self> {
        DIALECTS.iter().copied().find(|dialect| dialect.name == name)
    }

    /// Returns the form of its JSON lines, if it has its own lines.
    pub fn lines(&'static self) -> Option<&'static Lines> {
        match &self.form {
            Form::Lines(lines) => Some(lines),
            Form::Records(_) | Form::Text(_) | Form::Report(_) => None,
        }
    }

    /// Returns its records, if they can be in tables.
    pub fn table(&'static self) -> Option<&'static Records> {
        match &self.form {
            Form::Lines(lines) => lines.table,
            Form::Records(records) => Some(records).filter(|records| records.table.is_some()),
            Form::Text(_) | Form::Report(_) => None,
        }
    }

    /// Returns the dialect of a JSON object, if the dialect is known.
    pub fn of_object(fields: &Fields) -> Option<&'static Self> {
        // An object with Mooncake's fields is a row of Mooncake or of a dialect that extends it,
        // whatever other fields it has.
        if mooncake::is_row(fields) {
            let like = |dialect: &&&'static Self| {
                dialect.lines().is_some_and(|lines| (lines.is_like)(fields))
            };
            return ROWS.iter().find(like).copied().or(Some(&MOONCAKE));
        }
        let is_like = |dialect: &&&'static Self| match &dialect.form {
            Form::Lines(lines) => (lines.is_like)(fields),
            Form::Records(records) => (records.has_record)(fields),
            Form::Text(text) => (text.is_like)(fields),
            Form::Report(report) => (report.is_like)(fields),
        };
        DIALECTS.iter().find(is_like).copied()
    }

    /// Returns the dialect of a table with this header, and the table.
    pub fn of_header(header: &Header) -> Option<(&'static Self, Table)> {
        DIALECTS.iter().find_map(|dialect| {
            let records = dialect.table()?;
            Some((*dialect, header.table(records, &Roles::of(records))?))
        })
    }

    /// Returns whether traces of the dialect can be replayed. Other traces are refused with a
    /// reason.
    pub fn is_played(&self) -> bool {
        matches!(self.form, Form::Lines(_) | Form::Records(_))
    }

    /// Returns whether lines are Mooncake's lines with more fields.
    pub fn extends_mooncake(&'static self) -> bool {
        self.lines().is_some_and(|lines| lines.extends_mooncake)
    }
}

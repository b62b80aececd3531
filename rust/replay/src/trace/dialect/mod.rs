//! Dialects: the formats that traces come in, each a module or a part of one. What a field of a
//! dialect means is said in its module alone.

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
    /// Its name.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    /// What makes a file one of this format.
    pub sign: &'static str,
    /// A small file of the format.
    pub example: &'static str,
    /// The form of its lines, and how they are read.
    pub form: Form,
}

/// The form of lines.
#[derive(Debug)]
pub enum Form {
    /// JSON objects that only this dialect has.
    Lines(Lines),
    /// Objects or rows of tables that say the lengths of a request.
    Records(Records),
    /// Texts, which are not played.
    Text(Text),
    /// Reports about many requests at once, which are not played.
    Report(Report),
}

/// JSON objects of a dialect.
#[derive(Debug)]
pub struct Lines {
    /// The fields that are read, and those that change nothing that is played, in parts; empty if
    /// others are not worth a note.
    pub fields: &'static [&'static [&'static str]],
    /// Whether a line is of the dialect.
    pub is_like: fn(&Fields) -> bool,
    /// Whether lines are Mooncake's with more fields, so that a trace may begin as Mooncake's.
    pub extends_mooncake: bool,
    /// Reads the requests of a line.
    pub read: fn(&Fields, &mut Reading) -> Result<(), LineError>,
    /// The tables of the dialect, if there are any.
    pub table: Option<&'static Records>,
}

impl Lines {
    /// Whether a field is known.
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

/// Dialects whose lines have the fields of Mooncake's, and more.
const ROWS: &[&Dialect] = &[&bailian::BAILIAN, &dynamo::DYNAMO, &aiperf::AIPERF];

impl Dialect {
    /// Returns the dialect with a name.
    pub fn named(name: &str) -> Option<&'static Self> {
        DIALECTS.iter().copied().find(|dialect| dialect.name == name)
    }

    /// The form of its JSON lines, if it has lines of its own.
    pub fn lines(&'static self) -> Option<&'static Lines> {
        match &self.form {
            Form::Lines(lines) => Some(lines),
            Form::Records(_) | Form::Text(_) | Form::Report(_) => None,
        }
    }

    /// Its records, in the form of tables at least.
    pub fn table(&'static self) -> Option<&'static Records> {
        match &self.form {
            Form::Lines(lines) => lines.table,
            Form::Records(records) => Some(records).filter(|records| records.table.is_some()),
            Form::Text(_) | Form::Report(_) => None,
        }
    }

    /// Returns the dialect of a JSON object, if it is known.
    pub fn of_object(fields: &Fields) -> Option<&'static Self> {
        // Whatever other fields a row of Mooncake's has, it is one.
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

    /// Whether traces of the dialect are played; else they are refused with a reason.
    pub fn is_played(&self) -> bool {
        matches!(self.form, Form::Lines(_) | Form::Records(_))
    }

    /// Whether lines are Mooncake's with more fields.
    pub fn extends_mooncake(&'static self) -> bool {
        self.lines().is_some_and(|lines| lines.extends_mooncake)
    }
}

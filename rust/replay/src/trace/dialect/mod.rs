//! Dialects: the formats that traces come in, each a module. What a field of a dialect means is
//! said in its module alone.

mod agentic;
mod aiperf;
mod azure;
mod bailian;
mod burstgpt;
mod columns;
mod dynamo;
mod events;
mod lmcache;
mod mooncake;
mod recording;
mod rows;
mod vllm_bench;
mod weka;

use super::fields::{Fields, LineError};
use super::reading::Reading;
pub use columns::{Columns, Header};
pub use events::connect;
pub use mooncake::MOONCAKE;

/// A format of traces.
#[derive(Debug)]
pub struct Dialect {
    /// Its name.
    pub name: &'static str,
    /// The form of its lines, and how they are read.
    pub form: Form,
}

/// The form of lines.
#[derive(Debug)]
pub enum Form {
    /// JSON objects.
    Objects(Objects),
    /// A header and rows of values, with commas.
    Table(Columns),
}

/// JSON objects of a dialect.
#[derive(Debug)]
pub struct Objects {
    /// Fields that no other dialect has.
    pub marks: &'static [&'static str],
    /// The other fields that are read, and those that change nothing that is played, in parts.
    pub fields: &'static [&'static [&'static str]],
    /// Whether a line without marks is of the dialect.
    pub is_like: fn(&Fields) -> bool,
    /// Whether lines are Mooncake's with more fields, so that a trace may begin as Mooncake's.
    pub extends_mooncake: bool,
    /// Reads the requests of a line.
    pub read: fn(&Fields, &mut Reading) -> Result<(), LineError>,
}

impl Objects {
    /// Whether lines may have a field.
    pub fn has_field(&self, name: &str) -> bool {
        self.marks.contains(&name) || self.fields.iter().any(|part| part.contains(&name))
    }
}

/// All dialects, in the order in which lines are compared with them.
pub const DIALECTS: &[&Dialect] = &[
    &weka::WEKA,
    &vllm_bench::VLLM_BENCH,
    &lmcache::LMCACHE,
    &bailian::BAILIAN,
    &dynamo::DYNAMO,
    &aiperf::AIPERF,
    &MOONCAKE,
    &recording::RECORDING,
    &azure::AZURE,
    &burstgpt::BURSTGPT,
];

impl Dialect {
    /// Returns the dialect with a name.
    pub fn named(name: &str) -> Option<&'static Self> {
        DIALECTS.iter().copied().find(|dialect| dialect.name == name)
    }

    /// The form of its JSON objects, unless its lines are a table's.
    pub fn objects(&'static self) -> Option<&'static Objects> {
        match &self.form {
            Form::Objects(objects) => Some(objects),
            Form::Table(_) => None,
        }
    }

    /// The columns of its tables, unless its lines are JSON objects.
    pub fn columns(&'static self) -> Option<&'static Columns> {
        match &self.form {
            Form::Objects(_) => None,
            Form::Table(columns) => Some(columns),
        }
    }

    /// Returns the dialect of a JSON object.
    pub fn of_object(fields: &Fields) -> &'static Self {
        let is_like = |objects: &Objects| {
            objects.marks.iter().any(|mark| fields.contains_key(*mark)) || (objects.is_like)(fields)
        };
        Self::of_objects(is_like).unwrap_or(&MOONCAKE)
    }

    /// Returns the dialect of which a field is a mark.
    pub fn marked_by(field: &str) -> Option<&'static Self> {
        Self::of_objects(|objects| objects.marks.contains(&field))
    }

    /// Returns the first dialect with such objects.
    fn of_objects(is_such: impl Fn(&Objects) -> bool) -> Option<&'static Self> {
        DIALECTS.iter().copied().find(|dialect| dialect.objects().is_some_and(&is_such))
    }

    /// Returns the dialect of a table with this header.
    pub fn of_header(line: &str) -> Option<&'static Self> {
        let is_header = |columns| Header::new(columns, line).is_ok();
        DIALECTS.iter().copied().find(|dialect| dialect.columns().is_some_and(is_header))
    }

    /// Returns the headers of tables that can be read, as text.
    pub fn headers() -> String {
        let header = |dialect: &'static Self| {
            Some(format!("{} ({})", dialect.name, dialect.columns()?.text()))
        };
        DIALECTS.iter().copied().filter_map(header).collect::<Vec<_>>().join(" or ")
    }
}

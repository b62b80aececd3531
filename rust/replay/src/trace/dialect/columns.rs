//! Tables: a header, and rows of values with commas, each a request without ids.

use csv_core::{ReadRecordResult, Reader};

use crate::conversation::Conversation;
use crate::trace::fields::{LineError, checked_length, exact, wrong};
use crate::trace::prompt::Prompt;
use crate::trace::request::TraceRequest;

/// Most columns and bytes of a row.
const MAX_COLUMNS: usize = 64;
const MAX_BYTES: usize = 1 << 16;

/// The columns of a dialect's tables.
#[derive(Debug)]
pub struct Columns {
    /// The column of arrivals.
    pub time: &'static str,
    /// The column of prompt lengths.
    pub input: &'static str,
    /// The column of output lengths.
    pub output: &'static str,
    /// The column of conversations, which a table may lack.
    pub session: Option<&'static str>,
    /// Columns that change nothing that is played.
    pub unused: &'static [&'static str],
    /// Returns the microseconds of a time, and `None` if it is none.
    pub microseconds: fn(&str) -> Option<u64>,
}

impl Columns {
    /// Returns the header with the columns that have to be there.
    pub fn text(&self) -> String {
        [self.time, self.input, self.output].join(",")
    }
}

/// The header of a table: where its columns are.
#[derive(Clone, Debug)]
pub struct Header {
    columns: &'static Columns,
    num_columns: usize,
    time: usize,
    input: usize,
    output: usize,
    session: Option<usize>,
    /// Columns that are not known.
    pub unknown: Vec<String>,
    row: Row,
}

impl Header {
    /// Returns the header that a line is.
    pub fn new(columns: &'static Columns, line: &str) -> Result<Self, LineError> {
        let mut row = Row::new();
        let num_columns = row.read(line.as_bytes())?;
        let names: Vec<_> = (0..num_columns).map(|column| row.value(column).to_owned()).collect();
        let find = |name: &str| names.iter().position(|other| other == name);
        let column = |name: &str| {
            let message = || format!("is no column; a header has {}", columns.text());
            find(name).ok_or_else(|| wrong(name, message()))
        };
        let known = [columns.time, columns.input, columns.output];
        let is_known = |name: &str| {
            known.contains(&name) || columns.session == Some(name) || columns.unused.contains(&name)
        };
        Ok(Self {
            columns,
            num_columns,
            time: column(columns.time)?,
            input: column(columns.input)?,
            output: column(columns.output)?,
            session: columns.session.and_then(find),
            unknown: names.iter().filter(|name| !is_known(name)).cloned().collect(),
            row,
        })
    }

    /// Returns the request of a row.
    pub fn request(&mut self, line: &[u8]) -> Result<TraceRequest, LineError> {
        let count = self.row.read(line)?;
        if count != self.num_columns {
            let message = format!("has {count} columns, the header {}", self.num_columns);
            return Err(wrong("", message));
        }
        let columns = self.columns;
        let length = |column: usize, name: &str, least: usize| {
            let text = self.row.value(column);
            let number = text.parse().ok().or_else(|| text.parse().ok().and_then(exact));
            checked_length(number, format_args!("{text:?}"), name, least)
        };
        let prompt = Prompt::of_ids(length(self.input, columns.input, 1)?, []);
        let output_length = length(self.output, columns.output, 0)?;
        let time = self.row.value(self.time);
        let arrival = (columns.microseconds)(time);
        let session = self.session.map(|column| self.row.value(column));
        Ok(TraceRequest {
            arrival: Some(
                arrival.ok_or_else(|| wrong(columns.time, format!("is {time:?}, no time")))?,
            ),
            conversation: session.filter(|name| !name.is_empty()).map(Conversation::of_name),
            ..TraceRequest::of_prompt(prompt, output_length)
        })
    }
}

/// The values of a row.
#[derive(Clone, Debug)]
struct Row {
    reader: Reader,
    line: Vec<u8>,
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Row {
    fn new() -> Self {
        // `Reader::default` is one without its tables.
        let reader = Reader::new();
        Self { reader, line: Vec::new(), bytes: Vec::new(), ends: vec![0; MAX_COLUMNS] }
    }

    /// Reads a line, and returns the number of its values.
    fn read(&mut self, line: &[u8]) -> Result<usize, LineError> {
        if line.len() > MAX_BYTES || std::str::from_utf8(line).is_err() {
            return Err(wrong("", "is no row of a table: it is long, or no UTF-8".into()));
        }
        self.line.clear();
        self.line.extend_from_slice(line);
        self.line.push(b'\n');
        self.bytes.resize(self.line.len(), 0);
        self.reader.reset();
        let read = self.reader.read_record(&self.line, &mut self.bytes, &mut self.ends);
        let (result, _, _, count) = read;
        if matches!(result, ReadRecordResult::Record) {
            return Ok(count);
        }
        self.reader = Reader::new();
        let message = format!("has a quote without end, or more than {MAX_COLUMNS} columns");
        Err(wrong("", message))
    }

    fn value(&self, column: usize) -> &str {
        let start = column.checked_sub(1).map_or(0, |before| self.ends[before]);
        std::str::from_utf8(&self.bytes[start..self.ends[column]]).unwrap_or("").trim()
    }
}

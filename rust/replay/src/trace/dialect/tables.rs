//! Tables: a header, and rows of values that are separated by commas, semicolons, tabs or bars.

use csv_core::{ReadRecordResult, Reader, ReaderBuilder};

use super::cell::Cell;
use super::records::{LeftOut, Records, Role, Roles};
use crate::trace::fields::{LineError, wrong};
use crate::trace::reading::Reading;

/// The maximum number of columns and bytes of a row.
const MAX_COLUMNS: usize = 512;
const MAX_BYTES: usize = 1 << 24;

/// The maximum number of bytes of a column's name. A longer text is not a header.
const MAX_NAME: usize = 64;

const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b'|'];

/// The names of a table's columns.
#[derive(Clone, Debug)]
pub struct Header {
    /// The names, without the spaces around them.
    pub names: Vec<String>,
    row: Row,
}

/// A table whose columns are known.
#[derive(Clone, Debug)]
pub struct Table {
    records: &'static Records,
    roles: Roles,
    row: Row,
    names: Vec<String>,
    places: [Option<usize>; 7],
    left_out: Vec<(usize, LeftOut)>,
    /// Columns that are not known.
    pub unknown: Vec<String>,
}

impl Header {
    /// Returns the header in a line: at least two names that are not numbers.
    pub fn of_line(line: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(line).ok()?.trim_start();
        if text.starts_with(['{', '[']) {
            return None;
        }
        let count = |delimiter: &u8| line.iter().filter(|byte| *byte == delimiter).count();
        let delimiter = *DELIMITERS.iter().rev().max_by_key(|delimiter| count(delimiter))?;
        let mut row = Row::new(delimiter);
        let num_columns =
            row.read(text.trim_end_matches(['\r', '\n']).as_bytes()).ok().flatten()?;
        let names: Vec<_> = (0..num_columns).map(|column| row.value(column).to_owned()).collect();
        let is_name = |name: &String| name.len() <= MAX_NAME && name.parse::<f64>().is_err();
        let are_names =
            names.len() > 1 && names.iter().all(is_name) && names.iter().any(|it| !it.is_empty());
        are_names.then_some(Self { names, row })
    }

    /// Returns the header with these names.
    pub fn of_names(names: Vec<String>) -> Self {
        Self { names, row: Row::new(b',') }
    }

    /// Returns the table of records that has these columns, if all required columns are there.
    pub fn table(&self, records: &'static Records, roles: &Roles) -> Option<Table> {
        let required = records.table?;
        let has_required =
            required.is_empty() || required.iter().any(|name| self.place(name).is_some());
        let table = self.table_of(records, roles);
        let has = |role: Role| table.places[role as usize].is_some();
        (has_required && has(Role::Input) && has(Role::Output)).then_some(table)
    }

    /// Returns the table of records that has these columns.
    pub fn table_of(&self, records: &'static Records, roles: &Roles) -> Table {
        let places =
            Role::ALL.map(|role| roles.names(role).iter().find_map(|name| self.place(name)));
        let left_out = records.left_out.iter().filter_map(|&it| Some((self.place(it.0)?, it)));
        let is_unused = |name: &String| records.unused.iter().any(|other| are_equal(name, other));
        let unknown = self.names.iter().enumerate().filter(|(place, name)| {
            let is_read = places.contains(&Some(*place));
            records.has_known_columns && !is_read && !name.is_empty() && !is_unused(name)
        });
        Table {
            records,
            roles: roles.clone(),
            names: self.names.clone(),
            places,
            left_out: left_out.collect(),
            unknown: unknown.map(|(_, name)| name.clone()).collect(),
            row: self.row.clone(),
        }
    }

    /// Returns the position of the column with a name.
    pub fn place(&self, name: &str) -> Option<usize> {
        let exact = self.names.iter().position(|other| other == name);
        exact.or_else(|| self.names.iter().position(|other| are_equal(other, name)))
    }
}

/// Returns whether two names differ only in case, spaces and punctuation.
fn are_equal(a: &str, b: &str) -> bool {
    let letters = |name: &str| {
        name.chars()
            .filter(|it| it.is_alphanumeric())
            .flat_map(char::to_lowercase)
            .collect::<String>()
    };
    letters(a) == letters(b)
}

impl Table {
    /// Reads a line. The line may end within a quoted value.
    pub fn read(&mut self, line: &[u8], reading: &mut Reading) -> Result<(), LineError> {
        let Some(count) = self.row.read(line)? else { return Ok(()) };
        if count != self.names.len() {
            let message =
                format!("the line has {count} columns, but the header has {}", self.names.len());
            return Err(wrong("", message));
        }
        let cell = |place: usize| self.row.cell(place).given();
        let is_left_out =
            |(place, (_, is_such, _)): &&(usize, LeftOut)| cell(*place).is_some_and(is_such);
        if let Some((_, (_, _, reason))) = self.left_out.iter().find(is_left_out) {
            reading.leave_out(reason);
            return Ok(());
        }
        let cells = Role::ALL.map(|role| {
            let place = self.places[role as usize]?;
            Some((self.names[place].as_str(), cell(place)?))
        });
        self.records.push(&cells, &self.roles, reading)
    }

    /// Returns the names of the columns that are read.
    pub fn read_columns(&self) -> Vec<String> {
        let places = self.places.iter().flatten().copied();
        let mut places: Vec<_> = places.chain(self.left_out.iter().map(|it| it.0)).collect();
        places.sort_unstable();
        places.dedup();
        places.into_iter().map(|place| self.names[place].clone()).collect()
    }

    /// Returns the name of a column that is read, if several columns have this name.
    pub fn ambiguous(&self) -> Option<&str> {
        let is_ambiguous =
            |name: &&String| self.names.iter().filter(|other| other == name).count() > 1;
        let read = self.places.iter().flatten().map(|&place| &self.names[place]);
        read.filter(is_ambiguous).map(String::as_str).next()
    }

    /// Returns an error if the table ends within quotes, and forgets the unfinished row.
    pub fn unfinished(&mut self) -> Option<LineError> {
        let count = std::mem::take(&mut self.row.num_lines);
        let message = || format!("a quote has no end; the last row has {count} lines");
        (count > 0).then(|| wrong("", message()))
    }
}

/// The values of a row.
#[derive(Debug)]
struct Row {
    reader: Reader,
    delimiter: u8,
    bytes: Vec<u8>,
    num_bytes: usize,
    ends: Vec<usize>,
    num_ends: usize,
    /// The number of lines of the current row, if its last value has an open quote.
    num_lines: usize,
}

impl Clone for Row {
    /// Returns an empty row. A clone of the reader would lack its tables.
    fn clone(&self) -> Self {
        Self::new(self.delimiter)
    }
}

impl Row {
    fn new(delimiter: u8) -> Self {
        // `Reader::default` has no such tables.
        let reader = ReaderBuilder::new().delimiter(delimiter).build();
        let ends = vec![0; MAX_COLUMNS];
        Self { reader, delimiter, bytes: Vec::new(), num_bytes: 0, ends, num_ends: 0, num_lines: 0 }
    }

    /// Reads a line. Returns the number of the row's values, or `None` if the row continues in the
    /// next line.
    fn read(&mut self, line: &[u8]) -> Result<Option<usize>, LineError> {
        if self.num_lines == 0 {
            self.reader.reset();
            (self.num_bytes, self.num_ends) = (0, 0);
        }
        for mut part in [line, b"\n"] {
            while !part.is_empty() {
                let room = self.num_bytes + part.len();
                if self.bytes.len() < room {
                    self.bytes.resize(room, 0);
                }
                let bytes = &mut self.bytes[self.num_bytes..];
                let ends = &mut self.ends[self.num_ends..];
                let (result, num_read, num_bytes, num_ends) =
                    self.reader.read_record(part, bytes, ends);
                part = &part[num_read..];
                self.num_bytes += num_bytes;
                self.num_ends += num_ends;
                match result {
                    ReadRecordResult::Record => {
                        self.num_lines = 0;
                        return Ok(Some(self.num_ends));
                    }
                    ReadRecordResult::OutputEndsFull => {
                        self.num_lines = 0;
                        return Err(wrong(
                            "",
                            format!("the line has more than {MAX_COLUMNS} columns"),
                        ));
                    }
                    _ => {}
                }
            }
        }
        self.num_lines += 1;
        if self.num_bytes > MAX_BYTES {
            self.num_lines = 0;
            let message =
                format!("a quote without an end makes a row of more than {MAX_BYTES} bytes");
            return Err(wrong("", message));
        }
        Ok(None)
    }

    fn value(&self, column: usize) -> &str {
        let start = column.checked_sub(1).map_or(0, |before| self.ends[before]);
        std::str::from_utf8(&self.bytes[start..self.ends[column]]).unwrap_or("").trim()
    }

    fn cell(&self, column: usize) -> Cell<'_> {
        match self.delimiter {
            b',' => Cell::Text(self.value(column)),
            _ => Cell::TextWithCommas(self.value(column)),
        }
    }
}

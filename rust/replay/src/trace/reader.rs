//! The reader of a trace: it knows the trace's dialect, or finds it out from the first lines.

use serde_json::Value;

use super::dialect::{Columns, Dialect, Header, MOONCAKE};
use super::fields::{Fields, LineError, wrong};
use super::reading::Reading;
use super::{Trace, TraceRequest};

/// What Windows programs put before the first line.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Reads the lines of one trace.
#[derive(Clone, Debug, Default)]
pub struct Reader {
    dialect: Option<&'static Dialect>,
    header: Option<Header>,
    pub(super) reading: Reading,
}

impl Reader {
    /// Returns a reader of the dialect with a name, or `None` if there is none.
    pub fn of_dialect(name: &str) -> Option<Self> {
        Some(Self { dialect: Some(Dialect::named(name)?), ..Self::default() })
    }

    /// The names of all dialects.
    pub fn dialects() -> impl Iterator<Item = &'static str> {
        super::dialect::DIALECTS.iter().map(|dialect| dialect.name)
    }

    /// The name of the trace's dialect, once it is known.
    pub fn dialect(&self) -> Option<&'static str> {
        Some(self.dialect?.name)
    }

    /// What there is to say about the trace.
    pub fn notes(&self) -> &[String] {
        self.reading.notes()
    }

    /// Finds the dialect out from the first lines, unless it is known. Returns whether each line is
    /// one of its own; otherwise the whole file is one JSON value.
    pub fn find_dialect(&mut self, lines: &[&[u8]]) -> bool {
        let header = lines.first().and_then(|line| header(unmarked(line)));
        if let Some(table) = header.and_then(Dialect::of_header) {
            self.dialect = self.dialect.or(Some(table));
            return true;
        }
        let parsed: Vec<_> =
            lines.iter().map(|line| serde_json::from_slice(unmarked(line))).collect();
        let begins_value = |line: &&[u8]| matches!(line.trim_ascii_start().first(), Some(b'{'));
        if let Some(Err(error)) = parsed.first()
            && error.is_eof()
            && (unmarked(lines[0]).starts_with(b"[") || !lines.get(1).is_some_and(begins_value))
        {
            return lines.len() < 2;
        }
        let objects = parsed.into_iter().flatten().flat_map(objects);
        let mut dialects = objects.map(|fields| Dialect::of_object(&fields));
        let first = dialects.next();
        let found = match first {
            Some(first) if first.name == MOONCAKE.name => {
                Some(dialects.find(extends).unwrap_or(first))
            }
            _ => first,
        };
        self.dialect = self.dialect.or(found);
        true
    }

    /// Reads the requests of one line, which come behind `next` others.
    fn read(&mut self, line: &[u8], next: usize) -> Result<(), LineError> {
        self.reading.begin(next);
        let line = unmarked(line);
        if let Some(columns) = self.dialect.and_then(Dialect::columns) {
            return self.read_row(columns, &String::from_utf8_lossy(line));
        }
        match serde_json::from_slice(line) {
            Ok(value) => match objects(value) {
                none if none.is_empty() => Err(wrong("", "not a JSON object".into())),
                objects => objects.iter().try_for_each(|fields| self.read_object(fields)),
            },
            Err(error) => self.begin_table(line, format!("not a JSON object: {error}")),
        }
    }

    /// Reads the header of a table, unless the line cannot be one, since of `error`.
    fn begin_table(&mut self, line: &[u8], error: String) -> Result<(), LineError> {
        let Some(text) = header(line).filter(|_| self.dialect.is_none()) else {
            return Err(wrong("", error));
        };
        self.dialect = Dialect::of_header(text);
        match self.dialect.and_then(Dialect::columns) {
            Some(columns) => self.read_row(columns, text),
            None => Err(wrong("", format!("{error}, nor the header of {}", Dialect::headers()))),
        }
    }

    fn read_object(&mut self, fields: &Fields) -> Result<(), LineError> {
        let dialect = *self.dialect.get_or_insert_with(|| Dialect::of_object(fields));
        let dialect = self.dialect_with(dialect, fields)?;
        if let Some(objects) = dialect.objects() {
            (objects.read)(fields, &mut self.reading)?;
        }
        self.dialect = Some(dialect);
        Ok(())
    }

    /// Returns the dialect of a trace with another line. A trace that began as Mooncake's may have
    /// the fields of a dialect that extends it.
    fn dialect_with(
        &mut self,
        dialect: &'static Dialect,
        fields: &Fields,
    ) -> Result<&'static Dialect, LineError> {
        let Some(objects) = dialect.objects() else { return Ok(dialect) };
        let mut found = dialect;
        for name in fields.keys().map(String::as_str) {
            if objects.has_field(name) {
                continue;
            }
            match Dialect::marked_by(name) {
                Some(other) if found.name == other.name => {}
                Some(other)
                    if dialect.name == MOONCAKE.name
                        && extends(&other)
                        && !self.reading.has_priorities =>
                {
                    found = other;
                }
                Some(other) => {
                    let message = format!(
                        "is {}'s, and the lines before are {}'s; --format says which it is",
                        other.name, dialect.name
                    );
                    return Err(wrong(name, message));
                }
                None => self.reading.note(&format!("field '{name}' is not used")),
            }
        }
        Ok(found)
    }

    /// Reads a row of a table, whose first is its header.
    fn read_row(&mut self, columns: &'static Columns, text: &str) -> Result<(), LineError> {
        if let Some(header) = &mut self.header {
            let request = header.request(text.as_bytes())?;
            self.reading.requests.push(request);
            return Ok(());
        }
        let header = Header::new(columns, text)?;
        for name in &header.unknown {
            self.reading.note(&format!("column '{name}' is not used"));
        }
        let note = "the table has no ids of blocks: prompts share nothing, and nothing is hit";
        self.reading.note(note);
        self.header = Some(header);
        Ok(())
    }
}

impl Trace {
    /// Adds the requests of a line, all of them or, with an error, none.
    pub fn push_line(&mut self, reader: &mut Reader, line: &[u8]) -> Result<(), LineError> {
        if reader.reading.is_finished {
            return Err(wrong("", "the reading of this trace has ended".into()));
        }
        reader.read(line, self.requests.len())?;
        let (num_before, widths, largest_id) = (self.requests.len(), self.widths, self.largest_id);
        let pushed = reader.reading.requests.drain(..).try_for_each(|request| self.push(request));
        match pushed {
            Ok(()) => reader.reading.accept(&mut self.requests),
            Err(_) => {
                self.requests.truncate(num_before);
                (self.widths, self.largest_id) = (widths, largest_id);
            }
        }
        pushed
    }
}

impl TraceRequest {
    /// Reads a line that is one request, in the dialect that it is like.
    pub fn from_line(line: &[u8]) -> Result<Self, LineError> {
        let mut reader = Reader::default();
        reader.read(line, 0)?;
        let request = reader.reading.requests.pop();
        request.ok_or_else(|| wrong("", "holds no request".into()))
    }
}

/// Returns the text of a line that may be a table's header.
fn header(line: &[u8]) -> Option<&str> {
    let is_header = |text: &&str| text.contains(',') && !text.starts_with(['{', '[']);
    std::str::from_utf8(line).ok().filter(is_header)
}

fn unmarked(line: &[u8]) -> &[u8] {
    line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line)
}

fn extends(dialect: &&'static Dialect) -> bool {
    dialect.objects().is_some_and(|objects| objects.extends_mooncake)
}

/// Returns a JSON object, or those of an array of objects.
fn objects(value: Value) -> Vec<Fields> {
    match value {
        Value::Object(fields) => vec![fields],
        Value::Array(values) if values.iter().all(Value::is_object) => {
            values.into_iter().flat_map(objects).collect()
        }
        _ => Vec::new(),
    }
}

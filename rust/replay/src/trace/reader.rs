//! The reader of a trace. It knows the trace's dialect, or detects it from the first lines.

use serde_json::Value;

use super::dialect::{
    AIPERF, COLUMNS, ColumnsError, Dialect, Form, Header, MOONCAKE, Role, Roles, Table, is_plain,
    paths, report_of_columns, roles_of, unknown,
};
use super::fields::{Fields, LineError, wrong};
use super::reading::Reading;
use super::times::Unit;
use super::{Trace, TraceRequest};

/// The byte order mark that Windows programs write before the first line.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Fields that hold the records in an object that is a page of records.
const PAGES: [&str; 9] =
    ["data", "rows", "records", "results", "items", "observations", "logs", "requests", "entries"];

/// Example columns for messages.
const EXAMPLE: &str = "input=prompt_tokens,output=completion_tokens,time=start";

/// Reads the lines of one trace.
#[derive(Clone, Debug, Default)]
pub struct Reader {
    dialect: Option<&'static Dialect>,
    /// The columns or fields that the caller named, or the dialect's names.
    roles: Option<Roles>,
    table: Option<Table>,
    pub(super) reading: Reading,
}

/// A description of a format.
#[derive(Clone, Copy, Debug)]
pub struct FormatDetails {
    /// The name.
    pub name: &'static str,
    /// A description in one line.
    pub about: &'static str,
    /// The properties by which a file of the format is recognised.
    pub sign: &'static str,
    /// A small example file.
    pub example: &'static str,
    /// Whether the format can be replayed. Otherwise it is recognised and refused with a reason.
    pub is_played: bool,
}

impl Reader {
    /// Returns a reader of the dialect with a name, or `None` if no dialect has this name.
    pub fn of_dialect(name: &str) -> Option<Self> {
        Some(Self { dialect: Some(Dialect::named(name)?), ..Self::default() })
    }

    /// Returns a reader of tables or objects whose columns or fields are named, each with its role.
    pub fn of_columns(columns: Vec<(String, String)>) -> Result<Self, ColumnsError> {
        let roles = Some(roles_of(columns)?);
        Ok(Self { dialect: Some(&COLUMNS), roles, ..Self::default() })
    }

    /// Reads times that are numbers in this unit, unless the format gives another one.
    pub fn with_time_unit(mut self, unit: Option<Unit>) -> Self {
        self.reading.times.given = unit;
        self
    }

    /// Returns the names of all dialects.
    pub fn dialects() -> impl Iterator<Item = &'static str> {
        super::dialect::DIALECTS.iter().map(|dialect| dialect.name)
    }

    /// Returns the descriptions of all dialects.
    pub fn details() -> impl Iterator<Item = FormatDetails> {
        super::dialect::DIALECTS.iter().map(|dialect| FormatDetails {
            name: dialect.name,
            about: dialect.about,
            sign: dialect.sign,
            example: dialect.example,
            is_played: dialect.is_played(),
        })
    }

    /// Returns the name of the trace's dialect, once it is known.
    pub fn dialect(&self) -> Option<&'static str> {
        Some(self.dialect?.name)
    }

    /// Returns the notes about the trace.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = self.reading.notes();
        notes.extend(self.missing_columns());
        notes
    }

    /// Returns notes about fields that the caller named but no line had.
    fn missing_columns(&self) -> Vec<String> {
        let is_columns = self.dialect.is_some_and(|dialect| dialect.name == COLUMNS.name);
        let Some(roles) = self.roles.as_ref().filter(|_| is_columns) else { return Vec::new() };
        let is_missing = |role: &Role| !self.reading.has_value[*role as usize];
        let names = |role: Role| roles.names(role).iter().map(move |name| (role, name));
        let missing = Role::ALL.into_iter().filter(is_missing).flat_map(names);
        missing
            .map(|(role, name)| {
                format!("no line has '{name}', which columns names for {}", role.name())
            })
            .collect()
    }

    /// Returns an error if a trace cannot end here.
    pub(super) fn unfinished(&mut self) -> Option<LineError> {
        self.table.as_mut()?.unfinished()
    }

    /// Returns the columns of a table that are read, or an error if the table is not known.
    pub fn columns(&self, names: &[String]) -> Result<Vec<String>, LineError> {
        let table = self.table_of(&Header::of_names(names.to_vec()))?;
        Ok(table.1.read_columns())
    }

    /// Detects the dialect from the first lines, unless it is known. Returns whether each line is a
    /// value of its own. Otherwise the whole file is one JSON value.
    pub fn find_dialect(&mut self, lines: &[&[u8]]) -> bool {
        let header = lines.first().and_then(|line| Header::of_line(unmarked(line)));
        if let Some((dialect, _)) = header.as_ref().and_then(|header| self.table_of(header).ok()) {
            self.dialect = Some(dialect);
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
        let objects: Vec<_> = parsed.into_iter().flatten().flat_map(objects).collect();
        self.dialect = self.dialect.or_else(|| of_objects(&objects));
        true
    }

    /// Reads the requests of one line. `next` requests come before them.
    fn read(&mut self, line: &[u8], next: usize) -> Result<(), LineError> {
        self.reading.begin(next);
        let line = unmarked(line);
        if let Some(table) = &mut self.table {
            return table.read(line, &mut self.reading);
        }
        match value_of(line) {
            // Most lines are one object. They are read without a list.
            Ok(Value::Object(fields))
                if self.dialect.is_some() && !fields.values().any(is_list) =>
            {
                self.read_object(&fields)
            }
            Ok(value) => match objects(value) {
                none if none.is_empty() => Err(wrong("", "the line is not a JSON object".into())),
                objects => {
                    if self.dialect.is_none() {
                        self.dialect = of_objects(&objects);
                    }
                    objects.iter().try_for_each(|fields| self.read_object(fields))
                }
            },
            Err(error) => self.begin_table(line, &error),
        }
    }

    /// Reads the header of a table. Returns an error that includes `error` if the line cannot be a
    /// header.
    fn begin_table(&mut self, line: &[u8], error: &serde_json::Error) -> Result<(), LineError> {
        let is_table = self.dialect.is_none_or(|dialect| dialect.table().is_some());
        let is_separator = line.starts_with(b"sep=") && line.len() < 8;
        if is_table && is_separator {
            return Ok(());
        }
        let header = Header::of_line(line).filter(|_| is_table);
        let Some(header) = header else {
            let more = if self.dialect.is_none() { what_else(line) } else { "" };
            return Err(wrong("", format!("the line is not a JSON object: {error}{more}")));
        };
        let (dialect, table) = self.table_of(&header)?;
        if let Some(name) = table.ambiguous() {
            let message = "is the name of several columns; give each column its own name";
            return Err(wrong(name, message.into()));
        }
        for name in &table.unknown {
            self.reading.note(&format!("column '{name}' is not used"));
        }
        (self.dialect, self.table) = (Some(dialect), Some(table));
        Ok(())
    }

    /// Returns the table with this header, in the reader's dialect or in the dialect that it
    /// matches.
    fn table_of(&self, header: &Header) -> Result<(&'static Dialect, Table), LineError> {
        let found = match (self.dialect, &self.roles) {
            (Some(dialect), Some(roles)) => {
                let records = dialect.table();
                if let Some(missing) =
                    roles.0.iter().flatten().find(|it| header.place(it).is_none())
                {
                    let names = header.names.join(", ");
                    return Err(wrong(missing, format!("is not a column; the table has {names}")));
                }
                records.map(|records| (dialect, header.table_of(records, roles)))
            }
            (Some(dialect), None) => dialect
                .table()
                .and_then(|records| Some((dialect, header.table(records, &Roles::of(records))?))),
            (None, _) => match report_of_columns(&header.names) {
                Some(refusal) => return Err(refusal),
                None => Dialect::of_header(header),
            },
        };
        found.ok_or_else(|| unknown("the table has columns", &header.names, EXAMPLE))
    }

    fn read_object(&mut self, fields: &Fields) -> Result<(), LineError> {
        let Some(dialect) = self.dialect.or_else(|| Dialect::of_object(fields)) else {
            return Err(unknown("the object has fields", &paths(fields), EXAMPLE));
        };
        match &dialect.form {
            Form::Text(text) => return Err(text.refusal(dialect.name, fields)),
            Form::Report(report) => return Err(report.refusal(dialect.name)),
            Form::Records(records) => {
                let roles = self.roles.get_or_insert_with(|| Roles::of(records));
                records.read(fields, roles, &mut self.reading)?;
            }
            Form::Lines(_) => {}
        }
        let dialect = self.dialect_with(dialect, fields)?;
        if let Some(lines) = dialect.lines() {
            (lines.read)(fields, &mut self.reading)?;
        }
        self.dialect = Some(dialect);
        Ok(())
    }

    /// Returns the dialect of a trace after another line. A trace that began with Mooncake's lines
    /// may get the fields of a dialect that extends Mooncake.
    fn dialect_with(
        &mut self,
        dialect: &'static Dialect,
        fields: &Fields,
    ) -> Result<&'static Dialect, LineError> {
        let Some(lines) = dialect.lines() else { return Ok(dialect) };
        if dialect.name == MOONCAKE.name && is_plain(fields) {
            return Ok(dialect);
        }
        let is_new = |name: &&String| !lines.has_field(name) && !self.reading.is_unused(name);
        let Some(first) = fields.keys().find(is_new) else { return Ok(dialect) };
        let new: Vec<_> = fields.keys().filter(is_new).collect();
        let other = Dialect::of_object(fields).unwrap_or(dialect);
        let is_other = other.name != dialect.name && other.name != MOONCAKE.name;
        if is_other && dialect.name == MOONCAKE.name && other.extends_mooncake() {
            if !self.reading.has_priorities {
                return self.dialect_with(other, fields);
            }
        } else if is_other && !dialect.extends_mooncake() {
            let message = format!(
                "is a field of {}, but earlier lines are {}; choose one with --format",
                other.name, dialect.name
            );
            return Err(wrong(first, message));
        }
        for name in new {
            self.reading.leave_unused(name);
        }
        Ok(dialect)
    }
}

impl Trace {
    /// Adds all requests of a line. If it returns an error, it adds none.
    pub fn push_line(&mut self, reader: &mut Reader, line: &[u8]) -> Result<(), LineError> {
        if reader.reading.is_finished {
            return Err(wrong(
                "",
                "the trace was already finished and cannot take more lines".into(),
            ));
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
    /// Reads a line with one request, in the dialect that the line matches.
    pub fn from_line(line: &[u8]) -> Result<Self, LineError> {
        let mut reader = Reader::default();
        reader.read(line, 0)?;
        let request = reader.reading.requests.pop();
        request.ok_or_else(|| wrong("", "the line holds no request".into()))
    }
}

/// Returns the dialect of a trace with these objects at its start.
fn of_objects(objects: &[Fields]) -> Option<&'static Dialect> {
    let mut dialects = objects.iter().map(Dialect::of_object);
    let first = dialects.next()??;
    if first.name != MOONCAKE.name {
        return Some(first);
    }
    let is_untold = |fields: &Fields| {
        let has = |names: [&str; 2]| names.iter().any(|name| fields.contains_key(*name));
        has(["input_length", "input_tokens"])
            && has(["output_length", "output_tokens"])
            && !fields.contains_key("hash_ids")
    };
    let extending = dialects.flatten().find(|dialect| dialect.extends_mooncake());
    let without_ids = || (objects.len() > 1 && objects.iter().all(is_untold)).then_some(&AIPERF);
    extending.or_else(without_ids).or(Some(first))
}

/// Returns a hint for a first line that is neither JSON nor the header of a table.
fn what_else(line: &[u8]) -> &'static str {
    let is_text = std::str::from_utf8(line).is_ok_and(|text| !text.contains(char::is_control));
    match line.first() {
        _ if !is_text => "",
        Some(b'{' | b'[') | None => "",
        Some(b'0'..=b'9' | b'"') if line.iter().any(|byte| b",;\t|".contains(byte)) => {
            ", nor the header of a table. Write the names of the columns as first line, such as \
             TIMESTAMP,ContextTokens,GeneratedTokens"
        }
        Some(_) => {
            "; text logs of servers do not have the tokens of each request. Record the server with \
             KVOXIDE_RECORD; `kvoxide formats` lists all formats"
        }
    }
}

fn unmarked(line: &[u8]) -> &[u8] {
    line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line)
}

/// Returns the JSON value of a line, or of a whole file. Several values that each span several
/// lines are read as a list.
fn value_of(line: &[u8]) -> serde_json::Result<Value> {
    serde_json::from_slice(line).or_else(|error| {
        if !line.contains(&b'\n') || error.is_eof() {
            return Err(error);
        }
        let values = serde_json::Deserializer::from_slice(line).into_iter();
        values.collect::<Result<_, _>>().map(Value::Array).map_err(|_| error)
    })
}

/// Returns a JSON object as a list, or the objects in an array or a page.
fn objects(value: Value) -> Vec<Fields> {
    match value {
        Value::Object(mut fields) => {
            let has_list = fields.values().any(is_list);
            let page = PAGES
                .iter()
                .filter(|_| has_list)
                .find(|page| fields.get(**page).is_some_and(is_list));
            match page.filter(|_| Dialect::of_object(&fields).is_none()) {
                Some(page) => fields.remove(*page).map(objects).unwrap_or_default(),
                None => vec![fields],
            }
        }
        Value::Array(values) if values.iter().all(Value::is_object) => {
            values.into_iter().flat_map(objects).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns whether a value is a list of objects.
fn is_list(value: &Value) -> bool {
    let Value::Array(values) = value else { return false };
    !values.is_empty() && values.iter().all(Value::is_object)
}

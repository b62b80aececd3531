//! Records: objects or rows of tables that give the lengths of one request. Each dialect has its
//! own names for the fields.

use serde_json::Value;

use super::cell::{Cell, lookup};
use super::rows::prompt_ids;
use crate::id_width::MAX_WIDTH;
use crate::trace::fields::{Fields, LineError, wrong};
use crate::trace::prompt::Prompt;
use crate::trace::reading::Reading;
use crate::trace::request::TraceRequest;
use crate::trace::times::{Scale, Unit};

/// The role of a record's value in a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The time at which the request arrives.
    Time,
    /// The number of prompt tokens.
    Input,
    /// The number of output tokens.
    Output,
    /// The conversation.
    Session,
    /// The number of tokens at the start of the prompt that the conversation had before.
    Prefix,
    /// Ids of the prompt's blocks.
    Ids,
    /// The number of tokens per id.
    BlockSize,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 7] = [
        Self::Time,
        Self::Input,
        Self::Output,
        Self::Session,
        Self::Prefix,
        Self::Ids,
        Self::BlockSize,
    ];

    /// Returns the name by which callers give a column this role.
    pub fn name(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Input => "input",
            Self::Output => "output",
            Self::Session => "session",
            Self::Prefix => "prefix",
            Self::Ids => "ids",
            Self::BlockSize => "block_size",
        }
    }

    /// Returns a description of a value with this role.
    fn what(self) -> &'static str {
        match self {
            Self::Input => "tokens of each prompt",
            Self::Output => "tokens of each output",
            _ => self.name(),
        }
    }

    /// Returns the role with a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }
}

/// A dialect's names for each role. The first name that a record has counts.
#[derive(Clone, Debug, Default)]
pub struct Roles(pub [Vec<String>; 7]);

impl Roles {
    /// Returns the roles of a dialect.
    pub fn of(records: &Records) -> Self {
        let mut roles = Self::default();
        for &(role, names) in records.roles {
            roles.0[role as usize] = names.iter().map(|&name| name.to_owned()).collect();
        }
        roles
    }

    /// Returns the names for a role.
    pub fn names(&self, role: Role) -> &[String] {
        &self.0[role as usize]
    }
}

/// A field, a predicate for its value, and a reason. A record whose value fulfils the predicate is
/// left out for this reason.
pub type LeftOut = (&'static str, fn(Cell<'_>) -> bool, &'static str);

/// The records of a dialect.
#[derive(Debug)]
pub struct Records {
    /// Names of the values, for each role that the dialect has.
    pub roles: &'static [(Role, &'static [&'static str])],
    /// The scale of times that are numbers.
    pub scale: Scale,
    /// Returns whether an object is of the dialect. An object may hold several records.
    pub has_record: fn(&Fields) -> bool,
    /// Returns the records of an object.
    pub records: fn(Fields, &mut Reading) -> Vec<Fields>,
    /// Columns for tables. A table has one of them, in addition to input and output. `None` if the
    /// dialect has no tables.
    pub table: Option<&'static [&'static str]>,
    /// Columns of a table that do not change the replay.
    pub unused: &'static [&'static str],
    /// Whether a note names the unknown columns of a table.
    pub has_known_columns: bool,
    /// Records that are not replayed.
    pub left_out: &'static [LeftOut],
    /// Whether records without prompt tokens are left out. Otherwise they are refused.
    pub may_be_empty: bool,
    /// Whether a record without output tokens means that its request failed.
    pub fails_without_output: bool,
}

/// The values that most records have, for the fields that a dialect does not set.
pub const LOG: Records = Records {
    roles: &[],
    scale: Scale::Default(Unit::Seconds),
    has_record: |_| false,
    records: single,
    table: None,
    unused: &[],
    has_known_columns: false,
    left_out: &[],
    may_be_empty: false,
    fails_without_output: false,
};

/// Returns the one record of an object, which is the object itself.
pub fn single(fields: Fields, _: &mut Reading) -> Vec<Fields> {
    vec![fields]
}

/// The values of a record, each with its name.
pub type Cells<'a> = [Option<(&'a str, Cell<'a>)>; 7];

impl Records {
    /// Reads the records of a JSON object.
    pub fn read(
        &self,
        fields: &Fields,
        roles: &Roles,
        reading: &mut Reading,
    ) -> Result<(), LineError> {
        for record in (self.records)(fields.clone(), reading) {
            let cell = |name: &str| lookup(&record, name).map(Cell::Json).and_then(Cell::given);
            let reason =
                self.left_out.iter().find(|(name, is_such, _)| cell(name).is_some_and(is_such));
            if let Some((_, _, reason)) = reason {
                reading.leave_out(reason);
                continue;
            }
            let cells = Role::ALL.map(|role| {
                let mut names = roles.names(role).iter();
                names.find_map(|name| Some((name.as_str(), cell(name)?)))
            });
            self.push(&cells, roles, reading)?;
        }
        Ok(())
    }

    /// Adds the request with these values, unless it is left out.
    pub fn push(
        &self,
        cells: &Cells<'_>,
        roles: &Roles,
        reading: &mut Reading,
    ) -> Result<(), LineError> {
        let missing = |role| {
            let name = roles.names(role).first().map_or(role.name(), String::as_str);
            wrong(name, format!("is missing; a replay needs the {}", role.what()))
        };
        for (has_value, cell) in reading.has_value.iter_mut().zip(cells) {
            *has_value |= cell.is_some();
        }
        let cell = |role: Role| cells[role as usize];
        let has_tokens = cell(Role::Input).or(cell(Role::Output)).is_some();
        if self.may_be_empty && !has_tokens {
            reading.leave_out("records without tokens");
            return Ok(());
        }
        let (name, input) = cell(Role::Input).ok_or_else(|| missing(Role::Input))?;
        if self.may_be_empty && input.number() == Some(0.0) {
            reading.leave_out("requests without prompt tokens");
            return Ok(());
        }
        let input = input.length(name, 1)?;
        let (name, output) = cell(Role::Output).ok_or_else(|| missing(Role::Output))?;
        let output = output.length(name, 0)?;
        if self.fails_without_output && output == 0 {
            reading.leave_out("requests that failed, without output tokens");
            return Ok(());
        }
        let arrival = cell(Role::Time).map(|(name, time)| time.time(name, self.scale, reading));
        let arrival = arrival.transpose()?;
        let conversation = cell(Role::Session).map(|(_, session)| session.conversation());
        let prefix = cell(Role::Prefix).map(|(name, prefix)| prefix.length(name, 0)).transpose()?;
        let (prompt, tokens_per_id) = match (prefix.zip(conversation), cell(Role::Ids)) {
            (Some((prefix, conversation)), None) => {
                let ids = reading.ids_after(conversation.id, prefix, input, output);
                (ids, Some(1))
            }
            (_, Some((name, list))) => (of_ids(name, list, input, reading)?, width(cells)?),
            (_, None) => {
                reading.num_without_ids += 1;
                (Prompt::of_ids(input, []), None)
            }
        };
        let request = TraceRequest::of_prompt(prompt, output);
        let request = TraceRequest { arrival, conversation, tokens_per_id, ..request };
        reading.requests.push(request);
        Ok(())
    }
}

fn of_ids(
    name: &str,
    list: Cell<'_>,
    length: usize,
    reading: &mut Reading,
) -> Result<Prompt, LineError> {
    let value = list.list(name)?;
    let ids = prompt_ids(&value, name, length, reading)?;
    if ids.is_empty() {
        reading.note("prompts without ids share nothing: none of their tokens is hit");
    }
    Ok(Prompt::of_ids(length, ids))
}

/// Returns the tokens per id, if the record has them.
fn width(cells: &Cells<'_>) -> Result<Option<usize>, LineError> {
    let Some((name, cell)) = cells[Role::BlockSize as usize] else { return Ok(None) };
    let width = cell.length(name, 1)?;
    match width {
        ..=MAX_WIDTH => Ok(Some(width)),
        _ => Err(wrong(name, format!("is {width}; expected 1 to {MAX_WIDTH}"))),
    }
}

/// Returns whether a cell holds an error of a request: text, an object, or true.
pub fn is_error(cell: Cell<'_>) -> bool {
    match cell {
        Cell::Json(Value::Bool(is_error)) => *is_error,
        Cell::Json(Value::Array(values)) => !values.is_empty(),
        Cell::Json(Value::Object(fields)) => !fields.is_empty(),
        _ => cell.text().is_some_and(|text| !matches!(text, "" | "{}" | "[]" | "false" | "False")),
    }
}

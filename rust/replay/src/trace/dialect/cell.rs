//! A value of a record: a value of a JSON object, or the text of a table's cell.

use std::borrow::Cow;
use std::fmt::{Display, Formatter, Result as Formatted};

use serde_json::Value;

use crate::conversation::Conversation;
use crate::trace::fields::{Fields, LineError, checked_length, exact, integer, wrong};
use crate::trace::reading::Reading;
use crate::trace::times::{EXPECTED, Moment, Scale, Unit};

/// A value of a record.
#[derive(Clone, Copy, Debug)]
pub enum Cell<'a> {
    /// A value in JSON.
    Json(&'a Value),
    /// The text of a cell.
    Text(&'a str),
    /// The text of a cell in a table whose commas are decimal points.
    TextWithCommas(&'a str),
}

impl<'a> Cell<'a> {
    /// Returns the cell, unless it is empty or null.
    pub fn given(self) -> Option<Self> {
        match self.text() {
            Some("" | "null" | "NULL" | "None" | "NaN" | "nan" | "\\N") => None,
            _ => Some(self).filter(|cell| !matches!(cell, Self::Json(Value::Null))),
        }
    }

    /// Returns the text, if the cell is text.
    pub fn text(self) -> Option<&'a str> {
        match self {
            Self::Json(value) => value.as_str(),
            Self::Text(text) | Self::TextWithCommas(text) => Some(text),
        }
    }

    /// Returns the number in the cell, which may be written as text.
    pub fn number(self) -> Option<f64> {
        match self {
            Self::Json(value) => value.as_f64().or_else(|| parse(value.as_str()?)),
            Self::Text(text) => parse(text),
            Self::TextWithCommas(text) => parse(text).or_else(|| parse(&text.replace(',', "."))),
        }
    }

    /// Returns a number of tokens.
    pub fn length(self, name: &str, least: usize) -> Result<usize, LineError> {
        let number = match self {
            Self::Json(value) => integer(value).or_else(|| exact(self.number()?)),
            Self::Text(text) => text.parse().ok().or_else(|| exact(self.number()?)),
            Self::TextWithCommas(_) => exact(self.number().unwrap_or(f64::NAN)),
        };
        checked_length(number, self, name, least)
    }

    /// Returns the time of the next request of a reading, in microseconds.
    pub fn time(self, name: &str, scale: Scale, reading: &mut Reading) -> Result<u64, LineError> {
        let request = reading.index();
        if let Some(time) = self.number() {
            let is_possible = (0.0..1e20).contains(&time);
            let message = || format!("is {self}; expected a time of at least 0, or {EXPECTED}");
            return match is_possible {
                true => Ok(reading.times.number(request, time, of_field(name, scale))),
                false => Err(wrong(name, message())),
            };
        }
        match self.text().and_then(Moment::parse) {
            Some(moment) => Ok(reading.times.text(moment)),
            None => Err(wrong(name, format!("is {self}; expected a number, or {EXPECTED}"))),
        }
    }

    /// Returns the conversation that the cell names.
    pub fn conversation(self) -> Conversation {
        match self {
            Self::Json(value) => Conversation::of_value(value),
            Self::Text(text) | Self::TextWithCommas(text) => Conversation::of_name(text),
        }
    }

    /// Returns the values of a list, which may be written as text: `[1, 2]`, `1 2` or `1;2`.
    pub fn list(self, name: &str) -> Result<Cow<'a, Value>, LineError> {
        let text = match self {
            Self::Json(value) if !value.is_string() => return Ok(Cow::Borrowed(value)),
            _ => self.text().unwrap_or_default(),
        };
        let no_list = || wrong(name, format!("is {self}; expected ids such as [1, 2] or 1 2"));
        if text.starts_with('[') {
            // NumPy writes arrays without commas.
            let spaced = || text.split([' ', ',', '\n']).filter(|part| !part.is_empty());
            let with_commas = || spaced().collect::<Vec<_>>().join(",").replace("[,", "[");
            let value =
                serde_json::from_str(text).or_else(|_| serde_json::from_str(&with_commas()));
            return value.map(Cow::Owned).map_err(|_| no_list());
        }
        let parts = text.split([' ', ';', '|', ',']).filter(|part| !part.is_empty());
        let ids =
            parts.map(|part| part.parse::<u64>().map_or_else(|_| Value::from(part), Value::from));
        Ok(Cow::Owned(Value::Array(ids.collect())))
    }
}

impl Display for Cell<'_> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Formatted {
        match self {
            Self::Json(value) => write!(formatter, "{value}"),
            Self::Text(text) | Self::TextWithCommas(text) => write!(formatter, "{text:?}"),
        }
    }
}

fn parse(text: &str) -> Option<f64> {
    let is_part = |byte| matches!(byte, b'0'..=b'9' | b'.' | b'+' | b'-' | b'e' | b'E');
    text.bytes().all(is_part).then(|| text.parse().ok())?
}

/// Returns the scale of a field: the unit in its name, or else the default.
fn of_field(name: &str, default: Scale) -> Scale {
    match default {
        Scale::Sure(_) => default,
        Scale::Default(_) => Unit::of_field(name).map_or(default, Scale::Sure),
    }
}

/// Returns the value at a path of names that are joined by dots. The names may contain dots.
pub fn lookup<'a>(fields: &'a Fields, path: &str) -> Option<&'a Value> {
    if let Some(value) = fields.get(path) {
        return Some(value);
    }
    let dots = path.match_indices('.').map(|(place, _)| place);
    dots.filter_map(|dot| {
        let inner = fields.get(&path[..dot])?.as_object()?;
        lookup(inner, &path[dot + 1..])
    })
    .next()
}

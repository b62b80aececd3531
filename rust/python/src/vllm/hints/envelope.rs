//! The actions of an envelope of hints: vLLM's `KvHintsEnvelope`, or the same as a dictionary or as
//! JSON.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};

use super::fields::{
    PriorityNames, Read, entry, items_up_to, malformed, priority, text, token_range,
};
use super::handling::{Found, Handling, Hint};
use super::reading::{Asked, HintReading};

/// The most actions of a request that are read.
const MAX_ACTIONS: usize = 64;
/// The longest envelope in JSON, in characters.
const MAX_JSON: usize = 1 << 16;
/// The versions of the protocol and of actions that are known.
const VERSIONS: [&str; 3] = ["0.1", "1.0", "1"];

const ENVELOPE: &str = "an envelope of KV hints with protocol_version and actions";
const VERSION: &str = "version 0.1, 1.0 or 1";

/// Reads the actions of an envelope.
#[inline(never)]
pub(super) fn read<'py>(
    reading: &mut HintReading<'_, 'py>,
    name: &'static str,
    hints: &Bound<'py, PyAny>,
) {
    let read = decoded(name, hints).and_then(|envelope| {
        let version = entry(&envelope, "protocol_version", VERSION)?;
        Ok((version, entry(&envelope, "actions", "a list of actions")?))
    });
    let (version, actions) = match read {
        Ok(found) => found,
        Err(refused) => return reading.grant(Hint::Other, |_| Err(refused)),
    };
    let num_left = MAX_ACTIONS - reading.num_actions;
    let read = items_up_to("actions", &actions, "a list of actions", num_left);
    let first = match read {
        Ok(first) => first,
        Err(refused) => return reading.grant(Hint::Other, |_| Err(refused)),
    };
    reading.num_actions += first.len();
    let num_unread = length(&actions) - first.len();
    for action in &first {
        read_action(reading, &version, action);
    }
    if num_unread > 0 {
        let expected = "a list of at most 64 actions";
        let found = Found::unreadable("the rest of actions", expected);
        reading.add(Hint::Other, num_unread, Handling::Malformed(found));
    }
}

/// Returns the envelope in a JSON text, or the envelope itself.
fn decoded<'py>(name: &'static str, hints: &Bound<'py, PyAny>) -> Read<'py, Bound<'py, PyAny>> {
    let Ok(json) = hints.cast::<PyString>() else { return Ok(hints.clone()) };
    if !json.len().is_ok_and(|num_characters| num_characters <= MAX_JSON) {
        return malformed(name, hints, "at most 65,536 characters of JSON");
    }
    let decoded = hints.py().import("json").and_then(|it| it.call_method1("loads", (json,)));
    match decoded {
        Ok(envelope) if envelope.is_instance_of::<PyDict>() => Ok(envelope),
        _ => malformed(name, hints, ENVELOPE),
    }
}

/// Returns the length of a list or tuple.
fn length(items: &Bound<'_, PyAny>) -> usize {
    let of_tuple = || items.cast::<PyTuple>().map_or(0, |tuple| tuple.len());
    items.cast::<PyList>().map_or_else(|_| of_tuple(), |list| list.len())
}

fn read_action<'py>(
    reading: &mut HintReading<'_, 'py>,
    protocol: &Bound<'py, PyAny>,
    action: &Bound<'py, PyAny>,
) {
    let hint = match hint_of(action) {
        Ok(hint) => hint,
        Err(refused) => return reading.grant(Hint::Other, |_| Err(refused)),
    };
    reading.grant(hint, |reading| {
        check_version("protocol_version", protocol)?;
        check_version("action_version", &entry(action, "action_version", VERSION)?)?;
        asked(hint, action, reading)
    });
}

/// Returns the kind of an action. Its name may have the prefix `kv.`.
fn hint_of<'py>(action: &Bound<'py, PyAny>) -> Read<'py, Hint> {
    let name = "action_type";
    let expected = "retain, release or session_end";
    let value = entry(action, name, expected)?;
    let action_type = text(name, &value, expected)?;
    match action_type.strip_prefix("kv.").unwrap_or(&action_type) {
        "retain" => Ok(Hint::Retain),
        "release" => Ok(Hint::Release),
        "session_end" => Ok(Hint::SessionEnd),
        _ => Err(Handling::Unknown(Found::new(name, &value, expected))),
    }
}

fn check_version<'py>(name: &'static str, value: &Bound<'py, PyAny>) -> Read<'py, ()> {
    match VERSIONS.contains(&text(name, value, VERSION)?.as_str()) {
        true => Ok(()),
        false => Err(Handling::Unknown(Found::new(name, value, VERSION))),
    }
}

fn asked<'py>(
    hint: Hint,
    action: &Bound<'py, PyAny>,
    reading: &HintReading<'_, 'py>,
) -> Read<'py, Asked> {
    let payload = Payload::of(action, fields_of(hint))?;
    let tokens = || {
        let (start, end) = (payload.find("start"), payload.find("end"));
        let (start, end) = (("start", start.as_ref()), ("end", end.as_ref()));
        token_range(start, end, reading.num_prompt_tokens())
    };
    match hint {
        Hint::Release => Ok(Asked::Release(tokens()?)),
        Hint::SessionEnd => Ok(Asked::EndSession),
        _ => Ok(Asked::Retain { tokens: vec![tokens()?], priority: payload.priority()? }),
    }
}

/// Returns the fields that the payload of an action can have.
fn fields_of(hint: Hint) -> &'static [&'static str] {
    match hint {
        Hint::Release => &["start", "end"],
        Hint::SessionEnd => &[],
        _ => &["start", "end", "priority", "ttl", "duration"],
    }
}

/// The payload of an action. A field that is null is absent.
struct Payload<'py>(Bound<'py, PyDict>);

impl<'py> Payload<'py> {
    fn of(action: &Bound<'py, PyAny>, fields: &[&'static str]) -> Read<'py, Self> {
        let expected = "an object that has only fields of this action";
        let payload = entry(action, "payload", expected)?;
        let Ok(entries) = payload.cast::<PyDict>() else {
            return malformed("payload", &payload, expected);
        };
        let known = fields.iter().filter(|field| entries.contains(field).unwrap_or(false));
        if known.count() != entries.len() {
            return malformed("payload", &payload, expected);
        }
        Ok(Self(entries.clone()))
    }

    fn find(&self, name: &str) -> Option<Bound<'py, PyAny>> {
        self.0.get_item(name).ok().flatten().filter(|value| !value.is_none())
    }

    /// Returns the priority. Its time to live has one of two names.
    fn priority(&self) -> Read<'py, kvoxide_core::RetentionPriority> {
        let expected = "an integer from 0 to 100";
        let Some(asked) = self.find("priority") else {
            return Err(Handling::Malformed(Found::unreadable("priority", expected)));
        };
        let (name, ttl) = match (self.find("ttl"), self.find("duration")) {
            (Some(_), Some(duration)) => {
                return malformed("duration", &duration, "absent if ttl is given");
            }
            (None, duration) => ("duration", duration),
            (ttl, None) => ("ttl", ttl),
        };
        let names = PriorityNames { priority: "priority", ttl: name };
        priority(&names, Some(&asked), ttl.as_ref())
    }
}

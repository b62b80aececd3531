//! The kinds of hints, and how each hint was handled.

use pyo3::prelude::*;

/// A kind of hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hint {
    /// `kvoxide_priority` and `kvoxide_ttl`.
    Priority,
    Retain,
    Release,
    SessionEnd,
    SessionId,
    /// An envelope, or an action of another type.
    Other,
}

impl Hint {
    /// Every kind, in the order of the numbers.
    pub(super) const ALL: [Self; 6] = [
        Self::Priority,
        Self::Retain,
        Self::Release,
        Self::SessionEnd,
        Self::SessionId,
        Self::Other,
    ];

    /// Returns the value of the counter's label `hint`.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Priority => "priority",
            Self::Retain => "retain",
            Self::Release => "release",
            Self::SessionEnd => "session_end",
            Self::SessionId => "session_id",
            Self::Other => "other",
        }
    }
}

/// How a hint was handled.
pub(super) enum Handling<'py> {
    /// The request gets what it asks for.
    Taken,
    /// The priority was lowered to the highest allowed one.
    Lowered {
        asked: u8,
        granted: u8,
    },
    /// The protected share has too little room for all blocks that the request wants to keep.
    Crowded,
    /// The time to live is over.
    Expired(Found<'py>),
    /// This version of kvoxide does not know the action, or its version.
    Unknown(Found<'py>),
    Malformed(Found<'py>),
    /// The server ignores all hints.
    Ignored,
}

/// The values of the counter's label `result`.
pub(super) const RESULTS: [&str; NUM_RESULTS] =
    ["taken", "clipped", "expired", "unknown", "malformed", "ignored"];
pub(super) const NUM_RESULTS: usize = 6;

impl Handling<'_> {
    /// Returns the place of the result in [`RESULTS`].
    pub(super) fn index(&self) -> usize {
        match self {
            Self::Taken => 0,
            Self::Lowered { .. } | Self::Crowded => 1,
            Self::Expired(_) => 2,
            Self::Unknown(_) => 3,
            Self::Malformed(_) => 4,
            Self::Ignored => 5,
        }
    }

    /// Returns the reason for the result.
    pub(super) fn details(&self) -> String {
        match self {
            Self::Taken | Self::Ignored => String::new(),
            Self::Lowered { asked, granted } => {
                format!(
                    "its priority {asked} was lowered to {granted}, the limit of KVOXIDE_PRIORITY"
                )
            }
            Self::Crowded => {
                "the protected share of the pool has no room for all its blocks".into()
            }
            Self::Expired(found) | Self::Unknown(found) | Self::Malformed(found) => found.message(),
        }
    }
}

/// An invalid value.
pub(super) struct Found<'py> {
    pub(super) name: &'static str,
    /// The value, unless it is missing, cannot be read, or is not to be logged.
    pub(super) value: Option<Bound<'py, PyAny>>,
    pub(super) expected: &'static str,
}

/// The characters of a value that are logged.
const MAX_SHOWN: usize = 80;

impl<'py> Found<'py> {
    pub(super) fn new(
        name: &'static str,
        value: &Bound<'py, PyAny>,
        expected: &'static str,
    ) -> Self {
        Self { name, value: Some(value.clone()), expected }
    }

    /// Returns a value that is missing, cannot be read, or is not to be logged.
    pub(super) fn unreadable(name: &'static str, expected: &'static str) -> Self {
        Self { name, value: None, expected }
    }

    fn message(&self) -> String {
        let Self { name, value, expected } = self;
        let Some(value) = value else {
            return format!("{name} has no usable value; it must be {expected}");
        };
        let shown = value.repr().map_or_else(|_| "?".into(), |shown| shown.to_string());
        let shown: String = shown.chars().take(MAX_SHOWN).collect();
        format!("{name} is {shown}; it must be {expected}")
    }
}

/// One hint, or several alike, and how they were handled.
pub(super) struct Handled<'py> {
    pub(super) hint: Hint,
    pub(super) handling: Handling<'py>,
    pub(super) count: usize,
    /// The tokens of the prompt that it protects.
    pub(super) num_protected_tokens: usize,
}

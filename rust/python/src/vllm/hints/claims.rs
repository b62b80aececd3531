//! Hints in the `extra_args` of the sampling parameters, which clients set over HTTP
//! (`vllm_xargs`).

use std::ops::Range;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict};

use super::envelope;
use super::fields::{PriorityNames, Read, items_up_to, malformed, number, priority, token_range};
use super::handling::{Found, Handling, Hint};
use super::reading::{Asked, HintReading};

const NAMES: PriorityNames = PriorityNames { priority: "kvoxide_priority", ttl: "kvoxide_ttl" };
const RANGES: &str = "kvoxide_priority_ranges";
const SESSION_END: &str = "kvoxide_session_end";
const HINTS: &str = "kvoxide_hints";

/// The range of a claim without ranges.
const ALL_TOKENS: Range<usize> = 0..usize::MAX;

/// The most ranges of a claim.
const MAX_RANGES: usize = 64;

/// Reads the hints of sampling parameters.
pub(super) fn read<'py>(reading: &mut HintReading<'_, 'py>, params: &Bound<'py, PyAny>) {
    match params.getattr_opt(intern!(params.py(), "extra_args")) {
        Ok(None) => {}
        Ok(Some(extra)) => match extra.cast::<PyDict>() {
            Ok(extra) if !extra.is_empty() => read_extra(reading, extra),
            _ => {}
        },
        Err(_) => reading.add_unreadable("extra_args"),
    }
}

#[inline(never)]
fn read_extra<'py>(reading: &mut HintReading<'_, 'py>, extra: &Bound<'py, PyDict>) {
    let find = |name: &str| extra.get_item(name).ok().flatten();
    let claim =
        Claim { priority: find(NAMES.priority), ttl: find(NAMES.ttl), ranges: find(RANGES) };
    if claim.priority.is_some() || claim.ttl.is_some() || claim.ranges.is_some() {
        reading.grant(Hint::Priority, |reading| claim.asked(reading.num_prompt_tokens()));
    }
    if let Some(end) = find(SESSION_END) {
        match ends_session(&end) {
            Ok(false) => {}
            Ok(true) => reading.grant(Hint::SessionEnd, |_| Ok(Asked::EndSession)),
            Err(refused) => reading.grant(Hint::SessionEnd, |_| Err(refused)),
        }
    }
    if let Some(hints) = find(HINTS) {
        envelope::read(reading, HINTS, &hints);
    }
}

/// The entries that claim a priority.
struct Claim<'py> {
    priority: Option<Bound<'py, PyAny>>,
    ttl: Option<Bound<'py, PyAny>>,
    ranges: Option<Bound<'py, PyAny>>,
}

impl<'py> Claim<'py> {
    fn asked(&self, num_prompt_tokens: usize) -> Read<'py, Asked> {
        let Self { priority: asked, ttl, ranges } = self;
        if asked.is_none() && ttl.is_none() {
            let expected = "given, because kvoxide_priority_ranges is given";
            return Err(Handling::Malformed(Found::unreadable(NAMES.priority, expected)));
        }
        let priority = priority(&NAMES, asked.as_ref(), ttl.as_ref())?;
        let Some(ranges) = ranges else {
            return Ok(Asked::Retain { tokens: vec![ALL_TOKENS], priority });
        };
        let expected = "a list of starts and ends of 1 to 64 ranges";
        let bounds = items_up_to(RANGES, ranges, expected, 2 * MAX_RANGES + 1)?;
        let (pairs, rest) = bounds.as_chunks::<2>();
        if pairs.is_empty() || !rest.is_empty() {
            return malformed(RANGES, ranges, expected);
        }
        let tokens = pairs.iter().map(|[start, end]| {
            token_range((RANGES, Some(start)), (RANGES, Some(end)), num_prompt_tokens)
        });
        Ok(Asked::Retain { tokens: tokens.collect::<Result<_, _>>()?, priority })
    }
}

/// Returns whether a value is true. Over HTTP, true is 1.
fn ends_session<'py>(value: &Bound<'py, PyAny>) -> Read<'py, bool> {
    let expected = "true or false";
    let flag = match value.cast::<PyBool>() {
        Ok(flag) => f64::from(u8::from(flag.is_true())),
        Err(_) => number(SESSION_END, value, expected)?,
    };
    match flag {
        0.0 => Ok(false),
        1.0 => Ok(true),
        _ => malformed(SESSION_END, value, expected),
    }
}

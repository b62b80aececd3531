//! The kinds that the engine manages.

use super::declaration::Declaration;
use super::kind::Kind;
use super::spec::GroupSpec;
use super::{chunked_local, circular_buffer, cross_attention, full, mamba, rswa, sliding_window};
use crate::error::{Error, Result};

static KINDS: [&Declaration; 11] = [
    &full::FULL,
    &full::MLA,
    &full::HIDDEN_STATES,
    &sliding_window::SLIDING_WINDOW,
    &sliding_window::SLIDING_WINDOW_MLA,
    &chunked_local::CHUNKED_LOCAL,
    &rswa::RSWA,
    &circular_buffer::CIRCULAR_BUFFER,
    &mamba::MAMBA,
    &mamba::MAMBA_NONE,
    &cross_attention::CROSS_ATTENTION,
];

/// Every kind.
pub fn kinds() -> &'static [&'static Declaration] {
    &KINDS
}

/// The names of the supported kinds.
pub fn supported_kinds() -> Vec<&'static str> {
    KINDS.iter().map(|kind| kind.name).collect()
}

/// What the kind of a spec declares. Refuses unknown kinds by name.
pub fn declaration(spec: &GroupSpec) -> Result<&'static Declaration> {
    let found = KINDS.iter().find(|kind| kind.name == spec.kind).copied();
    found.ok_or_else(|| Error::UnsupportedGroup {
        kind: spec.kind.clone(),
        supported: supported_kinds().join(", "),
    })
}

/// The kind of a spec, which is checked. Refuses unknown kinds by name.
pub fn kind_of(spec: &GroupSpec) -> Result<Box<dyn Kind>> {
    declaration(spec)?.made(spec)
}

//! The kinds of groups. The file of a kind declares it and has what it does differently.

mod chunked_local;
pub(super) mod circular_buffer;
pub(super) mod cross_attention;
mod mamba;
mod rswa;
mod sliding_window;

mod full;

pub(super) use mamba::AlignedStates;
pub use mamba::Checkpoint;
pub(super) use rswa::Rswa;

use chunked_local::{CHUNKED_LOCAL, ChunkedLocal};
use circular_buffer::CIRCULAR_BUFFER;
use cross_attention::CROSS_ATTENTION;
use full::{FULL, FullAttention, HIDDEN_STATES, MLA};
use mamba::{MAMBA, MAMBA_NONE, RunningState};
use rswa::RSWA;
use sliding_window::{SLIDING_WINDOW, SLIDING_WINDOW_MLA, SlidingWindow};

use super::data::Head;
use super::declaration::Declaration;
use super::mask::{MaskQuery, RetentionMask};
use super::query::{GroupHit, HitQuery};
use super::spec::GroupSpec;
use crate::error::{Error, Result};
use crate::request::GroupBlocks;

/// A kind of group, with the sizes of a group and what is remembered of its requests.
#[derive(Debug)]
#[repr(u8)] // A byte of its own is read at every step in fewer instructions than a niche.
#[expect(missing_docs, reason = "each variant is a module that says what it is")]
pub enum Kind {
    Full(FullAttention),
    SlidingWindow(SlidingWindow),
    ChunkedLocal(ChunkedLocal),
    Rswa(Rswa),
    CircularBuffer,
    Mamba(AlignedStates),
    MambaNone(RunningState),
    CrossAttention,
}

type Build = fn(&GroupSpec) -> Result<Kind>;

static KINDS: [(&Declaration, Build); 11] = [
    (&FULL, |_| Ok(Kind::Full(FullAttention::default()))),
    (&MLA, |_| Ok(Kind::Full(FullAttention::default()))),
    (&HIDDEN_STATES, |_| Ok(Kind::Full(FullAttention::default()))),
    (&SLIDING_WINDOW, |spec| SlidingWindow::new(spec).map(Kind::SlidingWindow)),
    (&SLIDING_WINDOW_MLA, |spec| SlidingWindow::new(spec).map(Kind::SlidingWindow)),
    (&CHUNKED_LOCAL, |spec| ChunkedLocal::new(spec).map(Kind::ChunkedLocal)),
    (&RSWA, |spec| Rswa::new(spec).map(Kind::Rswa)),
    (&CIRCULAR_BUFFER, |_| Ok(Kind::CircularBuffer)),
    (&MAMBA, |spec| AlignedStates::new(spec).map(Kind::Mamba)),
    (&MAMBA_NONE, |spec| RunningState::new(spec).map(Kind::MambaNone)),
    (&CROSS_ATTENTION, |_| Ok(Kind::CrossAttention)),
];

/// Returns the declarations of all kinds.
pub fn kinds() -> Vec<&'static Declaration> {
    KINDS.iter().map(|&(declaration, _)| declaration).collect()
}

/// Returns the names of all kinds.
pub fn supported_kinds() -> Vec<&'static str> {
    KINDS.iter().map(|(declaration, _)| declaration.name).collect()
}

fn named(spec: &GroupSpec) -> Result<&'static (&'static Declaration, Build)> {
    KINDS.iter().find(|(declaration, _)| declaration.name == spec.kind).ok_or_else(|| {
        Error::UnsupportedGroup { kind: spec.kind.clone(), supported: supported_kinds().join(", ") }
    })
}

/// Returns what the kind of a spec declares. Refuses unknown kinds by name.
pub fn declaration(spec: &GroupSpec) -> Result<&'static Declaration> {
    named(spec).map(|&(declaration, _)| declaration)
}

impl Kind {
    /// Checks a spec and makes its kind. Refuses unknown kinds by name.
    pub fn new(spec: &GroupSpec) -> Result<Self> {
        let (declaration, build) = named(spec)?;
        declaration.check(spec)?;
        build(spec)
    }

    /// Returns which leading tokens need no block.
    pub(crate) fn head(&self) -> Head {
        match self {
            Self::SlidingWindow(window) => window.head(),
            Self::ChunkedLocal(chunk) => chunk.head(),
            Self::MambaNone(_) => RunningState::HEAD,
            _ => Head::Kept,
        }
    }

    /// Returns the number of blocks in the tail of a hit; 0 for kinds whose hits need more.
    pub fn tail_len(&self, drops_eagle_block: bool) -> usize {
        match self {
            Self::SlidingWindow(window) => window.tail_len(drops_eagle_block),
            Self::Mamba(_) => 1,
            _ => 0,
        }
    }

    /// Returns the number of blocks of `block_size` that a request of so many tokens, all of them
    /// prompt, holds at its end.
    pub fn num_blocks_at_end(&self, block_size: usize, num_tokens: usize) -> usize {
        let num_blocks = num_tokens.div_ceil(block_size);
        match self {
            Self::CircularBuffer => 1,
            Self::Mamba(states) => num_blocks.min(1) + states.shape.num_speculative_blocks,
            Self::MambaNone(state) => 1 + state.num_speculative_blocks,
            _ => {
                let most = self.head().max_blocks(block_size, 0, usize::MAX);
                num_blocks.min(most.unwrap_or(usize::MAX))
            }
        }
    }

    /// Checks that a group can be looked up at hits of this alignment, with or without the drop of
    /// the last block that EAGLE needs.
    pub(crate) fn check_lookup(&self, alignment: usize, drops_eagle_block: bool) -> Result<()> {
        match self {
            Self::ChunkedLocal(chunk) => chunk.check_lookup(alignment, drops_eagle_block),
            Self::MambaNone(_) => RunningState::check_lookup(),
            Self::CrossAttention => cross_attention::check_lookup(),
            _ => Ok(()),
        }
    }

    /// Returns the longest prefix that the groups of a query can continue from.
    pub fn longest_hit(&self, query: &HitQuery<'_>) -> Result<GroupHit> {
        match self {
            Self::Full(_) | Self::Rswa(_) => full::longest_hit(query),
            Self::SlidingWindow(window) => window.longest_hit(query),
            Self::ChunkedLocal(chunk) => chunk.longest_hit(query),
            Self::Mamba(_) => mamba::longest_hit(query),
            Self::CircularBuffer | Self::MambaNone(_) | Self::CrossAttention => {
                Ok(GroupHit { length: 0, blocks: vec![GroupBlocks::default(); query.groups.len()] })
            }
        }
    }

    /// Returns which blocks of a range are cached.
    #[inline(never)]
    pub fn retention_mask(&self, query: &MaskQuery<'_>) -> RetentionMask {
        match self {
            Self::SlidingWindow(window) => window.retention_mask(query),
            Self::Mamba(states) => mamba::retention_mask(query, states.shape.block_size),
            _ => RetentionMask::All,
        }
    }
}

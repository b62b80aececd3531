//! The kinds of groups. Each kind has a file with its declaration and its differences from the
//! usual table.

mod chunked_local;
pub(super) mod circular_buffer;
mod cross_attention;
mod mamba;
mod rswa;
mod sliding_window;

mod full;

pub(crate) use mamba::AlignedStates;
pub use mamba::{Checkpoint, TableRecord};
pub(super) use rswa::Rswa;

use chunked_local::{CHUNKED_LOCAL, ChunkedLocal};
use circular_buffer::CIRCULAR_BUFFER;
use cross_attention::CROSS_ATTENTION;
use full::{FULL, FullAttention, HIDDEN_STATES, MLA};
use mamba::{MAMBA, MAMBA_NONE, RunningState};
use rswa::RSWA;
use sliding_window::{SLIDING_WINDOW, SLIDING_WINDOW_MLA, SlidingWindow};

use super::data::Skipped;
use super::declaration::Declaration;
use super::query::{GroupHit, HitQuery};
use super::spec::GroupSpec;
use crate::error::{Error, Result};

/// A kind of group, with the group's sizes and with notes on its requests.
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

/// Returns the declaration of a spec's kind. An unknown kind is an error with the kind's name.
pub fn declaration(spec: &GroupSpec) -> Result<&'static Declaration> {
    named(spec).map(|&(declaration, _)| declaration)
}

impl Kind {
    /// Checks a spec and creates its kind. An unknown kind is an error with the kind's name.
    pub fn new(spec: &GroupSpec) -> Result<Self> {
        let (declaration, build) = named(spec)?;
        declaration.check(spec)?;
        build(spec)
    }

    /// Returns the leading tokens that need no block.
    pub(crate) fn skips(&self) -> Skipped {
        match self {
            Self::SlidingWindow(window) => window.skips(),
            Self::ChunkedLocal(chunk) => chunk.skips(),
            Self::MambaNone(_) => RunningState::SKIPS,
            _ => Skipped::Nothing,
        }
    }

    /// Returns the number of blocks in the tail of a hit, without the block that EAGLE drops; 0 for
    /// kinds whose hits need more than a tail.
    pub(crate) fn tail_len(&self) -> usize {
        match self {
            Self::SlidingWindow(window) => window.tail_len(),
            Self::Mamba(_) => 1,
            _ => 0,
        }
    }

    /// Returns how many blocks of `block_size` a request holds at its end, if all of its
    /// `num_tokens` tokens are prompt.
    pub fn num_blocks_at_end(&self, block_size: usize, num_tokens: usize) -> usize {
        let num_blocks = num_tokens.div_ceil(block_size);
        match self {
            Self::CircularBuffer => 1,
            Self::Mamba(states) => num_blocks.min(1) + states.shape.num_speculative_blocks,
            Self::MambaNone(state) => 1 + state.num_speculative_blocks,
            _ => {
                let most = self.skips().max_blocks(block_size, 0, usize::MAX);
                num_blocks.min(most.unwrap_or(usize::MAX))
            }
        }
    }

    /// Checks that hits in a group can have this alignment, and can drop their last block if EAGLE
    /// needs that.
    pub(crate) fn check_lookup(
        &self,
        block_size: usize,
        alignment: usize,
        drops_eagle_block: bool,
    ) -> Result<()> {
        let refusal = match self {
            Self::ChunkedLocal(_) if drops_eagle_block => {
                "chunked local attention cannot drop the last block of a hit. Do not use EAGLE \
                 with a group of this kind"
                    .into()
            }
            Self::ChunkedLocal(_) if alignment != block_size => format!(
                "a chunked-local group of block size {block_size} cannot be mixed with groups that \
                 align hits to {alignment} tokens. Give all groups the same block size"
            ),
            Self::MambaNone(_) => {
                "a group of kind 'mamba_none' cannot be cached; disable caching, or use the kind \
                 'mamba' (mode 'align')"
                    .into()
            }
            Self::CrossAttention => {
                "a group of kind 'cross_attention' cannot be cached; disable caching".into()
            }
            _ => return Ok(()),
        };
        Err(Error::Config(refusal))
    }

    /// Returns the longest prefix from which the groups of a query can continue.
    #[inline(never)]
    pub fn longest_hit(&self, query: &HitQuery<'_>) -> Result<GroupHit> {
        match self {
            Self::Full(_) | Self::Rswa(_) => full::longest_hit(query),
            Self::SlidingWindow(window) => window.longest_hit(query),
            Self::ChunkedLocal(chunk) => chunk.longest_hit(query),
            Self::Mamba(_) => mamba::longest_hit(query),
            Self::CircularBuffer | Self::MambaNone(_) | Self::CrossAttention => {
                Ok(GroupHit::none(query.groups.len()))
            }
        }
    }
}

//! Mode `none`: one block holds the running state for a sequence of any length, and each draft
//! token has one more block. These blocks are never shared.

use super::align::{MAMBA, num_speculative_blocks};
use crate::error::Result;
use crate::group::data::{GroupData, Skipped};
use crate::group::declaration::{Caching, Declaration, PartialHits};
use crate::group::spec::GroupSpec;

/// Mamba with `mamba_cache_mode="none"`.
pub(in crate::group::kinds) static MAMBA_NONE: Declaration = Declaration {
    name: "mamba_none",
    short_name: "mamba-none",
    vllm_attributes: &[("mamba_cache_mode", "none")],
    caching: Caching::Never,
    partial_hits: PartialHits::Never,
    hit_needs: "nothing",
    releases: "",
    refuses_hit_first: true,
    ..MAMBA
};

/// The usual table, followed by blocks for drafts.
#[derive(Clone, Debug)]
pub struct RunningState {
    /// The number of blocks after the running state, to which drafts write.
    pub(crate) num_speculative_blocks: usize,
}

impl RunningState {
    /// The next token needs only the state of the last computed token.
    pub(crate) const SKIPS: Skipped = Skipped::BeforeWindow(2);

    pub(crate) fn new(spec: &GroupSpec) -> Result<Self> {
        Ok(Self { num_speculative_blocks: num_speculative_blocks(spec)? })
    }

    /// Returns the number of tokens plus the tokens of the blocks for drafts.
    pub(crate) fn with_drafts(&self, data: &GroupData, num_tokens: usize) -> usize {
        num_tokens.saturating_add(data.block_size.saturating_mul(self.num_speculative_blocks))
    }
}

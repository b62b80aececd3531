//! Mode `none`: one block holds the running state, however long the sequence, and each draft token
//! has one more. They are never shared.

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

/// The usual table, with blocks for drafts behind it.
#[derive(Clone, Debug)]
pub struct RunningState {
    /// Blocks behind the running state that drafts write to.
    pub(crate) num_speculative_blocks: usize,
}

impl RunningState {
    /// The next token needs the state of the last computed one only.
    pub(crate) const SKIPS: Skipped = Skipped::BeforeWindow(2);

    pub(crate) fn new(spec: &GroupSpec) -> Result<Self> {
        Ok(Self { num_speculative_blocks: num_speculative_blocks(spec)? })
    }

    /// Returns the number of tokens, with those of the blocks for drafts.
    pub(crate) fn with_drafts(&self, data: &GroupData, num_tokens: usize) -> usize {
        num_tokens.saturating_add(data.block_size.saturating_mul(self.num_speculative_blocks))
    }
}

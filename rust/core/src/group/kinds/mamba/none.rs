//! Mode `none`: a block for the running state, as large as a sequence can get, and one for each
//! draft token. Nothing of it is shared.

use super::align::MAMBA;
use crate::error::{Error, Result};
use crate::group::data::{GroupData, Head};
use crate::group::declaration::{Caching, Declaration, PartialHits};
use crate::group::spec::{GroupSpec, Size};

/// Mamba with `mamba_cache_mode="none"`.
pub(in crate::group::kinds) static MAMBA_NONE: Declaration = Declaration {
    name: "mamba_none",
    short_name: "mamba-none",
    vllm_attributes: &[("mamba_cache_mode", "none")],
    caching: Caching::Never,
    partial_hits: PartialHits::Never,
    hit_needs: "nothing",
    gives_back: "",
    refuses_hit_first: true,
    ..MAMBA
};

/// A table that grows as others do, with blocks for drafts behind it.
#[derive(Clone, Debug)]
pub struct RunningState {
    /// Blocks behind the running state that drafts write to.
    pub(crate) num_speculative_blocks: usize,
}

impl RunningState {
    /// The state of the last computed token is all that the next one needs.
    pub(crate) const HEAD: Head = Head::Window(2);

    pub(crate) fn new(spec: &GroupSpec) -> Result<Self> {
        Ok(Self { num_speculative_blocks: num_speculative_blocks(spec)? })
    }

    /// Returns the number of tokens with those of the blocks for drafts.
    pub(crate) fn with_drafts(&self, data: &GroupData, num_tokens: usize) -> usize {
        num_tokens.saturating_add(data.block_size.saturating_mul(self.num_speculative_blocks))
    }

    /// Refuses prefix caching.
    pub(crate) fn check_lookup() -> Result<()> {
        Err(Error::Config(
            "a group of kind 'mamba_none' cannot be cached; switch caching off, or use the kind \
             'mamba', which is mode 'align'"
                .into(),
        ))
    }
}

/// Returns the number of blocks behind the running state that drafts write to.
pub(super) fn num_speculative_blocks(spec: &GroupSpec) -> Result<usize> {
    match spec.size(Size::NumSpeculativeBlocks).unwrap_or(0) {
        0 => Ok(0),
        given => GroupSpec::positive(Size::NumSpeculativeBlocks.name(), given),
    }
}

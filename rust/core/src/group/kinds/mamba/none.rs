//! Mode `none`: a block for the running state, which is as large as the longest sequence, and one
//! block per draft token. They are never shared.

use super::align::{MAMBA, num_speculative_blocks};
use crate::error::{Error, Result};
use crate::group::data::{GroupData, Head};
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
    gives_back: "",
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
    pub(crate) const HEAD: Head = Head::Window(2);

    pub(crate) fn new(spec: &GroupSpec) -> Result<Self> {
        Ok(Self { num_speculative_blocks: num_speculative_blocks(spec)? })
    }

    /// Returns the number of tokens, with those of the blocks for drafts.
    pub(crate) fn with_drafts(&self, data: &GroupData, num_tokens: usize) -> usize {
        num_tokens.saturating_add(data.block_size.saturating_mul(self.num_speculative_blocks))
    }

    /// Returns the error that there is no prefix caching.
    pub(crate) fn check_lookup() -> Result<()> {
        Err(Error::Config(
            "a group of kind 'mamba_none' cannot be cached; switch caching off, or use the kind \
             'mamba', which is mode 'align'"
                .into(),
        ))
    }
}

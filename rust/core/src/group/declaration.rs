//! What a kind of group declares about itself. Everything that lists kinds or checks their sizes
//! reads this.

use super::kind::Kind;
use super::spec::{GroupSpec, Size};
use crate::error::{Error, Result};

/// A kind of group, declared once.
pub struct Declaration {
    /// The name of the kind.
    pub name: &'static str,
    /// The name that events give it.
    pub event_name: &'static str,
    /// Its name where groups are written on one line, as in the replay.
    pub short_name: &'static str,
    /// vLLM's class of such groups' specs, and of their manager.
    pub vllm_classes: (&'static str, &'static str),
    /// Attributes that tell such specs from those of other kinds of the same class.
    pub vllm_attributes: &'static [(&'static str, &'static str)],
    /// Sizes that it needs, in the order in which they are written on one line.
    pub required: &'static [Size],
    /// Sizes that it may have.
    pub optional: &'static [Size],
    /// Whether its blocks take part in prefix caching.
    pub caching: Caching,
    /// Whether ranks of decode context parallelism share its blocks' tokens out among them.
    pub sharding: Sharding,
    /// What users want to know of it.
    pub support: Support,
    /// Makes the kind of a spec whose sizes were checked.
    pub build: fn(&GroupSpec) -> Result<Box<dyn Kind>>,
}

/// Whether a kind takes part in prefix caching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caching {
    /// In every group.
    Always,
    /// Unless a group opts out.
    Optional,
    /// In no group.
    Never,
}

/// Whether ranks of decode context parallelism share a kind's blocks out among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharding {
    /// Unless a group is a replica in every rank.
    Shared,
    /// Only as a replica in every rank, which groups have to say.
    Replicated,
    /// In every rank as a whole.
    Whole,
}

/// What a kind can do, for the support table.
#[derive(Clone, Copy, Debug)]
pub struct Support {
    /// What of a prefix a hit needs.
    pub hit_needs: &'static str,
    /// Which blocks it gives back while a request runs; empty for none.
    pub gives_back: &'static str,
    /// Whether the reachable-block mask and retention intervals thin out what it caches.
    pub is_sparse: bool,
    /// Whether the blocks that it still holds are pinned when it gives many back.
    pub is_pinned_by_drop: bool,
    /// Whether its hits can drop their last block, as EAGLE and MTP need.
    pub supports_eagle: bool,
    /// Whether it can stand beside groups of other block sizes.
    pub mixes_block_sizes: bool,
}

impl Caching {
    /// The name that Python gives it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::Optional => "optional",
            Self::Never => "never",
        }
    }
}

impl Declaration {
    /// Whether the blocks of a group are shared between requests.
    pub fn is_cacheable(&self, spec: &GroupSpec) -> bool {
        spec.prefix_cacheable.unwrap_or(self.caching != Caching::Never)
    }

    /// Tokens per block of a group where so many ranks share its blocks out among them.
    pub fn block_size(&self, spec: &GroupSpec, dcp_world_size: usize) -> Result<usize> {
        if dcp_world_size == 1 || !spec.dcp_sharded.unwrap_or(self.sharding != Sharding::Whole) {
            return Ok(spec.block_size);
        }
        if self.sharding != Sharding::Shared {
            return Err(Error::Config(format!(
                "dcp_world_size is {dcp_world_size}, but ranks cannot share the blocks of a group \
                 of kind '{}' out among them; make it a replica with dcp_sharded=False",
                self.name
            )));
        }
        GroupSpec::positive("the block size of all ranks", spec.block_size * dcp_world_size)
    }

    /// Checks a spec and makes its kind.
    pub fn made(&self, spec: &GroupSpec) -> Result<Box<dyn Kind>> {
        GroupSpec::positive("block_size", spec.block_size)?;
        let is_known = |size: &Size| self.required.contains(size) || self.optional.contains(size);
        for (size, _) in spec.sizes() {
            spec.forbidden(size.name(), !is_known(&size))?;
        }
        let (cannot, opts) = match self.caching {
            Caching::Always => ("prefix_cacheable=False", Some(false)),
            Caching::Never => ("prefix_cacheable=True", Some(true)),
            Caching::Optional => ("", None),
        };
        spec.forbidden(cannot, opts.is_some() && spec.prefix_cacheable == opts)?;
        self.required.iter().try_for_each(|&size| spec.required(size).map(|_| ()))?;
        (self.build)(spec)
    }
}

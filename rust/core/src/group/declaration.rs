//! What a kind of group is, declared once: names, sizes, and everything that is the same for every
//! group of the kind. Tables of kinds, checks of sizes and decisions read it.

use super::spec::{GroupSpec, Size};
use crate::error::{Error, Result};

/// A kind of group. Kinds are declared by what sets them apart from full attention.
#[derive(Debug)]
pub struct Declaration {
    /// The name of the kind.
    pub name: &'static str,
    /// The name of the kind in events.
    pub event_name: &'static str,
    /// The name where groups are written on one line, as in the replay.
    pub short_name: &'static str,
    /// vLLM's classes of such groups' specs and managers.
    pub vllm_classes: (&'static str, &'static str),
    /// Attributes that tell such specs from those of other kinds of the same class.
    pub vllm_attributes: &'static [(&'static str, &'static str)],
    /// Sizes that a group must give, in the order in which they are written on one line.
    pub required: &'static [Size],
    /// Sizes that a group may give.
    pub optional: &'static [Size],
    /// Whether blocks take part in prefix caching.
    pub caching: Caching,
    /// Whether ranks of decode context parallelism share the tokens of a block out among them.
    pub sharding: Sharding,
    /// Whether hits can end inside a block.
    pub partial_hits: PartialHits,
    /// What of a prefix a hit needs, for the table of kinds.
    pub hit_needs: &'static str,
    /// Which blocks are released while a request runs, for the table of kinds; empty for none.
    pub releases: &'static str,
    /// Whether a hit needs a tail only, so that the retention mask and retention intervals apply.
    pub is_sparse: bool,
    /// Whether the blocks that a request still holds are pinned when it releases many.
    pub is_pinned_by_drop: bool,
    /// Whether hits can drop their last block, as EAGLE and MTP need.
    pub supports_eagle: bool,
    /// Whether a group can stand beside groups of other block sizes.
    pub mixes_block_sizes: bool,
    /// Whether every prefix of a hit is a hit: a longer hit is then cut instead of searched anew,
    /// and the end of a prompt is cached although it lies inside a block.
    pub is_prefix_closed: bool,
    /// Whether a block is the state of a whole prefix, as in Mamba, instead of that of its tokens.
    pub is_state: bool,
    /// Whether the blocks of a table lie at the positions of the request's tokens.
    pub covers_tokens: bool,
    /// Whether tables begin with the blocks of a hit.
    pub starts_with_hit: bool,
    /// Whether the worker zeroes new blocks, in a model that needs it.
    pub needs_zeroing: bool,
    /// Whether a hit for a running request is refused before the capacity check.
    pub(crate) refuses_hit_first: bool,
    /// Whether tables are the usual ones, for which a step needs no check but that of capacity.
    pub(crate) has_usual_table: bool,
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

/// Whether hits can end inside a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartialHits {
    /// No.
    Never,
    /// Yes, in a model in which a group of another kind wants it.
    Possible,
    /// Yes; one such group with blocks larger than hash blocks switches them on.
    Wanted,
}

impl Caching {
    /// The name of the variant in Python.
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

    /// Returns the tokens per block of a group whose blocks so many ranks may share out among them.
    pub(crate) fn block_size(&self, spec: &GroupSpec, dcp_world_size: usize) -> Result<usize> {
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

    /// Checks that a spec gives the sizes and options that the kind has, and no others.
    pub(super) fn check(&self, spec: &GroupSpec) -> Result<()> {
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
        self.required.iter().try_for_each(|&size| spec.required(size).map(|_| ()))
    }
}

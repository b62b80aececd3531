//! Declares a kind of group: its names, its sizes, and everything that is the same for all groups
//! of the kind. Tables of kinds, checks of sizes and decisions read the declaration.

use super::spec::{GroupSpec, Size};
use crate::error::{Error, Result};

/// The declaration of a kind of group. Each kind is declared by its differences from full
/// attention.
#[derive(Debug)]
pub struct Declaration {
    /// The name of the kind.
    pub name: &'static str,
    /// The name of the kind in events.
    pub event_name: &'static str,
    /// The name of the kind where groups are written on one line, as in the replay.
    pub short_name: &'static str,
    /// vLLM's classes for the specs and the managers of such groups.
    pub vllm_classes: (&'static str, &'static str),
    /// Attributes that distinguish such specs from specs of other kinds with the same class.
    pub vllm_attributes: &'static [(&'static str, &'static str)],
    /// The sizes that a group must give, in the order in which they are written on one line.
    pub required: &'static [Size],
    /// The sizes that a group can give.
    pub optional: &'static [Size],
    /// Whether the blocks take part in prefix caching.
    pub caching: Caching,
    /// Whether the ranks of decode context parallelism divide the tokens of a block among them.
    pub sharding: Sharding,
    /// Whether hits can end inside a block.
    pub partial_hits: PartialHits,
    /// The part of a prefix that a hit needs, for the table of kinds.
    pub hit_needs: &'static str,
    /// The blocks that are released while a request runs, for the table of kinds; empty if none
    /// are.
    pub releases: &'static str,
    /// Whether a hit needs only a tail. Then the retention mask and retention intervals apply.
    pub is_sparse: bool,
    /// Whether a request's remaining blocks are pinned when the request releases many blocks.
    pub is_pinned_by_drop: bool,
    /// Whether hits can drop their last block. EAGLE and MTP need this.
    pub supports_eagle: bool,
    /// Whether a manager can have such a group together with groups of other block sizes.
    pub mixes_block_sizes: bool,
    /// Whether every prefix of a hit is a hit. Then a hit that is too long is cut instead of
    /// searched again, and the end of a prompt is cached even inside a block.
    pub is_prefix_closed: bool,
    /// Whether a block holds the state of a whole prefix, as in Mamba, instead of its tokens' KV.
    pub is_state: bool,
    /// Whether the blocks of a table lie at the positions of the request's tokens.
    pub covers_tokens: bool,
    /// Whether tables start with the blocks of a hit.
    pub starts_with_hit: bool,
    /// Whether the worker zeroes new blocks, in models that need it.
    pub needs_zeroing: bool,
    /// Whether the manager refuses a hit for a running request before the capacity check.
    pub(crate) refuses_hit_first: bool,
    /// Whether the kind uses the usual tables. For these, a step needs only the capacity check.
    pub(crate) has_usual_table: bool,
}

/// Whether a kind takes part in prefix caching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caching {
    /// Every group does.
    Always,
    /// A group does unless it opts out.
    Optional,
    /// No group does.
    Never,
}

/// Whether the ranks of decode context parallelism divide a kind's blocks among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharding {
    /// They do, unless the group says that every rank has a replica.
    Shared,
    /// They do not: every rank has a replica, and the group must say so.
    Replicated,
    /// They do not: every rank has the whole block.
    Whole,
}

/// Whether hits can end inside a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartialHits {
    /// They cannot.
    Never,
    /// They can, if a group of another kind in the model wants them.
    Possible,
    /// They can, and one such group with blocks larger than hash blocks enables them in the model.
    Wanted,
}

impl Caching {
    /// Returns the name of the variant in Python.
    pub fn name(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::Optional => "optional",
            Self::Never => "never",
        }
    }
}

impl Declaration {
    /// Returns whether requests share the blocks of a group.
    pub fn is_cacheable(&self, spec: &GroupSpec) -> bool {
        spec.prefix_cacheable.unwrap_or(self.caching != Caching::Never)
    }

    /// Returns the tokens per block of a group, for `dcp_world_size` ranks that can divide a block
    /// among them.
    pub(crate) fn block_size(&self, spec: &GroupSpec, dcp_world_size: usize) -> Result<usize> {
        if dcp_world_size == 1 || !spec.dcp_sharded.unwrap_or(self.sharding != Sharding::Whole) {
            return Ok(spec.block_size);
        }
        if self.sharding != Sharding::Shared {
            return Err(Error::Config(format!(
                "dcp_world_size is {dcp_world_size}, but ranks cannot divide the blocks of a group \
                 of kind '{}'; set dcp_sharded=False for the group",
                self.name
            )));
        }
        GroupSpec::positive("the block size of all ranks", spec.block_size * dcp_world_size)
    }

    /// Checks that a spec gives all sizes and options that the kind needs, and no unknown ones.
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

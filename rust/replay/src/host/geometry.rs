//! The groups of a manager as vLLM's offloading connector sees them. A chunk is one block.

use kvoxide_core::group::Group;
use kvoxide_core::host::{HostGroup, HostSearch};
use kvoxide_core::joint::{search_of, window_tokens};
use kvoxide_core::pool::LeavingBlock;
use kvoxide_core::{Manager, Retention};

/// The groups of a connector, and the rules of its masks.
#[derive(Clone, Debug)]
pub(super) struct Geometry {
    pub search: HostSearch,
    /// For each group, the rule that decides which of its chunks are stored.
    pub masks: Vec<GroupMask>,
    /// Hits end at multiples of this many tokens; `None` if groups differ.
    pub alignment: Option<usize>,
    /// Tokens between tails that are stored; `None` for every alignment, 0 for boundaries alone.
    pub interval: Option<usize>,
    pub hash_block_size: usize,
}

/// The rule that decides which chunks of a group are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GroupMask {
    /// All chunks are stored.
    All,
    /// Tails of this many blocks are stored.
    Tails(usize),
    /// States at boundaries are stored, from the block table.
    States,
    /// States are stored when the manager hands them over.
    HandedOver,
}

impl Geometry {
    pub fn of(manager: &Manager) -> Self {
        let search = search_of(manager);
        let cacheable = manager.groups().iter().filter(|group| group.is_cacheable);
        let masks = cacheable.map(GroupMask::of).collect();
        let groups = &search.groups;
        let mut full: Vec<_> =
            groups.iter().filter(|group| group.window_chunks.is_none()).collect();
        full.dedup_by_key(|group| group.tokens_per_chunk);
        let alignment = match full[..] {
            [] => groups.iter().map(|group| group.tokens_per_chunk).max(),
            [first, ref rest @ ..] => {
                let is_same = |other: &&HostGroup| other.tokens_per_chunk == first.tokens_per_chunk;
                rest.iter().all(is_same).then_some(first.tokens_per_chunk)
            }
        };
        let policy = &manager.config().policy;
        // Adaptive retention leaves the setting that the connector reads at its default.
        let interval = match policy.retention {
            Retention::Standard => policy.retention_interval,
            Retention::Adaptive => Some(0),
        };
        Self { search, masks, alignment, interval, hash_block_size: manager.hash_block_size() }
    }

    pub fn groups(&self) -> &[HostGroup] {
        &self.search.groups
    }

    /// Returns whether a block of the pool is of a window, or a state.
    pub fn is_tail(&self, block: &LeavingBlock) -> bool {
        self.search.group_of(&block.key).is_some_and(|group| group.window_chunks.is_some())
    }
}

impl GroupMask {
    fn of(group: &Group) -> Self {
        let spec = &group.spec;
        match window_tokens(group) {
            _ if spec.kind == "mamba" => Self::HandedOver,
            _ if group.is_state => Self::States,
            Some(before) => {
                Self::Tails(before.div_ceil(group.block_size) + usize::from(spec.is_eagle_group))
            }
            None => Self::All,
        }
    }
}

//! What a request holds.

use super::table::GroupBlocks;
use crate::block::BlockId;

/// What a request holds in one group.
#[derive(Clone, Debug, Default)]
pub struct GroupState {
    /// Its block table.
    pub blocks: GroupBlocks,
    /// Leading blocks that are cached or passed over for good; `None` until the request has
    /// adopted a hit or cached a block here.
    pub num_cached_blocks: Option<usize>,
}

/// What a request holds in every group.
#[derive(Clone, Debug)]
pub struct RequestBlocks {
    /// One entry per group.
    pub groups: Vec<GroupState>,
    /// Tails that the adaptive policy protects while the request runs, with the first words of their
    /// hashes. Some may have been evicted since.
    pub protected_tails: Vec<(BlockId, u64)>,
}

impl RequestBlocks {
    /// A request without blocks.
    pub fn new(num_groups: usize) -> Self {
        Self { groups: vec![GroupState::default(); num_groups], protected_tails: Vec::new() }
    }

    /// Returns the blocks of all groups without null blocks, the last of each table first.
    pub fn iter_held_back(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.groups.iter().flat_map(|group| group.blocks.iter_held_back())
    }

    /// Whether the request has adopted a hit or cached a block in some group, after which it
    /// takes no new hit.
    pub fn is_running(&self) -> bool {
        self.groups.iter().any(|group| group.num_cached_blocks.is_some())
    }
}

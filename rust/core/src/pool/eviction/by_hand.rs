//! Blocks that somebody else moves out of the free queue and back, or counts references to.
//!
//! A block that was taken out of its queue and to which nobody counts a reference is *loose*: the
//! pool has a reference to it, so that every other call finds it in use. A queued block to which
//! references were counted stays queued until it is taken out.

use crate::block::BlockId;

/// What was moved and counted by hand and is not finished.
#[derive(Debug, Default)]
pub(crate) struct ByHand {
    pub(crate) loose: hashbrown::HashSet<BlockId, foldhash::fast::FixedState>,
    pub(crate) counted: hashbrown::HashMap<BlockId, u32, foldhash::fast::FixedState>,
}

impl ByHand {
    pub(crate) fn is_empty(&self) -> bool {
        self.loose.is_empty() && self.counted.is_empty()
    }

    /// References to a block where they are not those that the pool has.
    pub(crate) fn count(&self, block: BlockId) -> Option<u32> {
        match self.counted.get(&block) {
            Some(&count) => Some(count),
            None => self.loose.contains(&block).then_some(0),
        }
    }
}

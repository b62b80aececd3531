//! Retention priorities, as in TensorRT-LLM's `KvCacheRetentionConfig`. A request can set a
//! priority from 0 to 100 and a time to live. The default is 50, for which blocks have no priority.
//!
//! A free cached block with another priority waits in a list of this priority. Lists below 50 are
//! evicted before all other cached blocks, and lists above 50 after them. In a list, the block that
//! has been free longest is evicted first. Priorities above 50 protect at most a share of the pool.
//! If there are more such blocks, the first block of the lowest such list loses its priority. A
//! block whose time has ended also loses it. Without a priority, a block waits with all other
//! blocks.
//!
//! A block has the priority of the request that computed it. Later users can only raise it. A
//! request can set priorities for ranges of its tokens. A block is in the range that contains its
//! last token.
//!
//! A request can also give ranges up. When it ends, their blocks get the priority 0, unless another
//! request uses them, or several sessions share them.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use kvoxide_core::BlockId;
use kvoxide_core::pool::EffectivePriority;

pub const DEFAULT: u8 = 50;

/// The priority that a request asks for a range of its tokens.
#[derive(Clone, Debug)]
pub struct Asked {
    pub tokens: Range<usize>,
    pub priority: u8,
    /// Milliseconds from the last use; `None` for no limit.
    pub time_to_live: Option<u64>,
}

/// The retention that a request asks for.
#[derive(Clone, Debug, Default)]
pub struct Retention {
    pub session: Option<u64>,
    pub ends_session: bool,
    /// Of several ranges with a token, the last one counts.
    pub priorities: Vec<Asked>,
    /// The tokens that the request gives up when it ends.
    pub given_up: Vec<Range<usize>>,
}

impl Retention {
    /// Returns whether the request gives up the block that ends after `end` tokens.
    pub fn gives_up(&self, end: usize) -> bool {
        end > 0 && self.given_up.iter().any(|tokens| tokens.contains(&(end - 1)))
    }
}

#[derive(Default)]
pub struct Priorities {
    /// The most free blocks above the default priority.
    max_protected: usize,
    pub now: u64,
    /// The retention that the request asks for that uses blocks now.
    pub asked: Retention,
    /// The priorities of blocks, in use or free, and the times when they end.
    of_blocks: HashMap<BlockId, EffectivePriority>,
    /// The free blocks of each priority. The first one is evicted first.
    lists: BTreeMap<u8, Vec<BlockId>>,
    /// Duplicates, with the priorities of the blocks that serve their keys.
    inherited: Vec<(BlockId, EffectivePriority)>,
}

impl Priorities {
    pub fn new(max_protected: usize) -> Self {
        Self { max_protected, ..Self::default() }
    }

    pub fn of(&self, block: BlockId) -> Option<EffectivePriority> {
        self.of_blocks.get(&block).copied()
    }

    pub fn is_over(&self, of_block: EffectivePriority) -> bool {
        of_block.until <= self.now
    }

    pub fn set(&mut self, block: BlockId, priority: Option<EffectivePriority>) {
        match priority {
            Some(priority) => self.of_blocks.insert(block, priority),
            None => self.of_blocks.remove(&block),
        };
    }

    /// Returns the priority that a block gets from the current request, if it sets one. The block
    /// ends after `end` tokens.
    fn given(&self, end: usize) -> Option<EffectivePriority> {
        let last = end.checked_sub(1)?;
        let of_block = self.asked.priorities.iter().rfind(|asked| asked.tokens.contains(&last))?;
        if of_block.priority == DEFAULT || self.asked.gives_up(end) {
            return None;
        }
        let until = of_block.time_to_live.map_or(EffectivePriority::NO_END, |time| self.now + time);
        Some(EffectivePriority { priority: of_block.priority, until })
    }

    /// Gives computed blocks the priority of their request. If a block that serves the same key has
    /// a higher priority, they get that. Blocks come with their ends.
    pub fn computed(&mut self, blocks: &[(BlockId, usize)]) {
        for &(block, end) in blocks {
            if let Some(given) = self.given(end) {
                self.set(block, Some(given));
            }
        }
        for (block, priority) in std::mem::take(&mut self.inherited) {
            self.raise_to(block, priority);
        }
    }

    /// Notes that a duplicate inherits the priority of the block that serves its key.
    pub fn inherit(&mut self, from: BlockId, to: BlockId) {
        self.inherited.extend(self.of(from).map(|priority| (to, priority)));
    }

    /// Raises the priority of a block that the current request uses or releases.
    pub fn raise(&mut self, block: BlockId, end: usize) {
        if let Some(given) = self.given(end) {
            self.raise_to(block, given);
        }
    }

    fn raise_to(&mut self, block: BlockId, given: EffectivePriority) {
        let known = self.of(block);
        if let Some(same) = known.filter(|known| known.priority == given.priority) {
            let until = same.until.max(given.until);
            return self.set(block, Some(EffectivePriority { until, ..given }));
        }
        let in_force = known.filter(|&known| !self.is_over(known));
        if given.priority > in_force.map_or(DEFAULT, |known| known.priority) {
            self.set(block, Some(given));
        }
    }

    /// Handles a hit of a block. A request without a priority has the default, which is higher than
    /// a low priority.
    pub fn hit(&mut self, block: BlockId, end: usize) {
        if self.given(end).is_none() && self.of(block).is_some_and(|known| known.priority < DEFAULT)
        {
            self.set(block, None);
        }
    }

    /// Adds a block with a priority, which became free, to its list.
    pub fn push(&mut self, block: BlockId) {
        self.lists.entry(self.of_blocks[&block].priority).or_default().push(block);
    }

    /// Removes a block from its list.
    pub fn remove(&mut self, block: BlockId) {
        self.lists.values_mut().for_each(|list| list.retain(|&other| other != block));
    }

    /// Returns the free blocks below the default priority in the order of their eviction.
    pub fn low(&self) -> Vec<BlockId> {
        self.lists.range(..DEFAULT).flat_map(|(_, list)| list).copied().collect()
    }

    /// Returns the free blocks above the default priority in the order of their eviction.
    pub fn high(&self) -> Vec<BlockId> {
        self.lists.range(DEFAULT + 1..).flat_map(|(_, list)| list).copied().collect()
    }

    /// Returns the next free block above the protected share of the pool.
    pub fn excess(&self) -> Option<BlockId> {
        let high = self.high();
        high.first().copied().filter(|_| high.len() > self.max_protected)
    }

    /// Returns the free block whose time ended first, if its time has ended.
    pub fn expired(&self) -> Option<BlockId> {
        let free = self.lists.values().flatten().copied();
        free.filter(|block| self.is_over(self.of_blocks[block]))
            .min_by_key(|block| (self.of_blocks[block].until, *block))
    }
}

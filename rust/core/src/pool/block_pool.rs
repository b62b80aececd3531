//! The pool itself: blocks, index and eviction, and what is counted of them.

use super::blocks::KeyLayout;
use super::event::EventLog;
use super::index::PrefixIndex;
use super::observation::Observation;
use crate::block::{BlockId, MAX_BLOCKS, NULL_BLOCK};
use crate::error::{Error, Result};
use crate::pool::blocks::Blocks;
use crate::pool::eviction::Eviction;
use crate::pool::eviction::adaptive::{Adaptive, AdaptiveConfig};
use crate::pool::eviction::by_hand::ByHand;
use crate::pool::eviction::queue::RecycleOrder;

/// Blocks shared by every KV cache group of a model.
#[derive(Debug)]
pub struct BlockPool {
    pub(crate) blocks: Blocks,
    pub(crate) eviction: Eviction,
    pub(crate) index: PrefixIndex,
    observations: Option<Vec<Observation>>,
    null_references: Option<i32>,
    withheld: usize,
    pub(crate) by_hand: ByHand,
}

impl BlockPool {
    /// A pool of `num_blocks` blocks, the null block included, for keys of `num_groups` groups.
    pub fn new(
        num_blocks: usize,
        num_groups: usize,
        recycle_order: RecycleOrder,
        with_events: bool,
    ) -> Result<Self> {
        Self::with_adaptive(num_blocks, num_groups, recycle_order, with_events, None)
    }

    /// A pool that evicts by the adaptive policy if its configuration is given.
    pub fn with_adaptive(
        num_blocks: usize,
        num_groups: usize,
        recycle_order: RecycleOrder,
        with_events: bool,
        adaptive: Option<AdaptiveConfig>,
    ) -> Result<Self> {
        if !(1..MAX_BLOCKS).contains(&num_blocks) {
            return Err(Error::Config(format!(
                "num_blocks is {num_blocks}; it must be from 1 to {}",
                MAX_BLOCKS - 1
            )));
        }
        let layout = KeyLayout::new(num_groups);
        let num_sentinels = adaptive.as_ref().map_or(0, |_| Adaptive::NUM_SENTINELS);
        let mut blocks = Blocks::with_sentinels(num_blocks, layout, num_sentinels);
        let eviction = Eviction::new(&mut blocks, recycle_order, adaptive);
        Ok(Self {
            blocks,
            eviction,
            index: PrefixIndex::new(num_blocks, layout, with_events),
            observations: None,
            null_references: None,
            withheld: 0,
            by_hand: ByHand::default(),
        })
    }

    /// Starts to keep observations.
    pub fn observe(&mut self) {
        self.observations.get_or_insert_default();
    }

    /// Returns the observations since the last call.
    pub fn take_observations(&mut self) -> Vec<Observation> {
        self.observations.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Starts to count references to the null block too, as vLLM did before 0.33.0: from 0 on and below
    /// it, since most of those that are dropped were never added.
    pub fn count_null_references(&mut self) {
        self.null_references.get_or_insert_default();
    }

    /// Whether references to the null block are counted.
    pub fn counts_null_references(&self) -> bool {
        self.null_references.is_some()
    }

    /// Returns the number of references to a block; 0 for the null block unless they are counted.
    pub fn ref_count(&self, block: BlockId) -> i32 {
        match (block, self.null_references) {
            (NULL_BLOCK, Some(count)) => count,
            _ if self.by_hand.is_empty() => self.blocks.ref_count(block) as i32,
            _ => {
                let by_hand = self.by_hand.count(block);
                by_hand.unwrap_or_else(|| self.blocks.ref_count(block)) as i32
            }
        }
    }

    /// Counts references to the null block that a hit adds.
    pub fn touch_null(&mut self, n: usize) {
        if let Some(count) = &mut self.null_references {
            *count = count.wrapping_add(n as i32);
            (0..n).for_each(|_| self.note(|| Observation::Touched(NULL_BLOCK)));
        }
    }

    /// Counts references to the null block that a release drops.
    pub fn release_null(&mut self, n: usize) {
        if let Some(count) = &mut self.null_references {
            *count = count.wrapping_sub(n as i32);
        }
    }

    /// Whether observations are kept.
    pub(crate) fn is_observed(&self) -> bool {
        self.observations.is_some()
    }

    pub(crate) fn note(&mut self, observation: impl FnOnce() -> Observation) {
        if let Some(observations) = &mut self.observations {
            observations.push(observation());
        }
    }

    /// Number of blocks, the null block included.
    pub fn num_blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Returns how many blocks can be allocated: those that are free less those that are withheld.
    /// Negative after a hit on blocks while all were withheld.
    pub fn num_free_blocks(&self) -> isize {
        self.eviction.num_free() as isize - self.withheld as isize
    }

    /// Withholds all but `n` free blocks until this is called again. Fails if fewer are free.
    pub fn set_num_free_blocks(&mut self, n: usize) -> Result<()> {
        let num_free = self.eviction.num_free();
        self.withheld = num_free.checked_sub(n).ok_or_else(|| {
            Error::Block(format!("num_free_blocks is to be {n}, but only {num_free} are free"))
        })?;
        Ok(())
    }

    /// Whether a block has no references.
    pub fn is_free(&self, block: BlockId) -> bool {
        self.blocks.ref_count(block) == 0
    }

    /// Number of blocks in the pinned tier.
    pub fn num_pinned_blocks(&self) -> usize {
        self.eviction.queue().pinned.len()
    }

    /// Returns the share of the pool in use, from 0 to 1, without the null block.
    pub fn usage(&self) -> f64 {
        let total = self.num_blocks() - 1;
        if total == 0 {
            return 0.0;
        }
        1.0 - self.num_free_blocks() as f64 / total as f64
    }

    /// Returns the prefix index.
    pub fn index(&self) -> &PrefixIndex {
        &self.index
    }

    /// Returns what is known of each block.
    pub fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    /// Returns those of some blocks that are neither cached nor null.
    pub fn unhashed(&self, blocks: &[BlockId]) -> Vec<BlockId> {
        let held = blocks.iter().copied().filter(|&id| id != NULL_BLOCK);
        held.filter(|&id| !self.blocks.is_cached(id)).collect()
    }

    /// Returns the free queue, front first.
    pub fn free_blocks(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.eviction.queue().free.iter(&self.blocks)
    }

    /// Returns the pinned tier, oldest first.
    pub fn pinned_blocks(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.eviction.queue().pinned.iter(&self.blocks)
    }

    /// Checks that `n` blocks can be allocated.
    pub fn check_free(&self, n: usize) -> Result<()> {
        if !self.by_hand.is_empty() {
            self.check_none_by_hand(self.queued_from(self.first_queued()).take(n))?;
        }
        if isize::try_from(n).is_ok_and(|n| n <= self.num_free_blocks()) {
            return Ok(());
        }
        Err(Error::Block(format!(
            "cannot take {n} blocks: only {} of the pool's {} are free",
            self.num_free_blocks(),
            self.num_blocks()
        )))
    }

    /// Removes every key, unless a block is in use. Returns whether it was done.
    pub fn reset(&mut self) -> bool {
        if self.num_free_blocks() + 1 != self.num_blocks() as isize {
            return false;
        }
        let Self { blocks, eviction, index, .. } = self;
        eviction.clear(blocks, &|blocks, key| index.find(blocks, key));
        index.clear(blocks);
        true
    }

    /// Sets the references to the null block, if they are counted.
    pub(crate) fn set_null_references(&mut self, count: u32) {
        match &mut self.null_references {
            Some(references) => *references = count as i32,
            None => self.blocks.set_ref_count(NULL_BLOCK, count),
        }
    }

    /// Returns the events that have not been handed out.
    pub fn events_mut(&mut self) -> &mut EventLog {
        self.index.events_mut()
    }
}

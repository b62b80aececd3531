//! The interface for a policy that orders one block at a time. The policy orders free cached blocks,
//! and the pool does the rest.

use std::fmt::Debug;

use super::EvictionHints;
use super::queue::Queue;
use crate::block::{BlockId, NULL_BLOCK};
use crate::pool::blocks::{Blocks, FullBlocks, ListSpan, OpenEnds};

/// The order in which free cached blocks are evicted.
///
/// The pool counts references, keeps the uncached blocks in its free queue and allocates these
/// first. Only when the queue is empty does it ask for the block that is evicted next. Blocks of
/// the pinned tier are evicted after all blocks of the policy.
/// [`BlockPool::evict_by`](super::super::BlockPool::evict_by) puts a policy in force. Each call is
/// about one block, never the null block. `blocks` has the block's references, its key and the
/// number of tokens of a prefix that its hash covers.
pub trait EvictionPolicy: Debug + Send + Sync {
    /// Notes that a block in use became cached. Without hints, nothing is known of its request: the
    /// block got a single key from outside, or the keys of another block.
    fn cached(&mut self, blocks: &Blocks, block: BlockId, hints: Option<EvictionHints>);

    /// Notes that a request hit a block. If the block was free, the caller has removed it with
    /// [`Self::remove`].
    fn hit(&mut self, blocks: &Blocks, block: BlockId);

    /// Adds a cached block that became free. If blocks become free together, the caller first adds
    /// the block that the default policy would evict first.
    fn insert(&mut self, blocks: &Blocks, block: BlockId);

    /// Removes a block, if it was added and is not removed yet. Returns whether it removed the
    /// block.
    fn remove(&mut self, blocks: &Blocks, block: BlockId) -> bool;

    /// Removes and returns the block that is evicted next.
    fn evict(&mut self, blocks: &Blocks) -> Option<BlockId>;

    /// Returns the blocks that were added and are not removed, in the order of eviction.
    fn order(&self, blocks: &Blocks) -> Vec<BlockId>;

    /// Returns the number of blocks that were added and are not removed.
    fn num_blocks(&self) -> usize;

    /// Checks the policy's data, in tests. The error says what is wrong.
    fn check(&self, blocks: &Blocks) -> Result<(), String>;
}

/// The free queue and the pinned tier, and between them the free cached blocks of a policy.
#[derive(Debug)]
pub(crate) struct Ordered {
    pub(super) queue: Queue,
    pub(super) policy: Box<dyn EvictionPolicy>,
}

impl Ordered {
    pub(super) fn num_free(&self) -> usize {
        self.queue.len() + self.policy.num_blocks()
    }

    pub(super) fn cached(&mut self, blocks: &Blocks, batch: &FullBlocks<'_>, hints: EvictionHints) {
        for &block in batch.blocks.iter().filter(|&&block| block != NULL_BLOCK) {
            self.policy.cached(blocks, block, Some(hints));
        }
    }

    pub(super) fn hit(&mut self, blocks: &mut Blocks, ids: &[BlockId]) {
        for &block in ids.iter().filter(|&&block| block != NULL_BLOCK) {
            if blocks.is_free(block) {
                self.take_out(blocks, block);
            }
            blocks.add_reference(block);
            self.policy.hit(blocks, block);
        }
    }

    pub(super) fn release(&mut self, blocks: &mut Blocks, ids: impl Iterator<Item = BlockId>) {
        let mut ends = self.queue.free.open(blocks);
        for block in ids.filter(|&block| block != NULL_BLOCK) {
            if blocks.remove_reference(block) {
                self.add_free(blocks, block, &mut ends);
            }
        }
        self.queue.free.close(blocks, &ends);
    }

    fn add_free(&mut self, blocks: &mut Blocks, block: BlockId, ends: &mut OpenEnds) {
        match blocks.is_cached(block) && !blocks.is_pinned(block) {
            true => self.policy.insert(blocks, block),
            false => self.queue.push(blocks, block, ends),
        }
    }

    pub(super) fn uncached(&mut self, blocks: &mut Blocks, block: BlockId) {
        self.queue.uncached(blocks, block);
        if self.policy.remove(blocks, block) {
            self.queue.enqueue(blocks, block);
        }
    }

    /// Takes a free block out of the order of the policy, the free queue or the pinned tier.
    pub(super) fn take_out(&mut self, blocks: &mut Blocks, block: BlockId) {
        if !self.policy.remove(blocks, block) {
            self.queue.unlink(blocks, ListSpan::of(block));
        }
    }

    pub(super) fn evict(&mut self, blocks: &mut Blocks, n: usize, out: &mut Vec<BlockId>) {
        self.move_to_queue(blocks, n.saturating_sub(self.queue.free.len()));
        self.queue.evict(blocks, n, out);
    }

    /// Moves the `n` blocks that are evicted first to the end of the free queue, or all blocks if
    /// there are fewer.
    pub(super) fn move_to_queue(&mut self, blocks: &mut Blocks, n: usize) {
        for _ in 0..n {
            let Some(block) = self.policy.evict(blocks) else { return };
            self.queue.free.push_back(blocks, block);
        }
    }
}

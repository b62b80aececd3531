//! Decides which free block is evicted next. The free queue and the pinned tier have vLLM's order
//! ([`queue`]). kvoxide's own policy also has ranked lists of free cached blocks ([`adaptive`]). A
//! policy that orders one block at a time implements [`policy::EvictionPolicy`].
//!
//! A policy also adds and drops references. It does so for many blocks at once, and at the same
//! time finds the blocks that become free or are no longer free.

pub(crate) mod by_hand;

pub(crate) mod adaptive;
pub(crate) mod policy;
pub(crate) mod priority;
pub(crate) mod queue;
pub(crate) mod request_retention;

use adaptive::{Adaptive, AdaptiveConfig, ValueLevel};
use policy::{EvictionPolicy, Ordered};
use priority::EffectivePriority;
use queue::{Queue, RecycleOrder};

use crate::block::{BlockId, CacheKey};
use crate::error::{Error, Result};
use crate::pool::blocks::{Blocks, FullBlocks, ListSpan};

/// The policy by which a pool evicts, and the free blocks in its order.
#[derive(Debug)]
pub(crate) enum Eviction {
    Queue(Queue),
    Adaptive(Box<Adaptive>),
    Ordered(Ordered),
}

/// Properties of full blocks when they become cached.
#[derive(Clone, Copy, Debug)]
pub struct EvictionHints {
    /// The value of the blocks.
    pub value: ValueLevel,
    /// The number of tokens of the prompt. Blocks after the prompt were generated.
    pub num_prompt_tokens: usize,
    /// The part of the prompt that vLLM's default policy cannot hit.
    pub without_tail: WithoutTail,
}

/// A part of a prompt, in tokens. vLLM's default policy computes it again although earlier requests
/// had it, because it has no tail there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WithoutTail {
    /// The number of tokens before the part.
    pub start: usize,
    /// The number of tokens up to its end. The part is empty if this is not more than `start`.
    pub end: usize,
}

/// Finds the block that serves a key.
pub(crate) type Find<'a> = &'a dyn Fn(&Blocks, &CacheKey) -> Option<BlockId>;

impl Eviction {
    /// Creates the order of a new pool in which all blocks are free. With `adaptive`, `blocks` has
    /// [`Adaptive::NUM_SENTINELS`] further lists.
    pub(crate) fn new(
        blocks: &mut Blocks,
        order: RecycleOrder,
        adaptive: Option<AdaptiveConfig>,
    ) -> Self {
        let queue = Queue::new(blocks, order);
        match adaptive {
            None => Self::Queue(queue),
            Some(config) => Self::Adaptive(Box::new(Adaptive::new(blocks, queue, config))),
        }
    }

    /// Replaces the default policy with another one. No block may be cached.
    pub(crate) fn evict_by(&mut self, policy: Box<dyn EvictionPolicy>) -> Result<()> {
        let Self::Queue(queue) = self else {
            return Err(Error::Config(
                "the pool already has another eviction policy; set a policy only on a pool with \
                 the default one"
                    .into(),
            ));
        };
        *self = Self::Ordered(Ordered { queue: queue.clone(), policy });
        Ok(())
    }

    pub(crate) fn adaptive(&self) -> Option<&Adaptive> {
        match self {
            Self::Adaptive(adaptive) => Some(adaptive),
            Self::Queue(_) | Self::Ordered(_) => None,
        }
    }

    pub(crate) fn adaptive_mut(&mut self) -> Option<&mut Adaptive> {
        match self {
            Self::Adaptive(adaptive) => Some(adaptive),
            Self::Queue(_) | Self::Ordered(_) => None,
        }
    }

    fn ordered(&self) -> Option<&Ordered> {
        match self {
            Self::Ordered(ordered) => Some(ordered),
            Self::Queue(_) | Self::Adaptive(_) => None,
        }
    }

    pub(crate) fn queue(&self) -> &Queue {
        match self {
            Self::Queue(queue) => queue,
            Self::Adaptive(adaptive) => &adaptive.queue,
            Self::Ordered(ordered) => &ordered.queue,
        }
    }

    pub(crate) fn queue_mut(&mut self) -> &mut Queue {
        match self {
            Self::Queue(queue) => queue,
            Self::Adaptive(adaptive) => &mut adaptive.queue,
            Self::Ordered(ordered) => &mut ordered.queue,
        }
    }

    /// Returns the number of free blocks.
    #[inline]
    pub(crate) fn num_free(&self) -> usize {
        match self {
            Self::Queue(queue) => queue.len(),
            Self::Adaptive(adaptive) => adaptive.queue.len() + adaptive.num_listed(),
            Self::Ordered(ordered) => ordered.num_free(),
        }
    }

    /// Notes that full blocks have become cached.
    #[inline]
    pub(crate) fn note_cached(
        &mut self,
        blocks: &mut Blocks,
        batch: &FullBlocks<'_>,
        hints: EvictionHints,
    ) {
        match self {
            Self::Queue(_) => {}
            Self::Adaptive(adaptive) => adaptive.cached(blocks, batch, hints),
            Self::Ordered(ordered) => ordered.cached(blocks, batch, hints),
        }
    }

    /// Sets the value of blocks that have just become cached. Null blocks are skipped.
    pub(crate) fn set_value(&mut self, ids: &[BlockId], value: ValueLevel) {
        if let Self::Adaptive(adaptive) = self {
            adaptive.set_value(ids, value);
        }
    }

    /// Notes that a single block has become cached. Nothing is known of the prompt of its key.
    pub(crate) fn note_cached_alone(
        &mut self,
        blocks: &mut Blocks,
        block: BlockId,
        key: &CacheKey,
    ) {
        match self {
            Self::Queue(_) => {}
            Self::Adaptive(adaptive) => adaptive.cached_alone(blocks, block, key.group),
            Self::Ordered(ordered) => ordered.policy.cached(blocks, block, None),
        }
    }

    /// Adds a reference to each block. A free block leaves its list. Null blocks are skipped.
    #[inline]
    pub(crate) fn hit(&mut self, blocks: &mut Blocks, ids: &[BlockId]) {
        match self {
            Self::Queue(queue) => queue.hit(blocks, ids),
            Self::Adaptive(adaptive) => adaptive.hit(blocks, ids),
            Self::Ordered(ordered) => ordered.hit(blocks, ids),
        }
    }

    /// Drops a reference to each block. Among equal blocks that lose their last reference, the
    /// first in the given order is evicted first. Null blocks are skipped.
    #[inline]
    pub(crate) fn release(&mut self, blocks: &mut Blocks, ids: &[BlockId]) {
        match self {
            Self::Queue(queue) => queue.release(blocks, ids),
            Self::Adaptive(adaptive) => adaptive.release(blocks, ids),
            Self::Ordered(ordered) => ordered.release(blocks, ids.iter().copied()),
        }
    }

    /// Releases blocks like [`Self::release`], but the last block first.
    #[inline]
    pub(crate) fn release_table(&mut self, blocks: &mut Blocks, table: &[BlockId]) {
        match self {
            Self::Queue(queue) => queue.release_table(blocks, table),
            Self::Adaptive(adaptive) => adaptive.release_table(blocks, table),
            Self::Ordered(ordered) => ordered.release(blocks, table.iter().rev().copied()),
        }
    }

    /// Notes that a block lost its keys. A free block moves to the free queue.
    pub(crate) fn note_uncached(&mut self, blocks: &mut Blocks, block: BlockId) {
        match self {
            Self::Queue(queue) => queue.uncached(blocks, block),
            Self::Adaptive(adaptive) => _ = adaptive.move_to_queue(blocks, block),
            Self::Ordered(ordered) => ordered.uncached(blocks, block),
        }
    }

    /// Notes that the keys of a block have moved to another block.
    pub(crate) fn note_moved(&mut self, blocks: &mut Blocks, from: BlockId, to: BlockId) {
        if let Self::Adaptive(adaptive) = self {
            adaptive.moved(blocks, from, to);
        }
        self.note_uncached(blocks, from);
    }

    /// Notes that the content of a cached block was computed again, in a block that is in use.
    #[inline]
    pub(crate) fn note_replaced(&mut self, blocks: &mut Blocks, old: BlockId, new: BlockId) {
        if let Self::Adaptive(adaptive) = self {
            adaptive.replaced(blocks, old, new);
        }
    }

    /// Appends the next `n` free blocks to `out`. The caller has checked that `n` blocks are free.
    #[inline]
    pub(crate) fn evict(
        &mut self,
        blocks: &mut Blocks,
        n: usize,
        find: Find<'_>,
        out: &mut Vec<BlockId>,
    ) {
        match self {
            Self::Queue(queue) => queue.evict(blocks, n, out),
            Self::Adaptive(adaptive) => adaptive.evict(blocks, n, find, out),
            Self::Ordered(ordered) => ordered.evict(blocks, n, out),
        }
    }

    /// Puts every free block into the free queue, since the cache is about to be emptied.
    pub(crate) fn clear(&mut self, blocks: &mut Blocks, find: Find<'_>) {
        let queue = self.queue_mut();
        queue.demote(blocks, queue.pinned.len());
        match self {
            Self::Queue(_) => {}
            Self::Adaptive(adaptive) => adaptive.clear(blocks, find),
            Self::Ordered(ordered) => ordered.move_to_queue(blocks, blocks.len()),
        }
    }

    /// Takes a free block out of its list.
    pub(crate) fn take_out(&mut self, blocks: &mut Blocks, block: BlockId) {
        match self {
            Self::Queue(queue) => queue.unlink(blocks, ListSpan::of(block)),
            Self::Adaptive(adaptive) => adaptive.take_out(blocks, block),
            Self::Ordered(ordered) => ordered.take_out(blocks, block),
        }
    }

    /// Returns the free cached blocks that are neither in the free queue nor pinned, in no particular
    /// order.
    pub(crate) fn listed_blocks<'a>(
        &'a self,
        blocks: &'a Blocks,
    ) -> impl Iterator<Item = BlockId> + 'a {
        let of_policy = self.ordered().map(|ordered| ordered.policy.order(blocks));
        let adaptive = self.adaptive().into_iter();
        adaptive
            .flat_map(|adaptive| adaptive.listed_blocks(blocks))
            .chain(of_policy.unwrap_or_default())
    }

    /// Returns whether a block is one of [`Self::listed_blocks`].
    pub(crate) fn is_listed(&self, blocks: &Blocks, block: BlockId) -> bool {
        match self {
            Self::Queue(_) => false,
            Self::Adaptive(adaptive) => adaptive.is_listed(block),
            Self::Ordered(ordered) => ordered.policy.order(blocks).contains(&block),
        }
    }

    /// Returns the number of [`Self::listed_blocks`], by the policy's own count.
    pub(crate) fn num_listed(&self) -> usize {
        match self {
            Self::Queue(_) => 0,
            Self::Adaptive(adaptive) => adaptive.num_listed(),
            Self::Ordered(ordered) => ordered.policy.num_blocks(),
        }
    }

    /// Returns the blocks that are evicted last, because a running request may need them again.
    pub(crate) fn protected_blocks<'a>(
        &'a self,
        blocks: &'a Blocks,
    ) -> impl Iterator<Item = BlockId> + 'a {
        self.adaptive().into_iter().flat_map(|adaptive| adaptive.protected_tails(blocks))
    }

    /// Returns the priority of a block, if a request has set one.
    pub(crate) fn priority_of(&self, block: BlockId) -> Option<EffectivePriority> {
        self.adaptive()?.priority_of(block)
    }

    /// Checks the policy's data about blocks. The error says what is wrong.
    pub(crate) fn check(&self, blocks: &Blocks) -> std::result::Result<(), String> {
        match self {
            Self::Queue(_) => Ok(()),
            Self::Adaptive(adaptive) => adaptive.check(blocks),
            Self::Ordered(ordered) => ordered.policy.check(blocks),
        }
    }

    /// Returns the free blocks in the order in which they would be allocated if no tail got a second
    /// chance.
    pub(crate) fn order<'a>(&'a self, blocks: &'a Blocks) -> impl Iterator<Item = BlockId> + 'a {
        let queue = self.queue();
        let adaptive = self.adaptive().into_iter();
        let ranked = adaptive.flat_map(|adaptive| adaptive.eviction_order(blocks));
        let of_policy = self.ordered().into_iter();
        let of_policy = of_policy.flat_map(|ordered| ordered.policy.order(blocks));
        let free = queue.free.iter(blocks).chain(ranked).chain(of_policy);
        free.chain(queue.pinned.iter(blocks))
    }
}

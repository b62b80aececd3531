//! Free cached blocks in adaptive order: how they get into its lists and out of them.

use super::adaptive::{Adaptive, Filing, Leaving, Mark};
use super::block_pool::BlockPool;
use super::free_queue::BackRun;
use super::full_blocks::FullBlocks;
use super::observation::Observation;
use super::states::Dropped;
use crate::block::{BlockId, CacheKey, NULL_BLOCK};

/// A block that a request gives back.
#[derive(Clone, Copy, Debug)]
pub enum Parted {
    /// One that it uses.
    Used(BlockId),
    /// A tail that is held for it.
    Held(BlockId),
}

impl BlockPool {
    /// The adaptive order, if free cached blocks wait in it.
    pub fn adaptive(&self) -> Option<&Adaptive> {
        self.adaptive.as_deref()
    }

    /// The free cached blocks that wait in adaptive order, in no particular order.
    pub fn listed_blocks(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.adaptive.iter().flat_map(|adaptive| adaptive.blocks(&self.states))
    }

    /// As [`Self::touch`], in adaptive order.
    #[cold]
    #[inline(never)]
    pub(super) fn touch_graded(&mut self, blocks: &[BlockId]) {
        let Some(mut adaptive) = self.adaptive.take() else { return };
        let mut leaving = Leaving::default();
        for &block in blocks {
            if block == NULL_BLOCK {
                self.touch_null(1);
                continue;
            }
            let is_free = self.states.add_reference(block) == 1;
            if !adaptive.hit(&mut self.states, block, is_free, &mut leaving) && is_free {
                self.free.remove(&mut self.states, block);
            }
            self.note(|| Observation::Touched(block));
        }
        adaptive.leave(&mut self.states, leaving);
        if adaptive.is_claiming() {
            adaptive.raise(&self.states, blocks.iter().copied());
        }
        self.adaptive = Some(adaptive);
    }

    /// As [`Self::release`], in adaptive order.
    #[cold]
    #[inline(never)]
    pub(super) fn release_graded(&mut self, blocks: impl IntoIterator<Item = BlockId>) {
        if self.is_claiming() {
            return self.release_claimed(blocks.into_iter().collect());
        }
        self.part_with(blocks.into_iter().map(Parted::Used));
    }

    #[inline(never)]
    fn release_claimed(&mut self, blocks: Vec<BlockId>) {
        self.claim_again(blocks.iter().copied());
        self.part_with(blocks.into_iter().map(Parted::Used));
    }

    /// Drops a reference to blocks and lets held ones go, in the order given.
    #[inline]
    pub fn part_with(&mut self, blocks: impl Iterator<Item = Parted>) {
        let Some(mut adaptive) = self.adaptive.take() else { return };
        let mut front = self.free.front_run(&self.states);
        let mut filing = Filing::default();
        for parted in blocks {
            let block = match parted {
                Parted::Used(block) => block,
                Parted::Held(tail) => {
                    adaptive.let_go(&mut self.states, tail, &mut filing);
                    continue;
                }
            };
            if block == NULL_BLOCK {
                self.release_null(1);
                continue;
            }
            match self.states.drop_reference(block) {
                Dropped::Held => {}
                Dropped::Uncached => {
                    self.free.push_to_front_run(&mut self.states, &mut front, block);
                }
                Dropped::Other if !self.states.is_cached(block) => {
                    self.free.push_to_front_run(&mut self.states, &mut front, block);
                }
                Dropped::Cached | Dropped::Other => {
                    adaptive.file(&mut self.states, block, &mut filing);
                }
            }
        }
        adaptive.close(&mut self.states, &mut filing);
        self.free.close_runs(&mut self.states, front, BackRun::default());
        self.adaptive = Some(adaptive);
    }

    /// Moves the `n` blocks that are to be evicted first to the end of the free queue.
    #[cold]
    #[inline(never)]
    pub(super) fn demote_listed(&mut self, n: usize) {
        let mut num_left = n;
        while num_left > 0 {
            let Some(adaptive) = &mut self.adaptive else { return };
            let num_moved = adaptive.pop_run(&mut self.states, num_left, &mut self.free);
            num_left -= num_moved;
            if num_moved == 0 {
                let Some(block) = self.pop_listed() else { return };
                self.free.push_back(&mut self.states, block);
                num_left -= 1;
            }
        }
    }

    fn pop_listed(&mut self) -> Option<BlockId> {
        loop {
            let block = self.adaptive.as_mut()?.pop(&mut self.states)?;
            let prefix = self.prefix_of_tail(block);
            let adaptive = self.adaptive.as_mut()?;
            if !prefix.is_some_and(|prefix| adaptive.rejoin(&mut self.states, block, prefix)) {
                return Some(block);
            }
        }
    }

    /// The block of full attention that ends where a tail does.
    fn prefix_of_tail(&self, tail: BlockId) -> Option<BlockId> {
        let adaptive = self.adaptive.as_ref()?;
        if !adaptive.is_good_tail(tail) {
            return None;
        }
        let hash = self.states.last_key(tail).hash;
        self.find(&CacheKey { hash, group: adaptive.whole_group()? })
    }

    /// A block that loses its keys leaves the lists.
    pub(super) fn delist(&mut self, block: BlockId) {
        if let Some(adaptive) = &mut self.adaptive
            && adaptive.remove(&mut self.states, block)
        {
            self.requeue(block);
        }
    }

    /// Every free cached block goes to the end of the free queue.
    pub(super) fn empty_lists(&mut self) {
        self.demote_listed(self.adaptive.as_ref().map_or(0, |adaptive| adaptive.num_blocks()));
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.forget_names();
        }
    }

    /// Notes what blocks are that have become cached.
    #[cold]
    #[inline(never)]
    pub(super) fn mark_batch(&mut self, batch: &FullBlocks<'_>) {
        let Some(adaptive) = &mut self.adaptive else { return };
        let prompt = Mark { grade: batch.grade, ..adaptive.mark_of(batch.group) };
        let generated = Mark { is_watched: false, ..prompt };
        let (in_prompt, behind) = batch.blocks.split_at(batch.num_in_prompt());
        adaptive.mark(&self.states, in_prompt, prompt);
        adaptive.mark(&self.states, behind, generated);
        if adaptive.has_claims_to_mark() {
            adaptive.claim_marked(&self.states, batch.blocks);
        }
    }

    /// What was computed once more although it was cached is there twice: once in use.
    #[cold]
    #[inline(never)]
    pub(super) fn supersede_original_of(&mut self, block: BlockId) {
        if !self.states.is_duplicate(block) {
            return;
        }
        let first = self.find(&self.states.last_key(block));
        if let (Some(first), Some(adaptive)) = (first, &mut self.adaptive) {
            adaptive.supersede(&mut self.states, first, block);
        }
    }

    /// Notes what a block is that has become cached by itself.
    pub(super) fn mark_one(&mut self, block: BlockId, key: &CacheKey) {
        if let Some(adaptive) = &mut self.adaptive {
            let mark = adaptive.mark_of(key.group);
            adaptive.mark(&self.states, &[block], mark);
            adaptive.claim_marked(&self.states, &[block]);
        }
    }

    /// From now on until [`Self::end_holding`], window tails of some worth that are given back are
    /// recycled last. `false` where free blocks do not wait in adaptive order.
    #[inline]
    pub fn start_holding(&mut self) -> bool {
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.start_holding();
        }
        self.adaptive.is_some()
    }

    /// The tails that are held since.
    pub fn end_holding(&mut self) -> Vec<BlockId> {
        self.adaptive.as_mut().map(|adaptive| adaptive.end_holding()).unwrap_or_default()
    }

    /// Window blocks and states are worth as much as full blocks from now on.
    pub fn promote(&mut self, blocks: impl IntoIterator<Item = BlockId>) {
        if let Some(adaptive) = &mut self.adaptive {
            blocks.into_iter().for_each(|block| adaptive.promote(block));
        }
    }

    /// A tail has been used as often as a block of its prefix.
    pub fn inherit_uses(&mut self, tail: BlockId, from: BlockId) {
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.inherit_uses(tail, from);
        }
    }

    /// Whether a block is held.
    pub fn is_held(&self, block: BlockId) -> bool {
        self.adaptive.as_ref().is_some_and(|adaptive| adaptive.is_held(block))
    }
}

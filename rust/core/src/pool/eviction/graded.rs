//! Free cached blocks in adaptive order: how they get into its lists and out of them.

use super::adaptive::{Adaptive, Filing, Leaving, Mark};
use crate::block::{BlockHash, BlockId, CacheKey, NULL_BLOCK};
use crate::pool::block_pool::BlockPool;
use crate::pool::blocks::list::{BackRun, BlockList, FrontRun};
use crate::pool::blocks::run::{IdRun, Ids, Runs};
use crate::pool::blocks::{Blocks, Dropped};
use crate::pool::index::full_blocks::FullBlocks;
use crate::pool::observation::Observation;

/// Blocks are being given back.
#[derive(Debug)]
pub struct Parting<'a> {
    blocks: &'a mut Blocks,
    free: &'a mut BlockList,
    adaptive: &'a mut Adaptive,
    /// Those that are not cached.
    front: FrontRun,
    /// Those that are.
    filing: Filing,
    num_null: usize,
}

impl Parting<'_> {
    /// Drops a reference to a block.
    #[inline(always)]
    pub fn give_back(&mut self, block: BlockId) {
        self.give_one_back(block);
    }

    /// As [`Self::give_back`]: `None` if somebody holds the block still, else whether it is cached.
    #[inline(always)]
    fn give_one_back(&mut self, block: BlockId) -> Option<bool> {
        if block == NULL_BLOCK {
            self.num_null += 1;
            return None;
        }
        let is_cached = match self.blocks.drop_reference(block) {
            Dropped::Held => return None,
            Dropped::Cached => true,
            Dropped::Uncached => false,
            Dropped::Other => self.blocks.is_cached(block),
        };
        match is_cached {
            true => self.adaptive.file(self.blocks, block, &mut self.filing),
            false => self.free.push_to_front_run(self.blocks, &mut self.front, block),
        }
        Some(is_cached)
    }

    /// Drops a reference to blocks, the last of them first.
    pub fn give_all_back(&mut self, blocks: &[BlockId]) {
        if blocks.len() < IdRun::MIN_LEN {
            return self.give_each_back(blocks);
        }
        let mut pieces = Vec::with_capacity(2 * blocks.len() / IdRun::MIN_LEN + 1);
        pieces.extend(Runs::of(blocks, IdRun::MIN_LEN));
        for piece in pieces.into_iter().rev() {
            match piece {
                Ids::Run(row) => self.give_row_back(row),
                Ids::Scattered(blocks) => self.give_each_back(blocks),
            }
        }
    }

    /// As [`Self::give_all_back`], of blocks whose ids are hardly in a row.
    pub fn give_each_back(&mut self, mut blocks: &[BlockId]) {
        while let Some((&block, before)) = blocks.split_last() {
            blocks = match self.give_one_back(block) {
                None => before,
                Some(true) => self.adaptive.file_alike(self.blocks, before, &mut self.filing),
                Some(false) => {
                    let Self { free, blocks: states, front, .. } = self;
                    &before[..free.drop_to_front_run(states, front, before)]
                }
            };
        }
    }

    /// The first block given back may wait in another list than those before it, as do the others
    /// then.
    fn give_row_back(&mut self, row: &[BlockId]) {
        let [others @ .., first] = row else { return };
        let turned = |blocks| IdRun::of(blocks).reversed();
        if !self.adaptive.file_row(self.blocks, turned(row), &mut self.filing) {
            self.give_one_back(*first);
            if !self.adaptive.file_row(self.blocks, turned(others), &mut self.filing) {
                self.give_each_back(others);
            }
        }
    }

    /// A tail is not held any more.
    pub fn let_go(&mut self, tail: BlockId) {
        self.adaptive.let_go(self.blocks, tail, &mut self.filing);
    }
}

/// The block of full attention that a hash finds, if any.
#[derive(Clone, Copy)]
struct Prefix {
    hash: BlockHash,
    block: Option<BlockId>,
}

impl BlockPool {
    /// The adaptive order, if free cached blocks wait in it.
    pub fn adaptive(&self) -> Option<&Adaptive> {
        self.adaptive.as_deref()
    }

    /// The free cached blocks that wait in adaptive order, in no particular order.
    pub fn listed_blocks(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.adaptive.iter().flat_map(|adaptive| adaptive.blocks(&self.blocks))
    }

    /// Returns the free blocks in the order in which they will be taken, if no tail waits on: the free
    /// queue, what waits in adaptive order, and the pinned tier.
    pub fn eviction_order(&self) -> Vec<BlockId> {
        let adaptive = self.adaptive().map(|adaptive| adaptive.eviction_order(&self.blocks));
        let waiting = adaptive.unwrap_or_default();
        self.free_blocks().chain(waiting).chain(self.pinned_blocks()).collect()
    }

    /// As [`Self::touch`], in adaptive order.
    #[cold]
    #[inline(never)]
    pub(crate) fn touch_graded(&mut self, blocks: &[BlockId]) {
        if blocks.is_empty() {
            return;
        }
        let Some(mut adaptive) = self.adaptive.take() else { return };
        let mut leaving = Leaving::default();
        if self.is_observed() {
            for &block in blocks {
                self.touch_one(&mut adaptive, block, &mut leaving);
            }
        } else if blocks.len() < IdRun::MIN_LEN || self.are_scattered_tails(blocks) {
            self.touch_each_graded(&mut adaptive, blocks, &mut leaving);
        } else {
            for piece in Runs::of(blocks, IdRun::MIN_LEN) {
                let (Ids::Run(part) | Ids::Scattered(part)) = piece;
                let is_row = matches!(piece, Ids::Run(_));
                if !is_row || !adaptive.hit_row(&mut self.blocks, IdRun::of(part), &mut leaving) {
                    self.touch_each_graded(&mut adaptive, part, &mut leaving);
                }
            }
        }
        adaptive.leave(leaving);
        if adaptive.is_claiming() {
            adaptive.raise(&self.blocks, blocks.iter().copied());
        }
        self.adaptive = Some(adaptive);
    }

    /// Whether a few blocks hardly stand in rows in their lists, as tails do, of which several
    /// groups' wait together.
    fn are_scattered_tails(&self, blocks: &[BlockId]) -> bool {
        blocks.len() < 4 * IdRun::MIN_LEN && !self.blocks.starts_beside(blocks)
    }

    fn touch_each_graded(
        &mut self,
        adaptive: &mut Adaptive,
        mut blocks: &[BlockId],
        leaving: &mut Leaving,
    ) {
        loop {
            let num_hit = adaptive.hit_listed(&mut self.blocks, blocks, leaving);
            let Some((&block, behind)) = blocks[num_hit..].split_first() else { break };
            self.touch_one(adaptive, block, leaving);
            blocks = behind;
        }
    }

    fn touch_one(&mut self, adaptive: &mut Adaptive, block: BlockId, leaving: &mut Leaving) {
        if block == NULL_BLOCK {
            return self.touch_null(1);
        }
        let is_free = self.blocks.add_reference(block) == 1;
        if !adaptive.hit(&mut self.blocks, block, is_free, leaving) && is_free {
            self.free.remove(&mut self.blocks, block);
        }
        self.note(|| Observation::Touched(block));
    }

    /// As [`Self::release`], in adaptive order.
    #[cold]
    #[inline(never)]
    pub(crate) fn release_graded(&mut self, blocks: impl IntoIterator<Item = BlockId>) {
        if self.is_claiming() {
            return self.release_claimed(blocks.into_iter().collect());
        }
        self.part_with(|parting| blocks.into_iter().for_each(|block| parting.give_back(block)));
    }

    #[inline(never)]
    fn release_claimed(&mut self, blocks: Vec<BlockId>) {
        self.claim_again(blocks.iter().copied());
        self.part_with(|parting| blocks.into_iter().for_each(|block| parting.give_back(block)));
    }

    /// Blocks are given back, and held ones let go, in the order in which it is done.
    #[inline]
    pub fn part_with(&mut self, give_back: impl FnOnce(&mut Parting<'_>)) {
        let Self { blocks: states, free, adaptive: Some(adaptive), .. } = self else { return };
        let front = free.front_run(states);
        let filing = Filing::default();
        let mut parting = Parting { blocks: states, free, adaptive, front, filing, num_null: 0 };
        give_back(&mut parting);
        let Parting { front, mut filing, num_null, .. } = parting;
        adaptive.close(states, &mut filing);
        free.close_runs(states, front, BackRun::default());
        self.release_null(num_null);
    }

    /// Moves the `n` blocks that are to be evicted first to the end of the free queue.
    #[cold]
    #[inline(never)]
    pub(crate) fn demote_listed(&mut self, n: usize) {
        let (mut num_left, mut last) = (n, None);
        while num_left > 0 {
            let Some(adaptive) = &mut self.adaptive else { return };
            let num_moved = adaptive.pop_run(&mut self.blocks, num_left, &mut self.free);
            num_left -= num_moved;
            if num_moved == 0 {
                let Some(block) = self.pop_listed(&mut last) else { return };
                self.free.push_back(&mut self.blocks, block);
                num_left -= 1;
            }
        }
    }

    fn pop_listed(&mut self, last: &mut Option<Prefix>) -> Option<BlockId> {
        loop {
            let block = self.adaptive.as_mut()?.pop(&mut self.blocks)?;
            let prefix = self.prefix_of_tail(block, last);
            let adaptive = self.adaptive.as_mut()?;
            if !prefix.is_some_and(|prefix| adaptive.rejoin(&mut self.blocks, block, prefix)) {
                return Some(block);
            }
        }
    }

    /// The block of full attention that ends where a tail does; tails of several groups that end
    /// there come one after the other.
    fn prefix_of_tail(&self, tail: BlockId, last: &mut Option<Prefix>) -> Option<BlockId> {
        let adaptive = self.adaptive.as_ref()?;
        if !adaptive.may_wait_on(tail) {
            return None;
        }
        let hash = self.blocks.last_key(tail).hash;
        match *last {
            Some(Prefix { hash: same, block }) if same == hash => block,
            _ => {
                let block = self.find(&CacheKey { hash, group: adaptive.whole_group()? });
                *last = Some(Prefix { hash, block });
                block
            }
        }
    }

    /// A block that loses its keys leaves the lists.
    pub(crate) fn delist(&mut self, block: BlockId) {
        if let Some(adaptive) = &mut self.adaptive
            && adaptive.remove(&mut self.blocks, block)
        {
            self.requeue(block);
        }
    }

    /// Every free cached block goes to the end of the free queue.
    pub(crate) fn empty_lists(&mut self) {
        self.demote_listed(self.adaptive.as_ref().map_or(0, |adaptive| adaptive.num_blocks()));
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.forget_names();
        }
    }

    /// Notes what blocks are that have become cached.
    #[cold]
    #[inline(never)]
    pub(crate) fn mark_batch(&mut self, batch: &FullBlocks<'_>) {
        let Some(adaptive) = &mut self.adaptive else { return };
        let prompt = Mark { grade: batch.grade, ..adaptive.mark_of(batch.group) };
        let generated = Mark { is_watched: false, ..prompt };
        let (in_prompt, behind) = batch.blocks.split_at(batch.num_in_prompt());
        adaptive.mark(&self.blocks, in_prompt, prompt);
        if adaptive.whole_group() == Some(batch.group)
            && let Some(last) = in_prompt.len().checked_sub(1)
        {
            let num_behind = batch.num_prompt_tokens - batch.num_tokens(last);
            adaptive.mark_near_end(in_prompt, batch.block_size, num_behind);
        }
        if !behind.is_empty() {
            adaptive.mark(&self.blocks, behind, generated);
        }
        if adaptive.has_claims_to_mark() {
            adaptive.claim_marked(&self.blocks, batch.blocks);
        }
        adaptive.tick(&mut self.blocks);
    }

    /// What was computed once more although it was cached is there twice: once in use.
    #[cold]
    #[inline(never)]
    pub(crate) fn supersede(&mut self, first: BlockId, by: BlockId) {
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.supersede(&mut self.blocks, first, by);
        }
    }

    /// Notes what a block is that has become cached by itself.
    pub(crate) fn mark_one(&mut self, block: BlockId, key: &CacheKey) {
        if let Some(adaptive) = &mut self.adaptive {
            let mark = adaptive.mark_of(key.group);
            adaptive.mark(&self.blocks, &[block], mark);
            adaptive.claim_marked(&self.blocks, &[block]);
            adaptive.tick(&mut self.blocks);
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

    /// A sequence ends at tails that it uses: they are worth as much as full blocks from now on, and
    /// have been used as often as the block of their prefix that they go with.
    #[inline]
    pub fn promote(&mut self, tails: &[BlockId], prefix: Option<BlockId>) {
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.promote(tails, prefix);
        }
    }

    /// As [`Self::promote`], of tails and the blocks of their prefix one by one; of no tail null blocks
    /// are passed over.
    #[inline]
    pub fn promote_beside(&mut self, tails: &[BlockId], prefix: &[BlockId]) {
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.promote_beside(tails, prefix);
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

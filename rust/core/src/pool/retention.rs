//! What the manager asks of the adaptive policy. Without it, nothing happens.

use crate::block::BlockId;
use crate::pool::block_pool::BlockPool;
use crate::pool::blocks::Blocks;
use crate::pool::eviction::adaptive::{Adaptive, Parting};
use crate::pool::eviction::priority::{Claim, Standing};

impl BlockPool {
    /// The adaptive policy, if it is in force.
    pub fn adaptive(&self) -> Option<&Adaptive> {
        self.eviction.adaptive()
    }

    /// The adaptive policy, if it is in force, and the blocks that it orders.
    #[inline]
    fn adaptive_mut(&mut self) -> Option<(&mut Adaptive, &mut Blocks)> {
        Some((self.eviction.adaptive_mut()?, &mut self.blocks))
    }

    /// The free cached blocks that wait in adaptive order, in no particular order.
    pub fn listed_blocks(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.adaptive().into_iter().flat_map(|adaptive| adaptive.blocks(&self.blocks))
    }

    /// Returns the free blocks in the order in which they will be taken, if no tail waits on: the free
    /// queue, what waits in adaptive order, and the pinned tier.
    pub fn eviction_order(&self) -> Vec<BlockId> {
        self.eviction.order(&self.blocks)
    }

    /// Blocks are given back, and held ones let go, in the order in which it is done.
    #[inline]
    pub fn part_with(&mut self, give_back: impl FnOnce(&mut Parting<'_>)) {
        if let Some((adaptive, blocks)) = self.adaptive_mut() {
            adaptive.part_with(blocks, give_back);
        }
    }

    /// From now on until [`Self::end_holding`], window tails of some worth that are given back are
    /// recycled last. `false` where free blocks do not wait in adaptive order.
    #[inline]
    pub fn start_holding(&mut self) -> bool {
        self.adaptive_mut().map(|(adaptive, _)| adaptive.start_holding()).is_some()
    }

    /// The tails that are held since.
    pub fn end_holding(&mut self) -> Vec<BlockId> {
        self.adaptive_mut().map(|(adaptive, _)| adaptive.end_holding()).unwrap_or_default()
    }

    /// A sequence ends at tails that it uses: they are worth as much as full blocks from now on, and
    /// have been used as often as the block of their prefix that they go with.
    #[inline]
    pub fn promote(&mut self, tails: &[BlockId], prefix: Option<BlockId>) {
        if let Some((adaptive, _)) = self.adaptive_mut() {
            adaptive.promote(tails, prefix);
        }
    }

    /// As [`Self::promote`], of tails and the blocks of their prefix one by one; of no tail null blocks
    /// are passed over.
    #[inline]
    pub fn promote_beside(&mut self, tails: &[BlockId], prefix: &[BlockId]) {
        if let Some((adaptive, _)) = self.adaptive_mut() {
            adaptive.promote_each(tails, prefix);
        }
    }

    /// A tail has been used as often as a block of its prefix.
    pub fn inherit_uses(&mut self, tail: BlockId, from: BlockId) {
        if let Some((adaptive, _)) = self.adaptive_mut() {
            adaptive.inherit_uses(tail, from);
        }
    }

    /// Whether a block is held.
    pub fn is_held(&self, block: BlockId) -> bool {
        self.adaptive().is_some_and(|adaptive| adaptive.is_held(block))
    }

    /// Until [`Self::end_claiming`], blocks are used on behalf of a request with this claim.
    pub fn start_claiming(&mut self, claim: Claim) {
        if let Some((adaptive, _)) = self.adaptive_mut() {
            adaptive.start_claiming(claim);
        }
    }

    /// From now on blocks are used on behalf of who asks for nothing.
    pub fn end_claiming(&mut self) {
        if let Some((adaptive, _)) = self.adaptive_mut() {
            adaptive.end_claiming();
        }
    }

    /// The request on whose behalf blocks are used is about to give some back.
    #[cold]
    #[inline(never)]
    pub fn claim_again(&mut self, ids: impl IntoIterator<Item = BlockId>) {
        if let Some((adaptive, blocks)) = self.adaptive_mut() {
            adaptive.raise_priorities(blocks, ids);
        }
    }

    /// Whether blocks are used on behalf of a request with a claim.
    pub fn is_claiming(&self) -> bool {
        self.adaptive().is_some_and(|adaptive| adaptive.is_claiming())
    }

    /// Whether [`Self::set_now`] has to be called: some claim ends by itself.
    pub fn keeps_time(&self) -> bool {
        self.adaptive().is_some_and(|adaptive| adaptive.keeps_time())
    }

    /// The time in milliseconds, which does not go backwards. Claims that have ended by then end.
    pub fn set_now(&mut self, now: u64) {
        if let Some((adaptive, blocks)) = self.adaptive_mut() {
            adaptive.set_now(blocks, now);
        }
    }

    /// What a block is entitled to beside those of the default priority.
    pub fn standing(&self, block: BlockId) -> Option<Standing> {
        self.adaptive()?.standing(block)
    }

    /// Free blocks that are kept for their priority.
    pub fn num_protected_blocks(&self) -> usize {
        self.adaptive().map_or(0, |adaptive| adaptive.num_protected())
    }
}

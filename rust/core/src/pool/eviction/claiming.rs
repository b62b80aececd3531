//! Claims of requests on the pool, and the time at which they end. Without adaptive order there are
//! none.

use super::adaptive::{Claim, Standing};
use crate::block::BlockId;
use crate::pool::block_pool::BlockPool;

impl BlockPool {
    /// Until [`Self::end_claiming`], blocks are used on behalf of a request with this claim.
    pub fn start_claiming(&mut self, claim: Claim) {
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.start_claiming(claim);
        }
    }

    /// From now on blocks are used on behalf of who asks for nothing.
    pub fn end_claiming(&mut self) {
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.end_claiming();
        }
    }

    /// The request on whose behalf blocks are used is about to give some back.
    #[cold]
    #[inline(never)]
    pub fn claim_again(&mut self, blocks: impl IntoIterator<Item = BlockId>) {
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.raise(&self.blocks, blocks);
        }
    }

    /// Whether blocks are used on behalf of a request with a claim.
    pub fn is_claiming(&self) -> bool {
        self.adaptive.as_ref().is_some_and(|adaptive| adaptive.is_claiming())
    }

    /// Whether [`Self::set_now`] has to be called: some claim ends by itself.
    pub fn keeps_time(&self) -> bool {
        self.adaptive.as_ref().is_some_and(|adaptive| adaptive.keeps_time())
    }

    /// The time in milliseconds, which does not go backwards. Claims that have ended by then end.
    pub fn set_now(&mut self, now: u64) {
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.set_now(&mut self.blocks, now);
        }
    }

    /// What a block is entitled to beside those of the default priority.
    pub fn standing(&self, block: BlockId) -> Option<Standing> {
        self.adaptive.as_ref()?.standing(block)
    }

    /// Free blocks that are kept for their priority.
    pub fn num_protected_blocks(&self) -> usize {
        self.adaptive.as_ref().map_or(0, |adaptive| adaptive.num_protected())
    }
}

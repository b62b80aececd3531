//! Releases blocks: those that left a window, and the blocks of a request that ends.

use super::context::RequestContext;
use super::{Manager, unknown};
use crate::block::{BlockId, NULL_BLOCK};
use crate::error::{Error, Result};
use crate::request::{GroupBlocks, RequestBlocks, RequestId};
use crate::retention::ActivePolicy;

impl Manager {
    /// Releases the blocks that no token after `num_computed_tokens` attends to. Kinds that keep
    /// the prompt release nothing unless the prompt's length is given.
    pub fn remove_skipped_blocks(
        &mut self,
        request: RequestId,
        num_computed_tokens: usize,
        num_prompt_tokens: Option<usize>,
    ) -> Result<()> {
        let Self { retention, groups, requests, pool, commands, .. } = self;
        let held = requests.get_mut(&request).ok_or_else(|| unknown(request))?;
        let mut context = RequestContext { id: request, groups, held, pool, commands };
        context.release_skipped(retention, num_computed_tokens, num_prompt_tokens);
        Ok(())
    }

    /// Releases every block of a request. The end of each table is released first.
    pub fn free(&mut self, request: RequestId) -> Result<()> {
        let held = self.remove_request(request)?;
        if self.pool.counts_null_references() {
            let blocks = held.groups.iter().flat_map(|group| group.blocks.iter());
            self.pool.release_null(blocks.filter(|&block| block == NULL_BLOCK).count());
        }
        self.retention.release(&mut self.pool, &held);
        Ok(())
    }

    /// Removes a request and returns its blocks, which keep their references. They are listed by
    /// group and in token order, without leading null blocks. The caller releases them in reverse
    /// order.
    pub fn pop_blocks_for_free(&mut self, request: RequestId) -> Result<Vec<BlockId>> {
        let held = self.remove_request(request)?;
        self.retention.unprotect(&mut self.pool, &held);
        Ok(held.groups.iter().flat_map(|group| group.blocks.ids()).copied().collect())
    }

    /// Removes a request. Pins its cached blocks if the policy has a pinned tier. Returns its
    /// blocks, which keep their references.
    pub(super) fn remove_request(&mut self, request: RequestId) -> Result<RequestBlocks> {
        self.forget_lookup(request);
        let held = self.requests.remove(&request).ok_or_else(|| unknown(request))?;
        self.direct_writes.forget(request);
        let Self { groups, commands, .. } = self;
        groups.iter_mut().for_each(|group| group.end(request, commands));
        self.retention.pin_ended(&mut self.pool, &held);
        if self.follower.is_some() {
            self.follow_end(request, &held);
        }
        Ok(held)
    }

    /// Removes a reference from each block. The first block that becomes free is evicted first.
    pub fn release_blocks(&mut self, blocks: &[BlockId]) -> Result<()> {
        self.check_held(blocks)?;
        self.pool.release(blocks);
        Ok(())
    }

    /// Removes a reference from each block. Blocks that become free go to the back of the free
    /// queue, whether they are cached or not.
    pub fn release_blocks_to_back(&mut self, blocks: &[BlockId]) -> Result<()> {
        self.check_held(blocks)?;
        self.pool.release_to_back(blocks.iter().copied());
        Ok(())
    }

    /// Checks that no block of a hit is being moved by hand, and that no free block has references
    /// counted by hand.
    #[cold]
    pub fn check_hit_by_hand(&self, hit: &[GroupBlocks]) -> Result<()> {
        let hit = hit.iter().flat_map(|group| group.iter_owned_rev());
        let by_hand = self.pool.by_hand();
        by_hand.check_has_none(hit)?;
        by_hand.check_none_counted()
    }

    /// Checks that no block of a request is being moved by hand.
    #[inline]
    pub fn check_none_by_hand(&self, request: RequestId) -> Result<()> {
        match self.pool.by_hand().is_empty() {
            true => Ok(()),
            false => self.pool.by_hand().check_has_none(self.blocks_of(request)?.iter_owned_rev()),
        }
    }

    fn check_held(&self, blocks: &[BlockId]) -> Result<()> {
        self.check_ids(blocks)?;
        self.pool.by_hand().check_has_none(blocks.iter().copied())?;
        let mut counts = std::collections::HashMap::<BlockId, u32>::new();
        for &block in blocks.iter().filter(|&&block| block != NULL_BLOCK) {
            let count = counts.entry(block).or_default();
            *count += 1;
            if *count > self.pool.blocks().ref_count(block) {
                return Err(Error::Block(format!(
                    "block {block} is freed more often than it is referenced; free it once per \
                     reference"
                )));
            }
        }
        Ok(())
    }

    /// Checks that block ids are in the pool.
    pub fn check_ids(&self, blocks: &[BlockId]) -> Result<()> {
        match blocks.iter().find(|&&block| block as usize >= self.config.num_blocks) {
            None => Ok(()),
            Some(block) => Err(Error::Block(format!(
                "block id {block} is outside the pool; ids are 0 to {}",
                self.config.num_blocks - 1
            ))),
        }
    }

    /// Removes the keys of blocks, whether in use or free.
    pub fn evict_blocks(&mut self, blocks: &[BlockId]) -> Result<()> {
        self.check_ids(blocks)?;
        if self.observes_outcomes() {
            self.pool.remember_keys(blocks);
        }
        self.pool.evict(blocks.iter().copied());
        Ok(())
    }

    /// Removes the keys of all blocks. If any block is in use, does nothing and returns `false`. A
    /// manager without groups has no keys and always returns `true`.
    pub fn reset_prefix_cache(&mut self) -> bool {
        let is_reset = self.config.groups.is_empty() || self.pool.reset();
        if let Some(outcomes) = self.outcomes.as_mut().filter(|_| is_reset) {
            outcomes.forget_prompts();
        }
        if let Some(follower) = self.follower.as_mut().filter(|_| is_reset) {
            follower.reset();
        }
        is_reset
    }
}

impl RequestContext<'_> {
    /// Releases the blocks that no token after `num_computed_tokens` attends to.
    pub(super) fn release_skipped(
        &mut self,
        retention: &ActivePolicy,
        num_computed_tokens: usize,
        num_prompt_tokens: Option<usize>,
    ) {
        if retention.watches_windows() {
            let Self { id, groups, .. } = self;
            retention.window_leaves(self.pool, self.held, |group, position| {
                groups[group].is_skipped(*id, position, num_computed_tokens, num_prompt_tokens)
            });
        }
        self.each(|group, context| {
            let num_released =
                group.release_skipped(context, num_computed_tokens, num_prompt_tokens);
            if num_released > 0 {
                retention.pin_if_many_left(context.pool, &context.held.blocks, num_released);
            }
        })
        .for_each(drop);
        if retention.watches_windows() {
            retention.window_left(self.pool, self.held);
        }
    }
}

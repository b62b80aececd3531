//! Hits that end inside a block. The request would write to the rest of a block that other requests
//! share, so it first gets a copy (copy on write).

use super::context::{SlotDemand, StepContext};
use super::data::GroupData;
use crate::block::{BlockId, NULL_BLOCK};
use crate::error::{Error, Result};
use crate::request::GroupBlocks;

/// A shared block that a request is about to write to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedTail {
    /// The position of the block in the request's table.
    pub position: usize,
    /// The block.
    pub block: BlockId,
}

impl SharedTail {
    /// Returns the block inside which the newly attached hit ends, if it does. The block no longer
    /// counts as cached for the request, because the copy will be cached when it is full.
    pub(crate) fn of_attached(
        data: &GroupData,
        context: &mut StepContext<'_>,
        step: &SlotDemand<'_>,
        num_skipped_blocks: usize,
    ) -> Option<Self> {
        let hit = step.hit(data.id).filter(|hit| hit.len() > num_skipped_blocks)?;
        let num_tokens = step.num_local_computed_tokens;
        if num_tokens.is_multiple_of(data.block_size) {
            return None;
        }
        let position = num_tokens / data.block_size;
        context.held.num_cached_blocks = Some(position);
        Some(Self { position, block: *hit.ids().last()? })
    }

    /// Replaces the block with a copy. Both have a reference until the worker has copied the block.
    pub(crate) fn replace_by(self, data: &GroupData, context: &mut StepContext<'_>, copy: BlockId) {
        let replaced = context.held.blocks.replace(self.position, copy);
        debug_assert_eq!(replaced, Some(self.block));
        context.commands.copies.of(data.id).push((self.block, copy));
        context.pool.blocks.add_reference(copy);
    }

    /// Checks that a hit that ends inside a block has this block as its last one.
    pub(crate) fn check(
        data: &GroupData,
        hit: &GroupBlocks,
        num_local_tokens: usize,
    ) -> Result<()> {
        let is_inside = !num_local_tokens.is_multiple_of(data.block_size);
        let has_block = hit.len() == num_local_tokens / data.block_size + 1
            && hit.ids().last().is_some_and(|&block| block != NULL_BLOCK);
        if !is_inside || has_block {
            return Ok(());
        }
        Err(Error::Precondition(format!(
            "the hit ends at token {num_local_tokens}, inside a block of {} tokens. Its {} blocks \
             in group {} must end with that block; pass the blocks of the look-up",
            data.block_size,
            hit.len(),
            data.id
        )))
    }
}

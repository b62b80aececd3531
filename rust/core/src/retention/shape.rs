//! The properties of a group that retention reads.

use crate::block::GroupId;
use crate::pool::BlockClass;

/// The tails of a group: the blocks at the end of a hit that the group needs to continue from it.
/// Sizes are in tokens unless they are called blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TailShape {
    /// The group.
    pub group: GroupId,
    /// Tokens per block.
    pub block_size: usize,
    /// The number of blocks per tail, including the block that EAGLE drops; 0 if a hit needs the
    /// whole prefix.
    pub tail_len: usize,
    /// Whether hits drop their last block, as EAGLE needs.
    pub drops_eagle_block: bool,
    /// Whether the group's blocks take part in prefix caching.
    pub is_cacheable: bool,
    /// Whether a hit needs only a tail.
    pub is_sparse: bool,
    /// Whether the group's blocks are states.
    pub is_state: bool,
}

/// Returns two lists: the cacheable groups whose hits need only a tail, and the other cacheable
/// groups.
pub(super) fn tails_and_others(shapes: &[TailShape]) -> (Vec<&TailShape>, Vec<&TailShape>) {
    shapes.iter().filter(|shape| shape.is_cacheable).partition(|shape| shape.is_sparse)
}

/// Returns the number of blocks per token that some groups need.
pub(super) fn blocks_per_token<'a>(shapes: impl Iterator<Item = &'a TailShape>) -> f64 {
    shapes.map(|shape| 1.0 / shape.block_size as f64).sum()
}

/// The tails that a hit needs in all groups together.
#[derive(Clone, Copy, Debug)]
pub(super) struct AllTails {
    /// The number of blocks.
    num_blocks: usize,
    /// The number of tokens that the longest tail covers; at least 1.
    num_tokens: usize,
}

impl AllTails {
    pub(super) fn of(shapes: &[TailShape]) -> Self {
        let (tails, _) = tails_and_others(shapes);
        let num_blocks = |shape: &&TailShape| shape.tail_len.max(1);
        let num_tokens = |shape: &&TailShape| num_blocks(shape) * shape.block_size;
        Self {
            num_blocks: tails.iter().map(num_blocks).sum(),
            num_tokens: tails.iter().map(num_tokens).max().unwrap_or(1),
        }
    }

    /// Returns the number of blocks among the last `num_tokens` tokens, as if all tails covered the
    /// same tokens.
    pub(super) fn num_blocks(self, num_tokens: usize) -> usize {
        self.num_blocks * num_tokens.min(self.num_tokens) / self.num_tokens
    }
}

/// Returns the default class of a block of each group. Shadow caches sample groups whose hits need
/// the whole prefix. If every group needs only a tail, they sample all groups.
pub(super) fn block_classes(shapes: &[TailShape]) -> Vec<BlockClass> {
    let mut cacheable = shapes.iter().filter(|shape| shape.is_cacheable);
    let all_are_tails = cacheable.all(|shape| shape.is_sparse);
    let class = |shape: &TailShape| BlockClass {
        is_tail: shape.is_sparse,
        is_state: shape.is_state,
        is_sampleable: shape.is_cacheable && (all_are_tails || !shape.is_sparse),
        ..BlockClass::default()
    };
    shapes.iter().map(class).collect()
}

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

/// Returns how many window blocks vLLM's own policy caches per full-attention block, on average
/// over a prompt. It caches one tail per `alignment` tokens, or every block if tails touch. Returns
/// 0 without windows or without full attention.
pub(super) fn dense_tails_per_block(shapes: &[TailShape], alignment: usize) -> f64 {
    let (tails, others) = tails_and_others(shapes);
    let per_token = |shape: &&TailShape| {
        (shape.tail_len as f64 / alignment as f64).min(1.0 / shape.block_size as f64)
    };
    let tails: f64 = tails.iter().filter(|shape| !shape.is_state).map(per_token).sum();
    let others = blocks_per_token(others.into_iter());
    if others > 0.0 { tails / others } else { 0.0 }
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

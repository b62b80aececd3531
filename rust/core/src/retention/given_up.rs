//! Blocks that a request gives up when it ends: they are evicted before all other cached blocks.
//!
//! A block is given up only if no other request uses it and no other session has hit it.

use super::shape::TailShape;
use crate::block::{BlockId, CacheKey};
use crate::pool::{BlockPool, RequestRetention};
use crate::request::RequestBlocks;

/// Gives up the blocks in the ranges that a request asks for: first the cached tails of its prefix,
/// from its end on, and then its blocks in all groups.
#[cold]
#[inline(never)]
pub(super) fn give_up(
    shapes: &[TailShape],
    pool: &mut BlockPool,
    held: &RequestBlocks,
    requested: &RequestRetention,
) {
    let Some(whole) = whole_group(shapes) else { return };
    let size = shapes[whole].block_size;
    let prefix = &held.groups[whole].blocks;
    let is_own = |block: BlockId| {
        let num_tokens = pool.blocks().last_hash_num_tokens(block);
        pool.blocks().is_cached(block)
            && requested.gives_up(num_tokens)
            && prefix.get((num_tokens - 1) / size).is_some_and(|block| !is_shared(pool, block))
    };
    let tails: Vec<_> = shapes.iter().filter(|it| it.is_sparse && it.is_cacheable).collect();
    let mut given_up = Vec::new();
    for block in prefix.iter_owned_rev().filter(|&block| is_own(block)) {
        let hash = pool.blocks().last_key(block).hash;
        let tails = tails.iter().map(|tail| CacheKey { hash, group: tail.group });
        given_up.extend(tails.filter_map(|key| pool.find(&key)));
    }
    given_up.extend(held.iter_owned_rev().filter(|&block| is_own(block)));
    if let Some((adaptive, blocks)) = pool.adaptive_mut() {
        given_up.into_iter().for_each(|block| adaptive.give_up(blocks, block));
    }
}

/// Returns the index of the first group whose hits need the whole prefix.
pub(super) fn whole_group(shapes: &[TailShape]) -> Option<usize> {
    shapes.iter().position(|shape| shape.is_cacheable && !shape.is_sparse)
}

fn is_shared(pool: &BlockPool, block: BlockId) -> bool {
    pool.adaptive().is_some_and(|adaptive| adaptive.meta(block).is_shared())
}

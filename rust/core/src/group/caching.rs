//! What of a request is computed becomes cached in a group.

use super::cache_rules::CacheRules;
use super::cache_target::CacheTarget;
use super::data::GroupData;
use super::retention::{Reach, ReachableBlocks};
use super::turn::Turn;
use crate::block::NULL_BLOCK;
use crate::request::RequestView;

/// Caches what of a request is computed up to `num_tokens`: its full blocks as far as they are
/// `reachable`, and the end of its prompt where the kind wants that.
#[inline]
pub fn cache(
    data: &GroupData,
    turn: &mut Turn<'_>,
    rules: &CacheRules,
    request: &RequestView<'_>,
    num_tokens: usize,
    reachable: impl FnOnce(&Reach<'_>) -> ReachableBlocks,
) {
    let start = turn.state.num_cached_blocks.unwrap_or(0);
    let end = rules.num_full_blocks(data, request, num_tokens);
    if start < end {
        let reachable = rules.reachable_blocks(data, request, (start, end), reachable);
        let target = CacheTarget::new(data, rules.hash_block_size, request, &turn.state.blocks);
        target.cache_full_blocks(turn.pool, start, end, reachable);
        turn.state.num_cached_blocks = Some(end);
    }
    if data.block_size != rules.hash_block_size && data.caches_partial_tail {
        cache_partial_tail(data, turn, rules, request, num_tokens);
    }
}

/// Caches the end of the prompt inside a block that is larger than a hash block.
fn cache_partial_tail(
    data: &GroupData,
    turn: &mut Turn<'_>,
    rules: &CacheRules,
    request: &RequestView<'_>,
    num_tokens: usize,
) {
    let hash_block_size = rules.hash_block_size;
    // A repeated prompt matches all but its last token; EAGLE reads all of it.
    let recomputed = usize::from(!data.drops_eagle_block);
    let limit = request.num_prompt_tokens.saturating_sub(recomputed) / hash_block_size;
    let boundary = limit.min(request.hashes.chain_len()) * hash_block_size;
    if boundary == 0 || boundary > num_tokens || boundary.is_multiple_of(data.block_size) {
        return;
    }
    let table = &turn.state.blocks;
    match table.get(boundary / data.block_size) {
        None | Some(NULL_BLOCK) => {}
        Some(block) => {
            let target = CacheTarget::new(data, hash_block_size, request, table);
            target.cache_partial_block(turn.pool, block, boundary);
        }
    }
}

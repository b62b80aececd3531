//! Where a request that is admitted resumes: at the end of what it shares with the prompts before
//! it, whether or not the tails were there.

use super::args::AllocateArgs;
use crate::block::{BlockId, CacheKey};
use crate::group::{CacheRules, Group, Resumes};
use crate::pool::BlockPool;
use crate::request::RequestView;

/// Notes where a request resumes, and which tails near the ends of prompts are worth to be kept
/// from now on.
pub(super) fn note(
    resumes: &mut Resumes,
    rules: &mut CacheRules,
    groups: &[Group],
    pool: &BlockPool,
    request: &RequestView<'_>,
    args: &AllocateArgs<'_>,
) {
    let shared = args.num_local(request).max(request.shared_prefix_boundary);
    let position = shared / rules.alignment * rules.alignment;
    let Some(adaptive) = pool.adaptive() else { return };
    let Some(whole) = adaptive.whole_group().map(|id| &groups[usize::from(id)]) else { return };
    let last = last_shared_block(whole, rules.hash_block_size, position, pool, request, args);
    let nearness = last.map(|block| adaptive.nearness(block)).unwrap_or_default();
    if let (Some(near_end), Some(worth)) = (resumes.note(position, nearness), &mut rules.worth) {
        worth.near_end = near_end;
    }
}

/// The block that ends at a position up to which the request shares a prefix, if it is known.
fn last_shared_block(
    whole: &Group,
    hash_block_size: usize,
    position: usize,
    pool: &BlockPool,
    request: &RequestView<'_>,
    args: &AllocateArgs<'_>,
) -> Option<BlockId> {
    let index = (position / whole.block_size).checked_sub(1)?;
    let hit = args.new_computed_blocks.get(usize::from(whole.id));
    hit.and_then(|hit| hit.get(index)).or_else(|| {
        let per_block = whole.block_size / hash_block_size;
        let hash = *request.hashes.get_at((index + 1).saturating_mul(per_block) - 1)?;
        pool.find(&CacheKey { hash, group: whole.id })
    })
}

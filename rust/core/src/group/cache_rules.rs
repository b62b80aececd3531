//! Which computed blocks of a request a later hit could match.

use super::data::GroupData;
use super::retention::{Reach, ReachableBlocks, replay_boundaries};
use super::worth::Worth;
use crate::request::RequestView;

/// What decides, in every group of a manager, which blocks become cached. Sizes in tokens.
#[derive(Clone, Debug)]
pub struct CacheRules {
    /// Tokens per block hash.
    pub hash_block_size: usize,
    /// Hits are multiples of this many tokens.
    pub alignment: usize,
    /// Replays of a prompt end at multiples of this many tokens.
    pub scheduler_block_size: usize,
    /// Whether hits can end inside blocks, at any multiple of the hash block size.
    pub has_partial_hits: bool,
    /// Whether states are kept one unit below a boundary, where hits that drop a block end.
    pub drops_checkpoint_block: bool,
    /// Tokens behind a block that its hash covers.
    pub num_hash_lookahead_tokens: usize,
    /// Whether the state at a shared-prefix junction is kept although it lies inside a block.
    pub keeps_junction_state: bool,
    /// Whether a state that is cached where its prompt ends is cached there once more (vLLM before
    /// 0.33.0).
    pub recaches_known_tail: bool,
    /// Whether blocks that can never serve a hit are left out.
    pub masks_unreachable: bool,
    /// Tokens between the boundaries whose tail is cached; `None` for every aligned one.
    pub retention_interval: Option<usize>,
    /// By which window blocks and states are graded instead, if they are.
    pub worth: Option<Worth>,
    /// Whether the hits of any group drop their last block.
    pub any_group_drops: bool,
    /// Whether the tail one block below a shared-prefix junction is kept too.
    pub keep_tail_below_junction: bool,
}

impl CacheRules {
    /// Which blocks of a range are worth caching; `reachable` is what their kind answers.
    pub fn reachable_blocks(
        &self,
        data: &GroupData,
        request: &RequestView<'_>,
        range: (usize, usize),
        reachable: impl FnOnce(&Reach<'_>) -> ReachableBlocks,
    ) -> ReachableBlocks {
        if !self.masks_unreachable {
            return ReachableBlocks::All;
        }
        reachable(&Reach {
            range,
            alignment: self.alignment,
            use_eagle: data.drops_eagle_block,
            retention_interval: self.retention_interval,
            boundaries: &self.resume_boundaries(data, request),
            num_prompt_tokens: request.num_prompt_tokens,
            worth: self.worth.as_ref(),
        })
    }

    /// Token positions at which a later request is known to resume: replays of the prompt and the
    /// shared-prefix junction.
    fn resume_boundaries(&self, data: &GroupData, request: &RequestView<'_>) -> Vec<usize> {
        if self.retention_interval.is_none() && self.worth.is_none() {
            return Vec::new();
        }
        let mut boundaries = replay_boundaries(
            request.num_prompt_tokens,
            self.scheduler_block_size,
            self.any_group_drops,
        );
        let junction = request.shared_prefix_boundary;
        if junction > 0 {
            boundaries.push(junction);
            // A request that leaves the prefix right at the junction lacks the block past it, so
            // with EAGLE its hit ends one block lower.
            let lower = junction.checked_sub(data.block_size);
            let keeps_lower = data.drops_eagle_block && self.keep_tail_below_junction;
            boundaries.extend(lower.filter(|_| keeps_lower));
        }
        boundaries
    }

    /// Full blocks of a request below `num_tokens` that have a hash.
    #[inline]
    pub fn num_full_blocks(
        &self,
        data: &GroupData,
        request: &RequestView<'_>,
        num_tokens: usize,
    ) -> usize {
        let num_hashed = request.hashes.chain_len() * self.hash_block_size;
        num_tokens.min(num_hashed) / data.block_size
    }
}

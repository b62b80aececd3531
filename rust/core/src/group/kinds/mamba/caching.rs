//! Caches states of a request: at the ends of blocks, inside a chunk, and at the end of the prompt.

use super::checkpoint::{Checkpoint, checkpoint_boundary, prompt_end};
use super::table::TableRecord;
use crate::block::{BlockHash, BlockId, NULL_BLOCK};
use crate::error::{Error, Result};
use crate::group::caching::GroupCaching;
use crate::group::context::StepContext;
use crate::group::partial_hits::SharedTail;
use crate::group::worker_commands::Offload;
use crate::pool::BlockPool;
use crate::request::HeldBlocks;
use crate::retention::CacheRules;

/// Caches the states of one request in one group.
#[derive(Clone, Copy)]
pub(super) struct StateCaching<'a>(pub GroupCaching<'a>);

impl StateCaching<'_> {
    /// Caches the states that are computed up to `num_tokens`. Calls `is_new` with the hash of each
    /// state that exists only after the step.
    pub(super) fn cache(
        &self,
        context: &mut StepContext<'_>,
        record: &mut TableRecord,
        num_tokens: usize,
        is_new: &mut dyn FnMut(BlockHash),
    ) {
        let first = context.held.num_cached_blocks.unwrap_or(0);
        self.0.cache(context, num_tokens);
        let end = context.held.num_cached_blocks.unwrap_or(0);
        let tail = match record.checkpoint {
            Some(checkpoint) => self.cache_checkpoint(context, checkpoint, num_tokens),
            None => self.cache_prompt_end(context, record, num_tokens),
        };
        tail.into_iter().for_each(&mut *is_new);
        for position in first..end {
            self.offer(context, position, is_new);
        }
    }

    /// Checks that the states can be cached:
    ///
    /// - No block that will be cached as full is already cached for as many tokens.
    /// - The state inside the chunk has a block and a hash.
    pub(super) fn check(
        &self,
        pool: &BlockPool,
        held: &HeldBlocks,
        record: &TableRecord,
        num_tokens: usize,
    ) -> Result<()> {
        let num_cached = held.num_cached_blocks.unwrap_or(0);
        self.check_full_blocks(pool, num_cached, num_tokens, |position| {
            held.blocks.get(position).unwrap_or(NULL_BLOCK)
        })?;
        let refuse = |why: String| Err(self.refusal(why));
        match record.checkpoint {
            Some(checkpoint) if checkpoint.position >= held.blocks.len() => refuse(format!(
                "the state inside the chunk, at position {}, has no block; allocate slots first",
                checkpoint.position
            )),
            _ => self.check_checkpoint(record, num_tokens),
        }
    }

    /// Checks the blocks after the first `num_cached` that will be cached as full. None can already
    /// be cached for as many tokens.
    pub(super) fn check_full_blocks(
        &self,
        pool: &BlockPool,
        num_cached: usize,
        num_tokens: usize,
        block_at: impl Fn(usize) -> BlockId,
    ) -> Result<()> {
        let GroupCaching { data, retention, request } = self.0;
        let range = (num_cached, self.0.num_full_blocks(num_tokens));
        if range.0 >= range.1 {
            return Ok(());
        }
        let mask = retention.mask(data.id, request, range);
        let covers = |position: usize| {
            let covered = pool.blocks().hash_num_tokens(block_at(position));
            covered.is_some_and(|covered| covered >= (position + 1) * data.block_size)
        };
        let mut positions = mask.runs(range.0, range.1).into_iter().flatten();
        match positions.find(|&position| covers(position)) {
            None => Ok(()),
            Some(position) => {
                Err(self.refusal(format!("the state at position {position} is already cached")))
            }
        }
    }

    fn refusal(&self, why: String) -> Error {
        Error::Precondition(format!("group {}: {why}", self.0.data.id))
    }

    /// Checks that the state inside the chunk has a hash if the step, which caches the first
    /// `num_tokens` tokens, will keep it.
    pub(super) fn check_checkpoint(&self, record: &TableRecord, num_tokens: usize) -> Result<()> {
        match record.checkpoint.map(|checkpoint| checkpoint.num_tokens) {
            Some(boundary)
                if self.keeps_checkpoint(boundary, num_tokens) && !self.has_hash(boundary) =>
            {
                Err(self.refusal(format!(
                    "the state of the first {boundary} tokens cannot be cached, because these \
                     tokens have no hash yet"
                )))
            }
            _ => Ok(()),
        }
    }

    /// Offers the state at the end of a cached block to a connector.
    fn offer(
        &self,
        context: &mut StepContext<'_>,
        position: usize,
        is_new: &mut dyn FnMut(BlockHash),
    ) {
        let Some(block) = context.held.blocks.get(position) else { return };
        let blocks = context.pool.blocks();
        if let (Some(key), Some(num_tokens)) = (blocks.key(block), blocks.hash_num_tokens(block)) {
            is_new(key.hash);
            let (request, group) = (context.request, self.0.data.id);
            context.commands.offloads.of(group).push(Offload { request, group, block, num_tokens });
        }
    }

    /// Caches the block before the running state, which holds the state at a boundary inside the
    /// chunk. Evicts the block if the state is not kept.
    fn cache_checkpoint(
        &self,
        context: &mut StepContext<'_>,
        checkpoint: Checkpoint,
        num_tokens_to_cache: usize,
    ) -> Option<BlockHash> {
        let Checkpoint { num_tokens, position } = checkpoint;
        let block = context.held.blocks.get(position)?;
        if !self.keeps_checkpoint(num_tokens, num_tokens_to_cache) {
            // This creates an event even if the state was released.
            context.pool.evict([block]);
            return None;
        }
        if block == NULL_BLOCK {
            return None;
        }
        let is_known = context.pool.blocks().hash_num_tokens(block) == Some(num_tokens);
        if is_known || !self.has_hash(num_tokens) {
            return None;
        }
        let target = self.0.target(&context.held.blocks);
        context.pool.remove_keys(block);
        Some(target.cache_partial_block(context.pool, block, num_tokens))
    }

    /// Whether the state of the first `num_tokens` tokens, inside the chunk, is cached in a step that
    /// caches up to `num_tokens_to_cache`.
    fn keeps_checkpoint(&self, num_tokens: usize, num_tokens_to_cache: usize) -> bool {
        let GroupCaching { data, retention, request } = self.0;
        let rules = retention.rules();
        num_tokens == checkpoint_boundary(rules, request.num_prompt_tokens)
            || num_tokens == request.shared_prefix_boundary
            || match rules.older.caches_all_checkpoints {
                true => {
                    !retention.keeps_boundaries_alone()
                        || num_tokens_to_cache >= request.num_prompt_tokens
                }
                false => {
                    num_tokens.is_multiple_of(data.block_size)
                        && retention.keeps_state_at(data.id, request, num_tokens / data.block_size)
                }
            }
    }

    /// Caches the state at the end of the prompt, or at the end of a prefix that it shares with
    /// others. If the state is inside a block, the next step writes to the block, so it is copied
    /// first.
    fn cache_prompt_end(
        &self,
        context: &mut StepContext<'_>,
        record: &mut TableRecord,
        num_tokens: usize,
    ) -> Option<BlockHash> {
        if !self.is_resumed_at(num_tokens) || !self.has_hash(num_tokens) {
            return None;
        }
        let position = num_tokens.div_ceil(self.0.data.block_size) - 1;
        let block = context.held.blocks.get(position).filter(|&block| block != NULL_BLOCK)?;
        let is_known = context.pool.blocks().hash_num_tokens(block) == Some(num_tokens);
        if is_known && !self.rules().recaches_known_tail {
            return None;
        }
        let target = self.0.target(&context.held.blocks);
        let hash = target.cache_partial_block(context.pool, block, num_tokens);
        if !num_tokens.is_multiple_of(self.0.data.block_size) {
            record.shared_tail = Some(SharedTail { position, block });
            record.producer_tail = Some((block, num_tokens));
            context.held.num_cached_blocks = Some(position);
        }
        Some(hash)
    }

    fn is_resumed_at(&self, num_tokens: usize) -> bool {
        let GroupCaching { request, .. } = self.0;
        let rules = self.rules();
        if num_tokens == 0 || !num_tokens.is_multiple_of(rules.hash_block_size) {
            return false;
        }
        let ends_block = num_tokens.is_multiple_of(self.0.data.block_size);
        if ends_block && rules.older.caches_state_ends_inside_blocks {
            return false;
        }
        let is_in_chunk =
            request.num_computed_tokens < num_tokens && num_tokens <= request.num_prompt_tokens;
        let is_boundary = rules.keeps_boundary_state
            && num_tokens == request.shared_prefix_boundary
            && is_in_chunk;
        is_boundary || num_tokens == prompt_end(rules, request.num_prompt_tokens)
    }

    fn rules(&self) -> &CacheRules {
        self.0.retention.rules()
    }

    fn has_hash(&self, num_tokens: usize) -> bool {
        num_tokens / self.rules().hash_block_size <= self.0.request.hashes.chain_len()
    }
}

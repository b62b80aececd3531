//! Caches blocks of a request: full blocks, and the block in which the prompt ends.

use std::ops::Range;

use super::context::StepContext;
use super::data::GroupData;
use crate::block::{BlockHash, BlockId, CacheKey, GroupId, NULL_BLOCK};
use crate::error::Result;
use crate::pool::{
    BlockPool, Event, EvictionHints, FullBlocks, NO_SEGMENT, PrefixIndex, SegmentId, StoredEvent,
    ValueLevel, WithoutTail,
};
use crate::request::{GroupBlocks, GroupHashes, HashSource, RequestView};
use crate::retention::{ActivePolicy, RetentionMask};

/// Caches the blocks of one request in one group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupCaching<'a> {
    /// The group.
    pub data: &'a GroupData,
    /// The retention policy.
    pub retention: &'a ActivePolicy,
    /// The request.
    pub request: &'a RequestView<'a>,
}

impl<'a> GroupCaching<'a> {
    /// Caches computed blocks up to `num_tokens`: the full blocks in the mask and, if the kind
    /// caches it, the block in which the prompt ends.
    #[inline(always)]
    pub(super) fn cache(self, context: &mut StepContext<'_>, num_tokens: usize) {
        let Self { data, retention, .. } = self;
        let start = context.held.num_cached_blocks.unwrap_or(0);
        let end = self.num_full_blocks(num_tokens);
        if start < end {
            cache_filled(data, self.request, retention, context, (start, end));
            context.held.num_cached_blocks = Some(end);
        }
        if data.block_size != retention.rules().hash_block_size && data.is_prefix_closed {
            self.cache_partial_tail(context, num_tokens);
        }
    }

    /// Returns the number of full blocks below `num_tokens` that have a hash.
    #[inline]
    pub(crate) fn num_full_blocks(self, num_tokens: usize) -> usize {
        let num_hashes = self.request.hashes.chain_len();
        self.retention.rules().num_full_blocks(self.data.block_size, num_hashes, num_tokens)
    }

    /// Caches the end of the prompt inside a block that is larger than a hash block.
    fn cache_partial_tail(self, context: &mut StepContext<'_>, num_tokens: usize) {
        let Some(end) = self.partial_tail().filter(|&end| end <= num_tokens) else { return };
        let table = &context.held.blocks;
        match table.get(end / self.data.block_size) {
            None | Some(NULL_BLOCK) => {}
            Some(block) => {
                self.target(table).cache_partial_block(context.pool, block, end);
            }
        }
    }

    /// Returns after how many tokens the prompt ends for a later hit, if this is inside a block that
    /// is larger than a hash block and the group caches such ends.
    pub(crate) fn partial_tail(self) -> Option<usize> {
        let Self { data, request, retention } = self;
        let hash_block_size = retention.rules().hash_block_size;
        if data.block_size == hash_block_size || !data.is_prefix_closed {
            return None;
        }
        // A repeated prompt matches all tokens but the last one. With EAGLE it matches all tokens.
        let is_matched = data.drops_eagle_block || data.older_rules.caches_unreachable_ends;
        let recomputed = usize::from(!is_matched);
        let limit = request.num_prompt_tokens.saturating_sub(recomputed) / hash_block_size;
        let end = limit.min(request.hashes.chain_len()) * hash_block_size;
        Some(end).filter(|end| !end.is_multiple_of(data.block_size))
    }

    /// Returns the blocks of a table as a target for caching.
    pub(super) fn target<'b>(self, table: &'b GroupBlocks) -> CacheTarget<'b>
    where
        'a: 'b,
    {
        CacheTarget::new(self.data, self.retention.rules().hash_block_size, self.request, table)
    }
}

/// Caches the full blocks of a range that are in the mask. Most steps fill no block, so this
/// function is cold. It takes single arguments because every step would have to build a structure.
#[cold]
#[inline(never)]
fn cache_filled(
    data: &GroupData,
    request: &RequestView<'_>,
    retention: &ActivePolicy,
    context: &mut StepContext<'_>,
    range: (usize, usize),
) {
    let StepContext { held, pool, .. } = context;
    let target = CacheTarget {
        without_tail: held.without_tail,
        ..GroupCaching { data, retention, request }.target(&held.blocks)
    };
    let (mut start, last) = range;
    loop {
        // Blocks of the hit between blocks that a load filled are cached already.
        let hit = |start| start..held.hit_end.min(last);
        let is_cached = |&place: &usize| target.is_cached(pool, place);
        start = hit(start).find(|place| !is_cached(place)).unwrap_or(start.max(hit(start).end));
        if start >= last {
            return;
        }
        let end = hit(start).find(is_cached).unwrap_or(last);
        let num_queued = pool.num_queued_blocks();
        let mask = retention.mask_in_pool(data.id, request, (start, end), num_queued);
        target.cache_full_blocks(pool, start, end, mask);
        start = end;
    }
}

/// The blocks of a request in a group that can be cached.
#[derive(Clone, Copy, Debug)]
pub struct CacheTarget<'a> {
    /// The request.
    pub request: &'a RequestView<'a>,
    /// The group.
    pub group: GroupId,
    /// Tokens per block of the group.
    pub block_size: usize,
    /// Tokens per hash.
    pub hash_block_size: usize,
    /// The request's blocks in the group.
    pub blocks: &'a GroupBlocks,
    /// Whether the blocks enter the prefix trie.
    pub is_in_trie: bool,
    /// The part of the prompt that vLLM's default policy could not hit.
    pub without_tail: WithoutTail,
}

impl<'a> CacheTarget<'a> {
    /// Creates the target for a request's blocks in a group.
    pub fn new(
        data: &GroupData,
        hash_block_size: usize,
        request: &'a RequestView<'a>,
        blocks: &'a GroupBlocks,
    ) -> Self {
        Self {
            request,
            group: data.id,
            block_size: data.block_size,
            hash_block_size,
            blocks,
            is_in_trie: data.is_prefix_closed && request.hashes.is_chain(),
            without_tail: WithoutTail::default(),
        }
    }
}

impl CacheTarget<'_> {
    fn per_block(&self) -> usize {
        self.block_size / self.hash_block_size
    }

    fn hash(&self, index: usize) -> BlockHash {
        self.request.hashes.of_block(index, self.per_block())
    }

    /// Returns whether the block at a place has the hash of a full block.
    fn is_cached(&self, pool: &BlockPool, place: usize) -> bool {
        let block = self.blocks.get(place).unwrap_or(NULL_BLOCK);
        let covered = pool.blocks().hash_num_tokens(block).unwrap_or(0);
        covered >= (place + 1) * self.block_size
    }

    fn key(&self, hash: BlockHash) -> CacheKey {
        CacheKey { hash, group: self.group }
    }

    /// Caches the full blocks `start..end`, except for null blocks and blocks outside of the mask.
    pub(crate) fn cache_full_blocks(
        &self,
        pool: &mut BlockPool,
        start: usize,
        end: usize,
        mask: RetentionMask,
    ) {
        let mut stored = pool.index().events().is_kept().then(|| self.new_event(start, end));
        let mut cache = |run, value| self.cache_run(pool, run, value, stored.as_mut());
        match mask {
            RetentionMask::All => cache(start..end, ValueLevel::BEST),
            RetentionMask::Runs(runs) => {
                runs.into_iter().for_each(|run| cache(run, ValueLevel::BEST));
            }
            RetentionMask::Valued(runs) => {
                runs.into_iter().for_each(|(run, value)| cache(run, value));
            }
            RetentionMask::PartlyValued(blocks) => {
                blocks.cached.into_iter().for_each(|run| cache(run, ValueLevel::WORST));
                for (run, value) in blocks.values {
                    pool.set_value(self.owned(run).1, value);
                }
            }
        }
        if let Some(event) = stored {
            pool.index_mut().events_mut().push(|| Event::Stored(event));
        }
    }

    fn cache_run(
        &self,
        pool: &mut BlockPool,
        run: Range<usize>,
        value: ValueLevel,
        mut stored: Option<&mut StoredEvent>,
    ) {
        let (first, blocks) = self.owned(run);
        if blocks.is_empty() {
            return;
        }
        let whole = FullBlocks {
            segment: self.open_segment(pool, first),
            ..self.full_blocks(first, blocks)
        };
        let hints = EvictionHints {
            value,
            num_prompt_tokens: self.request.num_prompt_tokens,
            without_tail: self.without_tail,
        };
        let mut all_serve = true;
        for batch in whole.batches(PrefixIndex::BATCH) {
            all_serve &= pool.cache_batch(&batch, hints);
            if let Some(event) = &mut stored {
                self.add_to_event(event, batch.first_position(), batch.blocks);
            }
        }
        if pool.answers.is_some() {
            pool.note_answers(&whole, self.request.num_prompt_tokens);
        }
        pool.index.add_to_trie(&mut pool.blocks, &whole, all_serve);
    }

    /// Returns the blocks of a run that the request has, and the position of the first one.
    fn owned(&self, run: Range<usize>) -> (usize, &[BlockId]) {
        let (first, tail) = self.blocks.ids_from(run.start);
        (first, &tail[..run.end.saturating_sub(first).min(tail.len())])
    }

    /// Returns the segment of the trie for the blocks from position `first` on.
    fn open_segment(&self, pool: &mut BlockPool, first: usize) -> SegmentId {
        if !self.is_in_trie || self.request.hashes.chain_len() < pool.index().min_trie_hashes() {
            return NO_SEGMENT;
        }
        let before = match first.checked_sub(1) {
            None => None,
            Some(before) => {
                let hash = self.request.hashes.get_at((before + 1) * self.per_block() - 1);
                // An allocation has no hashes from far before the blocks that it caches.
                let Some(known) = hash.zip(self.blocks.get(before)) else { return NO_SEGMENT };
                Some(known)
            }
        };
        pool.index.open_segment(&pool.blocks, self.group, before, first, self.block_size)
    }

    fn full_blocks<'a>(&'a self, first: usize, blocks: &'a [BlockId]) -> FullBlocks<'a> {
        FullBlocks {
            group: self.group,
            blocks,
            hashes: self.request.hashes.hashes_from_block(first, self.per_block()),
            per_block: self.per_block(),
            first_num_tokens: (first + 1) * self.block_size,
            block_size: self.block_size,
            segment: NO_SEGMENT,
        }
    }

    fn add_to_event(&self, event: &mut StoredEvent, first: usize, blocks: &[BlockId]) {
        for (i, _) in (first..).zip(blocks).filter(|(_, block)| **block != NULL_BLOCK) {
            event.block_hashes.push(self.hash(i));
            event.block_starts.push(i * self.block_size);
        }
    }

    /// Caches the prefix of `num_tokens`, a multiple of the hash block size, that ends inside
    /// `block`. If the block has hashes of longer prefixes, it keeps them; it loses hashes of
    /// shorter prefixes.
    pub fn cache_partial_block(
        &self,
        pool: &mut BlockPool,
        block: BlockId,
        num_tokens: usize,
    ) -> BlockHash {
        let key = self.key(self.request.hashes.at(num_tokens / self.hash_block_size - 1));
        if pool.index().has_key(pool.blocks(), block, &key) {
            return key.hash;
        }
        if pool.blocks().hash_num_tokens(block).is_some_and(|covered| covered < num_tokens) {
            pool.remove_keys(block);
        }
        pool.insert_key(block, key, num_tokens);
        pool.index_mut().events_mut().push(|| Event::Stored(self.partial_event(num_tokens)));
        key.hash
    }

    fn partial_event(&self, num_tokens: usize) -> StoredEvent {
        let last = num_tokens / self.hash_block_size - 1;
        let start = num_tokens - self.hash_block_size;
        StoredEvent {
            request: self.request.id,
            group: self.group,
            block_hashes: vec![self.request.hashes.at(last)],
            block_starts: vec![start],
            parent: last.checked_sub(1).map(|before| self.request.hashes.at(before)),
            start_token: start,
            end_token: num_tokens,
            block_size: self.hash_block_size,
            is_partial: true,
        }
    }

    /// Checks that the first `num_blocks` blocks have hashes.
    pub(crate) fn require_hashes(&self, num_blocks: usize) -> Result<()> {
        GroupHashes::new(&self.request.hashes, self.hash_block_size, self.block_size)
            .require(num_blocks)
    }

    /// Pushes an event that reports the first `num_blocks` blocks as stored, although they were
    /// hit.
    pub(crate) fn report_cached_blocks(&self, pool: &mut BlockPool, num_blocks: usize) {
        let mut event = self.new_event(0, num_blocks);
        for i in 0..num_blocks {
            event.block_hashes.push(self.hash(i));
            event.block_starts.push(i * self.block_size);
        }
        pool.index_mut().events_mut().push(|| Event::Stored(event));
    }

    fn new_event(&self, start: usize, end: usize) -> StoredEvent {
        StoredEvent {
            request: self.request.id,
            group: self.group,
            block_hashes: Vec::new(),
            block_starts: Vec::new(),
            parent: start.checked_sub(1).map(|i| self.hash(i)),
            start_token: start * self.block_size,
            end_token: end * self.block_size,
            block_size: self.block_size,
            is_partial: false,
        }
    }
}

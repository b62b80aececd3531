//! The calls of the pool and their effects on the policy.

use std::ops::Range;

use kvoxide_core::pool::{BlockClass, EffectivePriority};
use kvoxide_core::{BlockHash, BlockId, CacheKey, GroupId, NULL_BLOCK};

use super::Adaptive;
use super::block::{Block, Place, WORTHLESS};
use super::value::{Value, nearness};

/// Blocks that become cached together.
pub struct Cached<'a> {
    pub blocks: &'a [BlockId],
    pub hashes: &'a [BlockHash],
    pub group: GroupId,
    pub value: Value,
    /// The number of tokens up to the end of the first block, and the number of tokens per block.
    pub first_end: usize,
    pub block_size: usize,
    pub num_prompt_tokens: usize,
    /// The tokens of the prompt that vLLM's default policy computes again.
    pub without_tail: Range<usize>,
}

impl Adaptive {
    /// Allocates `n` free blocks: uncached blocks first, then evictable ones. They lose their keys.
    pub fn take(&mut self, n: usize) -> Vec<BlockId> {
        while self.pool.queue.len() < n {
            let block = self.evict_next().expect("free blocks");
            self.pool.queue.push(block);
        }
        self.pool.take(n)
    }

    /// Adds a reference to each block of a hit.
    pub fn touch(&mut self, blocks: &[BlockId]) {
        let num_with_tail = blocks.len() - self.take_num_without_tail(blocks);
        for (i, &id) in blocks.iter().enumerate().filter(|&(_, &block)| block != NULL_BLOCK) {
            self.remove_from_place(id);
            self.pool.touch(&[id]);
            self.block(id).hit();
            if let Some(name) = self.sampled_name(id) {
                self.duel.used(name, true, i < num_with_tail);
            }
            self.priorities.hit(id, self.blocks[id as usize].end);
        }
        let last = blocks.last().map(|&last| self.blocks[last as usize]);
        if self.full_group().is_some() && last.is_some_and(|last| last.is_tail) {
            self.duel.hit_tails(blocks.iter().filter(|&&block| block != NULL_BLOCK).count());
        }
        self.raise(blocks);
    }

    /// Removes a reference from each block in use and ends the protection of protected tails, in
    /// the given order. Free uncached blocks go to the front of the queue in this order.
    pub fn release(&mut self, blocks: &[BlockId]) {
        self.release_blocks(blocks, false);
    }

    /// Releases blocks that a running request has passed. Returns the blocks that are protected.
    pub fn release_left_behind(&mut self, blocks: &[BlockId]) -> Vec<BlockId> {
        self.release_blocks(blocks, true);
        blocks.iter().copied().filter(|&block| self.is_protected(block)).collect()
    }

    fn release_blocks(&mut self, blocks: &[BlockId], are_left_behind: bool) {
        self.raise(blocks);
        let mut uncached = Vec::new();
        for &id in blocks.iter().filter(|&&block| block != NULL_BLOCK) {
            if self.is_protected(id) {
                self.remove_from_place(id);
            } else {
                self.pool.blocks[id as usize].references -= 1;
            }
            match (self.is_used(id), self.is_cached(id)) {
                (true, _) => {}
                (false, true) => self.wait(id, are_left_behind),
                (false, false) => uncached.push(id),
            }
        }
        self.pool.queue.splice(..0, uncached);
        self.fit_shadow_caches();
    }

    /// Raises the priority of blocks that the request uses or releases to the request's priority,
    /// if that is higher.
    pub fn raise(&mut self, blocks: &[BlockId]) {
        for &block in blocks {
            if self.is_cached(block) {
                self.priorities.raise(block, self.blocks[block as usize].end);
            }
        }
    }

    /// Sets the time in milliseconds.
    pub fn set_now(&mut self, now: u64) {
        self.priorities.now = self.priorities.now.max(now);
        while let Some(block) = self.priorities.expired() {
            self.lose_priority(block);
        }
        self.fit_shadow_caches();
    }

    /// Caches full blocks of a request. A free block that served one of their keys loses its value.
    pub fn cache(&mut self, cached: &Cached<'_>) {
        let group = cached.group;
        for (&block, &hash) in cached.blocks.iter().zip(cached.hashes) {
            if block != NULL_BLOCK {
                self.pool.remove_keys(block);
                let first = self.pool.find(&CacheKey { hash, group });
                self.pool.add_key(block, CacheKey { hash, group });
                first.into_iter().for_each(|first| self.note_duplicate(first, block));
            }
        }
        let ends = (cached.first_end..).step_by(cached.block_size);
        let mut known = Vec::new();
        for (&block, end) in
            cached.blocks.iter().zip(ends).filter(|&(&block, _)| block != NULL_BLOCK)
        {
            let behind = cached.num_prompt_tokens.checked_sub(end);
            let is_again = cached.without_tail.start < end && end <= cached.without_tail.end;
            self.start(block, group, end, behind.is_none(), !is_again);
            let is_full_attention = self.full_group() == Some(group);
            let nearness = behind.filter(|_| is_full_attention).and_then(nearness);
            let state = self.block(block);
            (state.halvings, state.is_durable) = (cached.value.halvings, cached.value.is_durable);
            state.nearness = nearness;
            known.push((block, end));
        }
        self.priorities.computed(&known);
        self.end_rounds();
    }

    /// Adds a key to a block. The key's prefix has `end` tokens.
    pub fn add_key(&mut self, block: BlockId, key: CacheKey, end: usize) {
        let is_new = !self.is_cached(block);
        self.pool.add_key(block, key);
        if is_new {
            self.start(block, key.group, end, false, true);
            self.priorities.computed(&[(block, end)]);
            self.end_rounds();
        }
    }

    /// Moves the keys and the record of a block to another block, which is in use and has no keys.
    pub fn move_keys(&mut self, from: BlockId, to: BlockId) {
        let keys = self.pool.blocks[from as usize].keys.clone();
        self.pool.move_keys(from, to);
        let group = keys[0].group;
        let end = self.block(from).end;
        self.start(to, group, end, false, true);
        self.priorities.computed(&[(to, end)]);
        self.end_rounds();
        *self.block(to) = Block { place: Place::Elsewhere, ..*self.block(from) };
        self.priorities.set(to, self.priorities.of(from));
        self.leave(from);
    }

    /// Evicts blocks by id. Evictable blocks go to the front of the queue.
    pub fn evict(&mut self, blocks: &[BlockId]) {
        for &block in blocks {
            self.pool.evict(&[block]);
            if self.leave(block) {
                self.pool.queue.insert(0, block);
            }
        }
    }

    /// Evicts all blocks. If a block is in use, does nothing and returns `false`.
    pub fn reset(&mut self) -> bool {
        if self.eviction_order().len() + 1 < self.blocks.len() {
            return false;
        }
        for _ in self.pool.queue.len() + 1..self.blocks.len() {
            let block = self.evict_next().expect("a free block");
            self.pool.queue.push(block);
        }
        self.duel.forget_names();
        self.pool.reset()
    }

    /// Gives a tail where a sequence ends the uses of a full-attention block, and the halvings of
    /// the end. In the prompt, the tail keeps its own halvings if they are fewer.
    pub fn promote(&mut self, tail: BlockId, full: Option<BlockId>, halvings: usize) {
        let tail_block = self.block(tail);
        tail_block.halvings = match tail_block.is_unused_answer() {
            true => halvings,
            false => tail_block.halvings.min(halvings),
        };
        full.into_iter().for_each(|full| self.inherit_uses(tail, full));
    }

    /// Sets the halvings of a tail where one or two requests resumed, unless the tail is durable.
    pub fn demote_resumed(&mut self, tail: BlockId, halvings: usize) {
        let tail = self.block(tail);
        if (2..4).contains(&tail.uses) && !tail.is_durable {
            tail.halvings = halvings;
        }
    }

    /// Sets the value of blocks that have just become cached.
    pub fn set_value(&mut self, blocks: &[BlockId], value: Value) {
        for &block in blocks.iter().filter(|&&block| block != NULL_BLOCK) {
            let block = self.block(block);
            (block.halvings, block.is_durable) = (value.halvings, value.is_durable);
        }
    }

    /// Gives a tail at least the uses of a full-attention block.
    pub fn inherit_uses(&mut self, tail: BlockId, prefix: BlockId) {
        let uses = self.block(prefix).uses;
        self.block(tail).uses = uses.max(self.block(tail).uses);
    }

    /// Gives a cached block the lowest priority, unless it is in the queue or several requests use
    /// it.
    pub fn give_up(&mut self, block: BlockId) {
        let references = self.pool.blocks[block as usize].references;
        let is_queued = references == 0 && self.block(block).place == Place::Elsewhere;
        if references > 1 || is_queued {
            return;
        }
        self.leave(block);
        let lowest = EffectivePriority { priority: 0, until: EffectivePriority::NO_END };
        self.priorities.set(block, Some(lowest));
        if references == 0 {
            self.wait(block, false);
            self.fit_shadow_caches();
        }
    }

    /// Marks the full-attention blocks of a prefix as shared. The blocks before a shared block are
    /// shared already.
    pub fn mark_shared(&mut self, prefix: &[BlockId]) {
        for &block in prefix.iter().rev() {
            if std::mem::replace(&mut self.block(block).is_shared, true) {
                return;
            }
        }
    }

    /// Records a block that becomes cached, with one use. vLLM's default policy could have hit it
    /// only if `has_tail` holds.
    fn start(
        &mut self,
        id: BlockId,
        group: GroupId,
        end: usize,
        is_generated: bool,
        has_tail: bool,
    ) {
        let BlockClass { is_tail, is_sampleable, .. } = self.block_classes[usize::from(group)];
        self.priorities.set(id, None);
        *self.block(id) = Block::new(is_tail, is_generated, end);
        if is_sampleable {
            self.block(id).is_sampled = self.duel.samples(self.fingerprint(id));
            if let Some(name) = self.sampled_name(id) {
                self.duel.used(name, false, has_tail);
            }
            self.num_cached_in_round += 1;
        }
    }

    /// Handles a duplicate that a request computed of the block that serves a key. The duplicate
    /// inherits the priority even if the block is in use.
    fn note_duplicate(&mut self, first: BlockId, duplicate: BlockId) {
        self.priorities.inherit(first, duplicate);
        if self.leave(first) {
            self.block(first).halvings = WORTHLESS;
            self.pool.queue.push(first);
            self.fit_shadow_caches();
        }
    }
}

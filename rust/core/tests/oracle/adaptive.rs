//! A naive model of the adaptive policy. It handles one block at a time, with `Vec` and maps. The
//! engine's [`kvoxide_core::BlockPool`] with the adaptive policy must evict the same blocks in the
//! same order.
//!
//! Free blocks are evicted in this order:
//!
//! 1. the queue: uncached blocks first, then worthless ones;
//! 2. blocks with a retention priority below the default, regardless of their value;
//! 3. the *lists*;
//! 4. blocks with a priority above the default;
//! 5. *protected* tails.
//!
//! The lists hold free cached blocks by the uses of their prefix, by their value, and by the epoch
//! in which they became free. A value is 1 / 2^*halvings* of a full-attention block's value. A hit
//! gives a block the highest value and adds a use. A free block is worthless if another block was
//! computed with the same key.
//!
//! A scoring function ranks the lists. The first block of the list with the lowest score is evicted
//! first. An epoch ends each time a 16th of the pool's blocks became cached as full blocks. A duel
//! of shadow caches on a sample of the blocks decides which scoring function is used.
//!
//! Blocks of windows and states are *tails*. A hit needs only the tails at its end, in addition to
//! all *full-attention blocks* of the prefix. A valuable tail is protected after a running request
//! has passed it. A tail that is due for eviction gets a *second chance* if the full-attention
//! block with the same end was used later. Then it gets the age of that block.
//!
//! This file has the order of eviction. The modules have the rest, in the order of reading.

/// The policy's record of a block.
pub mod block;
/// The calls of the pool.
pub mod calls;
/// The blocks that vLLM's default policy would have kept. It decides nothing.
mod default_queue;
/// The tails that vLLM's default policy would have. It decides nothing.
mod default_tails;
/// The values of tails at the ends of prompts and answers.
pub mod ends;
/// The order of the lists.
mod lists;
/// Tiers of retention priorities.
pub mod priority;
/// The blocks of a request that it passed, or that it releases at its end.
mod releases;
/// The blocks of a request while it runs.
pub mod requests;
/// Scores by frequency class and age.
mod scoring;
/// The sessions of requests, and the blocks that requests give up.
mod sessions;
/// Selects the current scoring function.
mod shadow;
/// The values of tails by their position.
pub mod value;

use kvoxide_core::pool::{BlockClass, EffectivePriority, KeyLayout};
use kvoxide_core::{BlockId, CacheKey, GroupId};

use crate::pool::Pool;
use block::{Block, Place};
use lists::{List, Lists};
use priority::{DEFAULT, Priorities};
use scoring::{AGES, class_of};
use shadow::{Duel, Name};

pub struct Adaptive {
    pub pool: Pool,
    pub priorities: Priorities,
    pub duel: Duel,
    block_classes: Vec<BlockClass>,
    pub blocks: Vec<Block>,
    lists: Lists,
    /// Protected tails. The first one is evicted first.
    pub protected: Vec<BlockId>,
    pub epoch: usize,
    round_len: usize,
    num_cached_in_round: usize,
    num_rounds: usize,
    /// The number of last full-attention blocks of the next hit that vLLM's default policy would
    /// compute again.
    pub num_without_tail: usize,
}

impl Adaptive {
    /// The number of rounds of the duel in which as many blocks become cached as the pool has. A
    /// round has at least [`Self::MIN_ROUND_LEN`] blocks.
    const ROUNDS_PER_POOL: usize = 64;
    const MIN_ROUND_LEN: usize = 4;
    const ROUNDS_PER_EPOCH: usize = 4;

    pub fn new(pool: Pool, block_classes: Vec<BlockClass>, max_protected: usize) -> Self {
        let num_blocks = pool.blocks.len();
        let duel = Duel::new(num_blocks);
        Self {
            priorities: Priorities::new(max_protected),
            lists: Lists::new(*duel.scores()),
            duel,
            block_classes,
            blocks: vec![Block::default(); num_blocks],
            protected: Vec::new(),
            epoch: 0,
            round_len: (num_blocks / Self::ROUNDS_PER_POOL).max(Self::MIN_ROUND_LEN),
            num_cached_in_round: 0,
            num_rounds: 0,
            num_without_tail: 0,
            pool,
        }
    }

    /// Takes the first block out of the list that is evicted first.
    fn evict_next(&mut self) -> Option<BlockId> {
        if let Some(&block) = self.priorities.low().first() {
            self.leave(block);
            return Some(block);
        }
        loop {
            let listed = self.lists.first();
            let last = || self.priorities.high().first().or(self.protected.first()).copied();
            let block = listed.or_else(last)?;
            self.leave(block);
            if !self.give_second_chance(block) {
                return Some(block);
            }
        }
    }

    /// Gives a tail that is due for eviction the age of the full-attention block with the same end,
    /// if that block was used later. Returns whether it did.
    fn give_second_chance(&mut self, tail: BlockId) -> bool {
        let block = *self.block(tail);
        if !block.may_get_second_chance() {
            return false;
        }
        let hash = self.pool.blocks[tail as usize].keys[0].hash;
        let prefix = self.full_group().and_then(|group| self.pool.find(&CacheKey { hash, group }));
        let Some(prefix) = prefix else { return false };
        let age = if self.is_used(prefix) { 0 } else { self.epoch - self.block(prefix).epoch };
        if age >= self.epoch - block.epoch {
            return false;
        }
        self.inherit_uses(tail, prefix);
        self.block(tail).was_hit = false;
        self.list(tail, age);
        true
    }

    /// Returns the group of full-attention blocks, if the model has tails.
    pub fn full_group(&self) -> Option<GroupId> {
        let has_tails = self.block_classes.iter().any(|class| class.is_tail);
        let full =
            self.block_classes.iter().position(|class| class.is_sampleable && !class.is_tail)?;
        has_tails.then_some(full as GroupId)
    }

    /// Puts a cached block that became free, or lost its protection, into its priority list, its
    /// ranked list or the queue.
    fn wait(&mut self, id: BlockId, is_left_behind: bool) {
        let block = *self.block(id);
        let is_protected = is_left_behind && block.is_valuable_tail();
        let is_poor = block.is_worthless() || block.is_tail && !block.is_valuable_tail();
        let is_ignored = |priority: EffectivePriority| {
            self.priorities.is_over(priority) || priority.priority > DEFAULT && is_poor
        };
        if self.priorities.of(id).is_some_and(is_ignored) {
            self.priorities.set(id, None);
        }
        let priority = self.priorities.of(id).map(|of_block| of_block.priority);
        let is_low = priority.is_some_and(|priority| priority < DEFAULT);
        if is_low || priority.is_some() && !is_protected {
            self.wait_with_priority(id);
        } else if is_protected {
            self.block(id).place = Place::Protected;
            self.protected.push(id);
        } else if block.is_worthless() {
            self.pool.queue.push(id);
        } else {
            self.list(id, 0);
            self.tell_freed(id);
        }
    }

    fn wait_with_priority(&mut self, id: BlockId) {
        let epoch = self.epoch;
        let block = self.block(id);
        (block.place, block.epoch) = (Place::Prioritized, epoch);
        self.priorities.push(id);
        while let Some(block) = self.priorities.excess() {
            self.lose_priority(block);
        }
    }

    /// Removes the priority of a block in a priority list. The block then waits with the other blocks of its
    /// age.
    fn lose_priority(&mut self, id: BlockId) {
        self.leave(id);
        if self.block(id).is_worthless() {
            return self.pool.queue.push(id);
        }
        self.list(id, self.epoch - self.blocks[id as usize].epoch);
        self.tell_freed(id);
    }

    /// Adds a block after the blocks that became free `age` epochs ago.
    fn list(&mut self, id: BlockId, age: usize) {
        let epoch = self.epoch - age;
        let block = self.block(id);
        (block.place, block.epoch) = (Place::Listed, epoch);
        let (class, halvings) = (class_of(block.uses), block.halvings);
        let list = List { class, halvings, age: age.min(AGES - 1) };
        self.lists.push(list, id);
    }

    fn tell_freed(&mut self, id: BlockId) {
        if let Some(name) = self.sampled_name(id) {
            self.duel.freed(name, class_of(self.blocks[id as usize].uses));
        }
    }

    /// Removes a block from its place and removes its priority.
    fn leave(&mut self, id: BlockId) -> bool {
        self.priorities.set(id, None);
        self.remove_from_place(id)
    }

    fn remove_from_place(&mut self, id: BlockId) -> bool {
        self.lists.remove(id);
        self.protected.retain(|&other| other != id);
        self.priorities.remove(id);
        std::mem::take(&mut self.block(id).place) != Place::Elsewhere
    }

    /// Ends a round of the duel for each `round_len` blocks that became cached.
    fn end_rounds(&mut self) {
        while self.num_cached_in_round >= self.round_len {
            self.num_cached_in_round -= self.round_len;
            self.duel.end_round();
            self.num_rounds += 1;
            if self.num_rounds.is_multiple_of(Self::ROUNDS_PER_EPOCH) {
                self.duel.end_epoch();
                self.epoch += 1;
                self.lists.end_epoch(*self.duel.scores());
            }
        }
    }

    /// Returns the free blocks in the order of their eviction, as if no tail got a second chance.
    pub fn eviction_order(&self) -> Vec<BlockId> {
        let mut order = self.pool.queue.clone();
        order.extend(self.priorities.low());
        order.extend(self.lists.in_order());
        order.extend(self.priorities.high());
        order.extend(&self.protected);
        order
    }

    pub fn is_protected(&self, block: BlockId) -> bool {
        self.blocks[block as usize].place == Place::Protected
    }

    fn fit_shadow_caches(&mut self) {
        let sampled = self.blocks.iter().filter(|block| block.is_sampled);
        let num_sampled = sampled.filter(|block| block.place == Place::Listed).count();
        let num_queued = self.pool.queue.len();
        let num_free = self.blocks.iter().filter(|block| block.place != Place::Elsewhere).count();
        self.duel.evict(num_sampled, num_queued, num_free + num_queued);
    }

    pub fn is_generated(&self, block: BlockId) -> bool {
        self.blocks[block as usize].is_generated
    }

    pub fn is_unused_answer(&self, block: BlockId) -> bool {
        self.blocks[block as usize].is_unused_answer()
    }

    pub fn is_cached(&self, block: BlockId) -> bool {
        !self.pool.blocks[block as usize].keys.is_empty()
    }

    fn is_used(&self, block: BlockId) -> bool {
        self.pool.blocks[block as usize].references > 0
    }

    fn block(&mut self, block: BlockId) -> &mut Block {
        &mut self.blocks[block as usize]
    }

    fn sampled_name(&self, block: BlockId) -> Option<Name> {
        self.blocks[block as usize].is_sampled.then(|| self.fingerprint(block).max(1))
    }

    /// Returns 32 bits of the first key. The lowest bits are the group.
    fn fingerprint(&self, block: BlockId) -> u32 {
        let key = self.pool.blocks[block as usize].keys[0];
        let groups = KeyLayout::new(self.block_classes.len()).num_groups() as u32;
        KeyLayout::bits(&key.hash) & !(groups - 1) | u32::from(key.group)
    }
}

//! Random calls of a pool with the adaptive policy, compared with [`Adaptive`].

mod steps;

use std::ops::Range;
use std::sync::{Arc, LazyLock};

use kvoxide_core::pool::{
    AdaptiveConfig, BlockClass, Blocks, EffectivePriority, EvictionHints, FullBlocks, KeyLayout,
    NO_SEGMENT, PrefixIndex, ValueLevel, WithoutTail,
};
use kvoxide_core::{
    BlockHash, BlockId, BlockPool, CacheKey, NULL_BLOCK, RecycleOrder, RequestRetention,
    RetentionPriority,
};
use proptest::prelude::*;
use proptest::sample::Index;

use crate::Part;
use crate::adaptive::Adaptive;
use crate::adaptive::calls::Cached;
use crate::adaptive::priority::{Asked, Retention};
use crate::adaptive::value::Value;
use crate::pool::Pool;
use steps::{Release, Step, Tails, step};

const BLOCK_SIZE: usize = 16;
const NUM_HASHES: usize = 400;
/// A group of full-attention blocks and a group of tails.
const FULL_ATTENTION: u16 = 0;
const TAILS: u16 = 1;
const MAX_PROTECTED: usize = 20;
/// The most epochs. After more, the engine forgets names in use without events, and the oracle does
/// not model this.
const MAX_EPOCHS: usize = 127;

/// Returns hashes. At least every other hash is sampled, which is more often than for real hashes.
static HASHES: LazyLock<Vec<BlockHash>> = LazyLock::new(|| {
    let is_sampled = |hash: &BlockHash| KeyLayout::bits(hash) < 1 << 28;
    let mut hashes = (0..).map(crate::hash);
    (0..NUM_HASHES + 400)
        .map(|i| hashes.find(|hash| i % 2 == 0 || is_sampled(hash)).expect("a hash"))
        .collect()
});

struct World {
    engine: BlockPool,
    model: Adaptive,
    holdings: Vec<Vec<BlockId>>,
    /// Blocks of earlier holdings. Some of them are still cached.
    past: Vec<Vec<BlockId>>,
}

impl World {
    fn new(num_blocks: usize, are_all_tails: bool) -> Self {
        let full =
            BlockClass { is_tail: are_all_tails, is_sampleable: true, ..BlockClass::default() };
        let tail = BlockClass {
            is_tail: true,
            is_state: num_blocks.is_multiple_of(2),
            is_sampleable: are_all_tails,
            ..BlockClass::default()
        };
        let (classes, order) = (vec![full, tail], RecycleOrder::UncachedFirst);
        let adaptive =
            AdaptiveConfig { classes: classes.clone(), max_high_priority: MAX_PROTECTED };
        let engine = BlockPool::new(num_blocks, classes.len(), order, true, Some(adaptive));
        let pool = Pool::new(num_blocks, order);
        let model = Adaptive::new(pool, classes, MAX_PROTECTED);
        Self { engine: engine.expect("a pool"), model, holdings: Vec::new(), past: Vec::new() }
    }

    fn play(&mut self, step: &Step) {
        match *step {
            Step::Serve { first_hash, len, tails, stays } => {
                self.serve(first_hash, len, tails, stays)
            }
            Step::Take { num, num_null } => {
                let mut taken = vec![NULL_BLOCK; num_null];
                taken.extend(self.take(num));
                self.hold(taken);
            }
            Step::Cache { holding, part, first_hash, group, value, num_in_prompt } => {
                let blocks = part.of(self.held(holding));
                self.cache(&blocks, first_hash, group, value, num_in_prompt);
            }
            Step::Touch { holding, part, is_turned } => self.touch_past(holding, part, is_turned),
            Step::Release { holding, how } => self.release_holding(holding, how),
            Step::LeaveBehind { holding, part } => self.leave_behind(holding, part),
            Step::Unprotect { part } => self.unprotect(part),
            Step::Promote { tail, full, end } => self.promote(tail, full, end),
            Step::AddKey { holding, at, hash, group } => self.add_key((holding, at), hash, group),
            Step::MoveKeys { from, to } => self.move_keys(from, to),
            Step::Evict { holding, part } => self.evict(holding, part),
            Step::Reset => assert_eq!(self.engine.reset(), self.model.reset()),
            Step::Ask { priority, half_seconds, ref tokens } => {
                self.ask(priority, half_seconds, tokens);
            }
            Step::AskNothing => {
                self.adaptive().0.set_requested(None);
                self.model.priorities.asked = Retention::default();
            }
            Step::Wait { half_seconds } => {
                let now = self.model.priorities.now + 500 * half_seconds;
                let (adaptive, blocks) = self.adaptive();
                adaptive.set_now(blocks, now);
                self.model.set_now(now);
            }
        }
        let (engine, model) = (&mut self.engine, &mut self.model);
        assert_eq!(engine.index_mut().events_mut().take(), std::mem::take(&mut model.pool.events));
        compare(engine, model);
    }

    fn serve(&mut self, first_hash: usize, len: usize, tails: Tails, stays: bool) {
        let keys = (first_hash..first_hash + len)
            .map(|i| CacheKey { hash: HASHES[i], group: FULL_ATTENTION });
        let hit: Vec<_> = keys.map_while(|key| self.model.pool.find(&key)).collect();
        // A request that resumes hits tails.
        let resumed = (first_hash..first_hash + hit.len()).rev().take(tails.num);
        let keys = resumed.map(|i| CacheKey { hash: HASHES[i], group: TAILS });
        let hit_tails: Vec<_> = keys.filter_map(|key| self.model.pool.find(&key)).collect();
        self.touch(&hit);
        self.touch(&hit_tails);
        let computed = self.take(len - hit.len());
        let first = first_hash + hit.len();
        self.cache(
            &computed,
            first,
            FULL_ATTENTION,
            Value { halvings: 0, is_durable: false },
            computed.len(),
        );
        let tail_blocks = self.take(tails.num.min(computed.len()));
        let first_tail = first + computed.len() - tail_blocks.len();
        self.cache(&tail_blocks, first_tail, TAILS, tails.value, tail_blocks.len());
        self.hold([hit, computed, hit_tails, tail_blocks].concat());
        if !stays {
            let last = self.holdings.pop().expect("what the request holds");
            self.release(last, Release::LastToFirst);
        }
    }

    fn hold(&mut self, blocks: Vec<BlockId>) {
        self.past.push(blocks.clone());
        self.holdings.push(blocks);
    }

    fn take(&mut self, num: usize) -> Vec<BlockId> {
        let num = num.min(self.engine.num_free_blocks() as usize);
        let mut taken = Vec::new();
        self.engine.allocate(num, &mut taken);
        assert_eq!(taken, self.model.take(num));
        taken
    }

    fn cache(
        &mut self,
        blocks: &[BlockId],
        first_hash: usize,
        group: u16,
        value: Value,
        num_in_prompt: usize,
    ) {
        let Value { halvings, is_durable } = value;
        let level = ValueLevel::new(halvings);
        let level = if is_durable { level.durable() } else { level };
        let whole = FullBlocks {
            group,
            blocks,
            hashes: &HASHES[first_hash..],
            per_block: 1,
            first_num_tokens: (first_hash + 1) * BLOCK_SIZE,
            block_size: BLOCK_SIZE,
            segment: NO_SEGMENT,
        };
        let num_prompt_tokens = (first_hash + num_in_prompt) * BLOCK_SIZE;
        let first = first_hash * BLOCK_SIZE;
        let without_tail = WithoutTail {
            start: first + num_in_prompt / 3 * BLOCK_SIZE,
            end: first + num_in_prompt / 2 * BLOCK_SIZE,
        };
        for batch in whole.batches(PrefixIndex::BATCH) {
            let hints = EvictionHints { value: level, num_prompt_tokens, without_tail };
            self.engine.cache_batch(&batch, hints);
            self.model.cache(&Cached {
                blocks: batch.blocks,
                hashes: batch.hashes,
                group,
                value,
                first_end: batch.first_num_tokens,
                block_size: BLOCK_SIZE,
                num_prompt_tokens,
                without_tail: without_tail.start..without_tail.end,
            });
        }
    }

    fn touch(&mut self, blocks: &[BlockId]) {
        self.engine.touch(blocks);
        self.model.touch(blocks);
    }

    fn touch_past(&mut self, holding: Index, part: Part, is_turned: bool) {
        let mut found = part.of(some(&self.past, holding));
        found.retain(|&block| block == NULL_BLOCK || self.model.is_cached(block));
        if is_turned {
            found.reverse();
        }
        self.touch(&found);
        self.holdings.push(found);
    }

    fn release_holding(&mut self, holding: Index, how: Release) {
        if !self.holdings.is_empty() {
            let held = self.holdings.swap_remove(holding.index(self.holdings.len()));
            self.release(held, how);
        }
    }

    fn release(&mut self, mut held: Vec<BlockId>, how: Release) {
        let turned: Vec<_> = held.iter().rev().copied().collect();
        match how {
            Release::FirstToLast => {
                self.engine.release(&held);
                self.model.release(&held);
            }
            Release::LastToFirst => {
                self.engine.release_table(&held);
                self.model.release(&turned);
            }
            Release::InRuns => {
                let (adaptive, blocks) = self.adaptive();
                adaptive.raise_priorities(blocks, held.iter().copied());
                adaptive.release_by(blocks, |release| release.release_all(&held));
                self.model.release(&turned);
            }
            Release::ToBack => {
                held.retain(|&block| block != NULL_BLOCK);
                self.engine.release_to_back(held.iter().copied());
                self.model.pool.release_to_back(&held);
            }
        }
    }

    fn leave_behind(&mut self, holding: Index, part: Part) {
        if self.holdings.is_empty() {
            return;
        }
        let holding = holding.index(self.holdings.len());
        let left = part.of(&self.holdings[holding]);
        let is_left = |i: usize| part.has(i);
        let kept = self.holdings[holding].iter().enumerate().filter(|&(i, _)| !is_left(i));
        self.holdings[holding] = kept.map(|(_, &block)| block).collect();
        self.adaptive().0.start_protecting();
        self.engine.release(&left);
        let expected = self.model.release_left_behind(&left);
        let protected = self.adaptive().0.stop_protecting();
        assert_eq!(protected, expected);
    }

    fn unprotect(&mut self, part: Part) {
        let tails = part.of(&self.model.protected);
        let (adaptive, blocks) = self.adaptive();
        adaptive.raise_priorities(blocks, tails.iter().copied());
        adaptive.release_by(blocks, |release| {
            tails.iter().for_each(|&tail| release.unprotect(tail));
        });
        self.model.release(&tails);
    }

    fn promote(&mut self, tail: (Index, Index), full: (Index, Index), end: Option<usize>) {
        let full = self.block_in_use(full.0, full.1);
        if let Some(tail) = self.block_in_use(tail.0, tail.1) {
            let pair = (tail, full.unwrap_or(NULL_BLOCK));
            if let Some(halvings) = end {
                self.adaptive().0.promote([pair], ValueLevel::new(halvings));
                self.model.promote(tail, full, halvings);
            } else if let Some(full) = full.filter(|_| !self.model.is_unused_answer(tail)) {
                self.adaptive().0.promote([pair], ValueLevel::WORST);
                self.model.inherit_uses(tail, full);
            }
        }
    }

    fn add_key(&mut self, (holding, at): (Index, Index), n: usize, group: u16) {
        let Some(block) = self.block_in_use(holding, at) else { return };
        let key = CacheKey { hash: HASHES[n], group };
        self.engine.insert_key(block, key, BLOCK_SIZE);
        self.model.add_key(block, key, BLOCK_SIZE);
    }

    fn move_keys(&mut self, from: (Index, Index), to: (Index, Index)) {
        let Some(from) = self.block_in_use(from.0, from.1) else { return };
        let Some(to) = self.block_in_use(to.0, to.1) else { return };
        if from != to && self.model.is_cached(from) && !self.model.is_cached(to) {
            self.engine.move_keys(from, to);
            self.model.move_keys(from, to);
        }
    }

    fn evict(&mut self, holding: Index, part: Part) {
        let mut blocks = part.of(some(&self.past, holding));
        blocks.retain(|&block| block != NULL_BLOCK);
        self.engine.evict(blocks.iter().copied());
        self.model.evict(&blocks);
    }

    fn ask(&mut self, priority: u8, half_seconds: u64, tokens: &Range<usize>) {
        let seconds = (half_seconds > 0).then_some(half_seconds as f64 / 2.0);
        let requested = RetentionPriority::new(i64::from(priority), seconds).expect("a priority");
        let requested = RequestRetention::default().with_priority(tokens.clone(), requested);
        self.adaptive().0.set_requested(Some(Arc::new(requested)));
        let time_to_live = (half_seconds > 0).then_some(500 * half_seconds);
        let asked = Asked { tokens: tokens.clone(), priority, time_to_live };
        self.model.priorities.asked = Retention { priorities: vec![asked], ..Retention::default() };
    }

    fn adaptive(&mut self) -> (&mut kvoxide_core::pool::Adaptive, &mut Blocks) {
        self.engine.adaptive_mut().expect("the adaptive policy")
    }

    fn held(&self, holding: Index) -> &[BlockId] {
        some(&self.holdings, holding)
    }

    fn block_in_use(&self, holding: Index, at: Index) -> Option<BlockId> {
        let held = self.held(holding);
        held.get(at.index(held.len().max(1))).copied().filter(|&block| block != NULL_BLOCK)
    }
}

/// Compares the evictable blocks of the engine's pool with the oracle's.
pub fn compare(engine: &BlockPool, model: &Adaptive) {
    assert_eq!(engine.eviction_order(), model.eviction_order(), "order of eviction");
    let adaptive = engine.adaptive().expect("an adaptive order");
    let protected: Vec<_> = adaptive.protected_tails(engine.blocks()).collect();
    assert_eq!(protected, model.protected);
    assert_eq!(adaptive.shadow().in_force(), model.duel.in_force());
    assert_eq!(adaptive.shadow().counts, model.duel.counts);
    assert_eq!(adaptive.shadow().reuse_of_once_used(), model.duel.reuse_of_once_used());
    assert_eq!(adaptive.num_high_priority(), model.priorities.high().len());
    for (id, block) in (0..).zip(&model.pool.blocks).skip(1) {
        assert_eq!(engine.ref_count(id), block.references as i32, "references of {id}");
        let in_force = |of: &EffectivePriority| !model.priorities.is_over(*of);
        let priority = model.priorities.of(id).filter(in_force);
        assert_eq!(adaptive.priority_of(id).filter(in_force), priority, "priority of {id}");
        if !block.keys.is_empty() {
            assert_eq!(
                adaptive.meta(id).nearness().step(),
                model.blocks[id as usize].nearness,
                "nearness of {id}"
            );
            assert_eq!(adaptive.meta(id).is_generated(), model.is_generated(id), "tokens of {id}");
        }
    }
}

fn some(lists: &[Vec<BlockId>], which: Index) -> &[BlockId] {
    if lists.is_empty() { &[] } else { &lists[which.index(lists.len())] }
}

proptest! {
    #[test]
    fn the_adaptive_policy_agrees_with_the_oracle(
        steps in prop::collection::vec(step(), 1..250),
        num_blocks in prop_oneof![Just(100_usize), Just(250), Just(600)],
        are_all_tails in prop::bool::weighted(0.2),
    ) {
        let mut world = World::new(num_blocks, are_all_tails);
        for step in &steps {
            if world.model.epoch < MAX_EPOCHS {
                world.play(step);
            }
        }
    }
}

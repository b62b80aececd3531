//! Retention priorities in the adaptive policy: which blocks get a priority, and when they lose it.

use std::sync::Arc;

use super::Adaptive;
use super::block_meta::Place;
use super::shadow::Access;
use crate::block::{BlockId, NULL_BLOCK};
use crate::pool::blocks::Blocks;
use crate::pool::eviction::priority::{EffectivePriority, RetentionPriority};
use crate::pool::eviction::request_retention::RequestRetention;

/// The priority and the time of the request that uses blocks.
#[derive(Debug, Default)]
pub(super) struct RequestPriority {
    /// The retention that the request asks for, if it asks for any.
    requested: Option<Arc<RequestRetention>>,
    /// Whether the request asks for priorities.
    has_priorities: bool,
    /// The time in milliseconds, on the caller's clock.
    now: u64,
    has_times_to_live: bool,
    /// The priorities of replaced blocks. The blocks that replace them get these priorities as soon
    /// as they are cached.
    inherited: Vec<(BlockId, EffectivePriority)>,
}

impl Adaptive {
    /// Sets what the request asks for. It applies to blocks that are used from now on.
    pub fn set_requested(&mut self, requested: Option<Arc<RequestRetention>>) {
        let of = &mut self.request_priority;
        of.has_times_to_live |= requested.as_ref().is_some_and(|requested| requested.has_end());
        of.has_priorities = requested.as_ref().is_some_and(|requested| requested.has_priorities());
        of.requested = requested;
    }

    /// Returns what the request asks for.
    pub(crate) fn requested(&self) -> Option<Arc<RequestRetention>> {
        self.request_priority.requested.clone()
    }

    /// Returns whether the request has a session.
    pub(crate) fn has_session(&self) -> bool {
        self.request_priority.requested.as_ref().is_some_and(|it| it.session().is_some())
    }

    /// Returns the priority that the request asks for a block; `None` for the default.
    fn requested_for(&self, blocks: &Blocks, block: BlockId) -> Option<EffectivePriority> {
        let requested = self.request_priority.requested.as_ref()?;
        let priority = requested.priority_at(blocks.last_hash_num_tokens(block))?;
        Some(priority.from(self.request_priority.now))
    }

    /// Returns whether [`Self::set_now`] has to be called, because some priority has an end.
    pub(crate) fn has_times_to_live(&self) -> bool {
        self.request_priority.has_times_to_live
    }

    /// Sets the time in milliseconds, and ends the priorities that end by then. An earlier time
    /// does not set the clock back.
    pub fn set_now(&mut self, blocks: &mut Blocks, now: u64) {
        self.request_priority.now = self.request_priority.now.max(now);
        while let Some(block) = self.priority_lists.ended(self.request_priority.now) {
            self.end_listed_priority(blocks, block);
        }
        self.shadow.flush();
        self.fit_shadow_caches();
    }

    /// Returns the number of free blocks above the default priority.
    pub fn num_high_priority(&self) -> usize {
        self.priority_lists.num_high()
    }

    /// Returns how many more free blocks above the default priority the protected share can hold.
    pub fn num_spare_high_priority(&self) -> usize {
        self.priority_lists.num_spare()
    }

    /// Returns the priority of a block, if it is not the default.
    pub fn priority_of(&self, block: BlockId) -> Option<EffectivePriority> {
        self.metas[block].has_priority().then(|| self.priority_lists.of(block))
    }

    /// Checks the lists of priorities and the set of sampled blocks. The error says what is wrong.
    pub(crate) fn check(&self, blocks: &Blocks) -> Result<(), String> {
        self.metas.check()?;
        let has_priority = |block: BlockId| self.metas[block].has_priority();
        if let Some(block) = self.priority_lists.iter(blocks).find(|&block| !has_priority(block)) {
            return Err(format!("block {block} is in the list of a priority without one"));
        }
        if let Some(block) = self.lists.iter(blocks).find(|&block| has_priority(block)) {
            return Err(format!("block {block} is in a ranked list with a priority"));
        }
        self.priority_lists.check(blocks, self.request_priority.now)
    }

    /// Gives blocks that have just been cached the priority of the request that computed them, and
    /// the priorities of the blocks that they replace.
    pub(super) fn prioritize_cached(&mut self, blocks: &Blocks, ids: &[BlockId]) {
        if self.request_priority.has_priorities {
            for &block in ids.iter().filter(|&&block| block != NULL_BLOCK) {
                if let Some(priority) = self.requested_for(blocks, block) {
                    self.set_priority(blocks, block, priority);
                }
            }
        }
        for (block, priority) in std::mem::take(&mut self.request_priority.inherited) {
            self.raise_priority(blocks, block, priority);
        }
    }

    /// Lets a cached block be evicted before all others, if at most one request uses it. A block in
    /// use is evicted when it is free.
    pub(crate) fn give_up(&mut self, blocks: &mut Blocks, block: BlockId) {
        let place = self.metas[block].place();
        let is_used = blocks.ref_count(block) > 0;
        // A free block elsewhere is in the queue, which is evicted first anyway.
        if blocks.ref_count(block) > 1 || !is_used && place == Place::Elsewhere {
            return;
        }
        self.remove(blocks, block);
        let lowest = EffectivePriority { priority: 0, until: EffectivePriority::NO_END };
        self.set_priority(blocks, block, lowest);
        if !is_used {
            self.release_by(blocks, |release| release.enter_list(block));
        }
    }

    /// Returns whether [`Self::prioritize_cached`] has anything to do.
    #[inline]
    pub(super) fn has_priorities_for_cached(&self) -> bool {
        self.request_priority.has_priorities || !self.request_priority.inherited.is_empty()
    }

    /// Gives the request's priority to the cached blocks that it uses or releases. Blocks that have
    /// a higher priority keep it.
    #[inline]
    pub fn raise_priorities(&mut self, blocks: &Blocks, ids: impl IntoIterator<Item = BlockId>) {
        if !self.request_priority.has_priorities {
            return;
        }
        for block in ids.into_iter().filter(|&block| block != NULL_BLOCK) {
            if blocks.is_cached(block)
                && let Some(priority) = self.requested_for(blocks, block)
            {
                self.raise_priority(blocks, block, priority);
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn raise_priority(&mut self, blocks: &Blocks, block: BlockId, requested: EffectivePriority) {
        let own = self.priority_of(block);
        if let Some(own) = own.filter(|own| own.priority == requested.priority) {
            let until = own.until.max(requested.until);
            return self.set_priority(blocks, block, EffectivePriority { until, ..requested });
        }
        let live = own.filter(|own| own.is_live(self.request_priority.now));
        if requested.priority > live.map_or(RetentionPriority::DEFAULT_PRIORITY, |own| own.priority)
        {
            self.set_priority(blocks, block, requested);
        }
    }

    pub(super) fn set_priority(
        &mut self,
        blocks: &Blocks,
        block: BlockId,
        priority: EffectivePriority,
    ) {
        self.priority_lists.set(blocks.len(), block, priority);
        self.metas.update(block, |meta| meta.with_priority(true));
    }

    fn end_priority(&mut self, block: BlockId) {
        self.metas.update(block, |meta| meta.with_priority(false));
    }

    /// Ends the low priority of a block that is hit by a request without a priority. The default
    /// priority of the request is higher.
    #[cold]
    pub(super) fn end_low_priority(&mut self, blocks: &Blocks, block: BlockId) {
        let is_low = self.priority_lists.of(block).is_low();
        if is_low && self.requested_for(blocks, block).is_none() {
            self.end_priority(block);
        }
    }

    /// Puts a free block into the list of its priority. Returns `false` if the block does not enter
    /// the list. That is so in three cases:
    ///
    /// - The priority has ended.
    /// - The priority is high, and the block is worthless or a tail of low value. Then the priority
    ///   ends.
    /// - The priority is high, and the tail is to be protected.
    #[cold]
    #[inline(never)]
    pub(super) fn enter_priority_list(&mut self, blocks: &mut Blocks, block: BlockId) -> bool {
        let own = self.priority_lists.of(block);
        let meta = self.metas[block];
        let is_poor = meta.is_worthless() || meta.is_tail() && !meta.is_protectable();
        if !own.is_live(self.request_priority.now) || !own.is_low() && is_poor {
            self.end_priority(block);
            return false;
        }
        if !own.is_low() && self.newly_protected.is_some() && meta.is_protectable() {
            return false;
        }
        let epoch = self.lists.epoch();
        self.metas.update(block, |meta| meta.entered_priority_list(epoch));
        self.priority_lists.push(blocks, block);
        while let Some(excess) = self.priority_lists.excess(blocks) {
            self.end_listed_priority(blocks, excess);
        }
        true
    }

    /// Ends the priority of a listed block. From now on the block is ranked by how long it has been
    /// free.
    fn end_listed_priority(&mut self, blocks: &mut Blocks, block: BlockId) {
        let meta = self.metas[block];
        if meta.is_worthless() {
            self.move_to_queue(blocks, block);
            return;
        }
        self.priority_lists.remove(blocks, block);
        self.end_priority(block);
        self.rank(blocks, block, self.lists.epoch().age(meta.epoch()));
        if meta.is_sampled() {
            let access = Access::Freed(meta.class() as u8);
            self.shadow.record(access, blocks.fingerprint(block));
        }
    }

    /// Keeps the priority of a block for the block that replaces it.
    pub(super) fn pass_priority_on(&mut self, from: BlockId, to: BlockId) {
        if let Some(priority) = self.priority_of(from) {
            self.request_priority.inherited.push((to, priority));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::BlockHash;
    use crate::pool::NO_SEGMENT;
    use crate::pool::blocks::{Fingerprint, KeyLayout};
    use crate::pool::eviction::adaptive::block_meta::Epoch;
    use crate::pool::eviction::adaptive::block_meta::Place;
    use crate::pool::eviction::adaptive::tuning;
    use crate::pool::eviction::adaptive::{AdaptiveConfig, BlockClass};
    use crate::pool::eviction::queue::{Queue, RecycleOrder};

    const BLOCK: BlockId = 3;

    /// Creates a pool with a cached block that is sampled and that no request holds.
    fn world(capacity: usize) -> (Blocks, Adaptive) {
        let (layout, num_sentinels) = (KeyLayout::new(1), Adaptive::NUM_SENTINELS);
        let mut blocks = Blocks::new(400, layout, num_sentinels);
        let class = BlockClass { is_sampleable: true, ..BlockClass::default() };
        let queue = Queue::new(&mut blocks, RecycleOrder::default());
        let config = AdaptiveConfig { classes: vec![class], max_high_priority: capacity };
        let mut adaptive = Adaptive::new(&mut blocks, queue, config);
        blocks.set_key(BLOCK, &BlockHash([1, 0, 0, 0]), Fingerprint(5), 16, NO_SEGMENT);
        adaptive.start(&blocks, &[BLOCK], class, Access::Computed);
        (blocks, adaptive)
    }

    fn is_listed(adaptive: &Adaptive) -> bool {
        adaptive.metas[BLOCK].place() == Place::PriorityList
    }

    fn enqueue(blocks: &mut Blocks, adaptive: &mut Adaptive, priority: i64) {
        let priority = RetentionPriority::new(priority, Some(1.0)).expect("a priority");
        adaptive.set_requested(Some(Arc::new(priority.into())));
        adaptive.prioritize_cached(blocks, &[BLOCK]);
        adaptive.release_by(blocks, |release| release.enter_list(BLOCK));
        adaptive.set_requested(None);
    }

    #[test]
    fn a_block_that_is_listed_by_priority_is_not_free_for_the_shadow_caches() {
        for priority in [0, 100] {
            let (mut blocks, mut adaptive) = world(10);
            enqueue(&mut blocks, &mut adaptive, priority);
            assert!(is_listed(&adaptive));
            assert_eq!((adaptive.num_sampled, adaptive.shadow.num_kept()), (0, [0; 3]));
            adaptive.set_now(&mut blocks, 1_000);
            assert!(!is_listed(&adaptive));
            // The block is sampled, but the shadow caches of such a small pool have no room for it.
            assert_eq!((adaptive.num_sampled, adaptive.num_ranked), (1, 1));
        }
    }

    #[test]
    fn beyond_the_share_a_block_is_as_old_as_it_is() {
        let (mut blocks, mut adaptive) = world(1);
        enqueue(&mut blocks, &mut adaptive, 100);
        adaptive.num_cached_in_round = 3 * tuning::ROUNDS_PER_EPOCH * adaptive.round_len;
        adaptive.end_due_epochs(&mut blocks);
        assert_eq!(adaptive.lists.epoch(), Epoch::new(3));
        assert_eq!(adaptive.metas[BLOCK].epoch(), Epoch::new(0));
        adaptive.set_now(&mut blocks, 1_000);
        assert_eq!(adaptive.metas[BLOCK].epoch(), Epoch::new(0));
        assert_eq!(adaptive.check(&blocks), Ok(()));
        adaptive.lists.push(&mut blocks, BLOCK + 1, adaptive.metas[BLOCK], 0);
        let first = adaptive.lists.first(&blocks).and_then(|list| blocks.first_of_ring(list));
        assert_eq!(first, Some(BLOCK), "the older goes first");
    }

    #[test]
    fn what_is_wrong_with_the_lists_is_found() {
        type Plant = fn(&mut Blocks, &mut Adaptive);
        let plants: [(&str, Plant); 6] = [
            ("without one", |_, adaptive| adaptive.end_priority(BLOCK)),
            ("is in list 100", |blocks, adaptive| {
                adaptive.set_priority(
                    blocks,
                    BLOCK,
                    EffectivePriority { priority: 60, until: 1_000 },
                );
            }),
            ("noted wrongly", |blocks, adaptive| {
                adaptive.set_priority(blocks, BLOCK, EffectivePriority { priority: 100, until: 7 });
            }),
            ("has ended", |_, adaptive| adaptive.request_priority.now = 1_000),
            ("are counted", |blocks, _| blocks.unlink(BLOCK)),
            ("with a priority", |_, adaptive| {
                adaptive.metas.update(BLOCK, |meta| meta.with_priority(true));
            }),
        ];
        for (what, plant) in plants {
            let (mut blocks, mut adaptive) = world(10);
            enqueue(&mut blocks, &mut adaptive, 100);
            if what == "with a priority" {
                adaptive.set_now(&mut blocks, 1_000);
            }
            assert_eq!(adaptive.check(&blocks), Ok(()));
            plant(&mut blocks, &mut adaptive);
            let found = adaptive.check(&blocks).expect_err(what);
            assert!(found.contains(what) || what == "are counted", "{found} instead of {what}");
        }
    }
}

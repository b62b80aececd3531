//! Shadow caches: they simulate by hash alone what each scoring function would have kept of the
//! sampled blocks.
//!
//! The keys of free sampled blocks are in ghost lists by class and epoch, in the order in which the
//! blocks became free. Each scoring function evicts a list from the front. Therefore one position
//! per list says which keys its shadow cache still has. A shadow cache has room for as many keys as
//! sampled blocks are free, and for the sampled share of the empty blocks. So it never evicts
//! before the pool does. One more cache simulates vLLM's own policy.

mod access_log;
mod default_cache;
mod duel;
mod ghost_list;
mod table;
mod update;

use super::densities;
use super::hazard::{ByClassAndAge, HazardEstimate};
use super::ranks::{ListId, Ranks};
use super::sampled::ones;
use super::scoring::ScoringFunction;
use super::tuning::{self, AGES, CLASSES};
pub(super) use access_log::Access;
use access_log::AccessLog;
use default_cache::DefaultCache;
use duel::Duel;
use ghost_list::GhostList;
use table::{Entry, ShadowTable};

/// The number of scoring functions.
const FUNCTIONS: usize = ScoringFunction::ALL.len();

/// The accesses to sampled blocks since the pool was created, and their results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SampleCounts {
    /// The number of blocks that requests hit or computed.
    pub asked: u64,
    /// The number of blocks that requests hit.
    pub hit: u64,
    /// The number of these blocks that each of [`ScoringFunction::ALL`] would still have had.
    /// Tails, which a hit needs too, are not considered, so the number can exceed `hit`.
    pub kept: [u64; FUNCTIONS],
    /// The number of these blocks that vLLM's default policy would have hit. It caches tails at the
    /// ends of prompts and where prompts diverge.
    pub kept_by_default: u64,
}

#[derive(Debug)]
pub struct ShadowCaches {
    /// The number of leading zero bits in the fingerprint of a sampled block.
    num_zeros: u32,
    log: AccessLog,
    table: ShadowTable,
    /// The ghost lists, by class and then by epoch.
    ghost_lists: Vec<GhostList>,
    caches: [ShadowCache; FUNCTIONS],
    pub(super) default_cache: DefaultCache,
    hazard: HazardEstimate,
    /// The number of sampled blocks that became free after a single use.
    once_used: FadingCount,
    /// The number of these blocks that were used again while the shadow cache of the function in
    /// force had them.
    reused: FadingCount,
    epoch: usize,
    duel: Duel,
    pub counts: SampleCounts,
    /// The number of keys in ghost lists.
    num_ghosts: usize,
    /// A bit for each class with blocks that became free since the caches last evicted.
    just_freed: u32,
}

/// A count in which the counts of earlier epochs fade.
#[derive(Clone, Copy, Debug, Default)]
struct FadingCount {
    earlier: f64,
    this_epoch: usize,
}

impl FadingCount {
    fn end_epoch(&mut self) {
        let sum = self.sum();
        *self = Self { earlier: sum * f64::from(tuning::REUSE_FADE), this_epoch: 0 };
    }

    fn sum(self) -> f64 {
        self.earlier + self.this_epoch as f64
    }
}

#[derive(Debug)]
struct ShadowCache {
    ranks: Ranks,
    /// The number of keys in ghost lists that the cache has evicted.
    num_evicted: usize,
    /// The number of hits in this round.
    hits: u32,
}

/// The shadow caches do not distinguish values.
const VALUE_SHARES: [f32; 1] = [1.0];

impl ShadowCaches {
    /// Creates the shadow caches of a pool of `num_blocks` blocks.
    pub(super) fn new(num_blocks: usize) -> Self {
        let num_zeros = densities::num_zeros(num_blocks);
        let hazard = HazardEstimate::new();
        let caches = ScoringFunction::ALL.map(|function| ShadowCache {
            ranks: Ranks::new(&VALUE_SHARES, &function.scores(&hazard)),
            num_evicted: 0,
            hits: 0,
        });
        Self {
            num_zeros,
            log: AccessLog::default(),
            table: ShadowTable::new((num_blocks >> num_zeros) * 5 + 64),
            ghost_lists: (0..CLASSES * AGES).map(|_| GhostList::default()).collect(),
            caches,
            default_cache: DefaultCache::new(1 << num_zeros),
            hazard,
            once_used: FadingCount::default(),
            reused: FadingCount::default(),
            epoch: 0,
            duel: Duel::default(),
            counts: SampleCounts::default(),
            num_ghosts: 0,
            just_freed: 0,
        }
    }

    /// Returns the limit of sampling: blocks whose fingerprints are below it are sampled.
    #[inline]
    pub(super) fn sample_limit(&self) -> u32 {
        1 << (u32::BITS - self.num_zeros)
    }

    /// Returns the number of blocks that one sampled block represents.
    pub fn blocks_per_sample(&self) -> usize {
        1 << self.num_zeros
    }

    /// Returns the scoring function in force.
    pub fn in_force(&self) -> ScoringFunction {
        ScoringFunction::ALL[self.duel.in_force]
    }

    pub(super) fn scores(&self) -> &ByClassAndAge {
        &self.caches[self.duel.in_force].ranks.scores
    }

    /// Returns the share of blocks used once that are used again while they are cached.
    pub fn reuse_of_once_used(&self) -> f64 {
        let weight = tuning::PRIOR_REUSE_WEIGHT;
        (self.reused.sum() + weight * tuning::PRIOR_REUSE) / (self.once_used.sum() + weight)
    }

    fn list_index(class: usize, epoch: usize) -> usize {
        class * AGES + epoch % AGES
    }

    /// Lets each shadow cache evict what exceeds its room. The pool has `num_sampled` free sampled
    /// blocks and `num_empty` empty ones. vLLM's default policy has `num_free_by_default` free blocks.
    pub(super) fn fit(&mut self, num_sampled: usize, num_empty: usize, num_free_by_default: usize) {
        if self.just_freed == 0 {
            return;
        }
        let capacity = num_sampled + (num_empty >> self.num_zeros);
        for class in ones(u64::from(self.just_freed)) {
            let list = ListId { series: class, age: 0 };
            self.caches.iter_mut().for_each(|cache| cache.ranks.fill(list));
        }
        self.just_freed = 0;
        (0..FUNCTIONS).for_each(|function| self.evict(function, capacity));
        self.default_cache.fit(num_free_by_default >> self.num_zeros);
    }

    fn evict(&mut self, function: usize, capacity: usize) {
        let cache = &mut self.caches[function];
        while self.num_ghosts > capacity + cache.num_evicted {
            let Some(ListId { series: class, age }) = cache.ranks.first() else { return };
            let list = &mut self.ghost_lists[Self::list_index(class, self.epoch + AGES - age)];
            let most = self.num_ghosts - cache.num_evicted - capacity;
            cache.num_evicted += list.evict(function, most);
            if list.is_all_evicted(function) {
                cache.ranks.empty_first();
            }
        }
    }

    /// Ends a round of the duel.
    pub(super) fn end_round(&mut self) {
        self.duel.end_round(self.caches.each_mut().map(|cache| std::mem::take(&mut cache.hits)));
    }

    /// Ends an epoch. Chooses the function in force again, and updates the scores of the hazard
    /// function.
    pub(super) fn end_epoch(&mut self) {
        self.hazard.end_epoch();
        self.once_used.end_epoch();
        self.reused.end_epoch();
        self.epoch += 1;
        (0..CLASSES).for_each(|class| self.forget(Self::list_index(class, self.epoch)));
        self.forget_lost_keys();
        self.duel.choose();
        for (function, cache) in ScoringFunction::ALL.iter().zip(&mut self.caches) {
            if *function == ScoringFunction::Hazard {
                let are_all = self.epoch.is_multiple_of(tuning::EPOCHS_OF_UNSEEN);
                self.hazard.update(&mut cache.ranks.scores, are_all);
            }
            cache.ranks.end_epoch();
        }
    }

    /// Forgets the keys of a ghost list.
    fn forget(&mut self, index: usize) {
        let list = std::mem::take(&mut self.ghost_lists[index]);
        for (key, is_kept) in list.iter() {
            self.table.remove(key);
            self.num_ghosts -= 1;
            for (cache, is_kept) in self.caches.iter_mut().zip(is_kept) {
                cache.num_evicted -= usize::from(!is_kept);
            }
        }
    }

    /// Forgets keys that count as in use but were not used for 128 epochs, since their blocks may
    /// have lost them. Each epoch examines a 64th of the table.
    fn forget_lost_keys(&mut self) {
        let now = self.epoch as u16;
        self.table.sweep(self.epoch % AGES, AGES, |entry| {
            entry.list != Entry::IN_USE
                || usize::from(now.wrapping_sub(entry.epoch_or_tick)) < 2 * AGES
        });
    }

    /// Forgets every key. The observations stay.
    pub(super) fn forget_all(&mut self) {
        self.table.clear();
        self.ghost_lists.iter_mut().for_each(|list| *list = GhostList::default());
        self.hazard.forget_free();
        self.default_cache.clear();
        (self.num_ghosts, self.just_freed) = (0, 0);
        for cache in &mut self.caches {
            cache.num_evicted = 0;
            cache.ranks.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::blocks::Fingerprint;

    impl ShadowCaches {
        /// Returns the number of keys of free blocks that each function would still have.
        pub(in crate::pool::eviction::adaptive) fn num_kept(&self) -> [usize; FUNCTIONS] {
            self.caches.each_ref().map(|cache| self.num_ghosts - cache.num_evicted)
        }
    }

    fn access(shadow: &mut ShadowCaches, n: u32, access: Access) {
        shadow.record(access, Fingerprint(n));
        shadow.flush();
    }

    /// Uses each key of a pass of traffic and frees it again, in a pool in which the shadow has
    /// room for `capacity` keys.
    fn pass(shadow: &mut ShadowCaches, keys: std::ops::Range<u32>, capacity: usize) {
        for n in keys {
            access(shadow, n + 1, Access::Computed);
            access(shadow, n + 1, Access::Freed(0));
            let num_empty = capacity << shadow.num_zeros;
            shadow.fit(0, num_empty, num_empty);
        }
    }

    #[test]
    fn one_key_in_16_is_taken_and_fewer_in_large_pools() {
        for (num_blocks, share) in
            [(100, 16), (tuning::SPARSER_SAMPLES[0], 32), (tuning::SPARSER_SAMPLES[1], 64)]
        {
            let shadow = ShadowCaches::new(num_blocks);
            assert_eq!(
                (0..1024).filter(|&n| n << 22 < shadow.sample_limit()).count(),
                1024 / share
            );
        }
    }

    #[test]
    fn each_scoring_function_has_as_many_keys_as_the_pool() {
        let mut shadow = ShadowCaches::new(1000);
        pass(&mut shadow, 0..50, 20);
        assert!(shadow.num_kept() == [20; 3]);
        // The oldest 30 keys are evicted.
        pass(&mut shadow, 29..30, 20);
        assert!(shadow.caches.iter().all(|cache| cache.hits == 0));
        pass(&mut shadow, 49..50, 20);
        assert!(shadow.caches.iter().all(|cache| cache.hits == 1));
    }

    #[test]
    fn what_each_scoring_function_would_have_kept_is_counted() {
        let mut shadow = ShadowCaches::new(1000);
        pass(&mut shadow, 0..50, 20);
        assert_eq!(shadow.counts, SampleCounts { asked: 50, ..SampleCounts::default() });
        pass(&mut shadow, 29..30, 20); // gone
        pass(&mut shadow, 48..49, 20);
        access(&mut shadow, 50, Access::Hit);
        access(&mut shadow, 50, Access::Computed); // somebody uses it
        assert_eq!(
            shadow.counts,
            SampleCounts { asked: 54, hit: 1, kept: [3; 3], kept_by_default: 3 }
        );
        shadow.forget_all();
        access(&mut shadow, 50, Access::Computed);
        assert_eq!(
            shadow.counts,
            SampleCounts { asked: 55, hit: 1, kept: [3; 3], kept_by_default: 3 }
        );
    }

    #[test]
    fn a_key_in_use_is_no_hit() {
        let mut shadow = ShadowCaches::new(1000);
        pass(&mut shadow, 0..1, 20);
        (0..3).for_each(|_| access(&mut shadow, 1, Access::Hit));
        assert!(shadow.caches.iter().all(|cache| cache.hits == 1) && shadow.num_kept() == [0; 3]);
    }

    #[test]
    fn the_scoring_function_that_would_have_hit_most_is_in_force() {
        let mut shadow = ShadowCaches::new(1000);
        for _ in 0..3 {
            assert_eq!(shadow.in_force(), ScoringFunction::Recency);
            shadow.caches[2].hits = 3;
            shadow.end_round();
            shadow.end_epoch();
        }
        assert_eq!(shadow.in_force(), ScoringFunction::Hazard);
        assert!(shadow.caches.iter().all(|cache| cache.hits == 0), "each round begins anew");
    }

    #[test]
    fn no_cache_evicts_while_the_pool_has_room() {
        let mut shadow = ShadowCaches::new(1000);
        for n in 0..50 {
            access(&mut shadow, n + 1, Access::Computed);
            access(&mut shadow, n + 1, Access::Freed(0));
            shadow.fit(n as usize + 1, 0, 1000);
        }
        assert_eq!(shadow.num_kept(), [50; 3]);
        access(&mut shadow, 1, Access::Freed(0));
        shadow.fit(30, 20 << shadow.num_zeros, 1000);
        assert_eq!(shadow.num_kept(), [50; 3]);
    }

    /// A scan that repeats at one age makes the hazard of that age high. The other scoring
    /// functions lose all of the scan.
    #[test]
    fn a_cyclic_scan_is_for_the_hazards() {
        let mut shadow = ShadowCaches::new(1000);
        for _ in 0..20 {
            for first in (0..100).step_by(4) {
                pass(&mut shadow, first..first + 4, 50);
                shadow.end_round();
                shadow.end_epoch();
            }
        }
        assert_eq!(shadow.in_force(), ScoringFunction::Hazard);
        assert_eq!(shadow.counts.kept[0], 0);
    }

    #[test]
    fn keys_are_forgotten_after_all_ages() {
        let mut shadow = ShadowCaches::new(1000);
        pass(&mut shadow, 0..5, 20);
        access(&mut shadow, 77, Access::Computed);
        (1..AGES).for_each(|_| shadow.end_epoch());
        assert_eq!((shadow.table.len, shadow.num_kept()[0]), (6, 5));
        shadow.end_epoch();
        assert_eq!((shadow.table.len, shadow.num_kept()[0]), (1, 0));
        (0..2 * AGES).for_each(|_| shadow.end_epoch());
        assert!(shadow.table.len == 0, "one in use of which nothing was heard");
    }

    #[test]
    fn an_emptied_cache_has_no_keys_and_the_same_profile() {
        let mut shadow = ShadowCaches::new(1000);
        pass(&mut shadow, 0..5, 20);
        pass(&mut shadow, 0..5, 20);
        let scores = *shadow.scores();
        shadow.forget_all();
        assert!(shadow.table.len == 0 && *shadow.scores() == scores);
        assert!(shadow.caches.iter().all(|cache| cache.hits == 5) && shadow.num_kept() == [0; 3]);
        pass(&mut shadow, 0..5, 20);
        assert!(shadow.caches.iter().all(|cache| cache.hits == 5) && shadow.num_kept() == [5; 3]);
    }

    #[test]
    fn keys_that_come_and_go_within_an_epoch_leave_no_gaps_behind() {
        let mut shadow = ShadowCaches::new(1000);
        pass(&mut shadow, 0..50, 20);
        for _ in 0..100 {
            pass(&mut shadow, 45..50, 20);
        }
        let list = &shadow.ghost_lists[0];
        assert_eq!((list.iter().count(), shadow.num_kept()), (50, [20; 3]));
        assert!(list.keys.len() < 200, "{} positions for 50 keys", list.keys.len());
        assert_eq!(shadow.counts.kept, [500; 3]);
        pass(&mut shadow, 29..30, 20);
        pass(&mut shadow, 31..32, 20);
        assert_eq!(shadow.counts.kept, [501; 3], "the 20 last used are there");
    }
}

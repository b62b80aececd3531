//! Shadow caches: what each scoring function would have kept of the sampled blocks, by hash alone.
//!
//! The keys of free sampled blocks are in ghost lists by class and epoch, in the order in which the
//! blocks became free. A scoring function evicts a list from its front on, so that what it would
//! still have is a position in each list. Each cache has room for as many keys as the pool has free
//! sampled blocks, and for those that its empty blocks could hold, so that none evicts before the
//! pool does. One more cache is that of vLLM's own policy.

pub(super) mod access_log;
mod default_cache;
mod duel;
mod ghost_list;
pub(super) mod table;
mod update;

use super::hazard::HazardEstimate;
use super::ranks::{ListId, Ranks};
use super::scoring::{Scores, ScoringFunction};
use super::tuning::{TUNING, Tuning};
use default_cache::DefaultCache;
use duel::Duel;
use ghost_list::GhostList;
use table::{Entry, ShadowTable};

const AGES: usize = Tuning::AGES;
/// Number of scoring functions.
const FUNCTIONS: usize = ScoringFunction::ALL.len();

/// How a block is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// It was cached.
    Hit,
    /// It was computed, for the first time or again.
    Computed,
}

/// What was asked of the sampled blocks since the pool was made, and what came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SampleCounts {
    /// Blocks that requests hit or computed.
    pub asked: u64,
    /// Blocks that requests hit.
    pub hit: u64,
    /// Blocks that each of [`ScoringFunction::ALL`] would have kept: in use, or not evicted. Tails that a
    /// hit needs too are left out, so that it can be more than was hit.
    pub kept: [u64; FUNCTIONS],
    /// Blocks that vLLM's own policy would have kept, beside the tails that it caches.
    pub kept_by_default: u64,
}

/// The shadow caches of all scoring functions.
#[derive(Debug)]
pub(super) struct ShadowCaches {
    /// A block is sampled if so many of the highest bits of its fingerprint are zero.
    num_zeros: u32,
    table: ShadowTable,
    /// By class, and of each class by epoch.
    ghost_lists: Vec<GhostList>,
    caches: [ShadowCache; FUNCTIONS],
    default_cache: DefaultCache,
    hazard: HazardEstimate,
    once_used: OnceUsed,
    epoch: usize,
    duel: Duel,
    counts: SampleCounts,
    /// Keys of free blocks, all of which are in a ghost list.
    num_free: usize,
    /// A bit for each class of which blocks became free since the caches evicted.
    just_freed: u32,
}

/// Sampled blocks that became free after a single use.
#[derive(Clone, Copy, Debug, Default)]
struct OnceUsed {
    freed: FadingCount,
    /// Those that were used again while the shadow cache of the function in force had them.
    reused: FadingCount,
}

/// A count of which those of earlier epochs fade.
#[derive(Clone, Copy, Debug, Default)]
struct FadingCount {
    earlier: f64,
    this_epoch: usize,
}

impl FadingCount {
    fn end_epoch(&mut self) {
        let sum = self.sum();
        *self = Self { earlier: sum * f64::from(TUNING.reuse_fade), this_epoch: 0 };
    }

    fn sum(self) -> f64 {
        self.earlier + self.this_epoch as f64
    }
}

/// The shadow cache of a scoring function.
#[derive(Debug)]
struct ShadowCache {
    ranks: Ranks,
    /// Keys in ghost lists that it has evicted.
    num_evicted: usize,
    /// Hits in this round.
    hits: u32,
}

/// Values are not told apart.
const VALUE_SHARES: [f32; 1] = [1.0];

impl ShadowCaches {
    /// Shadow caches of a pool of `num_blocks`. vLLM's own policy computes `tails_per_block` window
    /// blocks with each full block.
    pub(super) fn new(num_blocks: usize, tails_per_block: f64) -> Self {
        let halvings = TUNING.sparser_samples.iter().filter(|&&pool| num_blocks >= pool).count();
        let num_zeros = TUNING.sample_bits + halvings as u32;
        let hazard = HazardEstimate::new();
        let caches = ScoringFunction::ALL.map(|function| ShadowCache {
            ranks: Ranks::new(&VALUE_SHARES, &function.scores(&hazard)),
            num_evicted: 0,
            hits: 0,
        });
        Self {
            num_zeros,
            table: ShadowTable::new((num_blocks >> num_zeros) * 5 + 64),
            ghost_lists: (0..Tuning::CLASSES * AGES).map(|_| GhostList::default()).collect(),
            caches,
            default_cache: DefaultCache::new(tails_per_block),
            hazard,
            once_used: OnceUsed::default(),
            epoch: 0,
            duel: Duel::default(),
            counts: SampleCounts::default(),
            num_free: 0,
            just_freed: 0,
        }
    }

    /// Blocks whose fingerprints are below this are sampled.
    #[inline]
    pub(super) fn sample_limit(&self) -> u32 {
        1 << (u32::BITS - self.num_zeros)
    }

    /// Returns how many blocks one sampled block stands for.
    pub(super) fn blocks_per_sample(&self) -> usize {
        1 << self.num_zeros
    }

    /// The scoring function in force.
    pub(super) fn in_force(&self) -> ScoringFunction {
        ScoringFunction::ALL[self.duel.in_force()]
    }

    /// The scores of the function in force.
    pub(super) fn scores(&self) -> &Scores {
        self.caches[self.duel.in_force()].ranks.scores()
    }

    /// Returns the share of once used blocks that are used again while they are cached.
    pub(super) fn reuse_of_once_used(&self) -> f64 {
        let OnceUsed { freed, reused } = self.once_used;
        let weight = TUNING.prior_reuse_weight;
        (reused.sum() + weight * TUNING.prior_reuse) / (freed.sum() + weight)
    }

    pub(super) fn counts(&self) -> &SampleCounts {
        &self.counts
    }

    fn list_index(class: usize, epoch: usize) -> usize {
        class * AGES + epoch % AGES
    }

    /// Lets each shadow cache evict what exceeds the room in a pool with so many free sampled
    /// blocks, so many empty ones, and so many that are free in all.
    pub(super) fn fit(&mut self, num_sampled: usize, num_empty: usize, num_free: usize) {
        if self.just_freed == 0 {
            return;
        }
        let capacity = num_sampled + (num_empty >> self.num_zeros);
        for class in (0..Tuning::CLASSES).filter(|class| self.just_freed >> class & 1 != 0) {
            let list = ListId { row: class, age: 0 };
            self.caches.iter_mut().for_each(|cache| cache.ranks.fill(list));
        }
        self.just_freed = 0;
        (0..FUNCTIONS).for_each(|function| self.evict(function, capacity));
        self.default_cache.fit(num_free >> self.num_zeros);
    }

    fn evict(&mut self, function: usize, capacity: usize) {
        let cache = &mut self.caches[function];
        while self.num_free > capacity + cache.num_evicted {
            let Some(ListId { row: class, age }) = cache.ranks.first() else { return };
            let list = &mut self.ghost_lists[Self::list_index(class, self.epoch + AGES - age)];
            let most = self.num_free - cache.num_evicted - capacity;
            cache.num_evicted += list.evict(function, most);
            if list.is_evicted(function) {
                cache.ranks.empty_first();
            }
        }
    }

    /// A round of the duel ends.
    pub(super) fn end_round(&mut self) {
        self.duel.end_round(self.caches.each_mut().map(|cache| std::mem::take(&mut cache.hits)));
    }

    /// An epoch ends. The function in force is chosen anew, and the hazard changes scores.
    pub(super) fn end_epoch(&mut self) {
        self.hazard.end_epoch();
        self.once_used.freed.end_epoch();
        self.once_used.reused.end_epoch();
        self.epoch += 1;
        (0..Tuning::CLASSES).for_each(|class| self.forget(Self::list_index(class, self.epoch)));
        self.forget_lost_keys();
        self.duel.choose();
        for (function, cache) in ScoringFunction::ALL.iter().zip(&mut self.caches) {
            if function.learns() {
                let are_all = self.epoch.is_multiple_of(TUNING.epochs_of_unseen);
                self.hazard.update(cache.ranks.scores_mut(), are_all);
            }
            cache.ranks.end_epoch();
        }
    }

    /// Forgets the keys of a ghost list.
    fn forget(&mut self, index: usize) {
        let list = std::mem::take(&mut self.ghost_lists[index]);
        for (key, is_kept) in list.keys() {
            self.table.remove(key);
            self.num_free -= 1;
            for (cache, is_kept) in self.caches.iter_mut().zip(is_kept) {
                cache.num_evicted -= usize::from(!is_kept);
            }
        }
    }

    /// Forgets keys in use that were not used for long, since blocks may lose their keys. Each epoch
    /// looks at a part of them.
    fn forget_lost_keys(&mut self) {
        let now = self.epoch as u16;
        self.table.sweep(self.epoch % AGES, AGES, |entry| {
            entry.list != Entry::IN_USE || usize::from(now.wrapping_sub(entry.since)) < 2 * AGES
        });
    }

    /// Keys of free blocks that each function would still have.
    #[cfg(test)]
    pub fn num_kept(&self) -> [usize; FUNCTIONS] {
        self.caches.each_ref().map(|cache| self.num_free - cache.num_evicted)
    }

    /// Forgets every key. What was learnt stays.
    pub(super) fn forget_all(&mut self) {
        self.table.clear();
        self.ghost_lists.iter_mut().for_each(|list| *list = GhostList::default());
        self.hazard.forget_free();
        self.default_cache.clear();
        (self.num_free, self.just_freed) = (0, 0);
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
    use crate::pool::eviction::adaptive::shadow::table::ShadowKey;

    fn key(n: u32) -> ShadowKey {
        ShadowKey::of(Fingerprint(n))
    }

    /// The names of a pass of traffic, each used and free again, in a pool that has `capacity` of
    /// the shadow.
    fn pass(shadow: &mut ShadowCaches, keys: std::ops::Range<u32>, capacity: usize) {
        for key in keys.map(|n| key(n + 1)) {
            shadow.used(&[key], Use::Computed);
            shadow.freed(&[key], 0);
            let num_empty = capacity << shadow.num_zeros;
            shadow.fit(0, num_empty, num_empty);
        }
    }

    #[test]
    fn one_name_in_16_is_taken_and_fewer_in_large_pools() {
        for (num_blocks, share) in
            [(100, 16), (TUNING.sparser_samples[0], 32), (TUNING.sparser_samples[1], 64)]
        {
            let shadow = ShadowCaches::new(num_blocks, 0.0);
            assert_eq!(
                (0..1024).filter(|&n| n << 22 < shadow.sample_limit()).count(),
                1024 / share
            );
        }
    }

    #[test]
    fn each_ordering_has_as_many_names_as_the_pool() {
        let mut shadow = ShadowCaches::new(1000, 0.0);
        pass(&mut shadow, 0..50, 20);
        assert!(shadow.num_kept() == [20; 3]);
        // The oldest 30 are gone.
        pass(&mut shadow, 29..30, 20);
        assert!(shadow.caches.iter().all(|cache| cache.hits == 0));
        pass(&mut shadow, 49..50, 20);
        assert!(shadow.caches.iter().all(|cache| cache.hits == 1));
    }

    #[test]
    fn what_each_ordering_would_have_kept_is_counted() {
        let mut shadow = ShadowCaches::new(1000, 0.0);
        pass(&mut shadow, 0..50, 20);
        assert_eq!(*shadow.counts(), SampleCounts { asked: 50, ..SampleCounts::default() });
        pass(&mut shadow, 29..30, 20); // gone
        pass(&mut shadow, 48..49, 20);
        shadow.used(&[key(50)], Use::Hit);
        shadow.used(&[key(50)], Use::Computed); // somebody uses it
        assert_eq!(
            *shadow.counts(),
            SampleCounts { asked: 54, hit: 1, kept: [3; 3], kept_by_default: 3 }
        );
        shadow.forget_all();
        shadow.used(&[key(50)], Use::Computed);
        assert_eq!(
            *shadow.counts(),
            SampleCounts { asked: 55, hit: 1, kept: [3; 3], kept_by_default: 3 }
        );
    }

    #[test]
    fn a_name_in_use_is_no_hit() {
        let mut shadow = ShadowCaches::new(1000, 0.0);
        pass(&mut shadow, 0..1, 20);
        (0..3).for_each(|_| shadow.used(&[key(1)], Use::Hit));
        assert!(shadow.caches.iter().all(|cache| cache.hits == 1) && shadow.num_kept() == [0; 3]);
    }

    #[test]
    fn the_scoring_function_that_would_have_hit_most_is_in_force() {
        let mut shadow = ShadowCaches::new(1000, 0.0);
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
        let mut shadow = ShadowCaches::new(1000, 0.0);
        for n in 0..50 {
            shadow.used(&[key(n + 1)], Use::Computed);
            shadow.freed(&[key(n + 1)], 0);
            shadow.fit(n as usize + 1, 0, 1000);
        }
        assert_eq!(shadow.num_kept(), [50; 3]);
        shadow.freed(&[key(1)], 0);
        shadow.fit(30, 20 << shadow.num_zeros, 1000);
        assert_eq!(shadow.num_kept(), [50; 3]);
    }

    /// A scan that comes back at one age shows that age; the other orderings lose all of it.
    #[test]
    fn a_cyclic_scan_is_for_the_hazards() {
        let mut shadow = ShadowCaches::new(1000, 0.0);
        for _ in 0..20 {
            for first in (0..100).step_by(4) {
                pass(&mut shadow, first..first + 4, 50);
                shadow.end_round();
                shadow.end_epoch();
            }
        }
        assert_eq!(shadow.in_force(), ScoringFunction::Hazard);
        assert_eq!(shadow.counts().kept[0], 0);
    }

    #[test]
    fn names_are_forgotten_after_all_ages() {
        let mut shadow = ShadowCaches::new(1000, 0.0);
        pass(&mut shadow, 0..5, 20);
        shadow.used(&[key(77)], Use::Computed);
        (1..AGES).for_each(|_| shadow.end_epoch());
        assert_eq!((shadow.table.len(), shadow.num_kept()[0]), (6, 5));
        shadow.end_epoch();
        assert_eq!((shadow.table.len(), shadow.num_kept()[0]), (1, 0));
        (0..2 * AGES).for_each(|_| shadow.end_epoch());
        assert!(shadow.table.len() == 0, "one in use of which nothing was heard");
    }

    #[test]
    fn an_emptied_cache_has_no_names_and_the_same_profile() {
        let mut shadow = ShadowCaches::new(1000, 0.0);
        pass(&mut shadow, 0..5, 20);
        pass(&mut shadow, 0..5, 20);
        let scores = *shadow.scores();
        shadow.forget_all();
        assert!(shadow.table.len() == 0 && *shadow.scores() == scores);
        assert!(shadow.caches.iter().all(|cache| cache.hits == 5) && shadow.num_kept() == [0; 3]);
        pass(&mut shadow, 0..5, 20);
        assert!(shadow.caches.iter().all(|cache| cache.hits == 5) && shadow.num_kept() == [5; 3]);
    }

    #[test]
    fn names_that_come_and_go_within_an_epoch_leave_no_gaps_behind() {
        let mut shadow = ShadowCaches::new(1000, 0.0);
        pass(&mut shadow, 0..50, 20);
        for _ in 0..100 {
            pass(&mut shadow, 45..50, 20);
        }
        let list = &shadow.ghost_lists[0];
        assert_eq!((list.keys().count(), shadow.num_kept()), (50, [20; 3]));
        assert!(list.len() < 200, "{} places for 50 names", list.len());
        assert_eq!(shadow.counts().kept, [500; 3]);
        pass(&mut shadow, 29..30, 20);
        pass(&mut shadow, 31..32, 20);
        assert_eq!(shadow.counts().kept, [501; 3], "the 20 last used are there");
    }
}

//! A sample of blocks, by name alone: when each became free and when it was used again, and which
//! of them each ordering would still have.
//!
//! Free names stand in buckets by class and epoch, in the order in which they became free. An
//! ordering evicts a bucket from its front on, so that what it would still have is a position in
//! each bucket.

use super::ages::{AGES, Values};
use super::orderings::Ordering;
use super::profile::Profile;
use super::ranks::{Ranked, Ranks};
use super::tags::CLASSES;
use crate::pool::index::Fingerprint;

const ORDERINGS: usize = Ordering::ALL.len();
const BUCKETS: usize = CLASSES * AGES;
/// The bucket of a name that somebody uses.
const IN_USE: u16 = u16::MAX;

type Names = hashbrown::HashMap<Name, Entry, foldhash::fast::FixedState>;

/// The name of a block in the sample: its fingerprint, of the prefix that it stands for in its
/// group. That two blocks have one is rare, and moves the counts of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Name(u32);

impl Name {
    /// No name.
    const GONE: Self = Self(0);

    pub fn of(fingerprint: Fingerprint) -> Self {
        Self(fingerprint.0.max(1))
    }
}

/// How a block is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// It was there.
    Hit,
    /// It was computed, for the first time or once more.
    Computed,
}

/// What was asked of the sampled blocks since the pool was made, and what came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleCounts {
    /// Blocks that requests asked for: those that they hit and those that they computed.
    pub asked: u64,
    /// Those of them that they hit.
    pub hit: u64,
    /// Those that would have been there under each of [`Ordering::ALL`]: in use, or not evicted.
    /// Tails that a hit needs too are not looked at, so that it can be more than was hit.
    pub kept: [u64; ORDERINGS],
}

/// The sample.
#[derive(Debug)]
pub(super) struct Sample {
    /// A block is sampled if so many of the highest bits of its fingerprint are zero.
    num_zeros: u32,
    max_names: usize,
    names: Names,
    buckets: Vec<Bucket>,
    shadows: [Shadow; ORDERINGS],
    profile: Profile,
    epoch: usize,
    in_force: usize,
    counts: SampleCounts,
    /// Worth by class and age, under the ordering in force.
    values: Values,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    bucket: u16,
    /// Of its last use, in epochs; wraps.
    epoch: u16,
    position: u32,
}

#[derive(Debug, Default)]
struct Bucket {
    /// [`Name::GONE`] where somebody uses the name again.
    names: Vec<Name>,
    /// Names that are still free since.
    num_free: usize,
    /// How many from the front each ordering has evicted.
    evicted: [u32; ORDERINGS],
}

/// What an ordering would have done.
#[derive(Debug)]
struct Shadow {
    ranks: Ranks,
    /// Free names that it would still have.
    len: usize,
    hits: f32,
}

/// Hits that another ordering must have per hit of the one in force to take over.
const TAKE_OVER: f32 = 1.02;
/// What is left of a hit after an epoch: half of it after 4 pools were taken.
const FADE: f32 = 0.9892;
/// Blocks of a pool from which on the sample is one in 16; it is one in 64 from 4 times as many on.
const LARGE_POOL: usize = 1 << 19;

impl Sample {
    /// For a pool of `num_blocks`.
    pub fn new(num_blocks: usize) -> Self {
        let num_zeros = match num_blocks {
            n if n >= 4 * LARGE_POOL => 6,
            n if n >= LARGE_POOL => 5,
            _ => 4,
        };
        let shadow = || Shadow { ranks: Ranks::new(BUCKETS), len: 0, hits: 0.0 };
        let mut sample = Self {
            num_zeros,
            max_names: (num_blocks >> num_zeros) * 5 + 64,
            names: Names::default(),
            buckets: (0..BUCKETS).map(|_| Bucket::default()).collect(),
            shadows: [shadow(), shadow(), shadow()],
            profile: Profile::new(),
            epoch: 0,
            in_force: 1,
            counts: SampleCounts::default(),
            values: [[0.0; AGES]; CLASSES],
        };
        sample.rank();
        sample
    }

    /// Whether the blocks of a fingerprint are sampled.
    #[inline]
    pub fn takes(&self, fingerprint: Fingerprint) -> bool {
        u64::from(fingerprint.0) < 1 << (32 - self.num_zeros)
    }

    /// The ordering in force.
    pub fn ordering(&self) -> Ordering {
        Ordering::ALL[self.in_force]
    }

    /// Worth by class and age, under the ordering in force.
    pub fn values(&self) -> &Values {
        &self.values
    }

    /// What was counted.
    pub fn counts(&self) -> &SampleCounts {
        &self.counts
    }

    fn bucket(class: usize, epoch: usize) -> usize {
        class * AGES + epoch % AGES
    }

    fn age(&self, bucket: usize) -> usize {
        (self.epoch + AGES - bucket % AGES) % AGES
    }

    /// Reads what is known of names, so that the waits for memory overlap.
    pub fn warm_up(&self, names: impl Iterator<Item = Name>) {
        std::hint::black_box(names.filter(|name| self.names.contains_key(name)).count());
    }

    /// A name is used.
    pub fn used(&mut self, name: Name, how: Use) {
        self.counts.asked += 1;
        self.counts.hit += u64::from(how == Use::Hit);
        let is_full = self.names.len() >= self.max_names;
        let epoch = self.epoch as u16;
        let Some(entry) = self.names.get_mut(&name) else {
            if !is_full {
                self.names.insert(name, Entry { bucket: IN_USE, epoch, position: 0 });
            }
            return;
        };
        let was = std::mem::replace(entry, Entry { bucket: IN_USE, epoch, position: 0 });
        if was.bucket == IN_USE {
            self.counts.kept.iter_mut().for_each(|kept| *kept += 1);
            return;
        }
        let index = usize::from(was.bucket);
        let bucket = &mut self.buckets[index];
        bucket.num_free -= 1;
        bucket.names[was.position as usize] = Name::GONE;
        for (i, shadow) in self.shadows.iter_mut().enumerate() {
            if was.position >= bucket.evicted[i] {
                shadow.len -= 1;
                shadow.hits += 1.0;
                self.counts.kept[i] += 1;
            }
        }
        self.profile.note_reuse(index / AGES, self.age(index));
    }

    /// A name of a class becomes free, and the pool has so many free blocks like it.
    pub fn freed(&mut self, name: Name, class: usize, num_free_blocks: usize) {
        let Some(entry) = self.names.get_mut(&name) else { return };
        if entry.bucket != IN_USE {
            return;
        }
        let index = Self::bucket(class, self.epoch);
        let bucket = &mut self.buckets[index];
        entry.bucket = index as u16;
        entry.position = bucket.names.len() as u32;
        bucket.names.push(name);
        bucket.num_free += 1;
        let capacity = num_free_blocks >> self.num_zeros;
        for ordering in 0..ORDERINGS {
            self.shadows[ordering].len += 1;
            self.shadows[ordering].ranks.fill(index);
            self.evict(ordering, capacity);
        }
    }

    fn evict(&mut self, ordering: usize, capacity: usize) {
        let shadow = &mut self.shadows[ordering];
        while shadow.len > capacity {
            let Some(index) = shadow.ranks.first() else { return };
            let bucket = &mut self.buckets[index];
            let position = bucket.evicted[ordering];
            let Some(&name) = bucket.names.get(position as usize) else {
                shadow.ranks.empty_first();
                continue;
            };
            bucket.evicted[ordering] += 1;
            shadow.len -= usize::from(name != Name::GONE);
        }
    }

    /// An epoch ends: what was seen in it counts, and the orderings are ranked anew.
    pub fn end_epoch(&mut self) {
        for (index, bucket) in self.buckets.iter().enumerate() {
            self.profile.note_free(index / AGES, self.age(index), bucket.num_free);
        }
        self.profile.fade();
        self.epoch += 1;
        (0..CLASSES).for_each(|class| self.forget(Self::bucket(class, self.epoch)));
        if self.epoch.is_multiple_of(AGES) {
            self.forget_lost_names();
        }
        self.choose();
        self.rank();
    }

    /// Forgets the names of the oldest bucket.
    fn forget(&mut self, index: usize) {
        let bucket = std::mem::take(&mut self.buckets[index]);
        let there = bucket.names.iter().enumerate().filter(|&(_, &name)| name != Name::GONE);
        for (position, name) in there {
            self.names.remove(name);
            for (shadow, &evicted) in self.shadows.iter_mut().zip(&bucket.evicted) {
                shadow.len -= usize::from(position >= evicted as usize);
            }
        }
    }

    /// Forgets names in use of which nothing was heard for long: blocks may lose their names.
    fn forget_lost_names(&mut self) {
        let now = self.epoch as u16;
        self.names.retain(|_, entry| {
            entry.bucket != IN_USE || usize::from(now.wrapping_sub(entry.epoch)) < 2 * AGES
        });
    }

    fn choose(&mut self) {
        let hits = self.shadows.each_ref().map(|shadow| shadow.hits);
        let best = (0..ORDERINGS).max_by(|&a, &b| hits[a].total_cmp(&hits[b])).unwrap_or(0);
        if hits[best] > hits[self.in_force] * TAKE_OVER {
            self.in_force = best;
        }
        self.shadows.iter_mut().for_each(|shadow| shadow.hits *= FADE);
    }

    fn rank(&mut self) {
        let (epoch, buckets) = (self.epoch, &self.buckets);
        for (i, (ordering, shadow)) in Ordering::ALL.iter().zip(&mut self.shadows).enumerate() {
            let values = ordering.values(&self.profile);
            let ranked = buckets.iter().enumerate().map(|(list, bucket)| {
                let age = (epoch + AGES - list % AGES) % AGES;
                let worth = values[list / AGES][age];
                Ranked { list, worth, age, is_filled: bucket.num_free > 0 }
            });
            // Names become free in the epoch that runs, and in no other.
            shadow.ranks.rank(ranked.filter(|list| list.age == 0 || list.is_filled));
            if i == self.in_force {
                self.values = values;
            }
        }
    }

    /// Free names that each ordering would still have.
    #[cfg(test)]
    pub fn num_free(&self) -> [usize; ORDERINGS] {
        self.shadows.each_ref().map(|shadow| shadow.len)
    }

    /// Forgets every name; what was learnt stays.
    pub fn forget_all(&mut self) {
        self.names.clear();
        self.buckets.iter_mut().for_each(|bucket| *bucket = Bucket::default());
        self.shadows.iter_mut().for_each(|shadow| shadow.len = 0);
        self.rank();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of a pass of traffic, each used and free again, in a pool that has `capacity` of
    /// the sample.
    fn pass(sample: &mut Sample, names: std::ops::Range<u32>, capacity: usize) {
        for name in names.map(|name| Name(name + 1)) {
            sample.used(name, Use::Computed);
            sample.freed(name, 0, capacity << sample.num_zeros);
        }
    }

    #[test]
    fn one_name_in_16_is_taken_and_fewer_in_large_pools() {
        for (num_blocks, share) in [(100, 16), (LARGE_POOL, 32), (4 * LARGE_POOL, 64)] {
            let sample = Sample::new(num_blocks);
            assert_eq!(
                (0..1024).filter(|&n| sample.takes(Fingerprint(n << 22))).count(),
                1024 / share
            );
        }
    }

    #[test]
    fn each_ordering_has_as_many_names_as_the_pool() {
        let mut sample = Sample::new(1000);
        pass(&mut sample, 0..50, 20);
        assert!(sample.shadows.iter().all(|shadow| shadow.len == 20));
        // The oldest 30 are gone.
        pass(&mut sample, 29..30, 20);
        assert!(sample.shadows.iter().all(|shadow| shadow.hits == 0.0));
        pass(&mut sample, 49..50, 20);
        assert!(sample.shadows.iter().all(|shadow| shadow.hits == 1.0));
    }

    #[test]
    fn what_each_ordering_would_have_kept_is_counted() {
        let mut sample = Sample::new(1000);
        pass(&mut sample, 0..50, 20);
        assert_eq!(*sample.counts(), SampleCounts { asked: 50, ..SampleCounts::default() });
        pass(&mut sample, 29..30, 20); // gone
        pass(&mut sample, 48..49, 20);
        sample.used(Name(50), Use::Hit);
        sample.used(Name(50), Use::Computed); // somebody uses it
        assert_eq!(*sample.counts(), SampleCounts { asked: 54, hit: 1, kept: [3; 3] });
        sample.forget_all();
        sample.used(Name(50), Use::Computed);
        assert_eq!(*sample.counts(), SampleCounts { asked: 55, hit: 1, kept: [3; 3] });
    }

    #[test]
    fn a_name_in_use_is_no_hit() {
        let mut sample = Sample::new(1000);
        pass(&mut sample, 0..1, 20);
        (0..3).for_each(|_| sample.used(Name(1), Use::Hit));
        assert!(sample.shadows.iter().all(|shadow| (shadow.hits, shadow.len) == (1.0, 0)));
    }

    #[test]
    fn the_ordering_that_would_have_hit_most_is_in_force() {
        let mut sample = Sample::new(1000);
        assert_eq!(sample.ordering(), Ordering::Frequency);
        sample.shadows[0].hits = 100.0;
        sample.shadows[1].hits = 99.0;
        sample.end_epoch();
        assert_eq!(sample.ordering(), Ordering::Frequency, "too little more");
        sample.shadows[2].hits = 103.0;
        sample.end_epoch();
        assert_eq!(sample.ordering(), Ordering::Hazard);
        assert!(sample.shadows[2].hits < 103.0, "old hits count less");
    }

    /// A scan that comes back at one age shows that age; the other orderings lose all of it.
    #[test]
    fn a_cyclic_scan_is_for_the_hazards() {
        let mut sample = Sample::new(1000);
        for _ in 0..20 {
            for first in (0..100).step_by(4) {
                pass(&mut sample, first..first + 4, 50);
                sample.end_epoch();
            }
        }
        assert_eq!(sample.ordering(), Ordering::Hazard);
        assert_eq!(sample.shadows[0].hits, 0.0);
    }

    #[test]
    fn names_are_forgotten_after_all_ages() {
        let mut sample = Sample::new(1000);
        pass(&mut sample, 0..5, 20);
        sample.used(Name(77), Use::Computed);
        (1..AGES).for_each(|_| sample.end_epoch());
        assert_eq!((sample.names.len(), sample.shadows[0].len), (6, 5));
        sample.end_epoch();
        assert_eq!((sample.names.len(), sample.shadows[0].len), (1, 0));
        (0..2 * AGES).for_each(|_| sample.end_epoch());
        assert!(sample.names.is_empty(), "one in use of which nothing was heard");
    }

    #[test]
    fn an_emptied_cache_has_no_names_and_the_same_profile() {
        let mut sample = Sample::new(1000);
        pass(&mut sample, 0..5, 20);
        pass(&mut sample, 0..5, 20);
        let values = *sample.values();
        sample.forget_all();
        assert!(sample.names.is_empty() && *sample.values() == values);
        assert!(sample.shadows.iter().all(|shadow| (shadow.hits, shadow.len) == (5.0, 0)));
        pass(&mut sample, 0..5, 20);
        assert!(sample.shadows.iter().all(|shadow| (shadow.hits, shadow.len) == (5.0, 5)));
    }
}

//! What the sample is told of: names that are used, and names that become free, of many at once.

use super::ghost_list::ORDERINGS;
use super::table::{Entry, Name};
use crate::pool::eviction::adaptive::ages::AGES;
use crate::pool::eviction::adaptive::ones::add_ones;
use crate::pool::eviction::adaptive::shadow::{Sample, Use};

impl Sample {
    /// Names are used.
    pub fn used(&mut self, names: &[Name], how: Use) {
        self.counts.asked += names.len() as u64;
        self.counts.hit += if how == Use::Hit { names.len() as u64 } else { 0 };
        self.names.prefetch(names);
        let mut left = names;
        while let [name, others @ ..] = left {
            let Some(entry) = self.names.enter(*name) else {
                left = others;
                continue;
            };
            match entry.bucket {
                Entry::NEW => left = others,
                Entry::IN_USE => {
                    self.counts.kept.iter_mut().for_each(|kept| *kept += 1);
                    left = others;
                }
                index => {
                    left = self.leave(usize::from(index), left);
                    continue;
                }
            }
            (entry.bucket, entry.epoch) = (Entry::IN_USE, self.epoch as u16);
        }
    }

    /// Names that are used leave their bucket, up to the first that is not in it: what is left of
    /// them.
    #[inline(never)]
    fn leave<'a>(&mut self, index: usize, names: &'a [Name]) -> &'a [Name] {
        let epoch = self.epoch as u16;
        let mut taking = self.buckets[index].taking();
        for &name in names {
            match self.names.get_mut(name) {
                Some(entry) if usize::from(entry.bucket) == index => {
                    (entry.bucket, entry.epoch) = (Entry::IN_USE, epoch);
                    taking.take(entry.position);
                }
                _ => break,
            }
        }
        let (num, num_there) = taking.close();
        self.count_departed(index, num, num_there);
        &names[num..]
    }

    /// Names have left a bucket, a hit for each ordering that would still have them.
    fn count_departed(&mut self, index: usize, num: usize, num_there: [u32; ORDERINGS]) {
        self.num_free -= num;
        for (i, shadow) in self.shadows.iter_mut().enumerate() {
            add_ones(&mut shadow.hits, num_there[i]);
            self.counts.kept[i] += u64::from(num_there[i]);
            shadow.num_evicted -= num - num_there[i] as usize;
        }
        let age = (self.epoch + AGES - index % AGES) % AGES;
        self.profile.note_reuse(index / AGES, age, num as u32);
    }

    /// Names of a class become free. What the orderings evict for them, [`Self::fit`] tells.
    pub fn freed(&mut self, names: &[Name], class: usize) {
        self.names.prefetch(names);
        let index = Self::bucket(class, self.epoch);
        let bucket = &mut self.buckets[index];
        let mut adding = bucket.adding(names.len());
        for &name in names {
            if let Some(entry) = self.names.get_mut(name)
                && entry.bucket == Entry::IN_USE
            {
                (entry.bucket, entry.position) = (index as u16, adding.add(name));
            }
        }
        let num = adding.close();
        if num > 0 {
            self.num_free += num;
            self.profile.note_free(class, num as u32);
            self.just_freed |= 1 << class;
            if bucket.is_sparse() {
                self.pack(index);
            }
        }
    }

    /// Closes the gaps of a bucket whose names come and go.
    #[cold]
    fn pack(&mut self, index: usize) {
        for (position, name) in self.buckets[index].pack() {
            if let Some(entry) = self.names.get_mut(name) {
                entry.position = position;
            }
        }
    }
}

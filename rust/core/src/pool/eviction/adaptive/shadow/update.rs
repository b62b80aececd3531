//! Accesses to sampled blocks change the shadow caches, many of them at once.

use super::table::{Entry, ShadowKey};
use super::{AGES, FUNCTIONS, ShadowCaches, Use};

impl ShadowCaches {
    /// Blocks are used.
    pub(super) fn used(&mut self, keys: &[ShadowKey], how: Use) {
        self.counts.asked += keys.len() as u64;
        self.counts.hit += if how == Use::Hit { keys.len() as u64 } else { 0 };
        self.table.prefetch(keys);
        let (mut left, mut num_in_use, mut num_others) = (keys, 0, 0);
        while let [key, others @ ..] = left {
            let Some(entry) = self.table.enter(*key) else {
                (left, num_others) = (others, num_others + 1);
                continue;
            };
            match entry.list {
                Entry::NEW => left = others,
                Entry::IN_USE => {
                    num_in_use += 1;
                    left = others;
                }
                index => {
                    let behind = self.remove_from_list(usize::from(index), left);
                    num_others += left.len() - behind.len();
                    left = behind;
                    continue;
                }
            }
            (entry.list, entry.since) = (Entry::IN_USE, self.epoch as u16);
        }
        self.default_cache.computed(keys.len() - num_in_use - num_others);
        if num_in_use > 0 {
            self.counts.kept.iter_mut().for_each(|kept| *kept += num_in_use as u64);
            self.counts.kept_by_default += num_in_use as u64;
        }
    }

    /// Removes the keys of blocks that are used from a ghost list, up to the first that is not in
    /// it. Returns the others.
    #[inline(never)]
    fn remove_from_list<'a>(&mut self, index: usize, keys: &'a [ShadowKey]) -> &'a [ShadowKey] {
        let epoch = self.epoch as u16;
        let mut remove = self.ghost_lists[index].remove();
        // Mostly they became free together.
        let (mut tick, mut num_of_tick, mut kept_by_default) = (0, 0, 0);
        for &key in keys {
            match self.table.get_mut(key) {
                Some(entry) if usize::from(entry.list) == index => {
                    if entry.since != tick {
                        kept_by_default += self.default_cache.used(tick, num_of_tick);
                        (tick, num_of_tick) = (entry.since, 0);
                    }
                    num_of_tick += 1;
                    (entry.list, entry.since) = (Entry::IN_USE, epoch);
                    remove.at(entry.position);
                }
                _ => break,
            }
        }
        kept_by_default += self.default_cache.used(tick, num_of_tick);
        self.counts.kept_by_default += kept_by_default as u64;
        let (num, num_kept) = remove.finish();
        self.count_removed(index, num, num_kept);
        &keys[num..]
    }

    /// Counts a hit of each shadow cache that would still have a key that left a ghost list.
    fn count_removed(&mut self, index: usize, num: usize, num_kept: [u32; FUNCTIONS]) {
        self.num_free -= num;
        for (i, cache) in self.caches.iter_mut().enumerate() {
            cache.hits += num_kept[i];
            self.counts.kept[i] += u64::from(num_kept[i]);
            cache.num_evicted -= num - num_kept[i] as usize;
        }
        let (class, age) = (index / AGES, (self.epoch + AGES - index % AGES) % AGES);
        if class == 0 {
            self.once_used.reused.this_epoch += num_kept[self.duel.in_force()] as usize;
        }
        self.hazard.note_reuse(class, age, num as u32);
    }

    /// States have become cached, as they would under vLLM's own policy.
    pub(in super::super) fn cached_states(&mut self, num: usize) {
        self.default_cache.cached_states(num, self.blocks_per_sample());
    }

    /// A request hits tails.
    pub(in super::super) fn hit_tails(&mut self, num: usize) {
        self.default_cache.hit_tails(num, self.blocks_per_sample());
    }

    /// Blocks of a class become free. [`Self::fit`] evicts what the caches have no room for then.
    pub(super) fn freed(&mut self, keys: &[ShadowKey], class: usize) {
        self.table.prefetch(keys);
        let index = Self::list_index(class, self.epoch);
        let list = &mut self.ghost_lists[index];
        let mut append = list.append(keys.len());
        for &key in keys {
            if let Some(entry) = self.table.get_mut(key)
                && entry.list == Entry::IN_USE
            {
                (entry.list, entry.since) = (index as u16, self.default_cache.now());
                entry.position = append.push(key);
            }
        }
        let num = append.finish();
        if num > 0 {
            self.num_free += num;
            self.default_cache.freed(num);
            if class == 0 {
                self.once_used.freed.this_epoch += num;
            }
            self.hazard.note_free(class, num as u32);
            self.just_freed |= 1 << class;
            if list.is_sparse() {
                self.pack(index);
            }
        }
    }

    /// Closes the gaps of a ghost list whose keys come and go.
    #[cold]
    fn pack(&mut self, index: usize) {
        for (position, key) in self.ghost_lists[index].pack() {
            if let Some(entry) = self.table.get_mut(key) {
                entry.position = position;
            }
        }
    }
}

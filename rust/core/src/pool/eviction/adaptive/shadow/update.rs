//! Updates the shadow caches with accesses to sampled blocks, many of them at once.

use super::default_cache::{DefaultCache, Tick};
use super::table::{Entry, ShadowKey};
use super::{AGES, FUNCTIONS, ShadowCaches};

impl ShadowCaches {
    /// Notes that requests use blocks, whether they are cached or not. `has_tail` is false if
    /// vLLM's default policy cannot hit them, because it has no tail there.
    pub(super) fn used(&mut self, keys: &[ShadowKey], has_tail: bool) {
        self.counts.asked += keys.len() as u64;
        self.table.prefetch(keys);
        let (mut left, mut num_in_use) = (keys, 0);
        while let [key, others @ ..] = left {
            let Some(entry) = self.table.enter(*key) else {
                left = others;
                continue;
            };
            match entry.list {
                Entry::NEW => left = others,
                Entry::IN_USE => {
                    num_in_use += 1;
                    left = others;
                }
                index => {
                    left = self.remove_from_list(usize::from(index), left, has_tail);
                    continue;
                }
            }
            (entry.list, entry.epoch_or_tick) = (Entry::IN_USE, self.epoch as u16);
        }
        if num_in_use > 0 {
            self.counts.kept.iter_mut().for_each(|kept| *kept += num_in_use as u64);
            self.counts.kept_by_default += if has_tail { num_in_use as u64 } else { 0 };
        }
    }

    /// Removes the keys of used blocks from a ghost list, up to the first key that is not in the
    /// list. Returns the remaining keys.
    #[inline(never)]
    fn remove_from_list<'a>(
        &mut self,
        index: usize,
        keys: &'a [ShadowKey],
        has_tail: bool,
    ) -> &'a [ShadowKey] {
        let Self { table, ghost_lists, default_cache, epoch, .. } = self;
        // Usually the blocks became free together.
        let (mut tick, mut num_of_tick, mut kept_by_default) = (0, 0, 0);
        // A block that vLLM computes again stays cached, too.
        let use_in_default = |cache: &mut DefaultCache, tick: Tick, num: usize| {
            if has_tail { cache.used(tick, num) } else { 0 }
        };
        let (num, num_kept) = ghost_lists[index].remove(keys.iter().map_while(|&key| {
            let entry = table.get_mut(key).filter(|entry| usize::from(entry.list) == index)?;
            if entry.epoch_or_tick != tick {
                kept_by_default += use_in_default(default_cache, tick, num_of_tick);
                (tick, num_of_tick) = (entry.epoch_or_tick, 0);
            }
            num_of_tick += 1;
            (entry.list, entry.epoch_or_tick) = (Entry::IN_USE, *epoch as u16);
            Some(entry.position)
        }));
        kept_by_default += use_in_default(default_cache, tick, num_of_tick);
        self.counts.kept_by_default += kept_by_default as u64;
        self.count_removed(index, num, num_kept);
        &keys[num..]
    }

    /// Counts a hit for each shadow cache that would still have the keys that left a ghost list.
    fn count_removed(&mut self, index: usize, num: usize, num_kept: [u32; FUNCTIONS]) {
        self.num_ghosts -= num;
        for (i, cache) in self.caches.iter_mut().enumerate() {
            cache.hits += num_kept[i];
            self.counts.kept[i] += u64::from(num_kept[i]);
            cache.num_evicted -= num - num_kept[i] as usize;
        }
        let (class, age) = (index / AGES, (self.epoch + AGES - index % AGES) % AGES);
        if class == 0 {
            self.reused.this_epoch += num_kept[self.duel.in_force] as usize;
        }
        self.hazard.note_reuse(class, age, num as u32);
    }

    /// Notes that blocks of a class become free. [`Self::fit`] then evicts what exceeds the room of
    /// the caches.
    #[inline(never)] // If it is inlined, its loop runs out of registers.
    pub(super) fn freed(&mut self, keys: &[ShadowKey], class: usize) {
        self.table.prefetch(keys);
        let index = Self::list_index(class, self.epoch);
        let Self { table, ghost_lists, default_cache, .. } = self;
        let list = &mut ghost_lists[index];
        let num = list.append(keys, |key, position| {
            let entry = table.get_mut(key).filter(|entry| entry.list == Entry::IN_USE);
            let Some(entry) = entry else { return false };
            (entry.list, entry.epoch_or_tick) = (index as u16, default_cache.now);
            entry.position = position;
            true
        });
        if num > 0 {
            self.num_ghosts += num;
            self.default_cache.freed(num);
            if class == 0 {
                self.once_used.this_epoch += num;
            }
            self.hazard.note_free(class, num as u32);
            self.just_freed |= 1 << class;
            if list.is_sparse() {
                self.pack(index);
            }
        }
    }

    /// Closes the gaps of a ghost list.
    #[cold]
    fn pack(&mut self, index: usize) {
        for (position, key) in self.ghost_lists[index].pack() {
            if let Some(entry) = self.table.get_mut(key) {
                entry.position = position;
            }
        }
    }
}

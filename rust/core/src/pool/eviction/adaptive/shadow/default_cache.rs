//! Simulates what vLLM's default policy would have kept of the sampled blocks: a queue by the time
//! at which blocks became free.
//!
//! That policy also caches tails, at the ends of prompts and where prompts diverge. The simulation
//! has them as amounts. A *tick* ends when a 32nd of the room has become free. The queue stores how
//! much of each tick is still cached. A key stores its tick. Eviction lowers the oldest amounts.

use std::collections::VecDeque;

/// A tick, modulo 2^16.
pub(super) type Tick = u16;

/// The queue. Amounts are in parts of a sampled block. Each part represents as many tails as the
/// pool would have for it.
#[derive(Debug)]
pub(in super::super) struct DefaultCache {
    blocks_per_sample: u64,
    /// The amount that became free in each tick and is still cached, the oldest first. The last one
    /// is of the current tick.
    amounts: VecDeque<u64>,
    sum: u64,
    /// The current tick, in which keys become free.
    pub(super) now: Tick,
    /// The tick in which the block of the latest hit became free.
    last_hit: Tick,
}

impl DefaultCache {
    /// The number of parts in a sampled block.
    const UNIT: u64 = 256;
    /// The number of ticks in which as much becomes free as there is room for.
    const TICKS: u64 = 32;

    /// Creates an empty queue.
    pub(super) fn new(blocks_per_sample: usize) -> Self {
        Self {
            blocks_per_sample: blocks_per_sample as u64,
            amounts: VecDeque::from([0]),
            sum: 0,
            now: 0,
            last_hit: 0,
        }
    }

    /// Notes that keys have become free.
    pub(super) fn freed(&mut self, num: usize) {
        self.add(num as u64 * Self::UNIT);
    }

    /// Notes that tails of a prompt have become cached, sampled or not.
    pub(in super::super) fn cached_tails(&mut self, num: usize) {
        self.add(num as u64 * Self::UNIT / self.blocks_per_sample);
    }

    /// Notes that a request hits tails. They became free with the full blocks of the hit, and will
    /// become free with them again.
    pub(in super::super) fn hit_tails(&mut self, num: usize) {
        let most = num as u64 * Self::UNIT / self.blocks_per_sample;
        if let Some(amount) = self.amount_of(self.last_hit) {
            let num = most.min(*amount);
            *amount -= num;
            self.sum -= num;
            self.add(num);
        }
    }

    /// Returns the amount that became free in a tick and is still cached; `None` if all of it is
    /// evicted.
    fn amount_of(&mut self, tick: Tick) -> Option<&mut u64> {
        let age = usize::from(self.now.wrapping_sub(tick));
        let position = self.amounts.len().checked_sub(1 + age)?;
        self.amounts.get_mut(position)
    }

    fn add(&mut self, amount: u64) {
        self.sum += amount;
        if let Some(last) = self.amounts.back_mut() {
            *last += amount;
        }
    }

    /// Notes the use of blocks that became free in a tick. Returns how many of them would still
    /// have been cached.
    pub(super) fn used(&mut self, freed_at: Tick, num: usize) -> usize {
        if num == 0 {
            return 0;
        }
        let Some(amount) = self.amount_of(freed_at) else { return 0 };
        let there = (num as u64 * Self::UNIT).min(*amount);
        *amount -= there;
        self.sum -= there;
        self.last_hit = freed_at;
        num
    }

    /// Evicts what exceeds the room for `num_blocks` sampled blocks, and ends the tick if it is
    /// due.
    pub(super) fn fit(&mut self, num_blocks: usize) {
        let capacity = num_blocks as u64 * Self::UNIT;
        while self.sum > capacity {
            let oldest = &mut self.amounts[0];
            let evicted = (self.sum - capacity).min(*oldest);
            *oldest -= evicted;
            self.sum -= evicted;
            if *oldest == 0 && self.amounts.len() > 1 {
                self.amounts.pop_front();
            }
        }
        if self.amounts.back().is_some_and(|last| last * Self::TICKS > capacity) {
            self.end_tick();
        }
    }

    fn end_tick(&mut self) {
        self.amounts.push_back(0);
        self.now = self.now.wrapping_add(1);
    }

    /// Empties the queue.
    pub(super) fn clear(&mut self) {
        self.amounts.clear();
        self.sum = 0;
        self.end_tick();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frees blocks one by one, in a pool with room for 40, and tails with each of them. The policy
    /// had none of the blocks. One block in 16 is sampled.
    fn compute(cache: &mut DefaultCache, num: usize, num_tails: usize) -> Vec<Tick> {
        let compute_one = |_| {
            let tick = cache.now;
            cache.cached_tails(num_tails);
            cache.freed(1);
            cache.fit(40);
            tick
        };
        (0..num).map(compute_one).collect()
    }

    fn num_kept(cache: &mut DefaultCache, ticks: &[Tick]) -> usize {
        ticks.iter().map(|&tick| cache.used(tick, 1)).sum()
    }

    #[test]
    fn tails_take_their_part_of_the_room() {
        for (num_tails, room) in [(0, 40), (16, 20), (64, 8)] {
            let mut cache = DefaultCache::new(16);
            let ticks = compute(&mut cache, 300, num_tails);
            let kept = num_kept(&mut cache, &ticks);
            // The difference is in the ticks that are half evicted.
            assert!(kept.abs_diff(room) <= 2, "{kept} of {room} with {num_tails} tails");
        }
    }

    #[test]
    fn what_is_used_again_is_not_evicted_and_its_tails_are() {
        let mut cache = DefaultCache::new(16);
        let mut hot = compute(&mut cache, 5, 16);
        for _ in 0..100 {
            assert_eq!(num_kept(&mut cache, &hot), 5);
            hot = vec![cache.now; 5];
            cache.freed(5);
            cache.fit(40);
            compute(&mut cache, 5, 16);
        }
    }

    #[test]
    fn tails_that_are_hit_move_with_their_full_blocks() {
        let mut cache = DefaultCache::new(16);
        let ticks = compute(&mut cache, 10, 16);
        let (first, now) = (cache.amounts[0], cache.amounts[cache.amounts.len() - 1]);
        let sum = cache.sum;
        assert_eq!(num_kept(&mut cache, &ticks[..1]), 1);
        cache.hit_tails(16);
        let unit = DefaultCache::UNIT;
        assert_eq!((cache.amounts[0], cache.sum), (first - 2 * unit, sum - unit));
        assert_eq!(cache.amounts.back(), Some(&(now + unit)));
    }

    #[test]
    fn an_emptied_queue_has_nothing() {
        let mut cache = DefaultCache::new(16);
        let ticks = compute(&mut cache, 10, 16);
        cache.clear();
        assert_eq!((num_kept(&mut cache, &ticks), cache.amounts.len()), (0, 1));
    }
}

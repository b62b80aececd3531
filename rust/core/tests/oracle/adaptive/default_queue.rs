//! Models the sampled blocks that vLLM's default policy would have kept. It decides nothing.
//!
//! That policy caches tails at the ends of prompts and where prompts diverge. It evicts the block
//! that has been free longest. Sampled full-attention blocks are known by their names. Tails and
//! states are amounts that fill the queue. All amounts are in 1/256 of blocks.
//!
//! The queue is divided into *ticks*, each of a 32nd of its capacity. It knows only the tick in
//! which something became free.

/// One block as an amount.
const BLOCK: u64 = 256;

pub struct DefaultQueue {
    /// One block in 2^`num_zero_bits` is sampled.
    num_zero_bits: u32,
    /// The amount that became free in each tick and is not evicted. The first `num_evicted` ticks
    /// are evicted.
    amounts: Vec<u64>,
    num_evicted: usize,
    /// The tick of the last block that was hit.
    last_hit: usize,
}

impl DefaultQueue {
    const TICKS: u64 = 32;

    pub fn new(num_zero_bits: u32) -> Self {
        Self { num_zero_bits, amounts: vec![0], num_evicted: 0, last_hit: 0 }
    }

    /// Returns the current tick.
    pub fn now(&self) -> usize {
        self.amounts.len() - 1
    }

    /// Counts a sampled block that becomes free.
    pub fn freed(&mut self) {
        self.free(BLOCK);
    }

    /// Counts `num` blocks of tails that become cached, sampled or not.
    pub fn cached_tails(&mut self, num: usize) {
        self.free(self.sampled_amount(num));
    }

    /// Uses a block that became free in a tick. Returns whether it is a hit.
    pub fn use_block(&mut self, tick: usize) -> bool {
        let is_hit = tick >= self.num_evicted;
        if is_hit {
            self.amounts[tick] = self.amounts[tick].saturating_sub(BLOCK);
            self.last_hit = tick;
        }
        is_hit
    }

    /// Counts a hit of `num` blocks of tails, sampled or not. They become free now, instead of in
    /// the tick of the last block that was hit.
    pub fn hit_tails(&mut self, num: usize) {
        if self.last_hit >= self.num_evicted {
            let moved = self.sampled_amount(num).min(self.amounts[self.last_hit]);
            self.amounts[self.last_hit] -= moved;
            self.free(moved);
        }
    }

    /// Evicts the amount that exceeds the sampled part of `num_blocks` blocks.
    pub fn evict(&mut self, num_blocks: usize) {
        let room = BLOCK * (num_blocks >> self.num_zero_bits) as u64;
        loop {
            let excess = self.amounts.iter().sum::<u64>().saturating_sub(room);
            let oldest = &mut self.amounts[self.num_evicted];
            *oldest = oldest.saturating_sub(excess);
            if excess == 0 {
                break;
            }
            self.num_evicted += usize::from(*oldest == 0 && self.num_evicted < self.now());
        }
        if Self::TICKS * self.amounts[self.now()] > room {
            self.amounts.push(0);
        }
    }

    pub fn clear(&mut self) {
        self.amounts.fill(0);
        self.num_evicted = self.amounts.len();
        self.amounts.push(0);
    }

    fn sampled_amount(&self, num_blocks: usize) -> u64 {
        (BLOCK * num_blocks as u64) >> self.num_zero_bits
    }

    fn free(&mut self, amount: u64) {
        *self.amounts.last_mut().expect("a tick") += amount;
    }
}

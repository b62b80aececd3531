//! How many of the blocks that leave the pool next are stored ahead.

/// How many of the blocks that the pool evicts next are stored ahead: as many as two large steps in a
/// row take, and up to a quarter more. A store begins when its step ends, so the next step can take
/// blocks before they are stored.
#[derive(Clone, Copy, Debug, Default)]
pub struct Horizon {
    num_allocated: u64,
    /// The number of blocks allocated up to the last step with tokens. A server repeats steps without
    /// tokens while it waits, so they count together with the next one.
    counted: u64,
    /// The number of blocks that the last step with tokens took.
    taken: u64,
    /// The most blocks that two steps took, in parts of [`Self::PARTS`]; older steps count less.
    most: u64,
    /// The number of allocated blocks up to which the blocks to be taken are stored.
    stored_to: u64,
    /// The number of blocks that a load will take.
    asked: u64,
}

impl Horizon {
    /// Each step forgets this part of the largest ones.
    const PARTS: u64 = 1 << 12;

    /// Asks for stores of the next `num_blocks` blocks. Returns whether not all are stored yet.
    pub fn ask_for(&mut self, num_blocks: u64) -> bool {
        let is_short = self.num_allocated + num_blocks > self.stored_to;
        if is_short {
            self.asked += num_blocks;
        }
        is_short
    }

    /// Returns the number of blocks that loads asked for since the last step.
    pub fn num_asked(&self) -> u64 {
        self.asked
    }

    /// Returns the number of blocks that the last step with tokens took.
    pub fn num_taken(&self) -> usize {
        self.taken as usize
    }

    /// Returns whether nothing was stored yet, or the tier forgot what was.
    pub fn is_new(&self) -> bool {
        self.stored_to == 0
    }

    /// Forgets which blocks are stored, because the tier forgot them.
    pub fn forget_stores(&mut self) {
        self.stored_to = 0;
    }

    /// Ends a step. The pool has `num_blocks` blocks and has allocated `num_allocated` in all its
    /// steps. `has_tokens` is whether the step computed any. Returns how many of the next blocks are
    /// to be stored now, unless enough are stored already. Blocks of requests that ended can be taken
    /// before others.
    pub fn after_step(
        &mut self,
        num_blocks: usize,
        num_allocated: u64,
        (has_tokens, has_ended): (bool, bool),
    ) -> Option<usize> {
        self.num_allocated = num_allocated;
        if has_tokens {
            let taken = num_allocated - std::mem::replace(&mut self.counted, num_allocated);
            let of_two = taken + std::mem::replace(&mut self.taken, taken);
            self.most = (of_two * Self::PARTS).max(self.most - self.most / Self::PARTS);
        }
        let most = self.most.div_ceil(Self::PARTS).min(num_blocks as u64 / 4);
        let asked = std::mem::take(&mut self.asked);
        if !has_ended && asked == 0 && num_allocated + most <= self.stored_to {
            return None;
        }
        let num_stored = most + asked.max(most / 4);
        self.stored_to = num_allocated + num_stored;
        Some(num_stored as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after_step(horizon: &mut Horizon, num_allocated: u64, has_ended: bool) -> Option<usize> {
        horizon.after_step(100_000, num_allocated, (true, has_ended))
    }

    #[test]
    fn as_many_blocks_are_stored_as_two_steps_take() {
        let mut horizon = Horizon::default();
        assert_eq!(after_step(&mut horizon, 100, false), Some(125));
        assert_eq!(after_step(&mut horizon, 101, false), None);
        assert_eq!(after_step(&mut horizon, 301, false), Some(251));
        assert_eq!(after_step(&mut horizon, 501, false), Some(500));
    }

    #[test]
    fn a_load_that_takes_more_asks_for_it() {
        let mut horizon = Horizon::default();
        after_step(&mut horizon, 100, false);
        assert!(!horizon.ask_for(125));
        assert!(horizon.ask_for(5_000));
        assert_eq!(after_step(&mut horizon, 100, false), Some(5_100));
        assert!(!horizon.ask_for(5_000));
    }

    #[test]
    fn a_request_that_ends_changes_what_comes_next() {
        let mut horizon = Horizon::default();
        after_step(&mut horizon, 100, false);
        assert_eq!(after_step(&mut horizon, 100, false), None);
        assert_eq!(after_step(&mut horizon, 100, true), Some(125));
    }

    #[test]
    fn a_large_step_is_forgotten_and_never_counts_for_most_of_the_pool() {
        let mut horizon = Horizon::default();
        assert_eq!(horizon.after_step(1_000, 1_000, (true, false)), Some(312));
        (0..4_000).for_each(|_| _ = horizon.after_step(1_000, 1_000, (false, false)));
        assert_eq!(horizon.after_step(1_000, 1_000, (false, true)), Some(312));
        (0..4_000).for_each(|_| _ = after_step(&mut horizon, 1_000, false));
        let num_stored = after_step(&mut horizon, 1_000, true);
        assert!(num_stored.is_some_and(|num| (300..600).contains(&num)), "{num_stored:?}");
    }
}

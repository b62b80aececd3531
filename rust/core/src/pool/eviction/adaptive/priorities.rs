//! What each block is entitled to: one byte, and four more as soon as anything ends by itself.

use super::priority::Standing;
use crate::block::BlockId;

/// What blocks were entitled to last.
#[derive(Debug, Default)]
pub(crate) struct Standings {
    /// Of each block, one more than the priority; 0 if there never was one. None until a request
    /// claims anything.
    priorities: Vec<u8>,
    /// Of each block, the milliseconds from `base` to the end; 0 if there is none. None until
    /// anything ends by itself.
    ends: Vec<u32>,
    base: u64,
}

impl Standings {
    /// What a block is entitled to, if it ever was to anything.
    pub fn of(&self, block: BlockId) -> Standing {
        let priority = self.priorities.get(block as usize).copied().unwrap_or(0);
        let Some(priority) = priority.checked_sub(1) else { return Standing::NONE };
        let until = match self.ends.get(block as usize) {
            None | Some(0) => Standing::NO_END,
            Some(&end) => self.base + u64::from(end),
        };
        Standing { priority, until }
    }

    /// Notes from `now` on what one of `num_blocks` blocks is entitled to. What ends more than 49
    /// days later has no end.
    pub fn set(&mut self, num_blocks: usize, block: BlockId, standing: Standing, now: u64) {
        if self.priorities.is_empty() {
            self.priorities = vec![0; num_blocks];
        }
        self.priorities[block as usize] = standing.priority + 1;
        let end = self.end_from_base(num_blocks, standing.until, now);
        if let Some(place) = self.ends.get_mut(block as usize) {
            *place = end;
        }
    }

    fn end_from_base(&mut self, num_blocks: usize, until: u64, now: u64) -> u32 {
        if until == Standing::NO_END {
            return 0;
        }
        if self.ends.is_empty() {
            self.ends = vec![0; num_blocks];
            self.base = now.saturating_sub(1);
        }
        if until.saturating_sub(self.base) > u64::from(u32::MAX) {
            self.start_anew(now.saturating_sub(1));
        }
        // What has ended, which others may inherit, has done so by `now`, behind the base.
        u32::try_from(until.saturating_sub(self.base).max(1)).unwrap_or(0)
    }

    /// Times are counted from another one on, behind which they end: those that have ended, right
    /// there.
    #[cold]
    fn start_anew(&mut self, base: u64) {
        let gone = u32::try_from(base - self.base).unwrap_or(u32::MAX);
        let ends = self.ends.iter_mut().filter(|end| **end > 0);
        ends.for_each(|end| *end = end.saturating_sub(gone).max(1));
        self.base = base;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 24 * 60 * 60 * 1000;

    fn standing(priority: u8, until: u64) -> Standing {
        Standing { priority, until }
    }

    #[test]
    fn what_was_noted_is_known_and_of_other_blocks_nothing() {
        let mut standings = Standings::default();
        assert_eq!(standings.of(3), Standing::NONE);
        standings.set(10, 3, standing(0, Standing::NO_END), 5);
        assert!(standings.ends.is_empty());
        standings.set(10, 4, standing(100, 1_006), 6);
        let expected = [Standing::NONE, standing(0, Standing::NO_END), standing(100, 1_006)];
        assert_eq!([2, 3, 4].map(|block| standings.of(block)), expected);
        standings.set(10, 4, standing(60, Standing::NO_END), 7);
        assert_eq!(standings.of(4), standing(60, Standing::NO_END));
    }

    #[test]
    fn what_has_ended_has_ended_for_good_and_what_has_not_ends_when_it_would() {
        let mut standings = Standings::default();
        standings.set(10, 1, standing(60, 1_000), 0);
        standings.set(10, 2, standing(60, 60 * DAY + 7), 20 * DAY);
        standings.set(10, 3, standing(60, 100 * DAY), 59 * DAY);
        assert!(!standings.of(1).is_live(59 * DAY));
        standings.set(10, 1, standing(60, 1_000), 59 * DAY);
        assert!(!standings.of(1).is_live(59 * DAY));
        assert_eq!(standings.of(2), standing(60, 60 * DAY + 7));
        assert_eq!(standings.of(3), standing(60, 100 * DAY));
    }

    #[test]
    fn what_would_end_after_months_has_no_end() {
        let mut standings = Standings::default();
        for now in [0, 1_000 * DAY] {
            standings.set(10, 1, standing(60, now + 49 * DAY), now);
            assert_eq!(standings.of(1), standing(60, now + 49 * DAY));
            standings.set(10, 1, standing(60, now + 50 * DAY), now);
            assert_eq!(standings.of(1), standing(60, Standing::NO_END));
        }
    }
}

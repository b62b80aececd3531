//! Retention priorities and times to live: the priority that a request asks for, the priority of a
//! block, and the lists of free blocks by priority. Blocks below the default priority are evicted
//! before all others. Blocks above it are evicted after all others, as long as they do not exceed
//! the protected share. Priorities and times to live work as in TensorRT-LLM's
//! `KvCacheRetentionConfig`.

use std::collections::BTreeSet;

use crate::block::BlockId;
use crate::error::{Error, Result};
use crate::pool::blocks::Blocks;

/// A retention priority that a request asks for, and its duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RetentionPriority {
    priority: u8,
    lifetime: Option<u64>,
}

impl Default for RetentionPriority {
    fn default() -> Self {
        Self { priority: Self::DEFAULT_PRIORITY, lifetime: None }
    }
}

impl RetentionPriority {
    /// The priority of blocks for which no request asks for another priority.
    pub const DEFAULT_PRIORITY: u8 = 50;
    /// The highest priority.
    pub(crate) const MAX_PRIORITY: u8 = 100;

    /// Creates a priority from 0 to 100. `seconds` is the time after a block's last use until its
    /// priority counts as 50 again; `None` means that it does not end.
    pub fn new(priority: i64, seconds: Option<f64>) -> Result<Self> {
        let is_priority = |&priority: &u8| priority <= Self::MAX_PRIORITY;
        let Some(priority) = u8::try_from(priority).ok().filter(is_priority) else {
            return Err(Error::Request(format!(
                "the retention priority is {priority}; it can be 0 to {}; without one, a request \
                 has {}",
                Self::MAX_PRIORITY,
                Self::DEFAULT_PRIORITY
            )));
        };
        match seconds {
            Some(seconds) if !(seconds.is_finite() && seconds > 0.0) => {
                Err(Error::Request(format!(
                    "the time to live is {seconds} seconds; it must be more than 0; for no end, \
                     leave it out"
                )))
            }
            _ => Ok(Self { priority, lifetime: seconds.map(milliseconds) }),
        }
    }

    /// Returns the same priority with a time to live.
    pub fn for_seconds(self, seconds: f64) -> Result<Self> {
        Self::new(self.priority.into(), Some(seconds))
    }

    /// Returns the priority, from 0 to 100.
    pub fn priority(self) -> u8 {
        self.priority
    }

    /// Returns the retention with a priority of at most `max_priority`.
    #[must_use]
    pub fn lowered_to(self, max_priority: u8) -> Self {
        Self { priority: self.priority.min(max_priority), ..self }
    }

    /// Returns the time after a block's last use at which the priority ends, in milliseconds.
    pub fn lifetime(self) -> Option<u64> {
        self.lifetime
    }

    /// Returns whether blocks with the priority take part of the protected share.
    pub fn is_high(self) -> bool {
        self.priority > Self::DEFAULT_PRIORITY
    }

    /// Returns whether it is the default priority.
    pub(crate) fn is_default(self) -> bool {
        self.priority == Self::DEFAULT_PRIORITY
    }

    /// Returns whether the priority ends by itself. Then the caller has to set the time.
    pub fn has_end(self) -> bool {
        self.lifetime.is_some() && !self.is_default()
    }

    /// Returns the priority of a block that is used now.
    pub(super) fn from(self, now: u64) -> EffectivePriority {
        let until = self
            .lifetime
            .map_or(EffectivePriority::NO_END, |lifetime| now.saturating_add(lifetime));
        EffectivePriority { priority: self.priority, until }
    }
}

fn milliseconds(seconds: f64) -> u64 {
    (seconds * 1000.0).ceil() as u64
}

/// The priority of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EffectivePriority {
    /// The priority, from 0 to 100, but not 50.
    pub priority: u8,
    /// The time at which the priority ends, in milliseconds.
    pub until: u64,
}

impl EffectivePriority {
    /// The value of `until` for a priority that does not end.
    pub const NO_END: u64 = u64::MAX;

    pub(super) fn is_live(self, now: u64) -> bool {
        self.until > now
    }

    /// Returns whether it is below the default priority.
    pub(super) fn is_low(self) -> bool {
        self.priority < RetentionPriority::DEFAULT_PRIORITY
    }
}

/// The priorities of blocks, and the lists of the free blocks that have a priority.
#[derive(Debug)]
pub(super) struct PriorityLists {
    /// The last priority of each block. Empty until a request asks for a priority.
    priorities: Vec<u8>,
    /// The end of each block's last priority. Empty until a priority has an end.
    priority_ends: Vec<u64>,
    /// The sentinel of the list of priority 0. The sentinels of the other lists follow.
    first_sentinel: u32,
    /// A bit for each list that has a block.
    filled: u128,
    num_low: usize,
    num_high: usize,
    /// The maximum number of free blocks above the default priority.
    max_high: usize,
    /// The listed blocks whose priority ends, sorted by the time of the end.
    ends: BTreeSet<(u64, BlockId)>,
}

const LOW: u128 = (1 << RetentionPriority::DEFAULT_PRIORITY) - 1;

impl PriorityLists {
    pub(super) const NUM_LISTS: usize = RetentionPriority::MAX_PRIORITY as usize + 1;

    /// Creates empty lists. Their sentinels are the records from `first_sentinel` on.
    pub(super) fn new(blocks: &mut Blocks, first_sentinel: u32, max_high: usize) -> Self {
        (0..Self::NUM_LISTS as u32).for_each(|list| blocks.make_ring(first_sentinel + list));
        Self {
            priorities: Vec::new(),
            priority_ends: Vec::new(),
            first_sentinel,
            filled: 0,
            num_low: 0,
            num_high: 0,
            max_high,
            ends: BTreeSet::new(),
        }
    }

    /// Returns the number of listed blocks.
    pub(super) fn len(&self) -> usize {
        self.num_low + self.num_high
    }

    /// Returns the number of listed blocks above the default priority.
    pub(super) fn num_high(&self) -> usize {
        self.num_high
    }

    /// Returns how many more blocks above the default priority can be listed.
    pub(super) fn num_spare(&self) -> usize {
        self.max_high.saturating_sub(self.num_high)
    }

    fn sentinel(&self, priority: u8) -> u32 {
        self.first_sentinel + u32::from(priority)
    }

    /// Returns the last priority of a block.
    pub(super) fn of(&self, block: BlockId) -> EffectivePriority {
        let block = block as usize;
        EffectivePriority {
            priority: self
                .priorities
                .get(block)
                .copied()
                .unwrap_or(RetentionPriority::DEFAULT_PRIORITY),
            until: self.priority_ends.get(block).copied().unwrap_or(EffectivePriority::NO_END),
        }
    }

    /// Sets the priority of one of `num_blocks` blocks. The block must not be listed.
    pub(super) fn set(&mut self, num_blocks: usize, block: BlockId, priority: EffectivePriority) {
        if self.priorities.is_empty() {
            self.priorities = vec![RetentionPriority::DEFAULT_PRIORITY; num_blocks];
        }
        if self.priority_ends.is_empty() && priority.until != EffectivePriority::NO_END {
            self.priority_ends = vec![EffectivePriority::NO_END; num_blocks];
        }
        self.priorities[block as usize] = priority.priority;
        if let Some(end) = self.priority_ends.get_mut(block as usize) {
            *end = priority.until;
        }
    }

    /// Puts a block at the end of the list of its priority.
    pub(super) fn push(&mut self, blocks: &mut Blocks, block: BlockId) {
        let of_block = self.of(block);
        blocks.push_to_ring(self.sentinel(of_block.priority), block);
        self.filled |= 1 << of_block.priority;
        *self.counter(of_block) += 1;
        if of_block.until != EffectivePriority::NO_END {
            self.ends.insert((of_block.until, block));
        }
    }

    /// Takes a block out of the list of its priority.
    pub(super) fn remove(&mut self, blocks: &mut Blocks, block: BlockId) {
        let of_block = self.of(block);
        blocks.unlink(block);
        *self.counter(of_block) -= 1;
        if blocks.first_of_ring(self.sentinel(of_block.priority)).is_none() {
            self.filled &= !(1 << of_block.priority);
        }
        if of_block.until != EffectivePriority::NO_END {
            self.ends.remove(&(of_block.until, block));
        }
    }

    fn counter(&mut self, priority: EffectivePriority) -> &mut usize {
        if priority.is_low() { &mut self.num_low } else { &mut self.num_high }
    }

    /// Returns whether any listed block is below the default priority.
    pub(super) fn has_low(&self) -> bool {
        self.num_low > 0
    }

    /// Returns the block that is evicted first among the blocks below the default priority.
    pub(super) fn first_low(&self, blocks: &Blocks) -> Option<BlockId> {
        self.first_of(blocks, self.filled & LOW)
    }

    /// Returns the block that is evicted first among the blocks above the default priority.
    pub(super) fn first_high(&self, blocks: &Blocks) -> Option<BlockId> {
        self.first_of(blocks, self.filled & !LOW)
    }

    fn first_of(&self, blocks: &Blocks, lists: u128) -> Option<BlockId> {
        let list = Some(lists.trailing_zeros()).filter(|_| lists != 0)?;
        blocks.first_of_ring(self.first_sentinel + list)
    }

    /// Returns a block that exceeds the protected share: the block that was listed first, of the
    /// lowest priority above the default.
    pub(super) fn excess(&self, blocks: &Blocks) -> Option<BlockId> {
        self.first_high(blocks).filter(|_| self.num_high > self.max_high)
    }

    /// Returns a listed block whose priority has ended.
    pub(super) fn ended(&self, now: u64) -> Option<BlockId> {
        self.ends.first().filter(|&&(until, _)| until <= now).map(|&(_, block)| block)
    }

    /// Returns every listed block, the lowest priority first.
    pub(super) fn iter<'a>(&'a self, blocks: &'a Blocks) -> impl Iterator<Item = BlockId> + 'a {
        (0..Self::NUM_LISTS as u32).flat_map(|list| blocks.ring(self.first_sentinel + list))
    }

    /// Checks the lists at a time. The error says what is wrong.
    pub(super) fn check(&self, blocks: &Blocks, now: u64) -> std::result::Result<(), String> {
        let mut counts = [0, 0];
        let mut ends = BTreeSet::new();
        for priority in 0..Self::NUM_LISTS as u8 {
            let sentinel = self.sentinel(priority);
            for block in blocks.ring(sentinel).take(blocks.len()) {
                let of_block = self.of(block);
                if of_block.priority != priority {
                    return Err(format!("block {block} is in list {priority}: {of_block:?}"));
                }
                counts[usize::from(!of_block.is_low())] += 1;
                if of_block.until != EffectivePriority::NO_END {
                    ends.insert((of_block.until, block));
                }
            }
            let is_filled = blocks.first_of_ring(sentinel).is_some();
            if is_filled != (self.filled >> priority & 1 != 0) {
                return Err(format!("whether list {priority} has blocks is noted wrongly"));
            }
        }
        if counts != [self.num_low, self.num_high] {
            let counted = [self.num_low, self.num_high];
            return Err(format!("priorities have {counts:?} blocks, {counted:?} are counted"));
        }
        if self.num_high > self.max_high {
            return Err(format!("{} blocks are protected, of {}", self.num_high, self.max_high));
        }
        if self.ended(now).is_some() {
            return Err("the priority of a listed block has ended".into());
        }
        match ends == self.ends {
            true => Ok(()),
            false => Err("the ends of priorities are noted wrongly".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_priority_or_no_time_is_refused() {
        for (priority, seconds) in
            [(-1, None), (101, None), (300, None), (60, Some(0.0)), (60, Some(-1.0))]
        {
            assert!(RetentionPriority::new(priority, seconds).is_err(), "{priority} {seconds:?}");
        }
        for seconds in [f64::NAN, f64::INFINITY] {
            assert!(RetentionPriority::new(60, Some(seconds)).is_err());
        }
    }

    #[test]
    fn a_time_to_live_ends_after_its_seconds_and_no_sooner() {
        let priority = RetentionPriority::new(60, Some(0.0005)).expect("half a millisecond");
        assert!(priority.has_end() && priority.from(7).is_live(7) && !priority.from(7).is_live(8));
        let endless = RetentionPriority::new(60, None).expect("a priority");
        assert!(!endless.has_end() && endless.from(7).is_live(u64::MAX - 1));
        assert!(
            RetentionPriority::new(50, Some(1e300)).is_ok_and(|priority| priority.is_default())
        );
    }
}

//! Free cached blocks of another priority than the default, on a rung for each priority: those
//! below the default leave before all others, those above it, as many as the share of the pool
//! that is protected, after them.

use std::collections::BTreeSet;

use super::priorities::Standings;
use super::priority::{Claim, Standing};
use crate::block::BlockId;
use crate::pool::blocks::Blocks;

/// The rungs, and what each block is entitled to.
#[derive(Debug)]
pub(crate) struct Ladder {
    first_sentinel: u32,
    standings: Standings,
    /// A bit for each rung that has a block.
    filled: u128,
    num_low: usize,
    num_high: usize,
    /// Blocks above the default priority, at most.
    capacity: usize,
    /// The blocks whose time ends, by when it does.
    ends: BTreeSet<(u64, BlockId)>,
}

const LOW: u128 = (1 << Claim::DEFAULT_PRIORITY) - 1;

impl Ladder {
    pub const NUM_RUNGS: usize = Claim::MAX_PRIORITY as usize + 1;

    /// Empty rungs, whose sentinels are the records from `first_sentinel` on.
    pub fn new(states: &mut Blocks, first_sentinel: u32, capacity: usize) -> Self {
        (0..Self::NUM_RUNGS as u32).for_each(|rung| states.make_ring(first_sentinel + rung));
        Self {
            first_sentinel,
            standings: Standings::default(),
            filled: 0,
            num_low: 0,
            num_high: 0,
            capacity,
            ends: BTreeSet::new(),
        }
    }

    pub fn len(&self) -> usize {
        self.num_low + self.num_high
    }

    pub fn num_high(&self) -> usize {
        self.num_high
    }

    fn sentinel(&self, priority: u8) -> u32 {
        self.first_sentinel + u32::from(priority)
    }

    /// What a block is entitled to, if it has ever been to anything.
    pub fn standing(&self, block: BlockId) -> Standing {
        self.standings.of(block)
    }

    /// Notes from `now` on what a block in use is entitled to.
    pub fn entitle(&mut self, states: &Blocks, block: BlockId, standing: Standing, now: u64) {
        self.standings.set(states.len(), block, standing, now);
    }

    /// Puts a block on its rung, behind those that are there.
    pub fn push(&mut self, states: &mut Blocks, block: BlockId) {
        let standing = self.standing(block);
        states.push_to_ring(self.sentinel(standing.priority), block);
        self.filled |= 1 << standing.priority;
        *self.counter(standing) += 1;
        if standing.until != Standing::NO_END {
            self.ends.insert((standing.until, block));
        }
    }

    /// Takes a block off its rung.
    pub fn remove(&mut self, states: &mut Blocks, block: BlockId) {
        let standing = self.standing(block);
        states.unlink(block);
        *self.counter(standing) -= 1;
        if states.first_of_ring(self.sentinel(standing.priority)).is_none() {
            self.filled &= !(1 << standing.priority);
        }
        if standing.until != Standing::NO_END {
            self.ends.remove(&(standing.until, block));
        }
    }

    fn counter(&mut self, standing: Standing) -> &mut usize {
        if standing.is_low() { &mut self.num_low } else { &mut self.num_high }
    }

    /// Whether any block goes before those of the default priority.
    pub fn has_low(&self) -> bool {
        self.num_low > 0
    }

    /// The block that goes first of those below the default priority.
    pub fn first_low(&self, states: &Blocks) -> Option<BlockId> {
        self.first_of(states, self.filled & LOW)
    }

    /// The block that goes first of those above it.
    pub fn first_high(&self, states: &Blocks) -> Option<BlockId> {
        self.first_of(states, self.filled & !LOW)
    }

    fn first_of(&self, states: &Blocks, rungs: u128) -> Option<BlockId> {
        let rung = Some(rungs.trailing_zeros()).filter(|_| rungs != 0)?;
        states.first_of_ring(self.first_sentinel + rung)
    }

    /// A block of those beyond the protected share: of the lowest priority, the one that has been
    /// there longest.
    pub fn excess(&self, states: &Blocks) -> Option<BlockId> {
        self.first_high(states).filter(|_| self.num_high > self.capacity)
    }

    /// A block whose time has ended.
    pub fn ended(&self, now: u64) -> Option<BlockId> {
        self.ends.first().filter(|&&(until, _)| until <= now).map(|&(_, block)| block)
    }

    /// Every block, from the first that goes on.
    pub fn blocks<'a>(&'a self, states: &'a Blocks) -> impl Iterator<Item = BlockId> + 'a {
        (0..Self::NUM_RUNGS as u32).flat_map(|rung| states.ring(self.first_sentinel + rung))
    }

    /// What is wrong with it, at a time.
    pub fn check(&self, states: &Blocks, now: u64) -> Result<(), String> {
        let mut counts = [0, 0];
        let mut ends = BTreeSet::new();
        for priority in 0..Self::NUM_RUNGS as u8 {
            for block in states.ring(self.sentinel(priority)).take(states.len()) {
                let standing = self.standing(block);
                if standing.priority != priority {
                    return Err(format!("block {block} is on rung {priority}: {standing:?}"));
                }
                counts[usize::from(!standing.is_low())] += 1;
                ends.extend(
                    (standing.until != Standing::NO_END).then_some((standing.until, block)),
                );
            }
            let is_filled = states.first_of_ring(self.sentinel(priority)).is_some();
            if is_filled != (self.filled >> priority & 1 != 0) {
                return Err(format!("whether rung {priority} has blocks is noted wrongly"));
            }
        }
        if counts != [self.num_low, self.num_high] {
            return Err(format!(
                "rungs have {counts:?} blocks, {:?} are counted",
                [self.num_low, self.num_high]
            ));
        }
        if self.num_high > self.capacity {
            return Err(format!("{} blocks are protected, of {}", self.num_high, self.capacity));
        }
        if self.ended(now).is_some() {
            return Err("the time of a block on a rung has ended".into());
        }
        if ends != self.ends {
            Err("the ends of blocks' times are noted wrongly".into())
        } else {
            Ok(())
        }
    }
}

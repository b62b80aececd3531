//! Sampled blocks that were seen and of which the sample is still to be told: of many at once, so
//! that the waits for memory overlap.

use super::sample::Sample;
use crate::block::BlockId;
use crate::pool::states::BlockStates;

/// What was seen, in order.
#[derive(Debug, Default)]
pub(super) struct Sightings {
    seen: Vec<Sighting>,
    names: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Sighting {
    block: BlockId,
    event: Event,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Used,
    Freed { class: u8, num_free_blocks: u32 },
}

impl Sightings {
    /// So many are kept at most.
    const MAX: usize = 512;

    /// A block is used: hit, or computed anew.
    pub fn used(&mut self, sample: &mut Sample, states: &BlockStates, block: BlockId) {
        self.note(sample, states, Sighting { block, event: Event::Used });
    }

    /// A block of a class becomes free, and the pool has so many free blocks like it.
    pub fn freed(
        &mut self,
        sample: &mut Sample,
        states: &BlockStates,
        block: BlockId,
        class: usize,
        num_free_blocks: usize,
    ) {
        let event = Event::Freed { class: class as u8, num_free_blocks: num_free_blocks as u32 };
        self.note(sample, states, Sighting { block, event });
    }

    fn note(&mut self, sample: &mut Sample, states: &BlockStates, sighting: Sighting) {
        self.seen.push(sighting);
        if self.seen.len() == Self::MAX {
            self.tell(sample, states);
        }
    }

    /// Tells the sample of all.
    pub fn tell(&mut self, sample: &mut Sample, states: &BlockStates) {
        self.names.clear();
        self.names.extend(self.seen.iter().map(|sighting| name_of(states, sighting.block)));
        sample.warm_up(&self.names);
        for (sighting, &name) in self.seen.drain(..).zip(&self.names) {
            match sighting.event {
                Event::Used => sample.used(name),
                Event::Freed { class, num_free_blocks } => {
                    sample.freed(name, usize::from(class), num_free_blocks as usize);
                }
            }
        }
    }
}

/// The name of a block in the sample: of the prefix that it stands for, in its group. Never 0.
fn name_of(states: &BlockStates, block: BlockId) -> u64 {
    let group = u64::from(states.group_of(block));
    (states.name_word(block) ^ group.wrapping_mul(0x9e37_79b9_7f4a_7c15)).max(1)
}

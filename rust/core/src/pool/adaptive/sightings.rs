//! Sampled blocks that were seen and of which the sample is still to be told: of many at once, so
//! that the waits for memory overlap.

use super::sample::{Name, Sample, Use};

/// What was seen, in order.
#[derive(Debug, Default)]
pub(super) struct Sightings {
    seen: Vec<Sighting>,
}

#[derive(Clone, Copy, Debug)]
struct Sighting {
    name: Name,
    event: Event,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Used(Use),
    Freed { class: u8, num_free_blocks: u32 },
}

impl Sightings {
    /// So many are kept at most.
    const MAX: usize = 512;

    /// A block is used: hit, or computed anew.
    pub fn used(&mut self, sample: &mut Sample, name: Name, how: Use) {
        self.note(sample, Sighting { name, event: Event::Used(how) });
    }

    /// A block of a class becomes free, and the pool has so many free blocks like it.
    pub fn freed(&mut self, sample: &mut Sample, name: Name, class: usize, num_free_blocks: usize) {
        let num_free_blocks = num_free_blocks as u32;
        let event = Event::Freed { class: class as u8, num_free_blocks };
        self.note(sample, Sighting { name, event });
    }

    fn note(&mut self, sample: &mut Sample, sighting: Sighting) {
        self.seen.push(sighting);
        if self.seen.len() == Self::MAX {
            self.tell(sample);
        }
    }

    /// Tells the sample of all.
    pub fn tell(&mut self, sample: &mut Sample) {
        sample.warm_up(self.seen.iter().map(|sighting| sighting.name));
        for Sighting { name, event } in self.seen.drain(..) {
            match event {
                Event::Used(how) => sample.used(name, how),
                Event::Freed { class, num_free_blocks } => {
                    sample.freed(name, usize::from(class), num_free_blocks as usize);
                }
            }
        }
    }
}

//! Sampled blocks that were seen and of which the sample is still to be told: of many at once, so
//! that the waits for memory overlap.

use super::names::Name;
use super::sample::{Sample, Use};

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
    /// Of a class.
    Freed(u8),
}

impl Sightings {
    /// So many are kept at most.
    const MAX: usize = 512;

    /// A block is used: hit, or computed anew.
    #[inline(never)]
    pub fn used(&mut self, sample: &mut Sample, name: Name, how: Use) {
        self.note(sample, Sighting { name, event: Event::Used(how) });
    }

    /// A block of a class becomes free.
    #[inline(never)]
    pub fn freed(&mut self, sample: &mut Sample, name: Name, class: usize) {
        self.note(sample, Sighting { name, event: Event::Freed(class as u8) });
    }

    fn note(&mut self, sample: &mut Sample, sighting: Sighting) {
        self.seen.push(sighting);
        if self.seen.len() == Self::MAX {
            self.tell_all(sample);
        }
    }

    /// Tells the sample of all.
    #[inline]
    pub fn tell(&mut self, sample: &mut Sample) {
        if !self.seen.is_empty() {
            self.tell_all(sample);
        }
    }

    #[inline(never)]
    fn tell_all(&mut self, sample: &mut Sample) {
        sample.warm_up(self.seen.iter().map(|sighting| sighting.name));
        for Sighting { name, event } in self.seen.drain(..) {
            match event {
                Event::Used(how) => sample.used(name, how),
                Event::Freed(class) => sample.freed(name, usize::from(class)),
            }
        }
    }
}

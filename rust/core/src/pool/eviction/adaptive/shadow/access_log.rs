//! Sampled blocks that were seen and of which the sample is still to be told: of many at once, so
//! that the waits for memory overlap.

use super::table::Name;
use crate::pool::eviction::adaptive::shadow::{Sample, Use};

/// What was seen last, as often as nothing else was.
#[derive(Debug)]
pub(crate) struct Sightings {
    event: Event,
    /// In order; room for so many.
    names: Box<[Name]>,
    num: usize,
}

/// What became of a sampled block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// It is used: hit, or computed anew.
    Used(Use),
    /// It becomes free, of a class.
    Freed(u8),
}

impl Sightings {
    /// So many are kept at most.
    const MAX: usize = 512;

    /// Nothing was seen yet.
    pub fn new() -> Self {
        let names = vec![Name::GONE; Self::MAX].into_boxed_slice();
        Self { event: Event::Used(Use::Hit), names, num: 0 }
    }

    /// Something became of a block.
    #[inline(never)]
    pub fn note(&mut self, sample: &mut Sample, event: Event, name: Name) {
        self.start(sample, event);
        self.add(sample, name);
    }

    /// The same becomes of blocks that are added.
    #[inline]
    pub fn start(&mut self, sample: &mut Sample, event: Event) {
        if self.event != event {
            self.tell(sample);
            self.event = event;
        }
    }

    /// Adds a block.
    #[inline]
    pub fn add(&mut self, sample: &mut Sample, name: Name) {
        if self.num == Self::MAX {
            self.tell_all(sample);
        }
        self.names[self.num] = name;
        self.num += 1;
    }

    /// Adds blocks.
    #[inline]
    pub fn add_each(&mut self, sample: &mut Sample, mut names: impl Iterator<Item = Name>) {
        loop {
            let room = self.names[self.num..].iter_mut();
            self.num += room.zip(names.by_ref()).map(|(place, name)| *place = name).count();
            if self.num < Self::MAX {
                return;
            }
            self.tell_all(sample);
        }
    }

    /// Tells the sample of all.
    #[inline]
    pub fn tell(&mut self, sample: &mut Sample) {
        if self.num > 0 {
            self.tell_all(sample);
        }
    }

    #[inline(never)]
    fn tell_all(&mut self, sample: &mut Sample) {
        let names = &self.names[..self.num];
        match self.event {
            Event::Used(how) => sample.used(names, how),
            Event::Freed(class) => sample.freed(names, usize::from(class)),
        }
        self.num = 0;
    }
}

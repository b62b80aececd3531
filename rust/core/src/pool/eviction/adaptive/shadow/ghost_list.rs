//! Free names of the sample of one class and epoch, in the order in which they became free.

use super::table::Name;
use crate::pool::eviction::adaptive::scoring::Ordering;

/// Orderings that compete.
pub(crate) const ORDERINGS: usize = Ordering::ALL.len();

/// The names, and how many of them each ordering has evicted.
#[derive(Debug, Default)]
pub(crate) struct Bucket {
    /// [`Name::GONE`] where somebody uses the name again.
    names: Vec<Name>,
    num_free: usize,
    /// How many from the front each ordering has evicted.
    evicted: [u32; ORDERINGS],
}

impl Bucket {
    /// Gaps that do not matter.
    const MIN_GAPS: usize = 64;

    /// To add names, up to so many.
    #[inline]
    pub fn adding(&mut self, most: usize) -> Adding<'_> {
        let first = self.names.len();
        self.names.resize(first + most, Name::GONE);
        Adding { bucket: self, first, len: first }
    }

    /// To take names out.
    #[inline]
    pub fn taking(&mut self) -> Taking<'_> {
        let Self { names, num_free, evicted } = self;
        Taking {
            names,
            num_free,
            evicted: *evicted,
            is_any_evicted: *evicted != [0; ORDERINGS],
            num_taken: 0,
            num_evicted: [0; ORDERINGS],
        }
    }

    /// An ordering evicts up to so many names: how many it did.
    pub fn evict(&mut self, ordering: usize, most: usize) -> usize {
        let evicted = &mut self.evicted[ordering];
        let mut num_evicted = 0;
        for &name in &self.names[*evicted as usize..] {
            if num_evicted == most {
                break;
            }
            num_evicted += usize::from(name != Name::GONE);
            *evicted += 1;
        }
        num_evicted
    }

    /// Whether an ordering has evicted every name.
    pub fn is_evicted(&self, ordering: usize) -> bool {
        self.evicted[ordering] as usize == self.names.len()
    }

    /// Whether most of its places are gaps.
    #[inline]
    pub fn is_sparse(&self) -> bool {
        self.names.len() > 2 * self.num_free + Self::MIN_GAPS
    }

    /// Closes the gaps: the names and their new positions.
    pub fn pack(&mut self) -> impl Iterator<Item = (u32, Name)> + '_ {
        for evicted in &mut self.evicted {
            let there = self.names[..*evicted as usize].iter();
            *evicted = there.filter(|&&name| name != Name::GONE).count() as u32;
        }
        self.names.retain(|&name| name != Name::GONE);
        (0..).zip(self.names.iter().copied())
    }

    /// The names, and whether each ordering would still have them.
    pub fn names(&self) -> impl Iterator<Item = (Name, [bool; ORDERINGS])> + '_ {
        let is_there = |position: u32| self.evicted.map(|evicted| position >= evicted);
        let there = (0..).zip(&self.names).filter(|&(_, &name)| name != Name::GONE);
        there.map(move |(position, &name)| (name, is_there(position)))
    }

    /// Names and gaps.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.names.len()
    }
}

/// Adds names to a bucket.
pub(crate) struct Adding<'a> {
    bucket: &'a mut Bucket,
    first: usize,
    len: usize,
}

impl Adding<'_> {
    /// Adds a name: its position.
    #[inline]
    pub fn add(&mut self, name: Name) -> u32 {
        let position = self.len;
        self.bucket.names[position] = name;
        self.len += 1;
        position as u32
    }

    /// All are added: how many.
    pub fn close(self) -> usize {
        let Self { bucket, first, len } = self;
        bucket.names.truncate(len);
        bucket.num_free += len - first;
        len - first
    }
}

/// Takes names out of a bucket.
pub(crate) struct Taking<'a> {
    names: &'a mut [Name],
    num_free: &'a mut usize,
    evicted: [u32; ORDERINGS],
    is_any_evicted: bool,
    num_taken: u32,
    num_evicted: [u32; ORDERINGS],
}

impl Taking<'_> {
    #[inline]
    pub fn take(&mut self, position: u32) {
        self.names[position as usize] = Name::GONE;
        self.num_taken += 1;
        if self.is_any_evicted {
            for (num, evicted) in self.num_evicted.iter_mut().zip(self.evicted) {
                *num += u32::from(position < evicted);
            }
        }
    }

    /// All are taken: how many, and how many of them each ordering would still have.
    pub fn close(self) -> (usize, [u32; ORDERINGS]) {
        let Self { num_free, num_taken, num_evicted, .. } = self;
        *num_free -= num_taken as usize;
        (num_taken as usize, num_evicted.map(|num_evicted| num_taken - num_evicted))
    }
}

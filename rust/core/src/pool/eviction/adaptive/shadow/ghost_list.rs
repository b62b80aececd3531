//! A ghost list: keys of free sampled blocks of one class and epoch, in the order in which the blocks
//! became free.

use super::FUNCTIONS;
use super::table::ShadowKey;

/// The keys, and how many of them each scoring function has evicted.
#[derive(Debug, Default)]
pub(super) struct GhostList {
    /// [`ShadowKey::NONE`] where a request uses the block again.
    keys: Vec<ShadowKey>,
    num_free: usize,
    /// The first position that each function has not evicted.
    evicted: [u32; FUNCTIONS],
}

impl GhostList {
    /// A list with fewer gaps is not packed.
    const MIN_GAPS: usize = 64;

    /// Starts to append keys, at most `most`.
    #[inline]
    pub(super) fn append(&mut self, most: usize) -> Append<'_> {
        let first = self.keys.len();
        self.keys.resize(first + most, ShadowKey::NONE);
        Append { list: self, first, len: first }
    }

    /// Starts to remove keys.
    #[inline]
    pub(super) fn remove(&mut self) -> Remove<'_> {
        let Self { keys, num_free, evicted } = self;
        Remove {
            keys,
            num_free,
            evicted: *evicted,
            is_any_evicted: *evicted != [0; FUNCTIONS],
            num_removed: 0,
            num_evicted: [0; FUNCTIONS],
        }
    }

    /// Lets a function evict up to `most` keys. Returns how many it did.
    pub(super) fn evict(&mut self, function: usize, most: usize) -> usize {
        let evicted = &mut self.evicted[function];
        let mut num_evicted = 0;
        for &key in &self.keys[*evicted as usize..] {
            if num_evicted == most {
                break;
            }
            num_evicted += usize::from(key != ShadowKey::NONE);
            *evicted += 1;
        }
        num_evicted
    }

    /// Whether a function has evicted every key.
    pub(super) fn is_evicted(&self, function: usize) -> bool {
        self.evicted[function] as usize == self.keys.len()
    }

    /// Whether most positions are gaps.
    #[inline]
    pub(super) fn is_sparse(&self) -> bool {
        self.keys.len() > 2 * self.num_free + Self::MIN_GAPS
    }

    /// Closes the gaps. Returns the keys with their new positions.
    pub(super) fn pack(&mut self) -> impl Iterator<Item = (u32, ShadowKey)> + '_ {
        for evicted in &mut self.evicted {
            let there = self.keys[..*evicted as usize].iter();
            *evicted = there.filter(|&&key| key != ShadowKey::NONE).count() as u32;
        }
        self.keys.retain(|&key| key != ShadowKey::NONE);
        (0..).zip(self.keys.iter().copied())
    }

    /// The keys, and whether each function would still have them.
    pub(super) fn keys(&self) -> impl Iterator<Item = (ShadowKey, [bool; FUNCTIONS])> + '_ {
        let is_kept = |position: u32| self.evicted.map(|evicted| position >= evicted);
        let there = (0..).zip(&self.keys).filter(|&(_, &key)| key != ShadowKey::NONE);
        there.map(move |(position, &key)| (key, is_kept(position)))
    }

    /// ShadowTable and gaps.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.keys.len()
    }
}

/// Appends keys to a ghost list.
pub(super) struct Append<'a> {
    list: &'a mut GhostList,
    first: usize,
    len: usize,
}

impl Append<'_> {
    /// Appends a key and returns its position.
    #[inline]
    pub(super) fn push(&mut self, key: ShadowKey) -> u32 {
        let position = self.len;
        self.list.keys[position] = key;
        self.len += 1;
        position as u32
    }

    /// Ends the append. Returns how many keys were appended.
    pub(super) fn finish(self) -> usize {
        let Self { list, first, len } = self;
        list.keys.truncate(len);
        list.num_free += len - first;
        len - first
    }
}

/// Removes keys from a ghost list.
pub(super) struct Remove<'a> {
    keys: &'a mut [ShadowKey],
    num_free: &'a mut usize,
    evicted: [u32; FUNCTIONS],
    is_any_evicted: bool,
    num_removed: u32,
    num_evicted: [u32; FUNCTIONS],
}

impl Remove<'_> {
    #[inline]
    pub(super) fn at(&mut self, position: u32) {
        self.keys[position as usize] = ShadowKey::NONE;
        self.num_removed += 1;
        if self.is_any_evicted {
            for (num, evicted) in self.num_evicted.iter_mut().zip(self.evicted) {
                *num += u32::from(position < evicted);
            }
        }
    }

    /// Ends the removal. Returns how many keys were removed, and how many of them each function
    /// would still have.
    pub(super) fn finish(self) -> (usize, [u32; FUNCTIONS]) {
        let Self { num_free, num_removed, num_evicted, .. } = self;
        *num_free -= num_removed as usize;
        (num_removed as usize, num_evicted.map(|num_evicted| num_removed - num_evicted))
    }
}

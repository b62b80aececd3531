//! A ghost list: the keys of free sampled blocks of one class and epoch, in the order in which the
//! blocks became free.

use super::FUNCTIONS;
use super::table::ShadowKey;

/// The keys of a list, and the number of positions that each scoring function has evicted.
#[derive(Debug, Default)]
pub(super) struct GhostList {
    /// The keys. A position has [`ShadowKey::NONE`] if a request used its block again.
    pub(super) keys: Vec<ShadowKey>,
    num_keys: usize,
    /// The first position that each function still keeps.
    first_kept: [u32; FUNCTIONS],
}

impl GhostList {
    /// The minimum number of gaps for packing a list.
    const MIN_GAPS: usize = 64;

    /// Appends the keys that `enters` accepts at their positions. Returns the number of these keys.
    #[inline]
    pub(super) fn append(
        &mut self,
        keys: &[ShadowKey],
        mut enters: impl FnMut(ShadowKey, u32) -> bool,
    ) -> usize {
        let first = self.keys.len();
        let mut len = first;
        self.keys.resize(first + keys.len(), ShadowKey::NONE);
        for &key in keys {
            if enters(key, len as u32) {
                self.keys[len] = key;
                len += 1;
            }
        }
        self.keys.truncate(len);
        self.num_keys += len - first;
        len - first
    }

    /// Removes the keys at some positions. Returns their number, and how many of them each function
    /// would still have.
    #[inline]
    pub(super) fn remove(
        &mut self,
        positions: impl Iterator<Item = u32>,
    ) -> (usize, [u32; FUNCTIONS]) {
        let (keys, first_kept) = (&mut self.keys[..], self.first_kept);
        let is_any_evicted = first_kept != [0; FUNCTIONS];
        let (mut num_removed, mut num_evicted) = (0, [0; FUNCTIONS]);
        for position in positions {
            keys[position as usize] = ShadowKey::NONE;
            num_removed += 1;
            if is_any_evicted {
                for (num, first_kept) in num_evicted.iter_mut().zip(first_kept) {
                    *num += u32::from(position < first_kept);
                }
            }
        }
        self.num_keys -= num_removed as usize;
        (num_removed as usize, num_evicted.map(|num_evicted| num_removed - num_evicted))
    }

    /// Lets a function evict up to `most` keys. Returns the number of evicted keys.
    pub(super) fn evict(&mut self, function: usize, most: usize) -> usize {
        let first_kept = &mut self.first_kept[function];
        let mut num_evicted = 0;
        for &key in &self.keys[*first_kept as usize..] {
            if num_evicted == most {
                break;
            }
            num_evicted += usize::from(key != ShadowKey::NONE);
            *first_kept += 1;
        }
        num_evicted
    }

    /// Returns whether a function has evicted every key.
    pub(super) fn is_all_evicted(&self, function: usize) -> bool {
        self.first_kept[function] as usize == self.keys.len()
    }

    /// Returns whether most positions are gaps.
    #[inline]
    pub(super) fn is_sparse(&self) -> bool {
        self.keys.len() > 2 * self.num_keys + Self::MIN_GAPS
    }

    /// Closes the gaps. Returns the keys with their new positions.
    pub(super) fn pack(&mut self) -> impl Iterator<Item = (u32, ShadowKey)> + '_ {
        for first_kept in &mut self.first_kept {
            let evicted = self.keys[..*first_kept as usize].iter();
            *first_kept = evicted.filter(|&&key| key != ShadowKey::NONE).count() as u32;
        }
        self.keys.retain(|&key| key != ShadowKey::NONE);
        (0..).zip(self.keys.iter().copied())
    }

    /// Returns the keys, and whether each function would still have them.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ShadowKey, [bool; FUNCTIONS])> + '_ {
        let is_kept = |position: u32| self.first_kept.map(|first_kept| position >= first_kept);
        let there = (0..).zip(&self.keys).filter(|&(_, &key)| key != ShadowKey::NONE);
        there.map(move |(position, &key)| (key, is_kept(position)))
    }
}

//! The 32 bits of a key that its block and the prefix index store.

use bytemuck::Zeroable;

use crate::block::{BlockHash, CacheKey, GroupId};

/// Bits of a key's hash, and its group in the lowest bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Zeroable)]
pub struct Fingerprint(pub(crate) u32);

/// The number of bits of a fingerprint that hold the group.
#[derive(Clone, Copy, Debug)]
pub struct KeyLayout {
    group_mask: u32,
}

impl KeyLayout {
    /// Creates the layout for keys of groups below `num_groups`.
    pub fn new(num_groups: usize) -> Self {
        let num_groups = num_groups.clamp(1, usize::from(GroupId::MAX) + 1).next_power_of_two();
        Self { group_mask: (num_groups - 1) as u32 }
    }

    /// Returns a mask of the bits of a fingerprint that hold the group.
    pub(crate) fn group_mask(&self) -> u32 {
        self.group_mask
    }

    /// Returns the number of groups whose keys can be distinguished. It is at least the number of
    /// existing groups.
    pub fn num_groups(&self) -> usize {
        self.group_mask as usize + 1
    }

    /// Returns whether keys of a group have a fingerprint.
    pub(crate) fn has_group(&self, group: GroupId) -> bool {
        u32::from(group) <= self.group_mask
    }

    /// Returns the group of a key.
    pub(crate) fn group_of(&self, fingerprint: Fingerprint) -> GroupId {
        (fingerprint.0 & self.group_mask) as GroupId
    }

    /// Returns the fingerprint of a key.
    pub fn fingerprint_of(&self, key: &CacheKey) -> Fingerprint {
        self.fingerprint(&key.hash, key.group)
    }

    /// Returns the fingerprint of a hash in a group.
    #[inline]
    pub(crate) fn fingerprint(&self, hash: &BlockHash, group: GroupId) -> Fingerprint {
        self.fingerprint_of_bits(Self::bits(hash), group)
    }

    /// Returns the fingerprint of a hash in a group, given the hash's [`Self::bits`].
    #[inline]
    pub(crate) fn fingerprint_of_bits(&self, bits: u32, group: GroupId) -> Fingerprint {
        debug_assert!(self.has_group(group));
        Fingerprint(bits & !self.group_mask | u32::from(group))
    }

    /// Returns the bits that the fingerprints of a hash share in all groups. It mixes all bits of
    /// the hash, since callers of the Python package can use 1, 2, 3 as hashes.
    #[inline]
    pub fn bits(&BlockHash([a, b, c, d]): &BlockHash) -> u32 {
        let left = a ^ c.rotate_left(23) ^ 0x243f_6a88_85a3_08d3;
        let right = b ^ d.rotate_left(41) ^ 0x1319_8a2e_0370_7344;
        (folded_multiply(left, right) >> 32) as u32
    }
}

fn folded_multiply(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_tells_its_group() {
        for num_groups in [1, 2, 6, 300, 1 << 16] {
            let layout = KeyLayout::new(num_groups);
            for group in [0, num_groups / 2, num_groups - 1] {
                let group = group as GroupId;
                assert!(layout.has_group(group));
                let fingerprint = layout.fingerprint(&BlockHash([7, 0, 0, 0]), group);
                assert_eq!(layout.group_of(fingerprint), group);
            }
        }
        assert!(!KeyLayout::new(6).has_group(8));
    }
}

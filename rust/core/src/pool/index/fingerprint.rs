//! How a key becomes the 32 bits by which the index finds it.

use bytemuck::Zeroable;

use crate::block::{BlockHash, CacheKey, GroupId};

/// Slots of the index on a cache line.
pub const LINE_LEN: usize = 8;

/// Two keys of a hash on a line, where lines are rarely full.
const FREE_LINES: u32 = 1;

/// What a slot of the index holds of a key: bits of its hash, and below them its group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Zeroable)]
pub struct Fingerprint(pub(crate) u32);

impl Fingerprint {
    /// The slot on its line that the key likes best: another one for each of a few groups.
    #[inline]
    pub fn slot(self) -> usize {
        self.0 as usize % LINE_LEN
    }
}

/// How many bits of a fingerprint tell the group.
///
/// The keys of one hash in several groups are inserted, looked up and evicted together, so they
/// belong to one line of the index.
#[derive(Clone, Copy, Debug)]
pub struct KeyLayout {
    group_mask: u32,
    /// Keys of one hash that belong to one line, as a power of two: few, so that several hashes can
    /// share it.
    line_shift: u32,
}

impl KeyLayout {
    /// The layout for keys of groups below `num_groups`.
    pub fn new(num_groups: usize) -> Self {
        let num_groups = num_groups.clamp(1, usize::from(GroupId::MAX) + 1).next_power_of_two();
        Self { group_mask: (num_groups - 1) as u32, line_shift: FREE_LINES }
    }

    /// The same for a table that is nearly full: one key of a hash on a line, so that lines fill
    /// evenly and few overflow.
    pub fn crowded(self) -> Self {
        Self { line_shift: 0, ..self }
    }

    /// Whether it is for a table that is nearly full.
    pub fn is_crowded(&self) -> bool {
        self.line_shift < FREE_LINES
    }

    /// Groups whose keys can be told apart: at least as many as there are.
    pub fn num_groups(&self) -> usize {
        self.group_mask as usize + 1
    }

    /// Whether keys of a group have a fingerprint.
    pub fn has_group(&self, group: GroupId) -> bool {
        u32::from(group) <= self.group_mask
    }

    /// The group of a key.
    pub fn group_of(&self, fingerprint: Fingerprint) -> GroupId {
        (fingerprint.0 & self.group_mask) as GroupId
    }

    /// The fingerprint of a key.
    pub fn fingerprint_of(&self, key: &CacheKey) -> Fingerprint {
        self.fingerprint(&key.hash, key.group)
    }

    /// The fingerprint of a hash in a group.
    #[inline]
    pub fn fingerprint(&self, hash: &BlockHash, group: GroupId) -> Fingerprint {
        self.fingerprint_of_bits(Self::bits(hash), group)
    }

    /// As [`Self::fingerprint`], of a hash with these [`Self::bits`].
    #[inline]
    pub fn fingerprint_of_bits(&self, bits: u32, group: GroupId) -> Fingerprint {
        debug_assert!(self.has_group(group));
        Fingerprint(bits & !self.group_mask | u32::from(group))
    }

    /// What the fingerprints of a hash have in common. Mixes all bits, since hashes may also come
    /// from a caller who counts 1, 2, 3.
    #[inline]
    pub fn bits(&BlockHash([a, b, c, d]): &BlockHash) -> u32 {
        let left = a ^ c.rotate_left(23) ^ 0x243f_6a88_85a3_08d3;
        let right = b ^ d.rotate_left(41) ^ 0x1319_8a2e_0370_7344;
        (folded_multiply(left, right) >> 32) as u32
    }

    /// The line that a key belongs to, in a table of so many and [`Self::more_lines`].
    #[inline]
    pub fn line(&self, Fingerprint(bits): Fingerprint, num_lines: usize) -> usize {
        let first = ((u64::from(bits & !self.group_mask) * num_lines as u64) >> 32) as usize;
        first + ((bits & self.group_mask) >> self.line_shift) as usize
    }

    /// Where a key goes on if its line is full: as [`Self::line`], any other line of the table.
    pub fn second_line(&self, Fingerprint(bits): Fingerprint, num_lines: usize) -> usize {
        let mixed = (bits & !self.group_mask).wrapping_mul(0x9e37_79b1) & !self.group_mask;
        self.line(Fingerprint(mixed | bits & self.group_mask), num_lines)
    }

    /// Lines at the end of a table for the groups that do not fit on the last one.
    pub fn more_lines(&self) -> usize {
        (self.group_mask >> self.line_shift) as usize
    }
}

fn folded_multiply(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(n: u64) -> BlockHash {
        BlockHash([n, 0, 0, 0])
    }

    #[test]
    fn a_fingerprint_tells_its_group() {
        for num_groups in [1, 2, 6, 300, 1 << 16] {
            let layout = KeyLayout::new(num_groups);
            for group in [0, num_groups / 2, num_groups - 1] {
                let group = group as GroupId;
                assert!(layout.has_group(group));
                assert_eq!(layout.group_of(layout.fingerprint(&hash(7), group)), group);
            }
        }
        assert!(!KeyLayout::new(6).has_group(8));
    }

    #[test]
    fn the_groups_of_one_hash_share_lines_and_hashes_are_all_over_the_table() {
        let layout = KeyLayout::new(6);
        let mut seen = [false; 100];
        for n in 0..5000 {
            let fingerprints = [0, 1, 2, 5].map(|group| layout.fingerprint(&hash(n), group));
            let lines = fingerprints.map(|fingerprint| layout.line(fingerprint, 99));
            assert_eq!(lines, [0, 0, 1, 2].map(|later| lines[0] + later));
            assert_eq!(fingerprints.map(Fingerprint::slot), [0, 1, 2, 5]);
            seen[lines[0]] = true;
            seen[lines[2]] = true;
        }
        assert_eq!(seen, [true; 100]);
    }

    #[test]
    fn one_group_uses_every_slot() {
        let layout = KeyLayout::new(1);
        let slots: std::collections::HashSet<_> =
            (0..100).map(|n| layout.fingerprint(&hash(n), 0).slot()).collect();
        assert_eq!(slots.len(), LINE_LEN);
    }

    #[test]
    fn more_groups_than_slots_go_on_to_the_next_lines() {
        let layout = KeyLayout::new(20);
        let line = |group, num_lines| layout.line(layout.fingerprint(&hash(1), group), num_lines);
        assert_eq!(line(8, 800), line(7, 800) + 1);
        assert_eq!(line(1, 800), line(0, 800));
        assert!((0..20).all(|group| line(group, 2) < 2 + layout.more_lines()));
    }
}

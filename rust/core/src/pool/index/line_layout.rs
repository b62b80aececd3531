//! Determines where in the hash table a key belongs.
//!
//! The keys of one hash in several groups are inserted, looked up and evicted together. So they
//! belong to one line, or to neighbouring lines.

use crate::pool::blocks::{Fingerprint, KeyLayout};

/// The number of slots on a line.
pub(super) const LINE_LEN: usize = 8;

/// log2 of the number of groups whose keys of one hash share a line, if lines are rarely full. It
/// is small, so that several hashes fit on a line.
const SHIFT: u32 = 1;

/// The line where the table looks for a key first. It is valid until the table grows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Home {
    pub(super) fingerprint: Fingerprint,
    pub(super) line: u32,
}

/// The lines of a hash table.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineLayout {
    group_mask: u32,
    shift: u32,
    /// The number of lines to which a key of the first group can belong. More lines follow, for
    /// groups that do not fit on the last one.
    num_homes: usize,
}

impl LineLayout {
    /// Creates the layout for up to `capacity` distinct keys.
    pub(super) fn new(keys: KeyLayout, capacity: usize) -> Self {
        // Small tables have eight slots per key, so that hardly any line is full. Large tables have
        // two: with 1.4, most of the time was spent on full lines.
        let (num_slots, shift) = match capacity {
            0..Self::LARGE => ((capacity + 1) * LINE_LEN, SHIFT),
            _ => (capacity * 2 + LINE_LEN, 0),
        };
        Self { group_mask: keys.group_mask(), shift, num_homes: num_slots.div_ceil(LINE_LEN) }
    }

    /// The capacity from which a table is dense. Then each group's key of a hash has its own line,
    /// so that lines fill evenly and few overflow.
    pub(super) const LARGE: usize = 1 << 20;

    /// Returns whether lines are often full.
    pub(super) fn is_dense(&self) -> bool {
        self.shift < SHIFT
    }

    pub(super) fn num_lines(&self) -> usize {
        self.num_homes + (self.group_mask >> self.shift) as usize
    }

    /// Returns the line to which a key belongs.
    #[inline]
    pub(super) fn home(&self, Fingerprint(bits): Fingerprint) -> usize {
        let hash = u64::from(bits & !self.group_mask);
        let first = ((hash * self.num_homes as u64) >> 32) as usize;
        first + ((bits & self.group_mask) >> self.shift) as usize
    }

    /// Returns the line where the search for a key continues if its home is full.
    pub(super) fn second(&self, Fingerprint(bits): Fingerprint) -> usize {
        let mixed = (bits & !self.group_mask).wrapping_mul(0x9e37_79b1) & !self.group_mask;
        self.home(Fingerprint(mixed | bits & self.group_mask))
    }
}

/// Returns the slot on a line where a key is looked for first. Up to eight groups have different
/// slots.
#[inline]
pub(super) fn home_slot(Fingerprint(bits): Fingerprint) -> usize {
    bits as usize % LINE_LEN
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::BlockHash;

    fn hash(n: u64) -> BlockHash {
        BlockHash([n, 0, 0, 0])
    }

    #[test]
    fn the_groups_of_one_hash_share_lines_and_hashes_are_all_over_the_table() {
        let keys = KeyLayout::new(6);
        let layout = LineLayout { num_homes: 99, ..LineLayout::new(keys, 0) };
        let mut seen = [false; 100];
        for n in 0..5000 {
            let fingerprints = [0, 1, 2, 5].map(|group| keys.fingerprint(&hash(n), group));
            let lines = fingerprints.map(|fingerprint| layout.home(fingerprint));
            assert_eq!(lines, [0, 0, 1, 2].map(|later| lines[0] + later));
            assert_eq!(fingerprints.map(home_slot), [0, 1, 2, 5]);
            seen[lines[0]] = true;
            seen[lines[2]] = true;
        }
        assert_eq!(seen, [true; 100]);
    }

    #[test]
    fn one_group_uses_every_slot() {
        let keys = KeyLayout::new(1);
        let slots: std::collections::HashSet<_> =
            (0..100).map(|n| home_slot(keys.fingerprint(&hash(n), 0))).collect();
        assert_eq!(slots.len(), LINE_LEN);
    }

    #[test]
    fn more_groups_than_slots_go_on_to_the_next_lines() {
        let keys = KeyLayout::new(20);
        let layout = |num_homes| LineLayout { num_homes, ..LineLayout::new(keys, 0) };
        let line = |group, num_homes| layout(num_homes).home(keys.fingerprint(&hash(1), group));
        assert_eq!(line(8, 800), line(7, 800) + 1);
        assert_eq!(line(1, 800), line(0, 800));
        assert!((0..20).all(|group| line(group, 2) < layout(2).num_lines()));
    }
}

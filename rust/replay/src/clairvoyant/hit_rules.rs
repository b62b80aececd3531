//! The rules for hits: which prefixes can be hit, and how many blocks they take while they are not
//! in use.

use kvoxide_core::group::{Group, Skipped};
use kvoxide_core::{Manager, Size};

use super::tables::{Table, tables};

/// The rules for hits in a manager's groups. Sizes are in tokens.
#[derive(Clone, Debug)]
pub struct HitRules {
    /// The unit in which prefixes are counted: the smallest part of a prefix that can be hit.
    pub unit: usize,
    /// The length of a hit is a multiple of this many tokens, which is a multiple of the unit.
    pub alignment: usize,
    /// Whether a hit needs a state at its end.
    pub needs_state: bool,
    /// Whether the worker exports states from inside a chunk.
    pub exports_states: bool,
    /// Whether any group caches blocks.
    pub is_cacheable: bool,
    /// The cost of cached prefixes; `None` if no group needs whole prefixes.
    pub cost: Option<Cost>,
    /// The chunk and block size of each group, in models that cache only chunked groups. There,
    /// tokens before the chunk of the next token count as hit, cached or not.
    chunks: Vec<(Skipped, usize)>,
}

/// The cost of cached prefixes, in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    units_per_block: usize,
    num_groups: usize,
}

impl HitRules {
    /// Returns the rules of a manager's groups.
    pub fn of(manager: &Manager) -> Self {
        let cacheable = || manager.groups().iter().filter(|group| group.is_cacheable);
        let exports = |group: &Group| {
            group.spec.size(Size::NumPrefillCheckpointBlocks).is_some_and(|num| num > 0)
        };
        let hash_block_size = manager.hash_block_size();
        let costly = costly_block_size(&tables(manager));
        let unit = match costly {
            Some((block_size, _)) if !manager.has_partial_hits() => block_size,
            _ => hash_block_size,
        };
        let has_chunks_only =
            cacheable().all(|group| matches!(group.skips, Skipped::BeforeChunk(_)));
        let chunks = cacheable().filter(|_| has_chunks_only);
        Self {
            unit,
            alignment: manager.hit_alignment(),
            needs_state: cacheable().any(|group| group.is_state),
            exports_states: cacheable().any(exports),
            is_cacheable: cacheable().next().is_some(),
            cost: costly.map(|(block_size, num_groups)| Cost {
                units_per_block: block_size / unit,
                num_groups,
            }),
            chunks: chunks.map(|group| (group.skips, group.block_size)).collect(),
        }
    }

    /// Returns how many tokens of a prompt count as hit although nothing is cached.
    pub fn num_free_tokens(&self, max_length: usize) -> usize {
        let skipped = |&(skips, block_size): &(Skipped, usize)| {
            skips.num_skipped_tokens(max_length) / block_size * block_size
        };
        self.chunks.iter().map(skipped).max().unwrap_or(0)
    }
}

impl Cost {
    /// Returns the most units of prefixes that fit into `num_blocks` blocks.
    pub fn num_units(self, num_blocks: usize) -> usize {
        num_blocks * self.units_per_block / self.num_groups
    }
}

/// Returns the block size and the number of the groups that need whole prefixes. If they have
/// several block sizes, only the groups with most blocks per token count. The others are assumed to
/// cost nothing.
fn costly_block_size(tables: &[Table]) -> Option<(usize, usize)> {
    let closed = || tables.iter().filter(|table| table.holds_prefixes());
    let num_groups = |block_size: usize| -> usize {
        closed().filter(|table| table.block_size == block_size).map(|table| table.num_groups).sum()
    };
    let sizes = closed().map(|table| (table.block_size, num_groups(table.block_size)));
    // This compares blocks per token without fractions.
    sizes.max_by(|a, b| (a.1 * b.0).cmp(&(b.1 * a.0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvoxide_core::{GroupSpec, ManagerConfig};

    fn rules(groups: &[GroupSpec]) -> HitRules {
        let config = ManagerConfig::new(100, groups.to_vec(), 1 << 20);
        HitRules::of(&Manager::new(config).expect("a manager"))
    }

    #[test]
    fn hits_end_where_all_groups_have_a_block() {
        let rules = rules(&[GroupSpec::full(32), GroupSpec::sliding_window(48, 100)]);
        assert_eq!((rules.unit, rules.alignment), (32, 96));
        assert_eq!(rules.cost.map(|cost| cost.num_units(7)), Some(7));
    }

    #[test]
    fn hits_inside_blocks_have_smaller_units() {
        let rules = rules(&[GroupSpec::full(32), GroupSpec::new("mamba", 48)]);
        assert_eq!((rules.unit, rules.alignment), (16, 16));
        assert!(rules.needs_state);
        assert_eq!(rules.cost.map(|cost| cost.num_units(7)), Some(14));
    }

    #[test]
    fn the_groups_that_need_most_blocks_count() {
        let full = GroupSpec::full;
        assert_eq!(rules(&[full(64), full(16)]).unit, 16);
        let three = rules(&[full(32), full(16), full(32), full(32)]);
        assert_eq!((three.unit, three.cost.map(|cost| cost.num_units(7))), (32, Some(2)));
    }

    #[test]
    fn windows_alone_cost_nothing() {
        let rules = rules(&[GroupSpec::sliding_window(16, 40), GroupSpec::chunked_local(16, 64)]);
        assert_eq!((rules.cost, rules.num_free_tokens(1000)), (None, 0));
    }

    #[test]
    fn chunks_alone_skip_what_is_not_cached() {
        assert_eq!(rules(&[GroupSpec::chunked_local(16, 64)]).num_free_tokens(150), 128);
    }
}

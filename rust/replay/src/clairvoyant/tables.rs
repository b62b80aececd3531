//! Computes the fewest blocks that a running request holds under any policy.

use std::ops::Range;

use kvoxide_core::group::{Group, Skipped};
use kvoxide_core::{Manager, Size};

/// The block tables of equal groups. Sizes are in tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Tokens per block.
    pub block_size: usize,
    shape: Shape,
    /// Whether requests share the blocks of equal prefixes.
    is_shared: bool,
    /// The number of groups.
    pub num_groups: usize,
}

/// The blocks that a table has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// All blocks.
    Whole,
    /// The blocks of the prompt, and at least one block after them.
    Prompt,
    /// The blocks that are not skipped.
    Tail(Skipped),
    /// A fixed number of blocks that are never shared.
    Fixed(usize),
}

/// Blocks of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Positions whose blocks are shared between requests with the same prefix.
    pub shared: Range<usize>,
    /// The number of blocks that cannot be shared.
    pub num_own: usize,
}

/// The progress of a request, in tokens.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// The number of tokens with slots.
    pub num_tokens: usize,
    /// The most tokens that can have slots.
    pub at_most: usize,
    /// The number of tokens in the prompt.
    pub num_prompt_tokens: usize,
    /// The number of prompt and output tokens that the trace knows. Other requests can share these.
    pub num_known_tokens: usize,
}

/// Returns the tables of a manager's groups.
pub fn tables(manager: &Manager) -> Vec<Table> {
    let mut tables: Vec<Table> = Vec::new();
    for table in manager.groups().iter().filter_map(Table::of) {
        let is_equal = |other: &&mut Table| Table { num_groups: 1, ..(**other).clone() } == table;
        match tables.iter_mut().find(is_equal) {
            Some(equal) => equal.num_groups += 1,
            None => tables.push(table),
        }
    }
    tables
}

impl Table {
    fn of(group: &Group) -> Option<Self> {
        let is_fixed = group.is_state || !group.starts_with_hit && group.covers_tokens;
        let shape = match group.skips {
            _ if is_fixed => Shape::Fixed(group.kind().num_blocks_at_end(group.block_size, 1)),
            _ if !group.starts_with_hit => return None,
            Skipped::Nothing if group.spec.size(Size::RswaWindow).is_some() => Shape::Prompt,
            Skipped::Nothing => Shape::Whole,
            Skipped::BeforeWindow(size) => {
                Shape::Tail(Skipped::BeforeWindow(size - extra_retained(group)))
            }
            skips @ Skipped::BeforeChunk(_) => Shape::Tail(skips),
        };
        let (block_size, is_shared) = (group.block_size, group.is_cacheable);
        Some(Self { block_size, shape, is_shared, num_groups: 1 })
    }

    /// Returns whether a hit needs all blocks of its prefix.
    pub fn holds_prefixes(&self) -> bool {
        self.is_shared && matches!(self.shape, Shape::Whole | Shape::Prompt)
    }

    /// Returns the fewest blocks that a request holds.
    pub fn held(&self, progress: Progress) -> Held {
        let Progress { num_tokens, at_most, num_prompt_tokens, num_known_tokens } = progress;
        let size = self.block_size;
        let end = num_tokens.div_ceil(size);
        let start = match self.shape {
            Shape::Fixed(num_own) => return Held { shared: 0..0, num_own },
            Shape::Whole | Shape::Prompt => 0,
            Shape::Tail(head) => (head.num_skipped_tokens(at_most) / size).min(end),
        };
        let num_sharable = match self.shape {
            Shape::Prompt => num_prompt_tokens.min(num_known_tokens),
            _ => num_known_tokens,
        };
        let num_shared = if self.is_shared { num_tokens.min(num_sharable) / size } else { 0 };
        let shared = start..num_shared.max(start);
        let num_own = match self.shape {
            Shape::Prompt => (end - shared.end).min(1),
            _ => end - shared.end,
        };
        Held { shared, num_own }
    }
}

/// Returns the number of tokens that a window retains before its reach. Only the request that
/// computed them holds them.
fn extra_retained(group: &Group) -> usize {
    group.spec.size(Size::ExtraRetainedTokens).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvoxide_core::{GroupSpec, ManagerConfig};

    fn tables_of(groups: &[GroupSpec]) -> Vec<Table> {
        let config = ManagerConfig::new(100, groups.to_vec(), 1 << 20);
        tables(&Manager::new(config).expect("a manager"))
    }

    fn held(table: &Table, num_tokens: usize, at_most: usize, num_prompt_tokens: usize) -> Held {
        let num_known_tokens = num_prompt_tokens;
        table.held(Progress { num_tokens, at_most, num_prompt_tokens, num_known_tokens })
    }

    #[test]
    fn equal_groups_have_one_table() {
        let window = GroupSpec::sliding_window(16, 40);
        let found = tables_of(&[GroupSpec::full(16), window.clone(), window]);
        assert_eq!(found.iter().map(|table| table.num_groups).collect::<Vec<_>>(), [1, 2]);
        assert!(found[0].holds_prefixes() && !found[1].holds_prefixes());
    }

    #[test]
    fn full_blocks_of_the_prompt_are_shared() {
        let full = &tables_of(&[GroupSpec::full(16)])[0];
        assert_eq!(held(full, 40, 40, 100), Held { shared: 0..2, num_own: 1 });
        assert_eq!(held(full, 96, 96, 100), Held { shared: 0..6, num_own: 0 });
        // The block in which the prompt ends, and the blocks after it, are not shared.
        assert_eq!(held(full, 120, 128, 100), Held { shared: 0..6, num_own: 2 });
    }

    #[test]
    fn a_window_moves() {
        let window = &tables_of(&[GroupSpec::sliding_window(16, 33)])[0];
        assert_eq!(held(window, 32, 32, 200), Held { shared: 0..2, num_own: 0 });
        assert_eq!(held(window, 100, 100, 200), Held { shared: 4..6, num_own: 1 });
        assert_eq!(held(window, 240, 240, 200), Held { shared: 13..13, num_own: 2 });
        // Up to 256 tokens can have slots, so the window can start that late.
        assert_eq!(held(window, 241, 256, 200), Held { shared: 14..14, num_own: 2 });
    }

    #[test]
    fn tokens_that_a_window_retains_beyond_its_reach_do_not_count() {
        let window = GroupSpec::sliding_window(16, 33).with(Size::ExtraRetainedTokens, 32);
        let window = &tables_of(&[window])[0];
        assert_eq!(held(window, 100, 100, 200), Held { shared: 4..6, num_own: 1 });
    }

    #[test]
    fn a_state_is_not_shared() {
        let found = tables_of(&[GroupSpec::full(16), GroupSpec::new("mamba", 16)]);
        assert_eq!(held(&found[1], 100, 112, 90), Held { shared: 0..0, num_own: 1 });
    }

    #[test]
    fn r_swa_keeps_the_prompt() {
        let groups = [GroupSpec::new("rswa", 16).with(Size::RswaWindow, 32)];
        let found = tables_of(&groups);
        assert!(found[0].holds_prefixes());
        assert_eq!(held(&found[0], 500, 512, 64), Held { shared: 0..4, num_own: 1 });
    }
}

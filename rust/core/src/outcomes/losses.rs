//! The reasons why computed tokens were not hit.

#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

use super::hit_rules::HitRules;
use crate::block::GroupId;

/// Prompt tokens that had been computed before and were not hit, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct Losses {
    /// The number of tokens in evicted blocks of full attention, or after such a block.
    pub evicted_full: usize,
    /// The number of tokens whose full-attention blocks are cached, but whose tail was cached and
    /// then evicted.
    pub evicted_tail: usize,
    /// The number of tokens that no hit could have reached, because no tail after them was ever
    /// cached.
    pub never_cached: usize,
}

impl Losses {
    /// Returns the sum of all reasons.
    pub fn num_tokens(&self) -> usize {
        self.evicted_full + self.evicted_tail + self.never_cached
    }
}

/// Returns the losses of a prompt between its hit, of `hit` tokens, and the last end of a hit.
///
/// The look-up starts with `longest` tokens, and all of them were computed: see [`HitRules::longest`].
/// The blocks of full attention are cached for a look-up that starts with `present` tokens; `None`
/// if no group needs the whole prefix. `was_cached` returns whether a group ever had a block or
/// state at the end of a prefix of this many tokens.
pub fn losses(
    rules: &HitRules,
    hit: usize,
    longest: usize,
    present: Option<usize>,
    mut was_cached: impl FnMut(GroupId, usize) -> bool,
) -> Losses {
    let last_end = rules.last_end(longest);
    if last_end <= hit {
        return Losses::default();
    }
    let cached_full = rules.furthest(hit, last_end, |end| {
        if rules.had_full(end, &mut was_cached) { Ok(()) } else { Err(end - 1) }
    });
    let present = present.map_or(longest, |present| present.min(longest));
    let present_full = rules.last_end(present).max(hit).min(cached_full);
    let cached_tail =
        rules.furthest(hit, present_full, |end| rules.check_tails(end, present, &mut was_cached));
    Losses {
        evicted_full: cached_full - present_full,
        evicted_tail: cached_tail - hit,
        never_cached: present_full - cached_tail + last_end - cached_full,
    }
}

//! Says where hits of a model can end, and what a hit needs in each group.

use super::tail_rule::TailRule;
use crate::block::GroupId;
use crate::group::Group;
use crate::lookup::SpecGroup;
use crate::retention::CacheRules;

/// The rules of a model's hits: where hits can end, and what a hit needs in each group. Lengths are
/// in tokens.
#[derive(Clone, Debug)]
pub struct HitRules {
    pub(super) hash_block_size: usize,
    /// The length of a hit is a multiple of this many tokens.
    pub(super) alignment: usize,
    /// The groups with prefix caching, by spec.
    pub(super) specs: Vec<SpecRules>,
    /// Whether a look-up can match tokens after the longest hit, which EAGLE then drops.
    matches_past_hit: bool,
}

/// The rules of groups that are looked up together.
#[derive(Clone, Debug)]
pub(super) struct SpecRules {
    pub(super) groups: Vec<GroupId>,
    pub(super) block_size: usize,
    /// The tokens per step in which the matched part of a prompt grows: a block, or a hash block if
    /// hits can end inside a block.
    pub(super) unit: usize,
    /// The number of matched tokens that a hit drops.
    num_dropped: usize,
    /// The tail that a hit needs; `None` if it needs the whole prefix.
    tail: Option<TailRule>,
}

impl SpecRules {
    /// Returns whether a hit needs the whole prefix.
    pub(super) fn is_full(&self) -> bool {
        self.tail.is_none()
    }

    /// Returns whether the groups can cache a prefix of `end` tokens. Prompts end inside blocks of
    /// full attention and inside blocks of states.
    pub(super) fn can_cache(&self, end: usize) -> bool {
        matches!(self.tail, None | Some(TailRule::State)) || end.is_multiple_of(self.block_size)
    }
}

impl HitRules {
    /// Returns the rules of groups that are looked up as `spec_groups`.
    pub(crate) fn new(
        spec_groups: &[SpecGroup],
        groups: &[Group],
        rules: &CacheRules,
        alignment: usize,
    ) -> Self {
        let is_searched_again = match spec_groups {
            [first, _] => !first.is_prefix_closed,
            _ => spec_groups.len() > 1,
        };
        let spec = |spec: &SpecGroup| {
            let group = &groups[usize::from(spec.groups[0])];
            let block_size = spec.block_size;
            let is_divided = alignment < block_size && block_size.is_multiple_of(alignment);
            SpecRules {
                groups: spec.groups.clone(),
                block_size,
                unit: if is_divided { alignment } else { block_size },
                num_dropped: match spec.drops_eagle_block && !group.is_state {
                    true => alignment.min(block_size),
                    false => 0,
                },
                tail: (!spec.is_prefix_closed).then(|| TailRule::of(group, is_searched_again)),
            }
        };
        let is_cacheable =
            |spec: &&SpecGroup| spec.groups.iter().any(|&id| groups[usize::from(id)].is_cacheable);
        Self {
            hash_block_size: rules.hash_block_size,
            alignment,
            specs: spec_groups.iter().filter(is_cacheable).map(spec).collect(),
            matches_past_hit: rules.is_hybrid && !rules.older.bounds_proofs_by_hit,
        }
    }

    /// Returns whether the model has prefix caching at all.
    pub fn can_hit(&self) -> bool {
        !self.specs.is_empty()
    }

    /// Returns the distance of the places in a prompt at which keys end: the block size of groups
    /// that need the whole prefix, or the step of hits without such groups.
    pub fn key_distance(&self) -> usize {
        let full = self.specs.iter().filter(|spec| spec.is_full());
        full.map(|spec| spec.unit).min().unwrap_or(self.alignment)
    }

    /// Returns whether any group needs the whole prefix.
    pub fn has_full(&self) -> bool {
        self.specs.iter().any(SpecRules::is_full)
    }

    /// Returns how long the hit of a prompt can be if everything is cached that was computed before:
    /// the first `computed` tokens. The hit is at most `max_length` tokens long. It can be shorter:
    /// see [`Self::last_end`].
    pub fn longest(&self, computed: usize, max_length: usize) -> usize {
        let ends = self.specs.iter().map(|spec| self.end_in(spec, computed, max_length));
        ends.min().unwrap_or(0)
    }

    /// Returns where the last hit ends if every tail is cached, for a look-up that starts with
    /// `longest` tokens.
    pub(super) fn last_end(&self, longest: usize) -> usize {
        self.furthest(0, longest, |end| self.check_tails(end, longest, &mut |_, _| true))
    }

    /// Returns the end of the last hit for which the groups of a spec match `matched` tokens.
    pub(super) fn end_in(&self, spec: &SpecRules, matched: usize, max_length: usize) -> usize {
        let past_hit = if self.matches_past_hit { spec.num_dropped } else { 0 };
        let matched = matched.min(max_length.saturating_add(past_hit));
        let matched = matched - matched % spec.unit;
        let end = matched.saturating_sub(spec.num_dropped).min(max_length);
        end - end % self.alignment
    }

    /// Returns whether the groups that need the whole prefix ever had the blocks of a hit of `end`
    /// tokens. All of them were computed. Only the end of the hit is checked. It is cached if it
    /// ends a block. `was_cached` returns whether a group ever had a prefix that ends inside a block.
    pub(super) fn had_full(
        &self,
        end: usize,
        was_cached: &mut impl FnMut(GroupId, usize) -> bool,
    ) -> bool {
        self.specs.iter().filter(|spec| spec.is_full()).all(|spec| {
            let matched = end + spec.num_dropped;
            matched.is_multiple_of(spec.block_size)
                || spec.groups.iter().all(|&group| was_cached(group, matched))
        })
    }

    /// Checks that all tails of a hit of `end` tokens were cached, for a look-up that starts with
    /// `longest` tokens. If something is missing, returns the longest shorter hit that does not
    /// need it.
    pub(super) fn check_tails(
        &self,
        end: usize,
        longest: usize,
        was_cached: &mut impl FnMut(GroupId, usize) -> bool,
    ) -> Result<(), usize> {
        for spec in &self.specs {
            let Some(tail) = spec.tail else { continue };
            let num_past = tail.num_past(spec.block_size, end, self.alignment);
            if end + num_past > longest {
                return Err(end - 1);
            }
            for &group in &spec.groups {
                tail.check(spec.block_size, (end, num_past), |end| was_cached(group, end))?;
            }
        }
        Ok(())
    }

    /// Returns the longest hit, of at most `most` and more than `least` tokens, for which `check`
    /// succeeds; `least` if there is none. An error of `check` is an upper limit of shorter hits.
    pub(super) fn furthest(
        &self,
        least: usize,
        most: usize,
        mut check: impl FnMut(usize) -> Result<(), usize>,
    ) -> usize {
        let mut end = most - most % self.alignment;
        while end > least {
            match check(end) {
                Ok(()) => return end,
                Err(limit) => {
                    let next = limit.min(end - 1);
                    end = next - next % self.alignment;
                }
            }
        }
        least
    }
}

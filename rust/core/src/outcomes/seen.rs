//! Finds out how much of a prompt was computed before.

use std::ops::Range;

use super::hit_rules::{HitRules, SpecRules};
use crate::block::{CacheKey, GroupId};
use crate::pool::BlockPool;
use crate::request::HashSource;

/// The number of unknown blocks in a row after which the rest of a prompt counts as unknown. The
/// memory can have forgotten some blocks of a chain and still remember later ones.
pub const MAX_GAP: usize = 8;

/// The most places inside a block at which keys are asked for. Windows have keys there, but a hit
/// that ends there does not exist. So only the length of `below_block` is rounded down.
const MAX_INSIDE: usize = 16;

/// The number of loaded blocks of a prompt for which times since their evictions are measured. More
/// would take longer than the rest of the look-up.
const MAX_LOADED: usize = 1024;

/// The keys of a prompt: which are cached, and which are remembered as evicted.
pub(super) struct PromptKeys<'a> {
    pub(super) pool: &'a mut BlockPool,
    pub(super) hashes: &'a dyn HashSource,
    pub(super) hash_block_size: usize,
    /// The number of tokens in full hash blocks of the prompt.
    pub(super) num_hashed: usize,
}

/// Returns the distance of the places inside a block at which keys of other groups are asked for.
fn step_inside(block_size: usize, hash_block_size: usize) -> usize {
    (block_size / hash_block_size).div_ceil(MAX_INSIDE) * hash_block_size
}

/// The part of a prompt that was computed before, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// The longest prefix that has a known key.
    pub(super) num_tokens: usize,
    /// The length with which a look-up starts in the other groups, because all blocks of full
    /// attention are cached; `None` if no group needs the whole prefix.
    pub(super) present: Option<usize>,
}

impl PromptKeys<'_> {
    /// Returns whether a group has a prefix of this many tokens.
    pub(super) fn is_cached(&self, group: GroupId, num_tokens: usize) -> bool {
        self.key(group, num_tokens).is_some_and(|key| self.pool.find(&key).is_some())
    }

    /// Asks for a prefix of this many tokens. Returns whether a group has it, or had it and it was
    /// evicted. The evicted key then counts as asked for.
    pub(super) fn ask(&mut self, group: GroupId, num_tokens: usize) -> bool {
        let Some(key) = self.key(group, num_tokens) else { return false };
        self.pool.find(&key).is_some() || self.pool.index_mut().ask_for_evicted(&key)
    }

    fn key(&self, group: GroupId, num_tokens: usize) -> Option<CacheKey> {
        let is_hashed = num_tokens.is_multiple_of(self.hash_block_size);
        let index = (num_tokens / self.hash_block_size).checked_sub(1).filter(|_| is_hashed)?;
        if index >= self.hashes.len() {
            return None;
        }
        // A hash that cannot be read belongs to no key.
        Some(CacheKey { hash: self.hashes.get(index).ok()?, group })
    }

    /// Returns the part of the prompt that was computed before. The first `local` tokens were
    /// hit. With the tokens of a connector, these are `hit` tokens. A hit is at most `max_length`
    /// tokens long.
    pub(super) fn seen(
        &mut self,
        rules: &HitRules,
        (local, hit): (usize, usize),
        max_length: usize,
    ) -> Seen {
        if !rules.has_full() {
            return Seen { num_tokens: self.last_known(rules, hit), present: None };
        }
        let (mut num_tokens, mut present) = (hit, usize::MAX);
        for spec in rules.specs.iter().filter(|spec| spec.is_full()) {
            let (cached, known) = self.full_prefix(rules, spec, (local, hit));
            num_tokens = num_tokens.max(known);
            present = present.min(rules.end_in(spec, cached, max_length));
        }
        Seen { num_tokens, present: Some(present) }
    }

    /// Returns how many tokens are cached in all groups of a spec, and how many are known in any
    /// group.
    fn full_prefix(
        &mut self,
        rules: &HitRules,
        spec: &SpecRules,
        (local, hit): (usize, usize),
    ) -> (usize, usize) {
        let num_blocks = self.num_hashed / spec.block_size;
        let end = |block: usize| (block + 1) * spec.block_size;
        let is_cached =
            |&block: &usize| spec.groups.iter().all(|&group| self.is_cached(group, end(block)));
        // Cached blocks after a gap serve no hit, even if a connector fills the gap.
        let cached = local / spec.block_size;
        let cached = cached + (cached..num_blocks).take_while(is_cached).count();
        let mut known = cached.max(hit / spec.block_size);
        // A block that a connector loads again was evicted, and is asked for.
        for block in (cached..known.min(num_blocks)).take(MAX_LOADED) {
            self.ask_in(spec, end(block));
        }
        self.prefetch(rules, spec, known..num_blocks.min(known + MAX_GAP + 1));
        let mut block = known;
        while block < num_blocks && block - known <= MAX_GAP {
            if self.ask_in(spec, end(block)) || self.ask_in_any(rules, end(block)) {
                known = block + 1;
            }
            block += 1;
        }
        let (mut cached, mut known) = (cached * spec.block_size, known * spec.block_size);
        let inside = |start: usize, step| (start + step..start + spec.block_size).step_by(step);
        if spec.unit < spec.block_size {
            let in_all = |&end: &usize| spec.groups.iter().all(|&group| self.is_cached(group, end));
            cached = inside(cached, spec.unit).rev().find(in_all).unwrap_or(cached);
        }
        let in_any = |&end: &usize| self.ask_in_any(rules, end);
        let step = match spec.unit < spec.block_size {
            true => rules.hash_block_size,
            false => step_inside(spec.block_size, rules.hash_block_size),
        };
        known = inside(known, step).rev().find(in_any).unwrap_or(known).max(cached);
        (cached, known)
    }

    /// Reads the memory that questions about blocks will read, in all groups that can have their
    /// keys.
    fn prefetch(&self, rules: &HitRules, spec: &SpecRules, blocks: Range<usize>) {
        for other in &rules.specs {
            let ends = blocks.clone().map(|block| (block + 1) * spec.block_size);
            let ends = ends.filter(|&end| other.can_cache(end));
            let key = |end| Some(self.key(other.groups[0], end)?.hash);
            let hashes: Vec<_> = ends.filter_map(key).collect();
            for &group in &other.groups {
                self.pool.index().prefetch_questions(self.pool.blocks(), group, &hashes);
            }
        }
    }

    /// Returns whether any group of a spec has or had a prefix. All of its groups are asked, so that
    /// each evicted key counts as asked for.
    fn ask_in(&mut self, spec: &SpecRules, end: usize) -> bool {
        spec.groups.iter().filter(|&&group| self.ask(group, end)).count() > 0
    }

    /// Returns the longest prefix, of more than `hit` tokens, that any group has or had; `hit` if
    /// there is none.
    fn last_known(&mut self, rules: &HitRules, hit: usize) -> usize {
        let size = self.hash_block_size;
        let ends = (1..=self.num_hashed / size).rev().map(|n| n * size);
        let mut ends = ends.take_while(|&end| end > hit);
        ends.find(|&end| self.ask_in_any(rules, end)).unwrap_or(hit)
    }

    fn ask_in_any(&mut self, rules: &HitRules, end: usize) -> bool {
        let specs = rules.specs.iter().filter(|spec| spec.can_cache(end));
        specs.flat_map(|spec| &spec.groups).any(|&group| self.ask(group, end))
    }
}

//! Where prefixes were ever cached, group by group.

use kvoxide_core::group::Group;
use kvoxide_core::{CacheKey, GroupId, Manager, NULL_BLOCK, RequestBlocks, RequestView};

use super::ends::{Ends, Path};
use super::tails::TailRule;

/// What was ever cached in the groups that take part in prefix caching.
#[derive(Debug)]
pub struct EverCached {
    /// The groups that need all of a prefix.
    pub full: Vec<FullGroup>,
    tails: Vec<TailGroup>,
    hash_block_size: usize,
    scheduler_block_size: usize,
}

/// A group that needs all of a prefix.
#[derive(Debug)]
pub struct FullGroup {
    /// Its number.
    pub id: GroupId,
    block_size: usize,
    /// Ends inside blocks at which it was cached.
    inside: Ends,
}

/// A group that needs what is at a hit's end.
#[derive(Debug)]
struct TailGroup {
    id: GroupId,
    block_size: usize,
    rule: TailRule,
    /// Ends of the blocks that were cached; of states, of their prefixes.
    cached: Ends,
}

impl EverCached {
    /// Nothing yet, of the groups of a manager.
    pub fn new(manager: &Manager) -> Self {
        let hash_block_size = manager.hash_block_size();
        let cacheable = || manager.groups().iter().filter(|group| group.is_cacheable);
        let is_full = |group: &&Group| group.is_prefix_closed;
        let full = |group: &Group| FullGroup {
            id: group.id,
            block_size: group.block_size,
            inside: Ends::new(hash_block_size),
        };
        let tail = |group: &Group| {
            let rule = TailRule::of(group);
            let unit = if rule == TailRule::State { hash_block_size } else { group.block_size };
            TailGroup { id: group.id, block_size: group.block_size, rule, cached: Ends::new(unit) }
        };
        Self {
            full: cacheable().filter(is_full).map(full).collect(),
            tails: cacheable().filter(|group| !is_full(group)).map(tail).collect(),
            hash_block_size,
            scheduler_block_size: manager.scheduler_block_size(),
        }
    }

    /// Notes what is cached of the blocks and states of a request that got slots for its tokens from
    /// `start` to `end`, all of them known.
    pub fn note(
        &mut self,
        manager: &Manager,
        request: &RequestView<'_>,
        path: &Path<'_>,
        (start, end): (usize, usize),
    ) {
        let Ok(held) = manager.blocks_of(request.id) else { return };
        // What lies behind the last boundary of all groups is cached with the next one.
        let start = start / self.scheduler_block_size * self.scheduler_block_size;
        for tail in &mut self.tails {
            tail.note(manager, held, path, (start, end));
        }
        if manager.has_partial_hits() && start < request.num_prompt_tokens {
            self.note_prompt_end(manager, request, path, end);
        }
    }

    /// Where hits can end inside blocks, the end of a prompt is cached beside its full blocks.
    fn note_prompt_end(
        &mut self,
        manager: &Manager,
        request: &RequestView<'_>,
        path: &Path<'_>,
        end: usize,
    ) {
        let num_units = (request.num_prompt_tokens - 1) / self.hash_block_size;
        let prompt_end = num_units * self.hash_block_size;
        if num_units == 0 || end < prompt_end {
            return;
        }
        let hash = request.hashes.at(num_units - 1);
        let is_found = |group| manager.pool().find(&CacheKey { hash, group }).is_some();
        for full in self.full.iter_mut().filter(|full| is_found(full.id)) {
            full.inside.insert(path, prompt_end);
        }
        let states = self.tails.iter_mut().filter(|tail| tail.rule == TailRule::State);
        for state in states.filter(|state| is_found(state.id)) {
            state.cached.insert(path, prompt_end);
        }
    }

    /// Whether all of so many tokens that were computed was ever cached in the groups that need all
    /// of it.
    pub fn has_full(&self, path: &Path<'_>, num_tokens: usize) -> bool {
        self.full.iter().all(|full| {
            num_tokens.is_multiple_of(full.block_size) || full.inside.contains(path, num_tokens)
        })
    }

    /// Whether every tail that a hit of so many tokens needs was ever cached.
    pub fn has_tails(&self, path: &Path<'_>, num_tokens: usize) -> bool {
        self.tails
            .iter()
            .all(|tail| tail.rule.was_cached(&tail.cached, path, tail.block_size, num_tokens))
    }
}

impl TailGroup {
    fn note(
        &mut self,
        manager: &Manager,
        held: &RequestBlocks,
        path: &Path<'_>,
        (start, end): (usize, usize),
    ) {
        let states = manager.pool().blocks();
        let table = &held.groups[usize::from(self.id)].blocks;
        if self.rule == TailRule::State {
            let cached = table.tail().iter().filter_map(|&state| states.hash_num_tokens(state));
            cached.for_each(|num_tokens| self.cached.insert(path, num_tokens));
            return;
        }
        let (first, blocks) = table.tail_from(start / self.block_size);
        let num_in_prompt = (end / self.block_size).saturating_sub(first);
        for (i, &block) in blocks.iter().take(num_in_prompt).enumerate() {
            if block != NULL_BLOCK && states.is_cached(block) {
                self.cached.insert(path, (first + i + 1) * self.block_size);
            }
        }
    }
}

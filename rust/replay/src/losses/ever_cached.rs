//! Records the prefixes that were ever cached in each group.

use kvoxide_core::group::Group;
use kvoxide_core::{CacheKey, GroupId, Manager, NULL_BLOCK, RequestBlocks, RequestView};

use super::prefix_set::{Path, PrefixSet};

/// The prefixes that were ever cached in the groups with prefix caching.
#[derive(Debug)]
pub struct EverCached {
    /// The groups that need a whole prefix.
    pub full: Vec<FullGroup>,
    tails: Vec<TailGroup>,
    hash_block_size: usize,
    scheduler_block_size: usize,
}

/// A group that needs a whole prefix.
#[derive(Debug)]
pub struct FullGroup {
    /// The group.
    pub id: GroupId,
    /// The cached prefixes that end inside a block.
    inside: PrefixSet,
}

/// A group that needs a tail.
#[derive(Debug)]
struct TailGroup {
    id: GroupId,
    block_size: usize,
    is_state: bool,
    /// The prefixes that end with a cached block or state.
    cached: PrefixSet,
}

impl EverCached {
    /// Returns an empty record for the groups of a manager.
    pub fn new(manager: &Manager) -> Self {
        let hash_block_size = manager.hash_block_size();
        let cacheable = || manager.groups().iter().filter(|group| group.is_cacheable);
        let is_full = |group: &&Group| group.is_prefix_closed;
        let full =
            |group: &Group| FullGroup { id: group.id, inside: PrefixSet::new(hash_block_size) };
        let tail = |group: &Group| TailGroup {
            id: group.id,
            block_size: group.block_size,
            is_state: group.is_state,
            cached: PrefixSet::new(match group.is_state {
                true => hash_block_size,
                false => group.block_size,
            }),
        };
        Self {
            full: cacheable().filter(is_full).map(full).collect(),
            tails: cacheable().filter(|group| !is_full(group)).map(tail).collect(),
            hash_block_size,
            scheduler_block_size: manager.scheduler_block_size(),
        }
    }

    /// Records the cached blocks and states of a request that got slots for its known tokens from
    /// `start` to `end`.
    pub fn note(
        &mut self,
        manager: &Manager,
        request: &RequestView<'_>,
        path: &Path<'_>,
        (start, end): (usize, usize),
    ) {
        let Ok(held) = manager.blocks_of(request.id) else { return };
        // Blocks after the last boundary of all groups are cached at the next boundary.
        let start = start / self.scheduler_block_size * self.scheduler_block_size;
        for tail in &mut self.tails {
            tail.note(manager, held, path, (start, end));
        }
        if manager.has_partial_hits() && start < request.num_prompt_tokens {
            self.note_prompt_end(manager, request, path, end);
        }
    }

    /// Records the cached end of a prompt inside a block.
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
        let states = self.tails.iter_mut().filter(|tail| tail.is_state);
        for state in states.filter(|state| is_found(state.id)) {
            state.cached.insert(path, prompt_end);
        }
    }

    /// Returns whether a group ever had a prefix that ends with a cached block or state, or inside a
    /// block of full attention.
    pub fn was_cached(&self, path: &Path<'_>, group: GroupId, num_tokens: usize) -> bool {
        let full = self.full.iter().find(|full| full.id == group).map(|full| &full.inside);
        let tail = || self.tails.iter().find(|tail| tail.id == group).map(|tail| &tail.cached);
        full.or_else(tail).is_some_and(|cached| cached.contains(path, num_tokens))
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
        if self.is_state {
            let cached = table.ids().iter().filter_map(|&state| states.hash_num_tokens(state));
            cached.for_each(|num_tokens| self.cached.insert(path, num_tokens));
            return;
        }
        let (first, blocks) = table.ids_from(start / self.block_size);
        let num_in_prompt = (end / self.block_size).saturating_sub(first);
        for (i, &block) in blocks.iter().take(num_in_prompt).enumerate() {
            if block != NULL_BLOCK && states.is_cached(block) {
                self.cached.insert(path, (first + i + 1) * self.block_size);
            }
        }
    }
}

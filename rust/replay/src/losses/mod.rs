//! Why prompt tokens were not hit although they had been computed before.
//!
//! A hit ends where the blocks of full attention do, or before, where the last tail was kept: the
//! blocks of a window or the state that a hit needs at its end. The [`Ledger`] knows how far each
//! prefix of the trace was computed and where its tails were ever cached, and so what a hit would
//! have reached had nothing been evicted.

mod cached;
mod ends;
mod tails;

use serde::{Deserialize, Serialize};

use kvoxide_core::{Error, Manager, PrefixHit, RequestView};

use crate::prompt_tree::PromptTree;
use crate::trace::Trace;
use cached::{EverCached, FullGroup};
use ends::Path;

/// Prompt tokens of one request, or of several, that were computed before and not hit, by why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Losses {
    /// A block of full attention at or before them was evicted.
    pub evicted_full: usize,
    /// The blocks of full attention are there, and a window's blocks or a state that would serve a
    /// hit of them were cached once, and evicted.
    pub evicted_tail: usize,
    /// Nothing that would serve a hit of them was ever cached.
    pub never_cached: usize,
}

impl Losses {
    /// All of them.
    pub fn num_tokens(&self) -> usize {
        self.evicted_full + self.evicted_tail + self.never_cached
    }
}

/// What was computed and cached so far, of the prompts of a trace.
#[derive(Debug)]
pub struct Ledger {
    prompts: PromptTree,
    /// How far each node of the tree was computed, in tokens of its prompts.
    computed: Vec<usize>,
    cached: EverCached,
    /// Whether one look-up serves all groups of full attention.
    is_full_one: bool,
    alignment: usize,
}

impl Ledger {
    /// A ledger for a run of `trace`, of which nothing was played yet, with a manager.
    pub fn new(trace: &Trace, tokens_per_id: usize, manager: &Manager) -> Self {
        let prompts = PromptTree::new(trace.requests(), tokens_per_id);
        let cached = EverCached::new(manager);
        let spec = |full: &FullGroup| &manager.groups()[usize::from(full.id)].spec;
        let specs = || cached.full.iter().map(spec);
        Self {
            computed: vec![0; prompts.len()],
            prompts,
            is_full_one: specs().zip(specs().skip(1)).all(|(a, b)| a.is_looked_up_with(b)),
            cached,
            alignment: manager.hit_alignment(),
        }
    }

    /// A request got slots for its tokens from `start` to `end`, and what of them is cached is.
    pub fn note_computed(
        &mut self,
        manager: &Manager,
        request: &RequestView<'_>,
        start: usize,
        end: usize,
    ) {
        let end = end.min(self.prompts.num_known(request.id as usize));
        let in_prompt = start < request.num_prompt_tokens;
        let unit = manager.hash_block_size();
        if start >= end || !in_prompt && start / unit == end / unit {
            return;
        }
        let path = Path::of(&self.prompts, request.id as usize);
        for (node, range) in path.nodes().filter(|(_, range)| range.start < end) {
            let computed = &mut self.computed[node];
            *computed = range.end.min(end).max(*computed);
        }
        self.cached.note(manager, request, &path, (start, end));
    }

    /// How far the blocks of full attention are there for a request that was just looked up. Groups
    /// that are looked up together end a shared prefix where they end themselves.
    pub fn full_length(
        &self,
        manager: &Manager,
        request: &RequestView<'_>,
        hit: &PrefixHit,
    ) -> Result<usize, Error> {
        if self.is_full_one {
            return Ok(hit.length.max(hit.shared_prefix_boundary));
        }
        let (_, lengths) =
            manager.find_longest_hit_per_group(&request.hashes, request.num_tokens - 1)?;
        let lengths = self.cached.full.iter().map(|full| lengths[usize::from(full.id)]);
        Ok(lengths.min().unwrap_or(0).max(hit.length))
    }

    /// Why a request that is admitted did not hit what was computed before, of which it hit
    /// `hit_length` tokens and blocks of full attention were there for `full_length`. To be asked
    /// before [`Self::note_computed`] is told of it.
    pub fn losses(
        &self,
        request: &RequestView<'_>,
        hit_length: usize,
        full_length: usize,
    ) -> Losses {
        let path = Path::of(&self.prompts, request.id as usize);
        let computed = path.nodes().map(|(node, _)| self.computed[node]).max().unwrap_or(0);
        // The last token is computed again.
        let computed = computed.min(request.num_prompt_tokens - 1);
        let computed = computed / self.alignment * self.alignment;
        if computed <= hit_length {
            return Losses::default();
        }
        let furthest = |most: usize, is_there: &dyn Fn(usize) -> bool| {
            let mut ends = (hit_length + 1..=most).rev().step_by(self.alignment);
            ends.find(|&end| is_there(end)).unwrap_or(hit_length)
        };
        let cached_full = furthest(computed, &|end| self.cached.has_full(&path, end));
        let present_full = match self.cached.full.is_empty() {
            true => cached_full,
            false => full_length.min(cached_full),
        };
        let cached_tail = furthest(present_full, &|end| self.cached.has_tails(&path, end));
        Losses {
            evicted_full: cached_full - present_full,
            evicted_tail: cached_tail - hit_length,
            never_cached: present_full - cached_tail + computed - cached_full,
        }
    }
}

//! The reasons why prompt tokens were not hit although they had been computed before.
//!
//! A hit ends with the cached blocks of full attention, or earlier, with the last cached tail. The
//! [`Ledger`] records how far each prefix of the trace was computed and where its tails were ever
//! cached. So it knows how long a hit would be without evictions.

mod ever_cached;
mod prefix_set;
mod tail_rule;

use serde::{Deserialize, Serialize};

use kvoxide_core::{Error, Manager, PrefixHit, RequestView};

use crate::radix_tree::RadixTree;
use crate::trace::Trace;
use ever_cached::{EverCached, FullGroup};
use prefix_set::Path;

/// Prompt tokens that had been computed before and were not hit, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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

/// Records which tokens of a trace were computed and cached so far.
#[derive(Debug)]
pub(crate) struct Ledger {
    prompts: RadixTree,
    /// The largest number of tokens of prompts that were computed up to each node of the tree, or
    /// into it.
    computed: Vec<usize>,
    cached: EverCached,
    /// Whether one look-up covers all groups of full attention.
    is_full_one: bool,
    alignment: usize,
    /// Whether prefixes are cached at all.
    enable_caching: bool,
}

impl Ledger {
    /// Creates a ledger for a run of `trace` that has not started.
    pub fn new(trace: &Trace, tokens_per_id: usize, manager: &Manager) -> Self {
        let prompts = RadixTree::new(trace.requests(), tokens_per_id);
        let cached = EverCached::new(manager);
        let spec = |full: &FullGroup| &manager.groups()[usize::from(full.id)].spec;
        let specs = || cached.full.iter().map(spec);
        Self {
            computed: vec![0; prompts.len()],
            prompts,
            is_full_one: specs().zip(specs().skip(1)).all(|(a, b)| a.is_looked_up_with(b)),
            cached,
            alignment: manager.hit_alignment(),
            enable_caching: manager.config().enable_caching,
        }
    }

    /// Records that a request got slots for its tokens from `start` to `end` and cached its full
    /// blocks.
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

    /// Returns how many tokens have cached full-attention blocks, for a request that was just
    /// looked up. If all these groups are looked up together, this is the shared-prefix boundary.
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

    /// Returns the losses of a request that is admitted with a hit of `hit_length` tokens.
    /// `full_length` tokens have cached full-attention blocks. Must be called before
    /// [`Self::note_computed`] for the request.
    pub fn losses(
        &self,
        request: &RequestView<'_>,
        hit_length: usize,
        full_length: usize,
    ) -> Losses {
        let path = Path::of(&self.prompts, request.id as usize);
        let computed = path.nodes().map(|(node, _)| self.computed[node]).max().unwrap_or(0);
        // The last token is always computed, and unknown tokens are new.
        let num_known = self.prompts.num_known(request.id as usize);
        let computed = computed.min(num_known).min(request.num_prompt_tokens - 1);
        let computed = computed / self.alignment * self.alignment;
        if computed <= hit_length {
            return Losses::default();
        }
        if !self.enable_caching {
            return Losses { never_cached: computed - hit_length, ..Losses::default() };
        }
        let furthest = |most: usize, is_cached: &dyn Fn(usize) -> bool| {
            let mut ends = (hit_length + 1..=most).rev().step_by(self.alignment);
            ends.find(|&end| is_cached(end)).unwrap_or(hit_length)
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

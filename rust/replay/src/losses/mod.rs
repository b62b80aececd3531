//! The reasons why prompt tokens were not hit although they had been computed before.
//!
//! A hit ends with the cached blocks of full attention, or earlier, with the last cached tail. The
//! [`Ledger`] records how far each prefix of the trace was computed and where its tails were ever
//! cached. So it knows how long a hit would be without evictions.

mod ever_cached;
mod prefix_set;

use kvoxide_core::outcomes::{HitRules, losses};
use kvoxide_core::{Error, Manager, PrefixHit, RequestView};
use serde::{Deserialize, Serialize};

pub use kvoxide_core::outcomes::Losses;

use crate::radix_tree::RadixTree;
use crate::trace::Trace;
use ever_cached::{EverCached, FullGroup};
use prefix_set::Path;

/// The part of a prompt that earlier requests computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shared {
    /// The number of tokens.
    pub num_tokens: usize,
    /// The last place where a hit of these tokens could end.
    pub last_end: usize,
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
    rules: HitRules,
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
            rules: manager.hit_rules(),
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

    /// Returns the part of a request's prompt that earlier requests computed. Must be called before
    /// [`Self::note_computed`] for the request.
    pub fn shared(&self, request: &RequestView<'_>) -> Shared {
        let path = Path::of(&self.prompts, request.id as usize);
        let computed = path.nodes().map(|(node, _)| self.computed[node]).max().unwrap_or(0);
        let num_known = self.prompts.num_known(request.id as usize);
        let num_tokens = computed.min(num_known).min(request.num_prompt_tokens);
        // The last token is always computed.
        let last_end = self.rules.longest(num_tokens, request.num_prompt_tokens - 1);
        Shared { num_tokens, last_end }
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
        let computed = computed.min(num_known);
        let max_length = request.num_prompt_tokens - 1;
        if !self.enable_caching {
            let computed = computed.min(max_length) / self.alignment * self.alignment;
            let never_cached = computed.saturating_sub(hit_length);
            return Losses { never_cached, ..Losses::default() };
        }
        let longest = self.rules.longest(computed, max_length);
        let present = self.rules.has_full().then_some(full_length);
        losses(&self.rules, hit_length, longest, present, |group, num_tokens| {
            self.cached.was_cached(&path, group, num_tokens)
        })
    }
}

//! Quiet steps of a request: steps in which a manager gives out, releases and caches no block.

use super::Manager;
use super::cache::{least_to_cache, num_cacheable_tokens};
use super::context::RequestReads;
use crate::group::{Group, GroupCaching, ReadContext};
use crate::request::RequestView;

/// The quiet steps of a request from its last allocation on. Numbers are in tokens. By default, no
/// step is quiet.
#[derive(Clone, Copy, Debug, Default)]
pub struct QuietSteps {
    num_prompt_tokens: usize,
    /// The tokens for which every table has slots.
    num_slots: usize,
    /// The computed tokens, without those in flight, at which the next block leaves a window.
    least_to_skip: usize,
    /// The tokens at which the next block becomes cached.
    least_to_cache: usize,
}

impl QuietSteps {
    /// Returns whether a step is quiet that computes a request's tokens from `start` to `end`,
    /// without lookahead slots.
    #[inline]
    pub fn has(&self, request: &RequestView<'_>, (start, end): (usize, usize)) -> bool {
        end <= self.num_slots
            && end.min(request.num_tokens) < self.least_to_cache
            && request.num_processed(start) < self.least_to_skip
            && request.num_prompt_tokens == self.num_prompt_tokens
    }
}

impl Manager {
    /// Returns the quiet steps of a request after an allocation for its tokens from `start` to `end`.
    pub fn quiet_steps(
        &self,
        request: &RequestView<'_>,
        (start, end): (usize, usize),
    ) -> QuietSteps {
        self.reads(request.id).quiet_steps(request, (start, end)).unwrap_or_default()
    }
}

impl RequestReads<'_> {
    fn quiet_steps(
        &self,
        request: &RequestView<'_>,
        (start, end): (usize, usize),
    ) -> Option<QuietSteps> {
        // The last hash of a prompt can cover generated tokens. The end of the prompt is cached with it.
        let size = self.retention.rules().hash_block_size;
        if request.hashes.chain_len() < request.num_prompt_tokens / size {
            return None;
        }
        let max_model_len = self.config.max_model_len;
        let num_processed = request.num_processed(start.min(max_model_len));
        let num_cached = end.min(request.num_tokens).min(max_model_len);
        let mut steps = QuietSteps {
            num_prompt_tokens: request.num_prompt_tokens,
            num_slots: usize::MAX,
            least_to_skip: usize::MAX,
            least_to_cache: usize::MAX,
        };
        for (group, read) in self.each() {
            steps.num_slots = steps.num_slots.min(group.num_slots(read.held?)?);
            let skips = group.least_to_skip_more(num_processed);
            steps.least_to_skip = steps.least_to_skip.min(skips);
            if group.is_cacheable && self.config.enable_caching {
                let caches = self.least_to_cache_more(group, &read, request, num_cached);
                steps.least_to_cache = steps.least_to_cache.min(caches);
            }
        }
        Some(steps)
    }

    /// Returns a number of tokens up to which a group caches nothing that it does not cache at
    /// `num_tokens`.
    fn least_to_cache_more(
        &self,
        group: &Group,
        read: &ReadContext<'_>,
        request: &RequestView<'_>,
        num_tokens: usize,
    ) -> usize {
        let (retention, rules) = (self.retention, self.retention.rules());
        let num_cached = read.held.and_then(|held| held.num_cached_blocks).unwrap_or(0);
        let next = (num_cached + 1) * group.block_size;
        let tail = GroupCaching { data: group, retention, request }.partial_tail();
        let tail = tail.filter(|&tail| num_cacheable_tokens(rules, group, num_tokens) < tail);
        least_to_cache(rules, group, tail.map_or(next, |tail| tail.min(next)))
    }
}

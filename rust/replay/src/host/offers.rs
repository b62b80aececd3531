//! The chunks that a request offers to the tier in a step.

use std::ops::Range;

use kvoxide_core::host::{ChunkKeys, ChunkLookup, HashKeys, HostGroup};
use kvoxide_core::retention::{MaskQuery, RetentionMask, merge_runs};
use kvoxide_core::{CacheKey, NULL_BLOCK};

use super::geometry::{Geometry, GroupMask};
use super::request::{Progress, RequestState};

/// A chunk that is offered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offered {
    pub key: CacheKey,
    /// The number of tokens at its end.
    pub position: u32,
    /// The group, as an index of the connector's groups.
    pub group: usize,
    pub block: u32,
}

/// The chunks of all groups of a request.
#[derive(Debug, Default)]
pub(super) struct Offer {
    pub chunks: Vec<Offered>,
    /// For each group, the chunk up to which all were considered.
    pub ends: Vec<usize>,
}

impl Geometry {
    /// Returns the keys of a request in a group.
    pub fn keys<'a>(&self, at: usize, progress: &Progress<'a>) -> HashKeys<'a> {
        HashKeys::of(&self.groups()[at], progress.hashes, self.hash_block_size)
    }

    /// Returns how many tokens of a request can be offered.
    pub fn num_offerable(
        &self,
        progress: &Progress<'_>,
        num_tokens: usize,
        prompt_only: bool,
    ) -> usize {
        let most = if prompt_only { progress.num_prompt_tokens } else { usize::MAX };
        num_tokens.min(progress.num_tokens).min(most)
    }

    /// Returns whether a request can have something to offer. Costs less than [`Self::offer`].
    pub fn may_offer(
        &self,
        state: &RequestState,
        progress: &Progress<'_>,
        prompt_only: bool,
    ) -> bool {
        let num_tokens = self.num_offerable(progress, progress.num_computed, prompt_only);
        let is_next =
            |(group, next): (&HostGroup, &usize)| num_tokens / group.tokens_per_chunk > *next;
        self.reconsiders_last_tail(progress, prompt_only)
            || self.groups().iter().zip(&state.next).any(is_next)
    }

    /// Returns whether the last tail of an ended request can be another one than while it ran.
    pub fn reconsiders_last_tail(&self, progress: &Progress<'_>, prompt_only: bool) -> bool {
        progress.has_ended && self.interval.is_none() && !prompt_only
    }

    /// Returns what a request offers.
    pub fn offer(&self, state: &RequestState, progress: &Progress<'_>, prompt_only: bool) -> Offer {
        let num_tokens = self.num_offerable(progress, progress.num_computed, prompt_only);
        let num_prompt = self.num_offerable(progress, progress.num_prompt_tokens, prompt_only);
        let mut offer = Offer::default();
        for (at, group) in self.groups().iter().enumerate() {
            let keys = self.keys(at, progress);
            let num_chunks = keys.len().min(state.blocks[at].len());
            let end = num_storable(group, progress, num_tokens).min(num_chunks);
            offer.ends.push(end);
            if self.masks[at] == GroupMask::HandedOver {
                continue;
            }
            let prompt_end = num_prompt / group.tokens_per_chunk;
            let tail = self.last_tail(at, progress, end, prompt_end);
            let next = state.next[at];
            let start = tail.as_ref().map_or(next, |tail| tail.start.min(next));
            if start >= end {
                continue;
            }
            let horizon = self.horizon(group, progress, end, prompt_end);
            let runs = self.reached(at, progress, start..end, horizon);
            let before = match start < next {
                true => self.reached(at, progress, start..end, Some(prompt_end)),
                false => Vec::new(),
            };
            let was_offered = |place: usize| {
                place < next && before.iter().any(|run: &Range<usize>| run.contains(&place))
            };
            for place in runs.into_iter().flatten() {
                let block = state.blocks[at][place];
                if block == NULL_BLOCK || was_offered(place) {
                    continue;
                }
                let position = ((place + 1) * group.tokens_per_chunk) as u32;
                offer.chunks.push(Offered { key: keys.at(place), position, group: at, block });
            }
        }
        offer
    }

    /// Returns the blocks from which a request's last partial segment on can be offered again.
    fn last_tail(
        &self,
        at: usize,
        progress: &Progress<'_>,
        end: usize,
        prompt_end: usize,
    ) -> Option<Range<usize>> {
        let group = &self.groups()[at];
        let alignment = self.alignment?;
        let is_aligned = alignment.is_multiple_of(group.tokens_per_block);
        let is_window = matches!(self.masks[at], GroupMask::Tails(_)) && !group.is_eagle_group;
        let is_due = progress.has_ended && self.interval.is_none() && end != prompt_end;
        (is_due && is_window && is_aligned).then(|| {
            let segment = alignment / group.tokens_per_block;
            end / segment * segment..end
        })
    }

    /// Returns the end of a request's last segment, whose tail can be hit; `None` if only tails at
    /// fixed places can be.
    fn horizon(
        &self,
        group: &HostGroup,
        progress: &Progress<'_>,
        end: usize,
        prompt_end: usize,
    ) -> Option<usize> {
        match self.interval.is_some() || group.is_eagle_group {
            true => None,
            false if progress.has_ended => Some(end),
            false => (end <= prompt_end).then_some(prompt_end),
        }
    }

    /// Returns the chunks of a range that a later request can need.
    fn reached(
        &self,
        at: usize,
        progress: &Progress<'_>,
        range: Range<usize>,
        horizon: Option<usize>,
    ) -> Vec<Range<usize>> {
        let group = &self.groups()[at];
        let size = group.tokens_per_block;
        let whole = || std::iter::once(range.clone()).collect();
        let (mask, Some(alignment)) = (self.masks[at], self.alignment) else { return whole() };
        let replays = [progress.num_prompt_tokens.saturating_sub(1)];
        let shared = [progress.shared_prefix_boundary];
        let query = MaskQuery {
            range: (range.start, range.end),
            alignment,
            drops_eagle_block: group.is_eagle_group,
            retention_interval: self.interval,
            replays: &replays,
            shared: if shared[0] > 0 { &shared } else { &[] },
            num_prompt_tokens: progress.num_prompt_tokens,
            value_model: None,
            has_room: false,
        };
        let (mask, tail_len) = match mask {
            GroupMask::All | GroupMask::HandedOver => return whole(),
            GroupMask::States => (query.states(size), 1),
            GroupMask::Tails(tail_len) => (query.tails(size, tail_len), tail_len),
        };
        let RetentionMask::Runs(mut runs) = mask else { return whole() };
        if let Some(horizon) = horizon {
            let segment = alignment / size;
            let start = (horizon / segment * segment).max(horizon.saturating_sub(tail_len));
            runs.push(start.max(range.start)..horizon.min(range.end));
        }
        merge_runs(runs)
    }
}

/// Returns how many leading chunks of a group are settled.
fn num_storable(group: &HostGroup, progress: &Progress<'_>, num_tokens: usize) -> usize {
    let is_decoding = num_tokens > progress.num_prompt_tokens;
    // A draft can change the last chunk of an EAGLE group while its request runs.
    let is_unsettled = group.is_eagle_group && is_decoding && !progress.has_ended;
    let num_chunks = num_tokens / group.tokens_per_chunk;
    num_chunks.saturating_sub(usize::from(is_unsettled))
}

//! The mask of a group: which of the blocks that become full are cached. If hits need only a tail,
//! the group caches only tails. They are at the ends of prefixes where a later request can resume.
//!
//! Sources: the mask is vLLM PR 42258, the retention interval vLLM PR 43447, and the shared-prefix
//! boundary the checkpoint rule of Marconi (MLSys 2025).

use std::ops::Range;

use super::rules::CacheRules;
use super::shape::TailShape;
use super::valuation::{TailValue, ValueModel};
use crate::pool::ValueLevel;
use crate::request::RequestView;

impl CacheRules {
    /// Returns the mask of a range of a group's blocks. With a `model`, values decide instead of
    /// the interval. `has_room` is true if blocks without a value are cached, too.
    #[inline(never)]
    pub(super) fn mask(
        &self,
        model: Option<&ValueModel>,
        shape: &TailShape,
        request: &RequestView<'_>,
        range: (usize, usize),
        has_room: bool,
    ) -> RetentionMask {
        if !self.masks_unreachable || !shape.is_sparse {
            return RetentionMask::All;
        }
        let boundaries = self.resume_boundaries(model, shape, request);
        let query = self.query(model, shape, request, range, &boundaries);
        let query = MaskQuery { has_room, ..query };
        match shape.is_state {
            true => query.states(shape.block_size),
            false => query.tails(shape.block_size, shape.tail_len),
        }
    }

    /// Returns whether the state after `num_blocks` blocks is cached in every prompt of this
    /// length.
    pub(super) fn keeps_state_at(
        &self,
        model: Option<&ValueModel>,
        shape: &TailShape,
        request: &RequestView<'_>,
        num_blocks: usize,
    ) -> bool {
        let (start, end) = (num_blocks - 1, num_blocks);
        let none = ResumeBoundaries::default();
        let query = self.query(model, shape, request, (start, end), &none);
        !self.masks_unreachable || !query.states(shape.block_size).runs(start, end).is_empty()
    }

    fn query<'a>(
        &'a self,
        model: Option<&'a ValueModel>,
        shape: &TailShape,
        request: &RequestView<'_>,
        range: (usize, usize),
        boundaries: &'a ResumeBoundaries,
    ) -> MaskQuery<'a> {
        MaskQuery {
            range,
            alignment: self.tail_alignment,
            drops_eagle_block: shape.drops_eagle_block,
            retention_interval: self.retention_interval,
            replays: boundaries.replays.as_slice(),
            shared: &boundaries.shared,
            num_prompt_tokens: request.num_prompt_tokens,
            value_model: model,
            has_room: false,
        }
    }

    /// Returns the token positions at which a later request is expected to resume.
    fn resume_boundaries(
        &self,
        model: Option<&ValueModel>,
        shape: &TailShape,
        request: &RequestView<'_>,
    ) -> ResumeBoundaries {
        let mut boundaries = ResumeBoundaries::default();
        if self.retention_interval.is_none() && model.is_none() {
            return boundaries;
        }
        boundaries.replays = replay_boundaries(
            request.num_prompt_tokens,
            self.scheduler_block_size,
            self.any_drops_eagle_block,
        );
        let shared = request.shared_prefix_boundary;
        if shared > 0 {
            boundaries.shared.push(shared);
            // A request that diverges exactly there lacks the block after the boundary. So with
            // EAGLE, its hit ends one block earlier.
            let lower = shared.checked_sub(shape.block_size);
            let keeps_lower = shape.drops_eagle_block && self.keeps_tail_below_boundary;
            boundaries.shared.extend(lower.filter(|_| keeps_lower));
        }
        boundaries
    }
}

/// Token positions at which a later request is expected to resume.
#[derive(Clone, Debug, Default)]
struct ResumeBoundaries {
    replays: Replays,
    shared: Vec<usize>,
}

/// The token positions at which requests resume that repeat or extend a prompt: at most two.
#[derive(Clone, Copy, Debug, Default)]
struct Replays {
    positions: [usize; 2],
    len: usize,
}

impl Replays {
    fn as_slice(&self) -> &[usize] {
        &self.positions[..self.len]
    }
}

/// Decides which blocks of a range are cached.
#[derive(Clone, Copy, Debug)]
pub struct MaskQuery<'a> {
    /// The first block of the range, and the end of the range.
    pub range: (usize, usize),
    /// Hits are multiples of this many tokens.
    pub alignment: usize,
    /// Whether hits match one more block than they keep, as EAGLE needs.
    pub drops_eagle_block: bool,
    /// Tokens between cached tails. `None` means every aligned boundary. 0 means only the tails at
    /// `replays` and `shared`.
    pub retention_interval: Option<usize>,
    /// Token positions where a request resumes that repeats or extends the prompt.
    pub replays: &'a [usize],
    /// Token positions where requests diverge that share a prefix with this one.
    pub shared: &'a [usize],
    /// The number of tokens in the prompt.
    pub num_prompt_tokens: usize,
    /// The model that assigns values to blocks, instead of an interval.
    pub value_model: Option<&'a ValueModel>,
    /// Whether blocks without a value are cached too.
    pub has_room: bool,
}

/// The blocks of a range that are cached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RetentionMask {
    /// All blocks are cached, with the best value.
    All,
    /// These runs of blocks are cached. They are in ascending order and do not touch.
    Runs(Vec<Range<usize>>),
    /// These runs are cached, each with the value of its blocks.
    Valued(Vec<(Range<usize>, ValueLevel)>),
    /// Blocks are cached, but only some of them have a value.
    PartlyValued(PartlyValued),
}

/// Blocks that are cached, and the values of the blocks that have one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartlyValued {
    /// Runs of all cached blocks, in ascending order. They do not touch.
    pub cached: Vec<Range<usize>>,
    /// Runs of the blocks that have a value, in ascending order.
    pub values: Vec<(Range<usize>, ValueLevel)>,
}

impl RetentionMask {
    /// Returns the blocks of `start..end` that are cached.
    pub fn runs(self, start: usize, end: usize) -> Vec<Range<usize>> {
        match self {
            Self::All => std::iter::once(start..end).collect(),
            Self::Runs(runs) => runs,
            Self::Valued(runs) => runs.into_iter().map(|(run, _)| run).collect(),
            Self::PartlyValued(blocks) => blocks.cached,
        }
    }
}

impl MaskQuery<'_> {
    /// Returns the mask of states. States at the ends of segments and at the boundaries are cached.
    /// One block is enough for a hit, even with EAGLE, whose drafts have no state.
    pub fn states(&self, block_size: usize) -> RetentionMask {
        if let Some(value) = self.tail_value(block_size, 1, 0) {
            let boundaries = [self.replays, self.shared];
            let range = self.range.0..self.range.1;
            return RetentionMask::Valued(value.values_of_states(range, boundaries));
        }
        match self.retention_interval {
            None => RetentionMask::All,
            Some(_) => self.reachable_tails(block_size, 1, 0),
        }
    }

    /// Returns the tails of `tail_len` blocks before each boundary where a hit can end.
    pub fn tails(&self, block_size: usize, tail_len: usize) -> RetentionMask {
        if !self.alignment.is_multiple_of(block_size) {
            return RetentionMask::All;
        }
        // EAGLE matches one block after the boundary.
        let num_dropped = usize::from(self.drops_eagle_block);
        if let Some(value) = self.tail_value(block_size, tail_len, num_dropped) {
            let range = self.range.0..self.range.1;
            let boundaries = [self.replays, self.shared];
            let values = match value.values_of_prompt_end(&range, self.shared) {
                Some(values) if values.is_empty() => return RetentionMask::All,
                Some(values) => values,
                None => value.values_of_window(range.clone(), boundaries),
            };
            let is_whole = values.first().is_some_and(|(run, _)| *run == range);
            if !self.has_room || is_whole {
                return RetentionMask::Valued(values);
            }
            let reachable = self.reachable_tails(block_size, tail_len, num_dropped);
            let cached = reachable.runs(range.start, range.end);
            return RetentionMask::PartlyValued(PartlyValued { cached, values });
        }
        self.reachable_tails(block_size, tail_len, num_dropped)
    }

    /// Returns the tails that are cached regardless of their value. A tail has `tail_len` blocks
    /// and ends `num_dropped` blocks after a hit.
    fn reachable_tails(
        &self,
        block_size: usize,
        tail_len: usize,
        num_dropped: usize,
    ) -> RetentionMask {
        let segment = match self.retention_interval {
            None => Some(self.alignment / block_size),
            Some(0) => None,
            Some(interval) => Some(interval / block_size),
        };
        if segment.is_some_and(|segment| tail_len >= segment) {
            return RetentionMask::All;
        }
        let mut runs = Vec::new();
        if let Some(segment) = segment.filter(|_| tail_len > 0) {
            runs.extend(self.segment_tails(segment, tail_len, num_dropped));
        }
        if self.retention_interval.is_some() {
            runs.extend(self.boundary_tails(block_size, tail_len, num_dropped));
        }
        RetentionMask::Runs(merge_runs(runs))
    }

    /// Returns the object that assigns values to tails. A tail has `tail_len` blocks and ends
    /// `num_dropped` blocks after a hit.
    fn tail_value(
        &self,
        block_size: usize,
        tail_len: usize,
        num_dropped: usize,
    ) -> Option<TailValue<'_>> {
        Some(TailValue {
            model: self.value_model?,
            num_prompt_tokens: self.num_prompt_tokens,
            block_size,
            alignment: self.alignment,
            tail_len,
            num_dropped,
        })
    }

    /// Returns the last `tail_len` blocks of every segment, shifted by `num_dropped` blocks.
    fn segment_tails(
        &self,
        segment: usize,
        tail_len: usize,
        num_dropped: usize,
    ) -> impl Iterator<Item = Range<usize>> {
        let (start, end) = self.range;
        let first = start.saturating_sub(num_dropped) / segment;
        let last = end.saturating_sub(num_dropped).div_ceil(segment);
        (first..last).map(move |i| {
            let tail_end = (i + 1) * segment + num_dropped;
            (tail_end - tail_len).max(start)..tail_end.min(end)
        })
    }

    fn boundary_tails(
        &self,
        block_size: usize,
        tail_len: usize,
        num_dropped: usize,
    ) -> impl Iterator<Item = Range<usize>> {
        let (start, end) = self.range;
        self.replays.iter().chain(self.shared).map(move |boundary| {
            let aligned = boundary / self.alignment * self.alignment;
            let tail_end = (aligned / block_size).saturating_add(num_dropped);
            tail_end.saturating_sub(tail_len).max(start)..tail_end.min(end)
        })
    }
}

/// Returns the same numbers in the fewest ranges, sorted.
pub fn merge_runs(mut runs: Vec<Range<usize>>) -> Vec<Range<usize>> {
    runs.retain(|run| !run.is_empty());
    runs.sort_by_key(|run| run.start);
    runs.dedup_by(|run, last| {
        let touches = run.start <= last.end;
        if touches {
            last.end = last.end.max(run.end);
        }
        touches
    });
    runs
}

/// Returns the token positions where a later request can resume that repeats or extends a prompt:
///
/// - Without EAGLE: the end of the prompt without its last token, which is always recomputed.
/// - With EAGLE, which drops a block: one aligned boundary lower, for the repeated and for the
///   extended prompt.
fn replay_boundaries(num_prompt_tokens: usize, alignment: usize, drops_block: bool) -> Replays {
    let last = num_prompt_tokens.saturating_sub(1);
    if !drops_block {
        return Replays { positions: [last; 2], len: 1 };
    }
    let below = |tokens: usize| (tokens / alignment * alignment).saturating_sub(alignment);
    let (repeated, extended) = (below(last), below(num_prompt_tokens));
    Replays { positions: [repeated, extended], len: 1 + usize::from(repeated != extended) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(range: (usize, usize), alignment: usize) -> MaskQuery<'static> {
        MaskQuery {
            range,
            alignment,
            drops_eagle_block: false,
            retention_interval: None,
            replays: &[],
            shared: &[],
            num_prompt_tokens: 0,
            value_model: None,
            has_room: false,
        }
    }

    fn blocks(mask: RetentionMask, range: (usize, usize)) -> Vec<usize> {
        mask.runs(range.0, range.1).into_iter().flatten().collect()
    }

    #[test]
    fn block_8_window_8_beside_full_32_keeps_blocks_3_and_7() {
        let mask = query((0, 8), 32).tails(8, 1);
        assert_eq!(blocks(mask, (0, 8)), [3, 7]);
    }

    #[test]
    fn block_16_window_32_beside_full_32_keeps_every_block() {
        // The seventh block is left out because caching stops at the aligned boundary.
        let mask = query((0, 6), 32).tails(16, 2);
        assert_eq!(blocks(mask, (0, 6)), [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn interval_zero_keeps_the_tails_of_the_boundaries_alone() {
        let query = MaskQuery {
            retention_interval: Some(0),
            replays: &[99],
            shared: &[40],
            ..query((0, 24), 32)
        };
        assert_eq!(blocks(query.tails(4, 2), (0, 24)), [6, 7, 22, 23]);
    }

    #[test]
    fn an_interval_keeps_a_tail_per_segment_and_the_boundaries() {
        let query =
            MaskQuery { retention_interval: Some(64), replays: &[99], ..query((10, 32), 32) };
        assert_eq!(blocks(query.tails(4, 2), (10, 32)), [14, 15, 22, 23, 30, 31]);
    }

    #[test]
    fn eagle_shifts_each_tail_by_the_block_it_drops() {
        let query = MaskQuery { drops_eagle_block: true, ..query((0, 18), 32) };
        assert_eq!(blocks(query.tails(4, 3), (0, 18)), [6, 7, 8, 14, 15, 16]);
    }

    #[test]
    fn replay_of_an_aligned_prompt_has_two_boundaries_with_eagle() {
        assert_eq!(replay_boundaries(96, 32, false).as_slice(), [95]);
        assert_eq!(replay_boundaries(96, 32, true).as_slice(), [32, 64]);
        assert_eq!(replay_boundaries(97, 32, true).as_slice(), [64]);
        assert_eq!(replay_boundaries(10, 32, true).as_slice(), [0]);
    }
}

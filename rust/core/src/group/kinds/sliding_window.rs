//! Sliding-window attention. A hit needs only the blocks of the window before its end. So the
//! search runs from right to left and takes the first run of cached blocks that is long enough.

use super::full::FULL;
use crate::error::Result;
use crate::group::data::Skipped;
use crate::group::declaration::{Caching, Declaration, PartialHits, Sharding};
use crate::group::query::{GroupHit, HitQuery};
use crate::group::spec::{GroupSpec, Size};
use crate::request::GroupBlocks;

/// Sliding-window attention over keys and values.
pub(super) static SLIDING_WINDOW: Declaration = Declaration {
    name: "sliding_window",
    event_name: "sliding_window",
    short_name: "swa",
    vllm_classes: ("SlidingWindowSpec", "SlidingWindowManager"),
    required: &[Size::SlidingWindow],
    optional: &[Size::ExtraRetainedTokens],
    sharding: Sharding::Replicated,
    partial_hits: PartialHits::Never,
    hit_needs: "its window",
    releases: "blocks before its window",
    is_sparse: true,
    is_pinned_by_drop: true,
    is_prefix_closed: false,
    ..FULL
};

/// Sliding-window attention over a compressed latent.
pub(super) static SLIDING_WINDOW_MLA: Declaration = Declaration {
    name: "sliding_window_mla",
    event_name: "sliding_window_mla",
    short_name: "swa-mla",
    vllm_classes: ("SlidingWindowMLASpec", "SlidingWindowManager"),
    caching: Caching::Optional,
    ..SLIDING_WINDOW
};

/// Attention within a window.
#[derive(Clone, Debug)]
pub struct SlidingWindow {
    block_size: usize,
    window: usize,
    extra_retained_tokens: usize,
}

impl SlidingWindow {
    pub(crate) fn new(spec: &GroupSpec) -> Result<Self> {
        Ok(Self {
            block_size: spec.block_size,
            window: spec.required(Size::SlidingWindow)?,
            extra_retained_tokens: spec.size(Size::ExtraRetainedTokens).unwrap_or(0),
        })
    }

    /// Returns the number of blocks that a hit needs at its end, without the block that EAGLE
    /// drops.
    pub(crate) fn tail_len(&self) -> usize {
        (self.window - 1).div_ceil(self.block_size)
    }

    pub(crate) fn longest_hit(&self, query: &HitQuery<'_>) -> Result<GroupHit> {
        query.hashes.require(query.max_blocks())?;
        let tail_len = self.tail_len() + usize::from(query.drops_eagle_block);
        let search = WindowSearch { query, tail_len };
        let mut blocks = match search.last_run()? {
            Some(blocks) => blocks,
            None => search.leading_run()?,
        };
        if query.drops_eagle_block && !blocks[0].is_empty() {
            let len = query.aligned_len(blocks[0].len() - 1);
            blocks.iter_mut().for_each(|group| group.truncate(len));
        }
        Ok(GroupHit { length: blocks[0].len() * query.block_size, blocks })
    }

    pub(crate) fn skips(&self) -> Skipped {
        Skipped::BeforeWindow(self.window.saturating_add(self.extra_retained_tokens))
    }
}

/// Searches the last run of `tail_len` cached blocks that ends at an aligned boundary.
struct WindowSearch<'a> {
    query: &'a HitQuery<'a>,
    tail_len: usize,
}

impl WindowSearch<'_> {
    /// Returns the hit that ends with the last run of sufficient length: null blocks, then the run.
    fn last_run(&self) -> Result<Option<Vec<GroupBlocks>>> {
        let run_len = self.tail_len.max(1);
        let mut end = self.query.max_blocks();
        while let Some(aligned) = self.aligned_end(end).filter(|&end| end >= run_len) {
            match self.run(aligned - run_len, aligned)? {
                Run::Complete(blocks) => return Ok(Some(blocks)),
                // No run with the missing block can be complete.
                Run::Missing(missing) => end = missing,
            }
        }
        Ok(None)
    }

    /// Returns the leading run of cached blocks. It can be a hit even if it is short, because no
    /// block is before it.
    fn leading_run(&self) -> Result<Vec<GroupBlocks>> {
        let query = self.query;
        let mut found = vec![Vec::new(); query.groups.len()];
        query.find_while_cached(&mut query.cursors(), 0..query.max_blocks(), &mut found)?;
        let len = query.aligned_len(self.aligned_end(found[0].len()).unwrap_or(0));
        let cut = |mut ids: Vec<u32>| {
            ids.truncate(len);
            GroupBlocks::new(0, ids)
        };
        Ok(found.into_iter().map(cut).collect())
    }

    /// Returns the last end of a run, at most `end`, for which the hit is aligned after EAGLE's
    /// drop.
    fn aligned_end(&self, end: usize) -> Option<usize> {
        let dropped = usize::from(self.query.drops_eagle_block);
        let step = self.query.alignment / self.query.block_size;
        let hit = end.checked_sub(dropped)?;
        Some(hit - hit % step + dropped).filter(|&end| end > 0)
    }

    /// Looks up the blocks `start..end`.
    fn run(&self, start: usize, end: usize) -> Result<Run> {
        let mut found = vec![Vec::with_capacity(end - start); self.query.groups.len()];
        let mut cursors = self.query.cursors();
        for i in start..end {
            if !self.query.find(&mut cursors, i, &mut found)? {
                return Ok(Run::Missing(i));
            }
        }
        let blocks = found.into_iter().map(|ids| GroupBlocks::new(start, ids));
        Ok(Run::Complete(blocks.collect()))
    }
}

/// A run of consecutive positions.
enum Run {
    /// All blocks are cached: one list per group, with null blocks before the run.
    Complete(Vec<GroupBlocks>),
    /// Some group has no cached block at this position, the first such one.
    Missing(usize),
}

//! Look-ups of many keys of one prompt, and which of them are being loaded.

use super::chunks::{ChunkId, Chunks, Cursor};
use super::tier::HostTier;
use crate::block::CacheKey;

impl HostTier {
    /// Returns how many keys have a chunk, from the first one on up to one that has none; `None` if
    /// one of these chunks is pending.
    pub fn lookup_prefix(&self, keys: impl Iterator<Item = CacheKey>) -> Option<usize> {
        let mut cursor = Cursor::forwards();
        let (mut num_hits, mut is_pending) = (0, false);
        for key in keys {
            let Some(chunk) = self.chunks.find_next(&key, &mut cursor) else { break };
            num_hits += 1;
            is_pending |= !self.chunks.is_ready(chunk);
        }
        (!is_pending).then_some(num_hits)
    }

    /// Returns the result of [`Self::lookup_prefix`] for the first `num_keys` keys of a prompt that
    /// grows. Looks only at what changed since the memo was written.
    pub fn lookup_prefix_again(
        &self,
        key: impl Fn(usize) -> CacheKey,
        num_keys: usize,
        memo: &mut PrefixMemo,
    ) -> Option<usize> {
        memo.forget_removed(self.owner(), &self.chunks);
        let mut cursor = memo.cursor();
        while memo.num_hits < num_keys
            && let Some(chunk) = self.chunks.find_next(&key(memo.num_hits), &mut cursor)
        {
            memo.push(chunk);
        }
        while let Some(chunk) = memo.chunk(memo.num_ready)
            && self.chunks.is_ready(chunk)
        {
            memo.num_ready += 1;
        }
        let num_hits = memo.num_hits.min(num_keys);
        (memo.num_ready >= num_hits).then_some(num_hits)
    }

    /// Returns the end of the last run of `window` keys that have a chunk; the run at the end of the
    /// keys has to have `first_window`. Without such a run it is the end of the run at the start, 0
    /// if there is none. `None` if a chunk of the run is pending.
    pub fn lookup_window(
        &self,
        keys: impl DoubleEndedIterator<Item = CacheKey> + ExactSizeIterator,
        window: usize,
        first_window: usize,
    ) -> Option<usize> {
        let mut cursor = Cursor::backwards();
        let is_ready = |key| {
            let chunk = self.chunks.find_next(&key, &mut cursor)?;
            Some(self.chunks.is_ready(chunk))
        };
        last_window(keys.map(is_ready), (window, first_window))
    }

    /// Notes that keys are being loaded, or are no more. Keys without a chunk are passed over.
    pub fn set_loading(&mut self, keys: impl Iterator<Item = CacheKey>, is_loading: bool) {
        let mut cursor = Cursor::forwards();
        keys.for_each(|key| {
            if let Some(chunk) = self.chunks.find_next(&key, &mut cursor) {
                self.chunks.set_loading(chunk, is_loading);
            }
        });
    }

    /// Whether one of the keys is noted as being loaded.
    pub fn is_any_loading(&self, mut keys: impl Iterator<Item = CacheKey>) -> bool {
        let mut cursor = Cursor::forwards();
        let is_loading = |chunk: ChunkId| self.chunks.is_loading(chunk);
        self.num_loading() > 0
            && keys.any(|key| self.chunks.find_next(&key, &mut cursor).is_some_and(is_loading))
    }

    /// Returns how many keys are noted as being loaded.
    pub fn num_loading(&self) -> usize {
        self.chunks.num_loading()
    }
}

/// Returns the end of the last run of `window` places that have a chunk, counted from the first place;
/// the run at the end has to have `first_window`. Without such a run it is the end of the run at the
/// start, 0 if there is none. `None` if a chunk of the run is pending. For each place, `is_ready` has
/// whether its chunk is ready; `None` if it has none.
pub fn last_window(
    is_ready: impl DoubleEndedIterator<Item = Option<bool>> + ExactSizeIterator,
    (window, first_window): (usize, usize),
) -> Option<usize> {
    let (mut run, mut is_pending, mut wanted) = (0, false, first_window);
    for (place, is_ready) in is_ready.enumerate().rev() {
        match is_ready {
            Some(is_ready) => {
                run += 1;
                is_pending |= !is_ready;
            }
            None => (run, is_pending, wanted) = (0, false, window),
        }
        if run == wanted {
            run += place;
            break;
        }
    }
    (!is_pending).then_some(run)
}

/// The hits that a look-up of a prefix found.
#[derive(Clone, Debug, Default)]
pub struct PrefixMemo {
    /// The tier and its resets.
    owner: Option<(u64, u64)>,
    /// The removals of chunks that are considered.
    num_removals: u64,
    rows: Vec<Row>,
    num_hits: usize,
    /// Hits from the first one on that can be loaded, as they stay until they are removed.
    num_ready: usize,
}

/// Hits whose chunks follow each other.
#[derive(Clone, Debug)]
struct Row {
    first_key: usize,
    first_chunk: ChunkId,
    len: usize,
}

impl PrefixMemo {
    /// Shortens the hit to what is there still.
    fn forget_removed(&mut self, owner: (u64, u64), chunks: &Chunks) {
        let removed = chunks.removals_since(self.num_removals);
        match removed.filter(|_| self.owner == Some(owner)) {
            // Nothing is faster than to look for all hits again, where that is fewer steps.
            Some(removed) if removed.len() * self.rows.len() <= self.num_hits => {
                removed.for_each(|chunk| self.forget(chunk));
            }
            _ => *self = Self { owner: Some(owner), ..Self::default() },
        }
        self.num_removals = chunks.num_removals();
    }

    fn forget(&mut self, chunk: ChunkId) {
        let hit = |row: &Row| {
            let at = chunk.checked_sub(row.first_chunk)? as usize;
            (at < row.len).then_some(row.first_key + at)
        };
        let Some(num_hits) = self.rows.iter().find_map(hit) else { return };
        self.rows.retain(|row| row.first_key < num_hits);
        if let Some(row) = self.rows.last_mut() {
            row.len = num_hits - row.first_key;
        }
        self.num_hits = num_hits;
        self.num_ready = self.num_ready.min(num_hits);
    }

    fn cursor(&self) -> Cursor {
        self.rows.last().map_or_else(Cursor::forwards, |row| {
            Cursor::forwards_from(row.first_chunk + row.len as ChunkId)
        })
    }

    fn push(&mut self, chunk: ChunkId) {
        match self.rows.last_mut() {
            Some(row) if row.first_chunk as usize + row.len == chunk as usize => row.len += 1,
            _ => self.rows.push(Row { first_key: self.num_hits, first_chunk: chunk, len: 1 }),
        }
        self.num_hits += 1;
    }

    /// Returns the chunk of a hit.
    fn chunk(&self, at: usize) -> Option<ChunkId> {
        let row =
            &self.rows[self.rows.partition_point(|row| row.first_key <= at).checked_sub(1)?];
        (at - row.first_key < row.len).then(|| row.first_chunk + (at - row.first_key) as ChunkId)
    }
}

//! Look-ups of many keys of one prompt, and which of them are being loaded.

use super::chunks::{ChunkId, Cursor};
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
        let (mut run, mut is_pending, mut wanted) = (0, false, first_window);
        for (at, key) in keys.enumerate().rev() {
            match self.chunks.find_next(&key, &mut cursor) {
                Some(chunk) => {
                    run += 1;
                    is_pending |= !self.chunks.is_ready(chunk);
                }
                None => (run, is_pending, wanted) = (0, false, window),
            }
            if run == wanted {
                run += at;
                break;
            }
        }
        (!is_pending).then_some(run)
    }

    /// Notes that keys are being loaded, or are no more. Keys without a chunk are passed over.
    pub fn set_loading(&mut self, keys: impl Iterator<Item = CacheKey>, is_loading: bool) {
        let mut cursor = Cursor::forwards();
        for key in keys {
            if let Some(chunk) = self.chunks.find_next(&key, &mut cursor) {
                self.chunks.set_loading(chunk, is_loading);
            }
        }
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

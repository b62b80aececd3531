//! Alias keys: keys that blocks have in addition to their own hash.

use super::line::Entry;
use crate::block::{BlockId, CacheKey, MAX_BLOCKS};

/// The alias keys of blocks. A prompt can end inside a block that is cached as a whole. Alias keys
/// are few, so they are kept separately.
#[derive(Clone, Debug, Default)]
pub struct AliasKeys {
    keys: Vec<(CacheKey, BlockId)>,
    vacant: Vec<Entry>,
    by_block: hashbrown::HashMap<BlockId, Vec<Entry>, foldhash::fast::FixedState>,
    /// The blocks whose alias keys changed, if changes are tracked.
    changed: Option<Vec<BlockId>>,
}

impl AliasKeys {
    const TAG: Entry = MAX_BLOCKS as Entry;

    /// Returns whether an entry of the table is an alias key.
    pub(super) fn is_alias(entry: Entry) -> bool {
        entry & Self::TAG != 0
    }

    /// Returns the block of an entry. The entry can be an alias key.
    pub(super) fn block_of(&self, entry: Entry) -> BlockId {
        match Self::is_alias(entry) {
            true => self.keys[(entry ^ Self::TAG) as usize].1,
            false => entry,
        }
    }

    /// Returns the key of an entry that is an alias key.
    pub(super) fn key(&self, entry: Entry) -> CacheKey {
        self.keys[(entry ^ Self::TAG) as usize].0
    }

    pub(super) fn entries_of(&self, block: BlockId) -> Vec<Entry> {
        self.by_block.get(&block).cloned().unwrap_or_default()
    }

    pub(super) fn of(&self, block: BlockId) -> impl Iterator<Item = CacheKey> + '_ {
        self.by_block.get(&block).into_iter().flatten().map(|&entry| self.key(entry))
    }

    /// Returns the number of blocks that have alias keys.
    pub(super) fn num_blocks(&self) -> usize {
        self.by_block.len()
    }

    /// Starts to track which blocks' alias keys change. All blocks that have alias keys now count
    /// as changed.
    pub fn track_changes(&mut self) {
        self.changed = Some(self.by_block.keys().copied().collect());
    }

    /// Returns whether any block's alias keys changed since the last call of
    /// [`Self::take_changed`].
    #[inline]
    pub fn has_changed(&self) -> bool {
        self.changed.as_ref().is_some_and(|changed| !changed.is_empty())
    }

    /// Returns the blocks whose alias keys changed since the last call.
    pub fn take_changed(&mut self) -> Vec<BlockId> {
        self.changed.as_mut().map(std::mem::take).unwrap_or_default()
    }

    pub(super) fn clear(&mut self) {
        let mut changed = self.changed.take();
        if let Some(changed) = &mut changed {
            changed.extend(self.by_block.keys());
        }
        *self = Self { changed, ..Self::default() };
    }

    fn note_change(&mut self, block: BlockId) {
        if let Some(changed) = &mut self.changed {
            changed.push(block);
        }
    }

    pub(super) fn add(&mut self, block: BlockId, key: CacheKey) -> Entry {
        let entry = self.vacant.pop().unwrap_or_else(|| {
            self.keys.push((key, block));
            (self.keys.len() - 1) as Entry | Self::TAG
        });
        self.keys[(entry ^ Self::TAG) as usize] = (key, block);
        self.by_block.entry(block).or_default().push(entry);
        self.note_change(block);
        entry
    }

    /// Removes all alias keys of a block.
    pub(super) fn remove(&mut self, block: BlockId) {
        self.vacant.extend(self.by_block.remove(&block).unwrap_or_default());
        self.note_change(block);
    }
}

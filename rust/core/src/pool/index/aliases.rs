//! Keys of blocks beside their own hash.

use crate::block::{BlockId, CacheKey, MAX_BLOCKS};
use crate::pool::index::Entry;

/// Keys of blocks beside their own hash: the partial tail of a prompt inside a block that is
/// cached as a whole. Few, so they are kept apart.
#[derive(Clone, Debug, Default)]
pub struct AliasKeys {
    keys: Vec<(CacheKey, BlockId)>,
    vacant: Vec<Entry>,
    by_block: hashbrown::HashMap<BlockId, Vec<Entry>, foldhash::fast::FixedState>,
    /// Blocks whose alias keys changed, if anybody wants to know.
    noted: Option<Vec<BlockId>>,
}

impl AliasKeys {
    const TAG: Entry = MAX_BLOCKS as Entry;

    /// Whether an entry of the index is a alias key.
    pub fn is_alias(entry: Entry) -> bool {
        entry & Self::TAG != 0
    }

    /// The block of an entry, alias key or not.
    pub fn block_of(&self, entry: Entry) -> BlockId {
        match Self::is_alias(entry) {
            true => self.keys[(entry ^ Self::TAG) as usize].1,
            false => entry,
        }
    }

    /// The key of an entry.
    pub fn key(&self, entry: Entry) -> CacheKey {
        self.keys[(entry ^ Self::TAG) as usize].0
    }

    /// The alias keys of a block, as entries.
    pub fn entries_of(&self, block: BlockId) -> Vec<Entry> {
        self.by_block.get(&block).cloned().unwrap_or_default()
    }

    /// The alias keys of a block.
    pub fn of(&self, block: BlockId) -> impl Iterator<Item = CacheKey> + '_ {
        self.by_block.get(&block).into_iter().flatten().map(|&entry| self.key(entry))
    }

    /// Number of blocks that have alias keys.
    pub fn num_blocks(&self) -> usize {
        self.by_block.len()
    }

    /// From now on [`Self::take_noted`] tells which blocks' keys changed: all that have some, first.
    pub fn note_changes(&mut self) {
        self.noted = Some(self.by_block.keys().copied().collect());
    }

    /// Whether any block's keys changed since the last call of [`Self::take_noted`].
    pub fn has_noted(&self) -> bool {
        self.noted.as_ref().is_some_and(|noted| !noted.is_empty())
    }

    /// The blocks whose keys changed since the last call.
    pub fn take_noted(&mut self) -> Vec<BlockId> {
        self.noted.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Forgets every key.
    pub fn clear(&mut self) {
        let mut noted = self.noted.take();
        if let Some(noted) = &mut noted {
            noted.extend(self.by_block.keys());
        }
        *self = Self { noted, ..Self::default() };
    }

    fn note(&mut self, block: BlockId) {
        if let Some(noted) = &mut self.noted {
            noted.push(block);
        }
    }

    /// Adds a key.
    pub fn add(&mut self, block: BlockId, key: CacheKey) -> Entry {
        let entry = self.vacant.pop().unwrap_or_else(|| {
            self.keys.push((key, block));
            (self.keys.len() - 1) as Entry | Self::TAG
        });
        self.keys[(entry ^ Self::TAG) as usize] = (key, block);
        self.by_block.entry(block).or_default().push(entry);
        self.note(block);
        entry
    }

    /// Takes all keys of a block away.
    pub fn remove(&mut self, block: BlockId) {
        self.vacant.extend(self.by_block.remove(&block).unwrap_or_default());
        self.note(block);
    }
}

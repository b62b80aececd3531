//! The prefix index: finds the block that serves a key. It has the hash table of the prefix cache,
//! alias keys, and a trie that stores the blocks of a prefix side by side.

mod check;
mod cursor;
mod evict;
mod insert;
mod prefix;
mod search;

mod evicted_keys;
mod hash_cache;
mod table;

mod duplicates;

mod line;
mod line_layout;
mod lines;

mod aliases;
mod removals;
mod trie;

pub use aliases::AliasKeys;
pub(crate) use cursor::PrefixCursor;
pub use evicted_keys::ReuseGaps;
pub(crate) use removals::LogPosition;
pub use removals::RemovalLog;
pub(crate) use trie::TriePath;

use evict::Evictions;
use hash_cache::HashCache;
use line::Entry;
use line_layout::Home;
use table::HashTable;
use trie::PrefixTrie;

use super::event::{Event, EventLog};
use crate::block::{BlockId, GroupId};
use crate::pool::blocks::{Blocks, KeyLayout};

/// Finds the block that serves a key. If several blocks have the key, the first one that got it
/// serves it.
#[derive(Debug)]
pub struct PrefixIndex {
    layout: KeyLayout,
    table: HashTable,
    alias_keys: AliasKeys,
    trie: PrefixTrie,
    hash_cache: HashCache,
    pub(crate) num_cached: usize,
    version: u64,
    evictions: Evictions,
    removals: RemovalLog,
    events: EventLog,
}

impl PrefixIndex {
    /// The most blocks that are cached or evicted at once.
    pub const BATCH: usize = HashTable::BATCH;

    /// Creates an index for keys of `num_blocks` blocks.
    pub(crate) fn new(num_blocks: usize, layout: KeyLayout, with_events: bool) -> Self {
        Self {
            layout,
            table: HashTable::with_capacity(num_blocks, layout),
            alias_keys: AliasKeys::default(),
            trie: PrefixTrie::default(),
            hash_cache: HashCache::default(),
            num_cached: 0,
            version: 0,
            evictions: Evictions::default(),
            removals: RemovalLog::default(),
            events: EventLog::new(with_events),
        }
    }

    /// Returns the number of distinct keys.
    pub fn num_keys(&self) -> usize {
        self.table.len()
    }

    /// Returns the number of blocks with at least one key.
    pub fn num_cached(&self) -> usize {
        self.num_cached
    }

    /// Returns the version of the index. It changes whenever a key is added or removed. With equal
    /// versions, every look-up has the same result.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Returns whether the index can have keys of a group.
    pub(crate) fn has_group(&self, group: GroupId) -> bool {
        self.layout.has_group(group)
    }

    /// Returns the number of groups whose keys can be distinguished.
    pub(crate) fn num_groups(&self) -> usize {
        self.layout.num_groups()
    }

    /// Returns the log of keys that were removed from the index.
    pub fn removals(&self) -> &RemovalLog {
        &self.removals
    }

    pub(crate) fn removals_mut(&mut self) -> &mut RemovalLog {
        &mut self.removals
    }

    /// Returns the keys that blocks have in addition to their own.
    pub fn alias_keys(&self) -> &AliasKeys {
        &self.alias_keys
    }

    /// Returns the keys that blocks have in addition to their own, for changes.
    pub fn alias_keys_mut(&mut self) -> &mut AliasKeys {
        &mut self.alias_keys
    }

    pub(crate) fn hash_cache_mut(&mut self) -> &mut HashCache {
        &mut self.hash_cache
    }

    /// Returns the events that were not taken yet.
    pub fn events(&self) -> &EventLog {
        &self.events
    }

    /// Returns the events that were not taken yet, for changes.
    pub fn events_mut(&mut self) -> &mut EventLog {
        &mut self.events
    }

    /// Removes every key.
    pub(crate) fn clear(&mut self, blocks: &mut Blocks) {
        self.table.clear();
        self.trie.clear();
        for block in 0..blocks.len() as BlockId {
            blocks.clear_key(block);
            blocks.set_has_alias_keys(block, false);
        }
        self.alias_keys.clear();
        self.num_cached = 0;
        self.version += 1;
        self.evictions.forget_keys();
        self.removals.restart();
        self.events.push(|| Event::Cleared);
    }
}

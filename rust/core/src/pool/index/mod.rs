//! Which block serves a key: the hash table of the prefix cache, alias keys, and the trie that finds
//! the blocks of a prefix side by side.

mod check;
mod cursor;
mod evict;
mod insert;
mod prefix;
mod search;

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

/// Which block serves a key: of the blocks that have it, the one that got it first.
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
    /// Blocks that are cached or evicted at once, at most.
    pub const BATCH: usize = HashTable::BATCH;

    /// An index for keys of so many blocks.
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

    /// Number of distinct keys.
    pub fn num_keys(&self) -> usize {
        self.table.len()
    }

    /// Number of blocks with at least one key.
    pub fn num_cached(&self) -> usize {
        self.num_cached
    }

    /// Changes whenever a key enters or leaves the index: equal versions answer every look-up
    /// equally.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Whether keys of a group can be in the index.
    pub(crate) fn has_group(&self, group: GroupId) -> bool {
        self.layout.has_group(group)
    }

    /// Groups whose keys can be told apart.
    pub(crate) fn num_groups(&self) -> usize {
        self.layout.num_groups()
    }

    /// Returns which keys left the index.
    pub fn removals(&self) -> &RemovalLog {
        &self.removals
    }

    pub(crate) fn removals_mut(&mut self) -> &mut RemovalLog {
        &mut self.removals
    }

    /// Returns the keys of blocks beside their own.
    pub fn alias_keys(&self) -> &AliasKeys {
        &self.alias_keys
    }

    /// Returns the keys of blocks beside their own.
    pub fn alias_keys_mut(&mut self) -> &mut AliasKeys {
        &mut self.alias_keys
    }

    pub(crate) fn hash_cache_mut(&mut self) -> &mut HashCache {
        &mut self.hash_cache
    }

    /// Returns the events that have not been handed out.
    pub fn events(&self) -> &EventLog {
        &self.events
    }

    /// Returns the events that have not been handed out.
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
        self.removals.restart();
        self.events.push(|| Event::Cleared);
    }
}

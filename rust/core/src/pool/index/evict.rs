//! Removes keys from the index when their blocks are allocated again, get other keys or are evicted
//! by id.

use super::aliases::AliasKeys;
use super::evicted_keys::EvictedKeys;
use super::removals::RemovedKey;
use super::search::entry_has;
use super::{Entry, HashTable, Home, PrefixIndex};
use crate::block::{BlockHash, BlockId, CacheKey, GroupId, NULL_BLOCK};
use crate::pool::blocks::{Blocks, CachedLeft};
use crate::pool::event::Event;

/// Counts cached blocks that lost their keys because they were allocated.
#[derive(Debug, Default)]
pub(super) struct Evictions {
    total: u64,
    by_group: Option<Vec<u64>>,
    /// The keys that were evicted last, if they are remembered. Then evictions are also counted by
    /// group, so that eviction checks one field only.
    memory: Option<Box<EvictedKeys>>,
}

impl Evictions {
    /// Forgets which keys were evicted.
    pub(super) fn forget_keys(&mut self) {
        if let Some(memory) = &mut self.memory {
            memory.clear();
        }
    }
}

impl PrefixIndex {
    /// Removes the keys of free blocks, up to [`HashTable::BATCH`] of them. Gives each block its
    /// only reference.
    pub(crate) fn evict(&mut self, blocks: &mut Blocks, batch: &[BlockId]) {
        let mut cached = [(NULL_BLOCK, Home::default()); HashTable::BATCH];
        let home = |fingerprint| self.table.home(fingerprint);
        let CachedLeft { num_cached, plain, is_any_in_trie } =
            blocks.allocate_uncached(batch, &mut cached, home);
        let cached = &cached[..num_cached];
        if self.evictions.by_group.is_some() {
            self.note_evicted(cached);
        }
        self.table.prefetch(cached.iter().map(|&(_, key)| key));
        let mut next = 0;
        while next < num_cached {
            let num_plain =
                if self.reports_removals() { 0 } else { (plain >> next).trailing_ones() };
            let plain = &cached[next..][..num_plain as usize];
            next += self.evict_plain(blocks, plain, is_any_in_trie);
            if next < num_cached {
                self.evict_one(blocks, cached[next].0);
                next += 1;
            }
        }
    }

    /// Evicts blocks that serve their only key, up to the first block that has duplicates. Returns
    /// the number of evicted blocks.
    fn evict_plain(
        &mut self,
        blocks: &mut Blocks,
        plain: &[(BlockId, Home)],
        are_in_trie: bool,
    ) -> usize {
        let num_evicted = self.table.remove_each(plain);
        let evicted = &plain[..num_evicted];
        if are_in_trie {
            self.cut_each(blocks, evicted);
        }
        blocks.allocate_each(evicted.iter().map(|&(block, _)| block));
        self.evictions.total += num_evicted as u64;
        self.version += num_evicted as u64;
        self.num_cached -= num_evicted;
        num_evicted
    }

    fn evict_one(&mut self, blocks: &mut Blocks, block: BlockId) {
        if self.evictions.memory.is_some() {
            self.remember_keys(blocks, block);
        }
        blocks.set_ref_count(block, 1);
        self.remove_keys(blocks, block);
        self.evictions.total += 1;
    }

    /// Returns how many cached blocks lost their keys because they were allocated.
    pub fn evictions(&self) -> u64 {
        self.evictions.total
    }

    /// Returns the evictions of each group since [`Self::count_evictions_by_group`] was called.
    pub(crate) fn evictions_by_group(&self) -> Option<&[u64]> {
        self.evictions.by_group.as_deref()
    }

    /// Starts to count evictions by group.
    pub fn count_evictions_by_group(&mut self) {
        let num_groups = self.layout.num_groups();
        self.evictions.by_group.get_or_insert_with(|| vec![0; num_groups]);
    }

    /// Starts to remember which keys are evicted, up to `num_keys` keys.
    pub(crate) fn remember_evicted(&mut self, num_keys: usize) {
        self.count_evictions_by_group();
        self.evictions.memory.get_or_insert_with(|| Box::new(EvictedKeys::new(num_keys)));
    }

    /// Returns the keys that were evicted, if they are remembered.
    pub(crate) fn evicted_keys(&self) -> Option<&EvictedKeys> {
        self.evictions.memory.as_deref()
    }

    /// Returns the keys that were evicted, for changes.
    pub(crate) fn evicted_keys_mut(&mut self) -> Option<&mut EvictedKeys> {
        self.evictions.memory.as_deref_mut()
    }

    /// Asks for an evicted key, which counts the time since its eviction once. Returns whether the key
    /// is still remembered.
    pub(crate) fn ask_for_evicted(&mut self, key: &CacheKey) -> bool {
        let fingerprint = self.layout.fingerprint_of(key);
        self.evictions.memory.as_mut().is_some_and(|memory| memory.ask(fingerprint))
    }

    /// Reads the memory that questions about these hashes in a group will read: which are cached, and
    /// which are remembered as evicted.
    pub(crate) fn prefetch_questions(&self, blocks: &Blocks, group: GroupId, hashes: &[BlockHash]) {
        if let Some(memory) = &self.evictions.memory {
            memory.prefetch(hashes.iter().map(|hash| self.layout.fingerprint(hash, group)));
        }
        self.prefetch(blocks, group, hashes);
    }

    /// Remembers every key of a block that is about to be evicted.
    #[cold]
    #[inline(never)]
    pub(crate) fn remember_keys(&mut self, blocks: &Blocks, block: BlockId) {
        let fingerprint = |key| self.layout.fingerprint_of(&key);
        let keys: Vec<_> = self.keys_of(blocks, block).map(fingerprint).collect();
        if let Some(memory) = &mut self.evictions.memory {
            memory.remember(keys.into_iter());
        }
    }

    #[cold]
    #[inline(never)]
    fn note_evicted(&mut self, evicted: &[(BlockId, Home)]) {
        self.count_by_group(evicted);
        if let Some(memory) = &mut self.evictions.memory {
            memory.remember(evicted.iter().map(|&(_, key)| key.fingerprint));
        }
    }

    fn count_by_group(&mut self, evicted: &[(BlockId, Home)]) {
        let Some(counts) = &mut self.evictions.by_group else { return };
        if let [all] = &mut counts[..] {
            *all += evicted.len() as u64;
            return;
        }
        for (_, key) in evicted {
            counts[usize::from(self.layout.group_of(key.fingerprint))] += 1;
        }
    }

    /// Removes every key of a block and creates an event for each.
    pub(crate) fn remove_keys(&mut self, blocks: &mut Blocks, block: BlockId) {
        self.cut_at(blocks, block);
        if blocks.has_plain_key(block) {
            blocks.clear_key(block);
            self.remove_plain_key(blocks, block);
        } else if let Some(own) = blocks.key(block) {
            self.remove_entry(blocks, block, &own);
            self.remove_alias_keys(blocks, block);
            blocks.clear_key(block);
            self.num_cached -= 1;
        }
    }

    /// Removes every key of a block and creates no event.
    pub(crate) fn remove_keys_silently(&mut self, blocks: &mut Blocks, block: BlockId) {
        let events = std::mem::take(&mut self.events);
        self.remove_keys(blocks, block);
        self.events = events;
    }

    /// Removes a block's only key from the table. The block must have served the key.
    #[inline]
    fn remove_plain_key(&mut self, blocks: &mut Blocks, block: BlockId) {
        let home = self.table.home(blocks.fingerprint(block));
        let next_duplicate = self.table.remove_first(home, block);
        self.num_cached -= 1;
        if next_duplicate.is_some() || self.reports_removals() {
            self.report_removal(blocks, block, &blocks.last_key(block), next_duplicate);
        } else {
            self.version += 1;
        }
    }

    fn reports_removals(&self) -> bool {
        self.events.is_kept() || self.removals.is_kept()
    }

    fn remove_alias_keys(&mut self, blocks: &mut Blocks, block: BlockId) {
        if blocks.has_alias_keys(block) {
            for entry in self.alias_keys.entries_of(block) {
                let key = self.alias_keys.key(entry);
                self.remove_entry(blocks, entry, &key);
            }
            self.alias_keys.remove(block);
            blocks.set_has_alias_keys(block, false);
        }
    }

    fn remove_entry(&mut self, blocks: &mut Blocks, entry: Entry, key: &CacheKey) {
        let Self { table, alias_keys, layout, .. } = self;
        let is_match = |other| entry_has(blocks, alias_keys, other, key);
        let next_duplicate = table.remove(layout.fingerprint_of(key), entry, is_match);
        let block = alias_keys.block_of(entry);
        self.report_removal(blocks, block, key, next_duplicate);
    }

    /// Reports that a key of a block was removed from the table. `next_duplicate` serves the key
    /// from now on.
    fn report_removal(
        &mut self,
        blocks: &mut Blocks,
        block: BlockId,
        &CacheKey { hash, group }: &CacheKey,
        next_duplicate: Option<Entry>,
    ) {
        if let Some(block) = next_duplicate.filter(|&entry| !AliasKeys::is_alias(entry)) {
            blocks.set_duplicate(block, false);
        }
        self.version += 1;
        self.removals.push(|| RemovedKey {
            block,
            group,
            num_tokens: blocks.last_hash_num_tokens(block),
        });
        self.events.push(|| Event::Removed { hash, group });
    }
}

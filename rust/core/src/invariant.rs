//! Every invariant of the engine, checked by one function.
//!
//! 1. The free queue and the pinned tier are rings that read the same in both directions, and are
//!    as long as they say.
//! 2. Every block but the null block is in exactly one place: in use (referenced), in the free
//!    queue, or in the pinned tier. Nothing is lost: together they are all blocks. The null block
//!    is in none of them and has no key.
//! 3. Blocks in the pinned tier are flagged and cached; blocks in the free queue are not flagged.
//! 4. The index serves, for each key of each block, exactly one block that has the key; the
//!    blocks with a key stand in one line, and all but the first are marked as duplicates.
//! 5. The number of cached blocks is counted right, and the index has no further entries.
//! 6. A request holds only blocks that are in the pool, and each block has at least as many
//!    references as requests hold it. Blocks beyond those cached for a request are held by it
//!    alone and carry no hash of a full block: no hash stands on a block that a writer owns.
//! 7. A request has a table for every group, and its cached blocks do not outnumber its blocks.
//! 8. What is listed for zeroing are blocks of the pool.

use std::collections::HashMap;

use crate::block::{BlockId, NULL_BLOCK};
use crate::hash_index::Fingerprint;
use crate::manager::Manager;
use crate::pool::BlockPool;
use crate::request::{GroupState, RequestBlocks};

/// Checks every invariant; the error says what is broken, where, and which of the above that is.
pub fn check(manager: &Manager) -> Result<(), String> {
    let pool = manager.pool();
    numbered("1", check_rings(pool))?;
    numbered("2 or 3", check_places(pool))?;
    numbered("4 or 5", check_index(pool))?;
    numbered("6 or 7", check_requests(manager))?;
    numbered("8", check_zeroing(manager))
}

fn numbered(which: &str, checked: Result<(), String>) -> Result<(), String> {
    checked.map_err(|broken| format!("{broken} (invariant {which})"))
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

fn check_rings(pool: &BlockPool) -> Result<(), String> {
    for (name, list) in [("free queue", &pool.free), ("pinned tier", &pool.pinned)] {
        let forward: Vec<_> = list.iter(&pool.states).take(pool.num_blocks() + 1).collect();
        let mut backward: Vec<_> =
            list.iter_back(&pool.states).take(pool.num_blocks() + 1).collect();
        backward.reverse();
        ensure(forward == backward, || format!("the links of the {name} disagree"))?;
        ensure(forward.len() == list.len(), || {
            format!("the {name} counts {} blocks and links {}", list.len(), forward.len())
        })?;
    }
    Ok(())
}

fn check_places(pool: &BlockPool) -> Result<(), String> {
    let mut places = vec![0_u32; pool.num_blocks()];
    for block in pool.free_blocks() {
        places[block as usize] += 1;
        ensure(!pool.states().is_pinned(block), || format!("free block {block} is flagged"))?;
    }
    for block in pool.pinned_blocks() {
        places[block as usize] += 1;
        let is_kept = pool.states().is_pinned(block) && pool.states().is_cached(block);
        ensure(is_kept, || format!("pinned block {block} is not flagged or not cached"))?;
    }
    for (block, &queued) in places.iter().enumerate().skip(1) {
        let in_use = u32::from(pool.states().ref_count(block as BlockId) > 0);
        ensure(queued + in_use == 1, || {
            format!("block {block} is in {} places instead of one", queued + in_use)
        })?;
    }
    let null_is_apart = places[0] == 0 && pool.keys_of(NULL_BLOCK).next().is_none();
    ensure(null_is_apart, || "the null block is queued or cached".into())
}

fn check_index(pool: &BlockPool) -> Result<(), String> {
    let mut entries = 0;
    let mut served = 0;
    for first in pool.index.first_entries() {
        served += 1;
        for (position, entry) in pool.index.entries_of(first).enumerate() {
            entries += 1;
            let block = pool.extra_keys.block_of(entry);
            let is_marked = block != entry || pool.states().is_duplicate(block) == (position > 0);
            ensure(is_marked, || format!("block {block} is wrongly marked as a duplicate"))?;
        }
    }
    ensure(served == pool.index.len(), || "the index counts its keys wrongly".into())?;

    let (mut cached, mut keys, mut with_extra) = (0, 0, 0);
    for block in 1..pool.num_blocks() as BlockId {
        cached += usize::from(pool.states().is_cached(block));
        with_extra += usize::from(pool.states().has_extra_keys(block));
        for key in pool.keys_of(block) {
            keys += 1;
            let is_found = pool.find(&key).is_some_and(|found| pool.has_key(found, &key));
            ensure(is_found, || format!("a key of block {block} is not found"))?;
            let first = pool.index.find(Fingerprint::of(&key), |e| pool.entry_has(e, &key));
            let stands_in_line = first.is_some_and(|first| {
                pool.index.entries_of(first).any(|e| pool.extra_keys.block_of(e) == block)
            });
            ensure(stands_in_line, || format!("block {block} is not in the line of its key"))?;
        }
    }
    ensure(keys == entries, || format!("blocks have {keys} keys, the index {entries} entries"))?;
    ensure(cached == pool.num_cached_blocks(), || "cached blocks are counted wrongly".into())?;
    ensure(with_extra == pool.extra_keys.num_blocks(), || "extra keys are left over".into())
}

fn check_requests(manager: &Manager) -> Result<(), String> {
    let mut holders: HashMap<BlockId, u32> = HashMap::new();
    for held in manager.requests.values() {
        for block in held.groups.iter().flat_map(|group| group.blocks.iter_held_back()) {
            *holders.entry(block).or_default() += 1;
        }
    }
    for (&block, &count) in &holders {
        let references = match (block as usize) < manager.pool().num_blocks() {
            true => manager.pool().states().ref_count(block),
            false => 0,
        };
        ensure(references >= count, || {
            format!("block {block} has {references} references but {count} holders")
        })?;
    }
    let mut requests = manager.requests.iter();
    requests.try_for_each(|(id, held)| check_request(manager, *id, held, &holders))
}

fn check_request(
    manager: &Manager,
    id: u64,
    held: &RequestBlocks,
    holders: &HashMap<BlockId, u32>,
) -> Result<(), String> {
    let num_groups = manager.config().groups.len();
    ensure(held.groups.len() == num_groups, || {
        format!("request {id} has {} tables for {num_groups} groups", held.groups.len())
    })?;
    for (group, state) in held.groups.iter().enumerate() {
        let GroupState { blocks, num_cached_blocks } = state;
        let cached = num_cached_blocks.unwrap_or(0);
        ensure(cached <= blocks.len(), || {
            format!("request {id} has {cached} of {} blocks cached in group {group}", blocks.len())
        })?;
        let block_size = manager.config().groups[group].block_size;
        let (first, own) = blocks.tail_from(cached);
        for (i, block) in (first..).zip(own).filter(|(_, block)| **block != NULL_BLOCK) {
            let covered = manager.pool().states().hash_num_tokens(*block).unwrap_or(0);
            ensure(covered < (i + 1) * block_size && holders[block] == 1, || {
                format!("request {id} writes to block {block}, which is shared or cached")
            })?;
        }
    }
    Ok(())
}

fn check_zeroing(manager: &Manager) -> Result<(), String> {
    let mut listed = manager.new_block_ids.iter().flatten();
    match listed.find(|&&block| block as usize >= manager.pool().num_blocks()) {
        None => Ok(()),
        Some(block) => Err(format!("block {block} is listed for zeroing, outside the pool")),
    }
}

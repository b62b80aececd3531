//! Every invariant of the engine, checked by one function.
//!
//! 1. The free queue and the pinned tier are rings that read the same in both directions, and are
//!    as long as they say; so are the lists of the adaptive order.
//! 2. Every block but the null block is in exactly one place: in use (referenced), in the free
//!    queue, in the pinned tier, or in a list of the adaptive order. Nothing is lost: together they are all blocks. The null block
//!    is in none of them and has no key.
//! 3. Blocks in the pinned tier are flagged and cached; blocks in the free queue are not flagged.
//! 4. The index serves, for each key of each block, exactly one block that has the key; the
//!    blocks with a key stand in one line, and all but the first are marked as duplicates.
//! 5. The number of cached blocks is counted right, and the index has no aliases entries.
//! 6. A request holds only blocks that are in the pool, and each block has at least as many
//!    references as requests hold it. Blocks beyond those cached for a request are held by it
//!    alone and carry no hash of a full block: no hash stands on a block that a writer owns. Where
//!    blocks are states, hashes name prefixes of any length, and what a writer owns is the kind's.
//! 7. A request has a table for every group, and its cached blocks do not outnumber its blocks,
//!    unless others wrote to its tables.
//! 8. What is listed for zeroing are blocks of the pool; both ends of a copy are in use.
//! 9. A request's tables are what the kinds of their groups promise.
//! 10. A block that a segment of a chain lists names that segment and serves its own key, that of
//!     its position; no segment that lost blocks before a child of it can be extended.
//! 11. Blocks of another priority than the default stand on the rung of theirs, those above it are
//!     no more than the protected share, and none is there whose time has ended.
//! 12. The blocks of the sample are those whose tags say so.

use std::collections::HashMap;

use crate::block::{BlockId, NULL_BLOCK};
use crate::manager::Manager;
use crate::pool::BlockPool;
use crate::request::{GroupState, RequestBlocks, RequestId};

/// Checks every invariant; the error says what is broken, where, and which of the above that is.
pub fn check(manager: &Manager) -> Result<(), String> {
    let pool = manager.pool();
    numbered("1", check_rings(pool))?;
    numbered("2 or 3", check_places(pool))?;
    numbered("4 or 5", pool.index().check(pool.blocks()))?;
    numbered("6 or 7", check_requests(manager))?;
    numbered("8", check_orders(manager))?;
    numbered("10", pool.index().check_trie(pool.blocks()))?;
    numbered("11 or 12", pool.adaptive().map_or(Ok(()), |adaptive| adaptive.check(pool.blocks())))
}

fn numbered(which: &str, checked: Result<(), String>) -> Result<(), String> {
    checked.map_err(|broken| format!("{broken} (invariant {which})"))
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

fn check_rings(pool: &BlockPool) -> Result<(), String> {
    let queue = pool.eviction.queue();
    for (name, list) in [("free queue", &queue.free), ("pinned tier", &queue.pinned)] {
        let forward: Vec<_> = list.iter(&pool.blocks).take(pool.num_blocks() + 1).collect();
        let mut backward: Vec<_> =
            list.iter_back(&pool.blocks).take(pool.num_blocks() + 1).collect();
        backward.reverse();
        ensure(forward == backward, || format!("the links of the {name} disagree"))?;
        ensure(forward.len() == list.len(), || {
            format!("the {name} counts {} blocks and links {}", list.len(), forward.len())
        })?;
    }
    let counted = pool.adaptive().map_or(0, |adaptive| adaptive.num_blocks());
    let linked = pool.listed_blocks().take(pool.num_blocks() + 1).count();
    ensure(linked == counted, || {
        format!("the adaptive order counts {counted} blocks and links {linked}")
    })
}

fn check_places(pool: &BlockPool) -> Result<(), String> {
    let mut places = vec![0_u32; pool.num_blocks()];
    for block in pool.free_blocks() {
        places[block as usize] += 1;
        ensure(!pool.blocks().is_pinned(block), || format!("free block {block} is flagged"))?;
    }
    for block in pool.listed_blocks() {
        places[block as usize] += 1;
        ensure(pool.blocks().is_cached(block), || format!("listed block {block} is not cached"))?;
    }
    for block in pool.pinned_blocks() {
        places[block as usize] += 1;
        let is_kept = pool.blocks().is_pinned(block) && pool.blocks().is_cached(block);
        ensure(is_kept, || format!("pinned block {block} is not flagged or not cached"))?;
    }
    for (block, &queued) in places.iter().enumerate().skip(1) {
        let block = block as BlockId;
        let in_use = u32::from(pool.ref_count(block) > 0 || pool.is_loose(block));
        ensure(queued + in_use == 1, || {
            format!("block {block} is in {} places instead of one", queued + in_use)
        })?;
    }
    let null_is_apart = places[0] == 0 && pool.keys_of(NULL_BLOCK).next().is_none();
    ensure(null_is_apart, || "the null block is queued or cached".into())
}

fn check_requests(manager: &Manager) -> Result<(), String> {
    let holders = holders(manager)?;
    let mut requests = manager.requests.iter();
    requests.try_for_each(|(id, held)| check_request(manager, *id, held, &holders))
}

/// Checks the tables of a request that others wrote to, before it goes on; each write is looked at
/// once.
pub fn check_direct_writes(manager: &mut Manager, request: RequestId) -> Result<(), String> {
    numbered("6 or 7", {
        let held = manager.requests.get(&request);
        holders(manager).and_then(|holders| {
            held.map_or(Ok(()), |held| check_request(manager, request, held, &holders))
        })
    })?;
    manager.accept_direct_writes(request);
    Ok(())
}

/// How many tables each block is in, which is at most as many as it has references.
fn holders(manager: &Manager) -> Result<HashMap<BlockId, u32>, String> {
    let mut holders: HashMap<BlockId, u32> = HashMap::new();
    for held in manager.requests.values() {
        for block in held.iter_held_back() {
            *holders.entry(block).or_default() += 1;
        }
    }
    for (&block, &count) in &holders {
        let references = match (block as usize) < manager.pool().num_blocks() {
            true => manager.pool().ref_count(block),
            false => 0,
        };
        ensure(references >= count as i32, || {
            format!("block {block} has {references} references but {count} holders")
        })?;
    }
    Ok(holders)
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
    for (group, state) in manager.groups.iter().zip(&held.groups) {
        numbered("9", group.check(id, state))?;
        let GroupState { blocks, num_cached_blocks } = state;
        let cached = num_cached_blocks.unwrap_or(0);
        ensure(cached <= blocks.len() || manager.direct_writes.has(id), || {
            format!(
                "request {id} has {cached} of {} blocks cached in group {}",
                blocks.len(),
                group.id
            )
        })?;
        let block_size = group.block_size;
        if group.is_state {
            continue;
        }
        let (first, own) = blocks.tail_from(cached);
        for (i, block) in (first..).zip(own).filter(|(_, block)| **block != NULL_BLOCK) {
            let covered = manager.pool().blocks().hash_num_tokens(*block).unwrap_or(0);
            ensure(covered < (i + 1) * block_size && holders[block] == 1, || {
                format!("request {id} writes to block {block}, which is shared or cached")
            })?;
        }
    }
    Ok(())
}

fn check_orders(manager: &Manager) -> Result<(), String> {
    let is_outside = |block: BlockId| block as usize >= manager.pool().num_blocks();
    if let Some(block) = manager.commands.to_zero().find(|&block| is_outside(block)) {
        return Err(format!("block {block} is listed for zeroing, outside the pool"));
    }
    let mut copied = manager.commands.copies().flat_map(|(from, to)| [from, to]);
    match copied.find(|&block| is_outside(block) || manager.pool().is_free(block)) {
        None => Ok(()),
        Some(block) => Err(format!("block {block} is listed for copying, but nobody holds it")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{BlockHash, CacheKey};
    use crate::{AllocateArgs, GroupSpec, ManagerConfig, Policy, RequestView};

    const RUNNING: u64 = 1;
    /// A cached block and the one that request 1 writes to, of 11 blocks.
    const CACHED: BlockId = 1;
    const WRITTEN: BlockId = 3;
    const FREE: BlockId = 9;

    /// A manager whose first request has two full blocks and one that it writes to; the blocks of
    /// the second one are in the pinned tier.
    fn manager() -> Manager {
        let policy = Policy { pin_min_drop_size: Some(1), ..Policy::default() };
        let config =
            ManagerConfig { policy, ..ManagerConfig::new(11, vec![GroupSpec::full(4)], 40) };
        let mut manager = Manager::new(config).expect("a configuration that can work");
        for id in [RUNNING, 2] {
            let hashes = [BlockHash([id, 0, 0, 0]), BlockHash([id, 1, 0, 0])];
            let request = RequestView::new(id, &hashes[..], 10);
            let args = AllocateArgs { num_new_tokens: 10, ..AllocateArgs::default() };
            manager.allocate_slots(&request, &args).expect("slots").expect("room");
        }
        manager.free(2).expect("a request that runs");
        manager
    }

    fn held(manager: &mut Manager) -> &mut RequestBlocks {
        manager.requests.get_mut(&RUNNING).expect("a request that runs")
    }

    #[test]
    fn a_manager_that_is_right_is_found_right() {
        assert_eq!(check(&manager()), Ok(()));
        assert_eq!(manager().pool().num_pinned_blocks(), 2);
    }

    /// What is reported, which invariant that is, and how to break it.
    type Plant = (&'static str, &'static str, fn(&mut Manager, CacheKey));

    #[test]
    fn every_planted_violation_is_found_and_named() {
        let key = CacheKey { hash: BlockHash([7, 0, 0, 0]), group: 0 };
        let plants: [Plant; 16] = [
            ("the free queue counts 5 blocks and links 4", "1", |m, _| {
                let queue = m.pool.eviction.queue_mut();
                let before = queue.free.clone();
                queue.free.take_front(&mut m.pool.blocks, 1, &mut Vec::new());
                queue.free = before;
            }),
            ("block 9 is in 2 places", "2 or 3", |m, _| m.pool.blocks.set_ref_count(FREE, 1)),
            ("block 3 is in 0 places", "2 or 3", |m, _| m.pool.blocks.set_ref_count(WRITTEN, 0)),
            ("is in 0 places", "2 or 3", |m, _| {
                let queue = m.pool.eviction.queue_mut();
                queue.free.take_front(&mut m.pool.blocks, 1, &mut Vec::new());
            }),
            ("the null block is queued or cached", "2 or 3", |m, key| {
                m.pool.insert_key(NULL_BLOCK, key, 4);
            }),
            ("free block 9 is flagged", "2 or 3", |m, _| m.pool.blocks.set_pinned(FREE, true)),
            ("pinned block 4 is not flagged", "2 or 3", |m, _| m.pool.blocks.set_pinned(4, false)),
            ("block 1 is wrongly marked", "4 or 5", |m, _| {
                m.pool.blocks.set_duplicate(CACHED, true)
            }),
            ("cached blocks are counted wrongly", "4 or 5", |m, _| m.pool.index.num_cached += 1),
            ("", "4 or 5", |m, _| m.pool.blocks.clear_key(CACHED)),
            ("block 1 has 1 references but 2 holders", "6 or 7", |m, _| {
                held(m).groups[0].blocks.ids_mut().push(CACHED);
            }),
            ("writes to block 3, which is shared or cached", "6 or 7", |m, key| {
                m.pool.insert_key(WRITTEN, key, 12);
            }),
            ("block 99 has 0 references", "6 or 7", |m, _| {
                held(m).groups[0].blocks.ids_mut().push(99);
            }),
            ("has 4 of 3 blocks cached", "6 or 7", |m, _| {
                held(m).groups[0].num_cached_blocks = Some(4);
            }),
            ("block 11 is listed for zeroing", "8", |m, _| m.commands.zero(0, &[11])),
            ("block 9 is listed for copying", "8", |m, _| m.commands.copy(0, CACHED, FREE)),
        ];
        for (what, number, plant) in plants {
            let mut manager = manager();
            plant(&mut manager, key);
            let found = check(&manager).expect_err(what);
            assert!(found.contains(what), "{found} instead of {what}");
            assert!(found.ends_with(&format!("(invariant {number})")), "{found}");
        }
    }

    /// How a table of a kind that keeps it otherwise than most may be broken.
    type Break = fn(&mut GroupState);

    #[test]
    fn what_a_kind_promises_of_its_tables_is_checked() {
        let states = GroupSpec::new("mamba", 4).with(crate::Size::NumSpeculativeBlocks, 2);
        let buffer = GroupSpec::new("circular_buffer", 4);
        let plants: [(GroupSpec, &str, Break); 3] = [
            (states, "a row of 1 blocks lacks those for drafts", |state| {
                state.blocks.ids_mut().truncate(1);
            }),
            (buffer.clone(), "the circular buffer of group 0 is 2 blocks", |state| {
                state.blocks.push_nulls(1);
            }),
            (buffer, "the circular buffer of group 0 is 1 blocks", |state| {
                state.num_cached_blocks = Some(0);
            }),
        ];
        for (group, what, plant) in plants {
            let config =
                ManagerConfig { enable_caching: false, ..ManagerConfig::new(11, vec![group], 40) };
            let mut manager = Manager::new(config).expect("a configuration that can work");
            let args = AllocateArgs { num_new_tokens: 4, ..AllocateArgs::default() };
            let request = RequestView::new(RUNNING, &[][..], 10);
            manager.allocate_slots(&request, &args).expect("slots").expect("room");
            assert_eq!(check(&manager), Ok(()));
            plant(&mut held(&mut manager).groups[0]);
            let found = check(&manager).expect_err(what);
            assert!(found.contains(what), "{found} instead of {what}");
            assert!(found.contains("(invariant 9)"), "{found}");
        }
    }

    #[test]
    fn a_missing_table_is_found() {
        let mut manager = manager();
        held(&mut manager).groups.clear();
        assert_eq!(
            check(&manager),
            Err("request 1 has 0 tables for 1 groups (invariant 6 or 7)".into())
        );
    }
}

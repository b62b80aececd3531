//! Checks the engine's invariants, numbered as in docs/explain/architecture.md.

use std::collections::HashMap;

use crate::block::{BlockId, NULL_BLOCK};
use crate::group::Group;
use crate::manager::Manager;
use crate::pool::BlockPool;
use crate::request::{HeldBlocks, RequestBlocks, RequestId};

type Holders = HashMap<BlockId, u32>;

/// Checks every invariant. The error says what is broken, where, and the number of the invariant.
///
/// The check leaves out tables of requests that are being written directly. They are checked before
/// the next call for that request.
pub fn check(manager: &Manager) -> Result<(), String> {
    let pool = manager.pool();
    numbered("1", check_lists(pool))?;
    numbered("2 or 3", check_places(pool))?;
    numbered("2 or 3", check_pinned(pool))?;
    numbered("4 or 5", pool.index().check(pool.blocks()))?;
    numbered("6 or 7", {
        let is_written = |(id, _): &(&RequestId, _)| !manager.has_unchecked_writes(**id);
        let mut requests = manager.requests.iter().filter(is_written);
        let tables = requests.clone().map(|(_, held)| held);
        holders(manager, tables).and_then(|holders| {
            requests.try_for_each(|(&id, held)| check_request(manager, id, held, &holders))
        })
    })?;
    numbered("8", check_worker_commands(manager))?;
    numbered("10", pool.index().check_trie(pool.blocks()))?;
    numbered("11 or 12", pool.eviction.check(pool.blocks()))?;
    numbered("13", manager.outcomes.as_ref().map_or(Ok(()), |outcomes| outcomes.check()))
}

/// Checks invariants 6, 7 and 9 for a request whose tables were written directly. Each write is
/// checked once.
pub fn check_direct_writes(manager: &mut Manager, request: RequestId) -> Result<(), String> {
    numbered("6 or 7", {
        let held = manager.requests.get(&request);
        let counts = |id: RequestId| id == request || !manager.has_unchecked_writes(id);
        let tables = manager.requests.iter().filter(|(id, _)| counts(**id));
        holders(manager, tables.map(|(_, held)| held)).and_then(|holders| {
            held.map_or(Ok(()), |held| check_request(manager, request, held, &holders))
        })?;
        match manager.repeated_block(request) {
            None => Ok(()),
            Some(block) => Err(format!("request {request} has block {block} twice in a table")),
        }
    })?;
    manager.accept_direct_writes(request);
    Ok(())
}

fn numbered(which: &str, checked: Result<(), String>) -> Result<(), String> {
    checked.map_err(|broken| format!("{broken} (invariant {which})"))
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

/// Checks invariant 1: lists have the same blocks in both directions, and their counts are right.
fn check_lists(pool: &BlockPool) -> Result<(), String> {
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
    let counted = pool.eviction.num_listed();
    let linked = pool.listed_blocks().take(pool.num_blocks() + 1).count();
    ensure(linked == counted, || {
        format!("the eviction policy counts {counted} blocks and lists {linked}")
    })
}

/// Checks invariant 2: every block but the null block is in exactly one place. The null block has
/// no key.
fn check_places(pool: &BlockPool) -> Result<(), String> {
    let mut places = vec![0_u32; pool.num_blocks()];
    for block in pool.listed_blocks() {
        ensure(pool.blocks().is_cached(block), || format!("listed block {block} is not cached"))?;
    }
    for block in pool.free_blocks().chain(pool.listed_blocks()).chain(pool.pinned_blocks()) {
        places[block as usize] += 1;
    }
    for (block, &queued) in places.iter().enumerate().skip(1) {
        let block = block as BlockId;
        let in_use = u32::from(pool.ref_count(block) > 0 || pool.by_hand().is_loose(block));
        ensure(queued + in_use == 1, || {
            format!("block {block} is in {} places instead of one", queued + in_use)
        })?;
    }
    let null_is_apart = places[0] == 0 && pool.keys_of(NULL_BLOCK).next().is_none();
    ensure(null_is_apart, || "the null block is queued or cached".into())
}

/// Checks invariant 3: pinned blocks are flagged and cached, and blocks in the free queue are not
/// flagged.
fn check_pinned(pool: &BlockPool) -> Result<(), String> {
    let blocks = pool.blocks();
    for block in pool.free_blocks() {
        ensure(!blocks.is_pinned(block), || format!("free block {block} is flagged"))?;
    }
    for block in pool.pinned_blocks() {
        ensure(blocks.is_pinned(block) && blocks.is_cached(block), || {
            format!("pinned block {block} is not flagged or not cached")
        })?;
    }
    Ok(())
}

/// Checks invariant 6: blocks in tables are in the pool and have a reference for each table that
/// they are in. Returns the number of tables for each block.
fn holders<'a>(
    manager: &Manager,
    tables: impl Iterator<Item = &'a RequestBlocks>,
) -> Result<Holders, String> {
    let mut holders = Holders::new();
    for held in tables {
        for block in held.iter_owned_rev() {
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
    id: RequestId,
    held: &RequestBlocks,
    holders: &Holders,
) -> Result<(), String> {
    let num_groups = manager.config().groups.len();
    ensure(held.groups.len() == num_groups, || {
        format!("request {id} has {} tables for {num_groups} groups", held.groups.len())
    })?;
    for (group, in_group) in manager.groups.iter().zip(&held.groups) {
        numbered("9", group.check(id, in_group))?;
        check_num_cached(manager, id, group, in_group)?;
        check_writable(manager, id, group, in_group, holders)?;
    }
    Ok(())
}

/// Checks invariant 7: a table has no more cached blocks than blocks, unless it was written
/// directly. A part of its prompt without tails ends after it starts.
fn check_num_cached(
    manager: &Manager,
    id: RequestId,
    group: &Group,
    HeldBlocks { blocks, num_cached_blocks, without_tail, .. }: &HeldBlocks,
) -> Result<(), String> {
    let cached = num_cached_blocks.unwrap_or(0);
    ensure(cached <= blocks.len() || manager.direct_writes.has(id), || {
        let (len, group) = (blocks.len(), group.id);
        format!("request {id} has {cached} of {len} blocks cached in group {group}")
    })?;
    ensure(without_tail.start <= without_tail.end, || {
        format!("request {id} has {without_tail:?} in group {}", group.id)
    })
}

/// Checks invariant 6: only one request holds a block that it still writes to, and the block has no
/// hash of a full block. The check leaves out blocks of a hit whose holes are not cached yet, and
/// states, because their hashes can be of prefixes of any length.
fn check_writable(
    manager: &Manager,
    id: RequestId,
    group: &Group,
    held: &HeldBlocks,
    holders: &Holders,
) -> Result<(), String> {
    if group.is_state {
        return Ok(());
    }
    let (first, own) = held.blocks.ids_from(held.num_cached_blocks.unwrap_or(0));
    for (i, block) in (first..).zip(own).filter(|(_, block)| **block != NULL_BLOCK) {
        let covered = manager.pool().blocks().hash_num_tokens(*block).unwrap_or(0);
        let is_full = covered >= (i + 1) * group.block_size;
        ensure(i < held.hit_end && is_full || !is_full && holders[block] == 1, || {
            format!("request {id} writes to block {block}, which is shared or cached")
        })?;
    }
    Ok(())
}

/// Checks invariant 8: blocks to zero are in the pool, and both blocks of a copy are in use.
fn check_worker_commands(manager: &Manager) -> Result<(), String> {
    let is_outside = |block: BlockId| block as usize >= manager.pool().num_blocks();
    if let Some(block) = manager.commands.to_zero.iter().find(|&&block| is_outside(block)) {
        return Err(format!("block {block} is listed for zeroing, outside the pool"));
    }
    let mut copied = manager.commands.copies.iter().flat_map(|&(from, to)| [from, to]);
    match copied.find(|&block| is_outside(block) || manager.pool().blocks().ref_count(block) == 0) {
        None => Ok(()),
        Some(block) => Err(format!("block {block} is listed for copying, but no request holds it")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{BlockHash, CacheKey};
    use crate::{AllocateArgs, GroupSpec, ManagerConfig, Policy, RequestView};

    const RUNNING: u64 = 1;
    /// A cached block of the running request.
    const CACHED: BlockId = 1;
    /// The block that the running request writes to.
    const WRITTEN: BlockId = 3;
    const FREE: BlockId = 9;

    /// Returns a manager with two requests. The first request has two full blocks and one that it
    /// writes to. The second request has ended, and its blocks are pinned.
    fn manager() -> Manager {
        let policy = Policy { pin_min_drop_size: Some(1), ..Policy::every_tail() };
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
    fn an_intact_manager_passes() {
        assert_eq!(check(&manager()), Ok(()));
        assert_eq!(manager().pool().num_pinned_blocks(), 2);
    }

    /// Part of the report, the number of the invariant, and a change that breaks the invariant.
    type Plant = (&'static str, &'static str, fn(&mut Manager, CacheKey));

    #[test]
    fn every_planted_violation_is_reported_with_its_number() {
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
            ("block 11 is listed for zeroing", "8", |m, _| m.commands.to_zero.of(0).push(11)),
            ("block 9 is listed for copying", "8", |m, _| {
                m.commands.copies.of(0).push((CACHED, FREE))
            }),
        ];
        for (what, number, plant) in plants {
            let mut manager = manager();
            plant(&mut manager, key);
            let found = check(&manager).expect_err(what);
            assert!(found.contains(what), "{found} instead of {what}");
            assert!(found.ends_with(&format!("(invariant {number})")), "{found}");
        }
    }

    type Break = fn(&mut HeldBlocks);

    #[test]
    fn tables_are_checked_for_what_their_kinds_promise() {
        let states = GroupSpec::new("mamba", 4).with(crate::Size::NumSpeculativeBlocks, 2);
        let buffer = GroupSpec::new("circular_buffer", 4);
        let plants: [(GroupSpec, &str, Break); 3] = [
            (states, "a table of 1 blocks has no draft blocks", |held| {
                held.blocks.ids_mut().truncate(1);
            }),
            (buffer.clone(), "the circular buffer of group 0 has 2 blocks", |held| {
                held.blocks.push_nulls(1);
            }),
            (buffer, "the circular buffer of group 0 has 1 blocks", |held| {
                held.num_cached_blocks = Some(0);
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
    fn a_missing_table_is_reported() {
        let mut manager = manager();
        held(&mut manager).groups.clear();
        assert_eq!(
            check(&manager),
            Err("request 1 has 0 tables for 1 groups (invariant 6 or 7)".into())
        );
    }
}

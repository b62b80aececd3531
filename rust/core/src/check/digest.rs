//! Computes a digest of a manager's state. Tests use it to show that a refused call changed
//! nothing.

use sha2::{Digest, Sha256};

use crate::block::BlockId;
use crate::group::Group;
use crate::manager::Manager;

/// Returns a SHA-256 digest of the manager's state: queues, reference counts, flags, keys, block
/// tables, worker commands and the number of events. Takes time proportional to the pool.
pub fn digest(manager: &Manager) -> [u8; 32] {
    let mut state = Sha256::new();
    let mut put = |value: u64| state.update(value.to_le_bytes());
    let pool = manager.pool();
    pool.free_blocks().chain(pool.listed_blocks()).for_each(|block| put(u64::from(block)));
    put(u64::MAX);
    pool.pinned_blocks().for_each(|block| put(u64::from(block)));
    for block in 0..pool.num_blocks() as BlockId {
        put(pool.ref_count(block) as u64);
        put(u64::from(pool.blocks().is_pinned(block)));
        put(pool.blocks().hash_num_tokens(block).map_or(0, |n| n as u64 + 1));
        if let Some(priority) = pool.eviction.priority_of(block) {
            put(u64::from(priority.priority));
            put(priority.until);
        }
        for key in pool.keys_of(block) {
            key.hash.0.into_iter().for_each(&mut put);
            put(u64::from(key.group));
            put(pool.find(&key).map_or(0, u64::from));
        }
    }
    let mut requests: Vec<_> = manager.requests.iter().collect();
    requests.sort_by_key(|(id, _)| **id);
    for (id, held) in requests {
        put(*id);
        for group in &held.groups {
            put(group.num_cached_blocks.map_or(0, |n| n as u64 + 1));
            put(group.blocks.len() as u64);
            group.blocks.iter().for_each(|block| put(u64::from(block)));
        }
    }
    manager.commands.to_zero.iter().for_each(|&block| put(u64::from(block)));
    put(u64::MAX);
    for &(from, to) in manager.commands.copies.iter() {
        put(u64::from(from) << 32 | u64::from(to));
    }
    put(u64::MAX);
    for offload in manager.commands.offloads.iter() {
        put(offload.request);
        put(u64::from(offload.group) << 32 | u64::from(offload.block));
        put(offload.num_tokens as u64);
    }
    let states = manager.groups.iter().filter_map(Group::states);
    states.for_each(|states| states.digest(&mut put));
    put(pool.index().events().count() as u64);
    state.finalize().into()
}

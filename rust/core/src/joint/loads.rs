//! The blocks of a load: the blocks of the pool that it attaches, and the blocks that it fills.

use crate::block::{BlockId, CacheKey, NULL_BLOCK};
use crate::error::Result;
use crate::host::{ChunkKeys, ChunkLookup, HashKeys, HostGroup, attached};
use crate::manager::Manager;
use crate::request::{GroupBlocks, RequestView};

/// Returns the keys of a request in each group.
fn keys<'a>(
    manager: &Manager,
    request: &RequestView<'a>,
    groups: &[HostGroup],
) -> Vec<HashKeys<'a>> {
    let size = manager.hash_block_size();
    groups.iter().map(|group| HashKeys::of(group, request.hashes, size)).collect()
}

/// Returns the tables of a hit with the blocks that a load attaches. The hit has `num_local` tokens,
/// and the load ends after `end` tokens.
pub fn attached_tables(
    manager: &Manager,
    request: &RequestView<'_>,
    groups: &[HostGroup],
    hit: &[GroupBlocks],
    (num_local, end): (usize, usize),
) -> Vec<GroupBlocks> {
    let mut tables = hit.to_vec();
    tables.resize(manager.groups().len(), GroupBlocks::default());
    attached(groups, &keys(manager, request, groups), manager.pool(), tables, (num_local, end))
}

/// A block that a load fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadedBlock {
    /// The block.
    pub block: BlockId,
    /// The key of the chunk.
    pub key: CacheKey,
    /// The number of tokens up to the end of the chunk.
    pub position: u32,
}

/// Returns the blocks that a load fills: in each group, the blocks from the first empty one on. The
/// pool has `num_local` tokens of the request, and the load ends after `end` tokens. Where the request
/// lacks a block, it is the null block.
pub fn blocks_to_load(
    manager: &Manager,
    request: &RequestView<'_>,
    groups: &[HostGroup],
    (num_local, end): (usize, usize),
) -> Result<Vec<LoadedBlock>> {
    let (held, pool) = (manager.blocks_of(request.id)?, manager.pool());
    let mut loaded = Vec::new();
    for (group, keys) in groups.iter().zip(keys(manager, request, groups)) {
        let table = &held.groups[group.group_idx].blocks;
        let size = group.tokens_per_block;
        let (first, last) = (num_local.div_ceil(size), end.div_ceil(size));
        let block = |place| table.get(place).unwrap_or(NULL_BLOCK);
        let is_empty = |&place: &usize| {
            block(place) != NULL_BLOCK && pool.keys_of(block(place)).next().is_none()
        };
        let first = (first..last).find(is_empty).unwrap_or(last);
        loaded.extend((first..last.min(keys.len())).map(|place| LoadedBlock {
            block: block(place),
            key: keys.at(place),
            position: ((place + 1) * group.tokens_per_chunk) as u32,
        }));
    }
    Ok(loaded)
}

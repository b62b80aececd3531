//! Lets callers write directly to block tables and the free queue. A write that would break an
//! invariant is refused, and the error names the invariant. The next call for the request checks
//! whether all writes together make a valid table.

use std::collections::{HashMap, HashSet};

use super::Manager;
use crate::block::{BlockId, NULL_BLOCK};
use crate::error::{Error, Result};
use crate::pool::QueueEnd;
use crate::request::{GroupBlocks, HeldBlocks, RequestBlocks, RequestId};

/// The requests whose tables were written directly.
#[derive(Debug, Default)]
pub(crate) struct DirectWrites {
    /// Whether the writes to a request's tables are still unchecked.
    is_unchecked: HashMap<RequestId, bool>,
}

impl DirectWrites {
    pub(crate) fn has(&self, request: RequestId) -> bool {
        self.is_unchecked.contains_key(&request)
    }

    pub(super) fn forget(&mut self, request: RequestId) {
        if !self.is_unchecked.is_empty() {
            self.is_unchecked.remove(&request);
        }
    }
}

impl Manager {
    /// Replaces the table of a request in a group. The manager knows the request from then on.
    /// Returns [`Error::Block`] if a block is free or has no reference left for a place in it. A
    /// table may have a block more than once until the next call about its request.
    pub fn write_table(
        &mut self,
        request: RequestId,
        group: usize,
        blocks: Vec<BlockId>,
    ) -> Result<()> {
        self.check_group(group)?;
        self.check_ids(&blocks)?;
        self.check_references(request, group, &blocks)?;
        self.held_to_write(request, group).blocks = GroupBlocks::new(0, blocks);
        Ok(())
    }

    /// Sets how many leading blocks of a request count as cached in a group. `None` means that the
    /// request has neither attached a hit nor cached a block there.
    pub fn write_num_cached(
        &mut self,
        request: RequestId,
        group: usize,
        num_cached: Option<usize>,
    ) -> Result<()> {
        self.check_group(group)?;
        if num_cached.is_some_and(|n| n > self.config.num_blocks) {
            return Err(Error::Request(format!(
                "{} blocks cannot be cached for a request; the pool has {} (invariant 7)",
                num_cached.unwrap_or(0),
                self.config.num_blocks
            )));
        }
        self.held_to_write(request, group).num_cached_blocks = num_cached;
        Ok(())
    }

    /// Removes a request if it has neither blocks nor a count of cached blocks in any group.
    /// Returns whether it did.
    pub fn forget_if_empty(&mut self, request: RequestId) -> bool {
        let is_empty =
            |group: &HeldBlocks| group.blocks.is_empty() && group.num_cached_blocks.is_none();
        let is_empty = self.blocks_of(request).is_ok_and(|held| held.groups.iter().all(is_empty));
        is_empty && self.remove_request(request).is_ok()
    }

    /// Returns whether a request's tables were written directly and have not been checked since.
    #[inline]
    pub fn has_unchecked_writes(&self, request: RequestId) -> bool {
        !self.direct_writes.is_unchecked.is_empty()
            && self.direct_writes.is_unchecked.get(&request) == Some(&true)
    }

    /// Notes that the direct writes to a request's tables were checked.
    pub(crate) fn accept_direct_writes(&mut self, request: RequestId) {
        self.direct_writes.is_unchecked.insert(request, false);
    }

    /// Puts blocks that were taken out of the free queue back at one of its ends, in the given
    /// order.
    pub fn enqueue(&mut self, blocks: &[BlockId], end: QueueEnd) -> Result<()> {
        self.check_ids(blocks)?;
        let given = blocks.iter().copied().collect();
        if let Some((block, request)) = self.holders_of(&given).into_iter().next() {
            return Err(Error::Block(format!(
                "block {block} cannot be put into the free queue: request {request} holds it \
                 (invariant 6)"
            )));
        }
        self.pool.enqueue(blocks, end)
    }

    fn check_group(&self, group: usize) -> Result<()> {
        if group < self.groups.len() {
            return Ok(());
        }
        Err(Error::OutOfRange(format!(
            "group {group} does not exist; there are {} groups",
            self.groups.len()
        )))
    }

    fn held_to_write(&mut self, request: RequestId, group: usize) -> &mut HeldBlocks {
        let num_groups = self.groups.len();
        self.forget_lookup(request);
        self.direct_writes.is_unchecked.insert(request, true);
        let new = || RequestBlocks::new(num_groups);
        &mut self.requests.entry(request).or_insert_with(new).groups[group]
    }

    /// Checks that each block has a reference for every place in a table that it takes.
    fn check_references(&self, request: RequestId, group: usize, blocks: &[BlockId]) -> Result<()> {
        let refused = |block: BlockId, why: String| {
            Err(Error::Block(format!("block {block} cannot be in the table: {why} (invariant 6)")))
        };
        let mut num_added = HashMap::<BlockId, i32>::new();
        for &block in blocks.iter().filter(|&&block| block != NULL_BLOCK) {
            *num_added.entry(block).or_default() += 1;
        }
        if let Ok(held) = self.blocks_of(request) {
            for block in held.groups[group].blocks.iter() {
                num_added.entry(block).and_modify(|added| *added -= 1);
            }
        }
        num_added.retain(|_, added| *added > 0);
        if num_added.is_empty() {
            return Ok(());
        }
        if let Some(&block) = num_added.keys().find(|&&block| self.pool.ref_count(block) <= 0) {
            return refused(block, "it has no reference".into());
        }
        let mut num_places = num_added;
        for (block, _) in self.holders_of(&num_places.keys().copied().collect()) {
            num_places.entry(block).and_modify(|places| *places += 1);
        }
        match num_places.into_iter().find(|&(block, n)| n > self.pool.ref_count(block)) {
            None => Ok(()),
            Some((block, n)) => refused(
                block,
                format!(
                    "it has {} references for {n} places in tables",
                    self.pool.ref_count(block)
                ),
            ),
        }
    }

    /// Returns a block that a table of the request has more than once.
    pub(crate) fn repeated_block(&self, request: RequestId) -> Option<BlockId> {
        let held = self.blocks_of(request).ok()?;
        held.groups.iter().find_map(|group| {
            let mut seen = HashSet::new();
            group.blocks.iter().find(|&block| block != NULL_BLOCK && !seen.insert(block))
        })
    }

    /// Returns the requests that hold any of these blocks, with one entry per table that has the
    /// block.
    fn holders_of(&self, blocks: &HashSet<BlockId>) -> Vec<(BlockId, RequestId)> {
        let mut holders = Vec::new();
        for (&request, held) in &self.requests {
            let held = held.iter_owned_rev().filter(|block| blocks.contains(block));
            holders.extend(held.map(|block| (block, request)));
        }
        holders
    }
}

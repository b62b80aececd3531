//! Tables and the free queue as others write them. What would break a table is refused, with the
//! invariant that it would break; what is half done is looked at before the request goes on.

use std::collections::{HashMap, HashSet};

use super::Manager;
use crate::block::{BlockId, NULL_BLOCK};
use crate::error::{Error, Result};
use crate::pool::QueueEnd;
use crate::request::{GroupBlocks, GroupState, RequestBlocks, RequestId};

/// Requests whose tables others wrote to.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// Whether a request was written to since it was looked at.
    is_new: HashMap<RequestId, bool>,
}

impl Written {
    /// Whether others wrote to the tables of a request.
    pub(crate) fn has(&self, request: RequestId) -> bool {
        self.is_new.contains_key(&request)
    }

    pub(super) fn forget(&mut self, request: RequestId) {
        if !self.is_new.is_empty() {
            self.is_new.remove(&request);
        }
    }
}

impl Manager {
    /// Replaces the table of a request in a group; one that holds nothing so far is known from then
    /// on. Refused where a block is twice in it, is free, or has no reference left for it.
    pub fn write_table(
        &mut self,
        request: RequestId,
        group: usize,
        blocks: Vec<BlockId>,
    ) -> Result<()> {
        self.check_group(group)?;
        self.check_ids(&blocks)?;
        self.check_references(request, group, &blocks)?;
        self.written_state(request, group).blocks = GroupBlocks::new(0, blocks);
        Ok(())
    }

    /// Sets how many leading blocks of a request count as cached in a group; `None` for a request
    /// that has neither adopted a hit nor cached a block there.
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
        self.written_state(request, group).num_cached_blocks = num_cached;
        Ok(())
    }

    /// Forgets a request that has no block, and no count of cached blocks, in any group; whether it
    /// has none.
    pub fn forget_if_empty(&mut self, request: RequestId) -> bool {
        let is_empty =
            |group: &GroupState| group.blocks.is_empty() && group.num_cached_blocks.is_none();
        let is_empty = self.blocks_of(request).is_ok_and(|held| held.groups.iter().all(is_empty));
        is_empty && self.remove_request(request).is_ok()
    }

    /// Whether others wrote to the tables of a request that nobody looked at since.
    #[inline]
    pub fn is_newly_written(&self, request: RequestId) -> bool {
        !self.written.is_new.is_empty() && self.written.is_new.get(&request) == Some(&true)
    }

    /// What was written to the tables of a request was looked at.
    pub(crate) fn accept_written(&mut self, request: RequestId) {
        self.written.is_new.insert(request, false);
    }

    /// Puts blocks that were taken out of the free queue back at one of its ends, in their order.
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
        Err(Error::OutOfRange(format!("group {group} is unknown; there are {}", self.groups.len())))
    }

    fn written_state(&mut self, request: RequestId, group: usize) -> &mut GroupState {
        let num_groups = self.groups.len();
        self.forget_lookup(request);
        self.written.is_new.insert(request, true);
        let new = || RequestBlocks::new(num_groups);
        &mut self.requests.entry(request).or_insert_with(new).groups[group]
    }

    /// Checks that each block is there once and has a reference for the table.
    fn check_references(&self, request: RequestId, group: usize, blocks: &[BlockId]) -> Result<()> {
        let refused = |block: BlockId, why: String| {
            Err(Error::Block(format!("block {block} cannot be in the table: {why} (invariant 6)")))
        };
        let mut added = HashSet::new();
        for &block in blocks.iter().filter(|&&block| block != NULL_BLOCK) {
            if !added.insert(block) {
                return refused(block, "it would be there twice".into());
            }
        }
        if let Ok(held) = self.blocks_of(request) {
            held.groups[group].blocks.iter().for_each(|block| _ = added.remove(&block));
        }
        if added.is_empty() {
            return Ok(());
        }
        if let Some(&block) = added.iter().find(|&&block| self.pool.ref_count(block) <= 0) {
            return refused(block, "it has no reference".into());
        }
        let mut num_holders = HashMap::<BlockId, i32>::new();
        for (block, _) in self.holders_of(&added) {
            *num_holders.entry(block).or_default() += 1;
        }
        match num_holders.into_iter().find(|&(block, n)| n >= self.pool.ref_count(block)) {
            None => Ok(()),
            Some((block, n)) => refused(
                block,
                format!("it has {} references and is in {n} tables", self.pool.ref_count(block)),
            ),
        }
    }

    /// Who holds any of these blocks, once for each table that has one.
    fn holders_of(&self, blocks: &HashSet<BlockId>) -> Vec<(BlockId, RequestId)> {
        let mut holders = Vec::new();
        for (&request, held) in &self.requests {
            let held = held.iter_held_back().filter(|block| blocks.contains(block));
            holders.extend(held.map(|block| (block, request)));
        }
        holders
    }
}

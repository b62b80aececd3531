//! Hands worker commands to the scheduler, which passes them on.

use super::{Manager, unknown};
use crate::block::BlockId;
use crate::error::{Error, Result};
use crate::group::{Group, Offload};
use crate::request::{RequestId, RequestView};

impl Manager {
    /// Returns the blocks to zero that were allocated since the last call, by group.
    pub fn take_new_block_ids(&mut self) -> Vec<BlockId> {
        self.commands.to_zero.take()
    }

    /// Returns the blocks to copy before the step, added since the last call, as pairs (source,
    /// target). The caller releases a reference to each of them after the copy.
    pub fn take_block_copies(&mut self) -> Vec<(BlockId, BlockId)> {
        self.commands.copies.take()
    }

    /// Ends a step of a simulation, which has no worker. Releases the blocks that would be copied,
    /// and forgets those that would be zeroed or that a connector could read.
    pub fn end_simulated_step(&mut self) -> Result<()> {
        self.take_new_block_ids();
        self.take_offloads();
        let copies = self.take_block_copies();
        let copied: Vec<_> = copies.into_iter().flat_map(|(from, to)| [from, to]).collect();
        if copied.is_empty() { Ok(()) } else { self.release_blocks(&copied) }
    }

    /// Returns the blocks that a connector can read, added since the last call.
    pub fn take_offloads(&mut self) -> Vec<Offload> {
        self.commands.offloads.take()
    }

    /// Returns the states of all computed tokens of a request that ends, for a connector to read. A
    /// second call returns nothing.
    pub fn finalize_partial_tails(&mut self, request: &RequestView<'_>) -> Vec<Offload> {
        let tails = self.groups.iter_mut().filter_map(|group| {
            let (block, num_tokens) = group.states_mut()?.finalize_partial_tail(request)?;
            Some(Offload { request: request.id, group: group.id, block, num_tokens })
        });
        tails.collect()
    }

    /// Returns, for each group that needs the whole prefix, how many leading blocks of a request all
    /// known requests hold, and 0 for the other groups.
    pub fn num_common_prefix_blocks(&self, request: RequestId) -> Vec<usize> {
        let held = self.requests.get(&request).filter(|_| self.config.enable_caching);
        let is_common =
            |&block: &BlockId| self.pool.blocks().ref_count(block) as usize == self.requests.len();
        let in_group = |group: &Group| {
            let held = held.filter(|_| group.is_prefix_closed);
            held.map_or(0, |held| {
                held.groups[usize::from(group.id)].blocks.iter().take_while(is_common).count()
            })
        };
        self.groups.iter().map(in_group).collect()
    }

    /// Lists the blocks of a request from `start_token` on for zeroing again. `start_token` is a
    /// multiple of every block size.
    pub fn record_blocks_for_zeroing(
        &mut self,
        request: RequestId,
        start_token: usize,
    ) -> Result<()> {
        let zeroed = || self.groups.iter().filter(|group| group.is_zeroed);
        if zeroed().next().is_none() {
            return Ok(());
        }
        if let Some(group) = zeroed().find(|group| !start_token.is_multiple_of(group.block_size)) {
            return Err(Error::Precondition(format!(
                "start_token is {start_token}, inside a block of {} tokens; the start of that \
                 block would be erased. Use a multiple of every block size",
                group.block_size
            )));
        }
        let held = self.requests.get(&request).ok_or_else(|| unknown(request))?;
        for group in zeroed() {
            let table = &held.groups[usize::from(group.id)].blocks;
            let blocks = table.iter().skip(start_token / group.block_size);
            self.commands.to_zero.of(group.id).extend(blocks);
        }
        Ok(())
    }
}

//! What the worker is to do, handed out to the scheduler.

use super::{Manager, unknown};
use crate::block::BlockId;
use crate::error::{Error, Result};
use crate::group::Offload;
use crate::request::{RequestId, RequestView};

impl Manager {
    /// Block ids taken since the last call, for zeroing: group by group.
    pub fn take_new_block_ids(&mut self) -> Vec<BlockId> {
        self.orders.take_to_zero()
    }

    /// Blocks to copy before the step, from and to, since the last call. Each of them has a
    /// reference that the caller gives back once the copy is done.
    pub fn take_block_copies(&mut self) -> Vec<(BlockId, BlockId)> {
        self.orders.take_copies()
    }

    /// Blocks that a connector may read, since the last call.
    pub fn take_offloads(&mut self) -> Vec<Offload> {
        self.orders.take_offloads()
    }

    /// Blocks whose states stand for all computed tokens of a request that ends now, for a connector
    /// to read. Asked again, there is none.
    pub fn finalize_partial_tails(&mut self, request: &RequestView<'_>) -> Vec<Offload> {
        let tails = self.groups.iter_mut().filter_map(|group| {
            let (block, num_tokens) = group.finalize_partial_tail(request)?;
            Some(Offload { request: request.id, group: group.id, block, num_tokens })
        });
        tails.collect()
    }

    /// Lists a request's blocks from `start_token` on for zeroing once more.
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
                "start_token is {start_token}, inside a block of {} tokens, whose beginning would \
                 be wiped; give a multiple of every block size",
                group.block_size
            )));
        }
        let held = self.requests.get(&request).ok_or_else(|| unknown(request))?;
        for group in zeroed() {
            let table = &held.groups[usize::from(group.id)].blocks;
            let blocks: Vec<_> = table.iter().skip(start_token / group.block_size).collect();
            self.orders.zero(group.id, &blocks);
        }
        Ok(())
    }
}

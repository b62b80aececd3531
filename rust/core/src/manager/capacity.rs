//! Checks the capacity: whether enough blocks are free for a request's needs.

use super::Manager;
use super::args::Allocation;
use super::context::RequestReads;
use crate::block::{BlockId, NULL_BLOCK};
use crate::error::{Error, Result};
use crate::group::{Group, NeededBlocks, ReadContext, SlotDemand};
use crate::pool::BlockPool;
use crate::request::{RequestBlocks, RequestId};
use crate::retention::ActivePolicy;

/// The largest number of tokens in a demand. Numbers of blocks are added as signed numbers.
const MAX_TOKENS: usize = usize::MAX / 4;

impl Manager {
    /// Returns how many blocks leave the free blocks when a request's demand is met: new blocks,
    /// and free blocks of the hit. The number is negative if a table is longer than the request
    /// needs.
    pub fn get_num_blocks_to_allocate(
        &mut self,
        request: RequestId,
        demand: &SlotDemand<'_>,
    ) -> Result<isize> {
        check_counts(demand)?;
        let reads = self.reads(request);
        reads.check_takes_hit(demand.new_computed_blocks)?;
        let needed = reads.num_needed(demand);
        if self.layout.has_unusual_tables && !demand.apply_admission_cap {
            let Self { groups, requests, pool, retention, .. } = self;
            note_checkpoints(request, groups, requests.get(&request), pool, retention, demand);
        }
        self.forget_unless_known(request);
        Ok(needed)
    }

    /// Returns what a call for a request reads.
    #[inline]
    pub(super) fn reads(&self, request: RequestId) -> RequestReads<'_> {
        let Self { config, layout, groups, requests, pool, retention, .. } = self;
        let held = requests.get(&request);
        RequestReads { id: request, config, layout, groups, held, pool, retention }
    }
}

impl RequestReads<'_> {
    /// Returns whether enough blocks are free for this step. The blocks that leave a window before
    /// this step must have been released.
    pub(super) fn has_capacity_for_step(&self, allocation: &Allocation<'_>) -> bool {
        self.fits(&allocation.step, self.num_reserved(allocation))
    }

    /// Returns whether enough blocks would be free for this step if the blocks that leave a window
    /// before it were released. If the whole request must fit, also checks the blocks for the whole
    /// request.
    #[cold]
    pub(super) fn would_have_capacity(&self, allocation: &Allocation<'_>) -> bool {
        if !self.has_capacity_for_whole(allocation) {
            return false;
        }
        let needed = self.num_needed(&allocation.step);
        let needed = needed.saturating_sub(self.num_to_release(allocation));
        needed.saturating_add(self.num_reserved(allocation)) <= self.pool.num_free_blocks()
    }

    /// Returns whether enough blocks are free for the whole request. Returns true if it need not
    /// fit.
    pub(super) fn has_capacity_for_whole(&self, allocation: &Allocation<'_>) -> bool {
        let &Allocation { request, args, total_computed, .. } = allocation;
        if !args.full_sequence_must_fit {
            return true;
        }
        let num_tokens = request.num_tokens.min(self.config.max_model_len);
        let whole = SlotDemand {
            num_tokens,
            num_tokens_main_model: num_tokens,
            total_computed_tokens: total_computed,
            apply_admission_cap: true,
            ..allocation.step
        };
        self.fits(&whole, self.num_watermark(allocation))
    }

    /// Returns whether a demand leaves `num_reserved` blocks free. At first counts every block of
    /// the hit as free. Only if that does not fit, looks at each block.
    fn fits(&self, demand: &SlotDemand<'_>, num_reserved: isize) -> bool {
        let num_free_blocks = self.pool.num_free_blocks();
        let fits = |needed: isize| needed.saturating_add(num_reserved) <= num_free_blocks;
        fits(self.sum_demands(demand, |_, needed| needed.new + needed.attached.len() as isize))
            || fits(self.num_needed(demand))
    }

    /// Returns how many blocks leave the free blocks when a demand is met.
    fn num_needed(&self, demand: &SlotDemand<'_>) -> isize {
        self.sum_demands(demand, |pool, needed| needed.new + num_free(needed.attached, pool))
    }

    fn sum_demands(
        &self,
        demand: &SlotDemand<'_>,
        mut count: impl FnMut(&BlockPool, NeededBlocks<'_>) -> isize,
    ) -> isize {
        let counts = self.each().map(|(group, read)| count(self.pool, group.demand(&read, demand)));
        counts.fold(0, isize::saturating_add)
    }

    /// Checks that enough blocks are free for the step. A negative reserve, or a group that needs a
    /// negative number of blocks, can hide that they are not.
    #[cold]
    pub(super) fn check_free_for_step(&self, allocation: &Allocation<'_>) -> Result<()> {
        let taken = self.sum_demands(&allocation.step, |pool, needed| {
            needed.new.max(0).saturating_add(num_free(needed.attached, pool))
        });
        match taken <= self.pool.num_free_blocks() {
            true => Ok(()),
            false => self.check_free_after_release(taken, allocation),
        }
    }

    /// Checks that blocks are free for a request that counts tokens as computed but does not hold
    /// their blocks. The demand leaves out skipped blocks, but the table of a request without
    /// blocks is filled from position 0.
    #[cold]
    pub(super) fn check_free_for_skipped(&self, allocation: &Allocation<'_>) -> Result<()> {
        let step = &allocation.step;
        let holds_skipped = |(group, read): (&Group, ReadContext<'_>)| {
            let num_held = read.held.map_or(0, |held| held.blocks.len());
            group.num_skipped_blocks(step.total_computed_tokens) <= num_held
        };
        if self.each().all(holds_skipped) {
            return Ok(());
        }
        let unskipped = SlotDemand {
            num_tokens: step.num_tokens,
            num_tokens_main_model: step.num_tokens_main_model,
            num_encoder_tokens: step.num_encoder_tokens,
            ..SlotDemand::default()
        };
        let needed = self.num_needed(&unskipped);
        self.check_free_after_release(needed, allocation)
    }

    /// Checks that blocks are free for external tokens that need more than the demand. The demand
    /// counts only one state, for the end of the step.
    pub(super) fn check_free_for_external(&self, demand: &SlotDemand<'_>) -> Result<()> {
        let is_running = self.held.is_some_and(RequestBlocks::is_running);
        if !self.layout.has_unusual_tables || is_running {
            return Ok(());
        }
        let beyond = self.each().filter_map(|(group, read)| {
            Some(group.states()?.num_blocks_beyond_demand(group, &read, demand))
        });
        let beyond: isize = beyond.sum();
        if beyond <= 0 {
            return Ok(());
        }
        let needed = self.num_needed(demand) + beyond;
        self.pool.check_free(needed.max(0) as usize)
    }

    fn check_free_after_release(&self, needed: isize, allocation: &Allocation<'_>) -> Result<()> {
        let beyond = needed.saturating_sub(self.num_to_release(allocation));
        self.pool.check_free(beyond.max(0) as usize)
    }

    /// Returns how many blocks become free when blocks that left a window are released.
    fn num_to_release(&self, allocation: &Allocation<'_>) -> isize {
        let id = self.id;
        let Some(held) = self.held else { return 0 };
        let num_processed = allocation.num_processed();
        let num_prompt_tokens = Some(allocation.request.num_prompt_tokens);
        let released = self.groups.iter().zip(&held.groups).flat_map(|(group, in_group)| {
            let blocks = in_group.blocks.iter().enumerate();
            blocks.filter(move |&(position, block)| {
                block != NULL_BLOCK
                    && group.is_skipped(id, position, num_processed, num_prompt_tokens)
                    && self.pool.blocks().ref_count(block) == 1
            })
        });
        released.count() as isize
    }

    /// Returns how many free blocks the step leaves to other requests.
    fn num_reserved(&self, allocation: &Allocation<'_>) -> isize {
        self.num_watermark(allocation).saturating_add(allocation.args.reserved_blocks)
    }

    fn num_watermark(&self, allocation: &Allocation<'_>) -> isize {
        match allocation.args.has_scheduled_reqs && allocation.request.is_waiting {
            true => isize::try_from(self.layout.watermark_blocks).unwrap_or(isize::MAX),
            false => 0,
        }
    }
}

/// Notes which states inside the chunk of a demand will be kept.
#[cold]
pub(super) fn note_checkpoints(
    request: RequestId,
    groups: &mut [Group],
    held: Option<&RequestBlocks>,
    pool: &BlockPool,
    retention: &ActivePolicy,
    demand: &SlotDemand<'_>,
) {
    for (i, group) in groups.iter_mut().enumerate() {
        let held = held.map(|held| &held.groups[i]);
        group.note_checkpoint(&ReadContext { request, held, pool, retention }, demand);
    }
}

fn num_free(hit: &[BlockId], pool: &BlockPool) -> isize {
    let is_free = |&&block: &&BlockId| pool.blocks().is_free(block);
    hit.iter().filter(is_free).count() as isize
}

/// Checks that the blocks for a demand's tokens can be counted without overflow.
fn check_counts(demand: &SlotDemand<'_>) -> Result<()> {
    let counts = [demand.num_tokens, demand.num_tokens_main_model, demand.num_encoder_tokens];
    match counts.into_iter().find(|&tokens| tokens > MAX_TOKENS) {
        None => Ok(()),
        Some(tokens) => Err(Error::Request(format!(
            "blocks for {tokens} tokens were requested; the limit is {MAX_TOKENS} tokens"
        ))),
    }
}

//! Mode `align`: each step of a request keeps the state at its end, and later requests can resume
//! there.

use hashbrown::HashSet;

use super::caching::StateCaching;
use super::checkpoint::{Checkpoint, Chunk, checkpoint_boundary};
use super::planned_table::PlannedTable;
use super::table::{TableRecord, TableRecords, TableShape};
use crate::block::{BlockHash, BlockId, NULL_BLOCK};
use crate::error::{Error, Result};
use crate::group::caching::GroupCaching;
use crate::group::context::{NeededBlocks, PlannedStep, ReadContext, SlotDemand, StepContext};
use crate::group::data::GroupData;
use crate::group::declaration::{Declaration, PartialHits, Sharding};
use crate::group::kinds::full::FULL;
use crate::group::partial_hits::SharedTail;
use crate::group::spec::{GroupSpec, Size};
use crate::group::table;
use crate::group::worker_commands::Offload;
use crate::request::{GroupBlocks, HeldBlocks, RequestId, RequestView};
use crate::retention::ActivePolicy;

/// Mamba with `mamba_cache_mode="align"`.
pub(in crate::group::kinds) static MAMBA: Declaration = Declaration {
    name: "mamba",
    event_name: "mamba",
    short_name: "mamba",
    vllm_classes: ("MambaSpec", "MambaManager"),
    vllm_attributes: &[("mamba_cache_mode", "align")],
    optional: &[
        Size::NumSpeculativeBlocks,
        Size::NumPrefillCheckpointBlocks,
        Size::PrefillCheckpointAlignment,
    ],
    sharding: Sharding::Whole,
    partial_hits: PartialHits::Wanted,
    hit_needs: "its last state",
    releases: "states before the last",
    is_sparse: true,
    is_prefix_closed: false,
    is_state: true,
    covers_tokens: false,
    needs_zeroing: false,
    refuses_hit_first: false,
    has_usual_table: false,
    ..FULL
};

/// Returns the number of blocks after the running state, to which drafts write.
pub(super) fn num_speculative_blocks(spec: &GroupSpec) -> Result<usize> {
    match spec.size(Size::NumSpeculativeBlocks).unwrap_or(0) {
        0 => Ok(0),
        given => GroupSpec::positive(Size::NumSpeculativeBlocks.name(), given),
    }
}

/// Returns the number of leading positions whose states are not needed by tokens after
/// `num_computed_tokens`.
fn num_skipped(data: &GroupData, num_computed_tokens: usize) -> usize {
    num_computed_tokens.saturating_sub(1) / data.block_size
}

type Hashes = HashSet<BlockHash, foldhash::fast::FixedState>;

/// The block tables of states.
#[derive(Debug)]
pub struct AlignedStates {
    pub(crate) shape: TableShape,
    /// The alignment of states inside a chunk; `None` if the worker cannot export such states.
    checkpoint_alignment: Option<usize>,
    records: TableRecords,
    /// Hashes of the states that this step computes. Requests can hit them from the next step on.
    cached_this_step: Hashes,
}

// Functions that run in each step are not inlined. This keeps the steps of other kinds short.
impl AlignedStates {
    pub(crate) fn new(spec: &GroupSpec) -> Result<Self> {
        let has_checkpoints = spec.size(Size::NumPrefillCheckpointBlocks).unwrap_or(0) > 0;
        let alignment = spec.size(Size::PrefillCheckpointAlignment);
        if alignment == Some(0) {
            return Err(Error::Config(
                "prefill_checkpoint_alignment is 0; it must be at least 1 token".into(),
            ));
        }
        Ok(Self {
            shape: TableShape {
                block_size: spec.block_size,
                num_speculative_blocks: num_speculative_blocks(spec)?,
            },
            checkpoint_alignment: alignment.filter(|_| has_checkpoints),
            records: TableRecords::default(),
            cached_this_step: Hashes::default(),
        })
    }

    fn record(&self, request: RequestId) -> TableRecord {
        self.records.get(&request).copied().unwrap_or_default()
    }

    /// Returns the state to keep inside the chunk of a demand, if there is one.
    fn checkpoint_ahead(
        &self,
        context: &ReadContext<'_>,
        demand: &SlotDemand<'_>,
    ) -> Option<Checkpoint> {
        self.checkpoint_alignment?;
        let rules = context.retention.rules();
        let chunk =
            Chunk { start: demand.total_computed_tokens, end: demand.num_tokens_main_model };
        let prefill_end = match context.retention.keeps_boundaries_alone() {
            true => demand.prefill_end,
            false => 0,
        };
        let num_tokens = checkpoint_boundary(rules, chunk.end);
        let (alignment, size) = (self.checkpoint_alignment, self.shape.block_size);
        if chunk.end < prefill_end
            || !chunk.can_export(num_tokens, rules.hash_block_size, size, alignment)
        {
            return None;
        }
        let position = chunk.end.div_ceil(size).checked_sub(2)?;
        let record = self.record(context.request);
        let is_vacant = context.held.is_none_or(|held| {
            let blocks = &held.blocks;
            blocks.get(position).is_none_or(|block| block == NULL_BLOCK)
                || record.is_allocated
                    && position + self.shape.num_speculative_blocks >= blocks.len()
        });
        is_vacant.then_some(Checkpoint { num_tokens, position })
    }

    /// Moves the keys of a running request's shared tail to a copy. Later requests hit the copy.
    /// The request keeps writing to its own block, where the worker expects the state.
    fn move_tail(
        &mut self,
        data: &GroupData,
        context: &mut StepContext<'_>,
        tail: SharedTail,
        copy: BlockId,
    ) {
        context.pool.move_keys(tail.block, copy);
        context.commands.copies.of(data.id).push((tail.block, copy));
        context.pool.blocks.add_reference(tail.block);
        if let Some((_, num_tokens)) =
            self.records.entry(context.request).or_default().producer_tail.take()
        {
            context.commands.offloads.of(data.id).push(Offload {
                request: context.request,
                group: data.id,
                block: copy,
                num_tokens,
            });
        }
        if let Some(key) = context.pool.blocks().key(copy) {
            self.cached_this_step.insert(key.hash);
        }
    }

    /// Checks that a step breaks nothing; the number of free blocks is checked elsewhere. Returns
    /// whether the table is longer than the request needs, which makes the demand negative.
    pub(crate) fn check_step(
        &self,
        data: &GroupData,
        context: &ReadContext<'_>,
        demand: &SlotDemand<'_>,
        step: &PlannedStep<'_>,
    ) -> Result<bool> {
        let checkpoint = self.checkpoint_ahead(context, demand);
        let record = TableRecord { checkpoint, ..self.record(context.request) };
        let caching = step.num_tokens_to_cache.map(|num_tokens| {
            (
                StateCaching(GroupCaching {
                    data,
                    retention: context.retention,
                    request: step.request,
                }),
                num_tokens,
            )
        });
        if let Some((caching, num_tokens)) = &caching {
            caching.check_checkpoint(&record, *num_tokens)?;
        }
        let num_held = context.held.map_or(0, |held| held.blocks.len());
        let num_hit = demand.hit(data.id).map_or(0, GroupBlocks::len);
        let (_, len) = self.shape.running_and_len(demand.num_tokens_main_model);
        let is_longer = len < num_held + num_hit;
        let Some(held) = context.held else { return Ok(is_longer) };
        let ahead = PlannedTable {
            record,
            held,
            num_speculative: self.shape.num_speculative_blocks,
            num_skipped: num_skipped(data, step.num_processed_tokens),
            moved: self.shape.drafts_to_move(
                data.older_rules,
                &record,
                held.blocks.len(),
                demand.num_tokens_main_model,
            ),
        };
        ahead
            .check(context.pool)
            .map_err(|why| Error::Precondition(format!("group {}: {why}", data.id)))?;
        if let Some((caching, num_tokens)) = caching.filter(|_| !step.attaches) {
            let block_at = |position| ahead.block(position);
            let num_cached = held.num_cached_blocks.unwrap_or(0);
            caching.check_full_blocks(context.pool, num_cached, num_tokens, block_at)?;
        }
        Ok(is_longer)
    }

    /// Returns how many more blocks external tokens need than the demand counts; negative for
    /// fewer.
    pub(crate) fn num_blocks_beyond_demand(
        &self,
        data: &GroupData,
        context: &ReadContext<'_>,
        demand: &SlotDemand<'_>,
    ) -> isize {
        let record = self.record(context.request);
        let checkpoint = usize::from(record.checkpoint.is_some());
        let hit = demand.hit(data.id);
        let num_hit = hit.map_or(0, GroupBlocks::len);
        let total = demand.total_computed_tokens;
        let skipped = num_skipped(data, total);
        let attached = skipped.max(num_hit);
        let filled = total.div_ceil(data.block_size).max(attached);
        let (running, len) = self.shape.running_and_len(demand.num_tokens_main_model);
        let advanced = if filled < running { running - checkpoint } else { filled };
        let taken = filled - attached + len.saturating_sub(advanced);
        let most = 1 + checkpoint + self.shape.num_speculative_blocks;
        let demanded = (len as isize - num_hit as isize).min(most as isize);
        // A hit state before the end of the external tokens is skipped. But if it is free, the
        // demand counts it.
        let is_counted =
            |&&block: &&BlockId| num_hit <= skipped && context.pool.blocks().ref_count(block) == 0;
        let num_counted = hit.map_or(0, |hit| hit.ids().iter().filter(is_counted).count());
        taken as isize - demanded - num_counted as isize
    }

    /// Checks that a request's states can be cached up to the computed token `num_tokens`.
    pub(crate) fn check_cache(
        &self,
        data: &GroupData,
        context: &ReadContext<'_>,
        request: &RequestView<'_>,
        num_tokens: usize,
    ) -> Result<()> {
        let Some(held) = context.held else { return Ok(()) };
        let caching = StateCaching(GroupCaching { data, retention: context.retention, request });
        caching.check(context.pool, held, &self.record(request.id), num_tokens)
    }

    /// Takes the block with the state of all computed tokens, when its request ends. Returns the
    /// block and the number of tokens.
    pub(crate) fn finalize_partial_tail(
        &mut self,
        request: &RequestView<'_>,
    ) -> Option<(BlockId, usize)> {
        let tail = self.records.get_mut(&request.id)?.producer_tail.take()?;
        let is_last = request.num_in_flight_tokens == 0 && request.num_computed_tokens == tail.1;
        is_last.then_some(tail)
    }

    pub(crate) fn checkpoint(&self, request: RequestId) -> Option<Checkpoint> {
        self.record(request).checkpoint
    }

    /// Yields the table record of each request that has one.
    pub(crate) fn records(&self) -> impl Iterator<Item = (RequestId, TableRecord)> + '_ {
        self.records.iter().map(|(&request, &record)| (request, record))
    }

    /// Yields the hashes of states that this step computes.
    pub(crate) fn cached_this_step(&self) -> impl Iterator<Item = BlockHash> + '_ {
        self.cached_this_step.iter().copied()
    }

    #[inline(never)]
    pub(crate) fn end(&mut self, request: RequestId) {
        self.records.remove(&request);
    }

    /// Starts a scheduling step.
    #[inline(never)]
    pub(crate) fn step_starts(&mut self) {
        self.cached_this_step.clear();
    }

    /// Adds the table records and the hashes of this step's states to a digest.
    pub(crate) fn digest(&self, put: &mut dyn FnMut(u64)) {
        let mut records: Vec<_> = self.records.iter().collect();
        records.sort_by_key(|(request, _)| **request);
        records.into_iter().for_each(|(&request, record)| record.digest(request, put));
        let mut hashes: Vec<_> = self.cached_this_step.iter().collect();
        hashes.sort_unstable();
        hashes.into_iter().flat_map(|hash| hash.0).for_each(put);
    }

    /// Returns whether the step being scheduled still has to compute the hit's state.
    fn hits_state_of_step(
        &self,
        data: &GroupData,
        context: &ReadContext<'_>,
        demand: &SlotDemand<'_>,
    ) -> bool {
        let hit_state = demand.hit(data.id).and_then(|hit| hit.ids().last());
        let hit_state = hit_state.filter(|&&block| block != NULL_BLOCK);
        let key = hit_state.and_then(|&block| context.pool.blocks().key(block));
        key.is_some_and(|key| self.cached_this_step.contains(&key.hash))
    }

    #[inline(never)]
    pub(crate) fn note_checkpoint(
        &mut self,
        data: &GroupData,
        context: &ReadContext<'_>,
        demand: &SlotDemand<'_>,
    ) {
        if self.checkpoint_alignment.is_some() && !self.hits_state_of_step(data, context, demand) {
            let checkpoint = self.checkpoint_ahead(context, demand);
            self.records.entry(context.request).or_default().checkpoint = checkpoint;
        }
    }

    #[inline(never)]
    pub(crate) fn demand<'a>(
        &self,
        data: &GroupData,
        context: &ReadContext<'_>,
        demand: &SlotDemand<'a>,
    ) -> NeededBlocks<'a> {
        if self.hits_state_of_step(data, context, demand) {
            // No pool has this many blocks, so the request has to wait.
            return NeededBlocks { new: context.pool.num_blocks() as isize + 1, attached: &[] };
        }
        let checkpoint = self.checkpoint_ahead(context, demand);
        let record = TableRecord { checkpoint, ..self.record(context.request) };
        let hit = demand.hit(data.id);
        let num_hit = hit.map_or(0, GroupBlocks::len);
        let num_held = context.held.map_or(0, |held| held.blocks.len());
        let (_, len) = self.shape.running_and_len(demand.num_tokens_main_model);
        let mut new = len as isize - num_hit as isize - num_held as isize;
        let ends_inside =
            num_hit > 0 && !demand.num_local_computed_tokens.is_multiple_of(data.block_size);
        let copies = isize::from(ends_inside || record.shared_tail.is_some());
        if copies > 0 {
            new = new.max(0) + 1;
        }
        if new > 0 {
            let has_drafts = record.is_allocated && !record.renews_drafts(data.older_rules);
            let drafts = if has_drafts { 0 } else { self.shape.num_speculative_blocks };
            new = new.min(1 + copies + isize::from(checkpoint.is_some()) + drafts as isize);
        }
        NeededBlocks { new, attached: hit.map_or(&[], |hit| hit.ids()) }
    }

    #[inline(never)]
    pub(crate) fn attach_hit(
        &mut self,
        data: &GroupData,
        context: &mut StepContext<'_>,
        step: &SlotDemand<'_>,
    ) {
        let skipped = num_skipped(data, step.total_computed_tokens);
        table::attach_hit_after(context, step.hit(data.id), skipped);
        if let Some(tail) = SharedTail::of_attached(data, context, step, skipped) {
            self.records.entry(context.request).or_default().shared_tail = Some(tail);
        }
    }

    #[inline(never)]
    pub(crate) fn allocate(
        &mut self,
        data: &GroupData,
        context: &mut StepContext<'_>,
        num_tokens: usize,
    ) -> Vec<BlockId> {
        let record = self.record(context.request);
        let before = context.held.blocks.len();
        let (_, len) = self.shape.running_and_len(num_tokens);
        if len <= before && record.shared_tail.is_none() && record.checkpoint.is_none() {
            self.records.entry(context.request).or_default().is_allocated = true;
            return Vec::new();
        }
        let last_state = match record.is_allocated {
            true => before.checked_sub(1 + self.shape.num_speculative_blocks),
            false => before.checked_sub(1),
        };
        self.shape.advance(data.older_rules, &record, &mut context.held.blocks, num_tokens);
        let mut taken = Vec::new();
        let missing = len.saturating_sub(context.held.blocks.len());
        let num_taken = missing + usize::from(record.shared_tail.is_some());
        if num_taken > 0 {
            context.pool.allocate(num_taken, &mut taken);
        }
        let mut new = Vec::new();
        if let Some(tail) = record.shared_tail {
            let copy = taken.remove(0);
            match record.is_allocated {
                true => self.move_tail(data, context, tail, copy),
                false => {
                    tail.replace_by(data, context, copy);
                    new.push(copy);
                }
            }
        }
        taken.into_iter().for_each(|block| context.held.blocks.push(block));
        new.append(&mut context.held.blocks.since(before));
        let record = self.records.entry(context.request).or_default();
        record.is_allocated = true;
        record.shared_tail = None;
        record.last_state = last_state.or(record.last_state);
        new
    }

    #[inline(never)]
    pub(crate) fn release_skipped(
        &mut self,
        data: &GroupData,
        context: &mut StepContext<'_>,
        num_computed_tokens: usize,
    ) {
        let skipped = num_skipped(data, num_computed_tokens);
        let record = self.records.entry(context.request).or_default();
        let blocks = &mut context.held.blocks;
        let end = skipped.min(blocks.len());
        if record.num_released < end {
            let released = blocks.release_all_in_range(record.num_released, end);
            record.num_released = end;
            context.pool.release(&released);
        }
        // The state before the last one was copied. Null blocks can be between the two.
        if let Some(position) = record.last_state.filter(|&position| position < skipped) {
            let released = blocks.release_all_in_range(position, position + 1);
            context.pool.release(&released);
        }
    }

    #[inline(never)]
    pub(crate) fn cache(
        &mut self,
        data: &GroupData,
        context: &mut StepContext<'_>,
        retention: &ActivePolicy,
        request: &RequestView<'_>,
        num_tokens: usize,
    ) {
        let record = self.records.entry(request.id).or_default();
        StateCaching(GroupCaching { data, retention, request }).cache(
            context,
            record,
            num_tokens,
            &mut |hash| {
                self.cached_this_step.insert(hash);
            },
        );
    }

    pub(crate) fn is_skipped(
        &self,
        data: &GroupData,
        request: RequestId,
        position: usize,
        num_computed_tokens: usize,
    ) -> bool {
        let skipped = num_skipped(data, num_computed_tokens);
        self.record(request).is_skipped(position, skipped)
    }

    pub(crate) fn check(
        &self,
        request: RequestId,
        held: &HeldBlocks,
    ) -> std::result::Result<(), String> {
        self.record(request).check(held, self.shape.num_speculative_blocks)
    }
}

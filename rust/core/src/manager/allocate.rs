//! Slots for a step of a request: what left a window is given back, a hit is adopted, new blocks
//! are taken, and what became full is cached.

use super::Manager;
use crate::block::{BlockId, NULL_BLOCK};
use crate::error::{Error, Result};
use crate::pool::BlockPool;
use crate::request::{GroupBlocks, RequestBlocks, RequestId, RequestView};

/// What [`Manager::allocate_slots`] is asked for. Counts in tokens unless called blocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllocateArgs<'a> {
    /// Tokens to compute in this step, unverified draft tokens included.
    pub num_new_tokens: usize,
    /// Tokens of the hit to adopt.
    pub num_new_computed_tokens: usize,
    /// The blocks of that hit, per group; none at all where nothing is to be adopted.
    pub new_computed_blocks: &'a [GroupBlocks],
    /// Slots for draft tokens beyond `num_new_tokens`.
    pub num_lookahead_tokens: usize,
    /// Tokens beyond the hit whose KV a connector brings.
    pub num_external_computed_tokens: usize,
    /// Whether blocks are cached by a later call, once a transfer has filled them.
    pub delay_cache_blocks: bool,
    /// Whether the request is refused if its whole sequence does not fit now.
    pub full_sequence_must_fit: bool,
    /// Free blocks to leave to others.
    pub reserved_blocks: usize,
    /// Whether other requests are scheduled, so that the watermark applies to a waiting one.
    pub has_scheduled_reqs: bool,
    /// Groups whose external blocks a transfer fills, so that they are not zeroed.
    pub skip_zeroing_group_ids: &'a [usize],
}

impl AllocateArgs<'_> {
    /// Whether the request is to take over blocks, or to get blocks for what a connector brings.
    fn adopts(&self) -> bool {
        !self.new_computed_blocks.is_empty() || self.num_external_computed_tokens > 0
    }

    /// Computed tokens whose blocks this manager has.
    fn num_local(&self, request: &RequestView<'_>) -> usize {
        request.num_computed_tokens.saturating_add(self.num_new_computed_tokens)
    }

    /// Computed tokens, external ones included.
    fn total_computed(&self, request: &RequestView<'_>) -> usize {
        self.num_local(request).saturating_add(self.num_external_computed_tokens)
    }
}

/// What [`Manager::get_num_blocks_to_allocate`] is asked for, in tokens.
#[derive(Clone, Copy, Debug, Default)]
pub struct BlockDemand<'a> {
    /// Tokens that need a slot, those that have one included.
    pub num_tokens: usize,
    /// The blocks of a hit to adopt, per group; empty for none.
    pub new_computed_blocks: &'a [GroupBlocks],
    /// Computed tokens, external ones included.
    pub total_computed_tokens: usize,
    /// Computed tokens without external ones: where the hit ends. Inside a block, a group needs
    /// one more to copy that block to.
    pub num_local_computed_tokens: usize,
    /// Whether kinds that give blocks back ask only for what they hold at once.
    pub apply_admission_cap: bool,
}

impl Manager {
    /// Takes slots for a step of a request: `None` if they do not fit, else the new blocks of
    /// each group.
    pub fn allocate_slots(
        &mut self,
        request: &RequestView<'_>,
        args: &AllocateArgs<'_>,
    ) -> Result<Option<Vec<Vec<BlockId>>>> {
        let computed = args.total_computed(request);
        self.check_allocation(computed, args)?;
        let max_model_len = self.config.max_model_len;
        let total_computed = computed.min(max_model_len);
        let num_final = computed.saturating_add(args.num_new_tokens);
        let num_slots = num_final.saturating_add(args.num_lookahead_tokens).min(max_model_len);
        let adoption = self.check_adoption(request, args, total_computed, num_slots);
        // A request that holds something changes below; another is refused for want of room first.
        if adoption.is_err() && self.knows(request.id) {
            return adoption.map(|()| None);
        }
        let watermark = match args.has_scheduled_reqs && request.is_waiting {
            true => self.plan.watermark_blocks,
            false => 0,
        };
        let mut counted = CountedHit::default();
        let whole = full_sequence_demand(request, args, total_computed, max_model_len);
        if args.full_sequence_must_fit && !self.fits(request.id, &whole, watermark, &mut counted) {
            return Ok(None);
        }

        // In-flight steps still read below the optimistic boundary.
        self.release_skipped(
            request.id,
            total_computed.saturating_sub(request.num_in_flight_tokens),
        );
        let demand = BlockDemand {
            num_tokens: num_slots,
            new_computed_blocks: args.new_computed_blocks,
            total_computed_tokens: total_computed,
            num_local_computed_tokens: args.num_local(request),
            apply_admission_cap: false,
        };
        let kept = watermark.saturating_add(args.reserved_blocks);
        if !self.fits(request.id, &demand, kept, &mut counted) {
            return Ok(None);
        }

        adoption?;
        self.forget_lookup(request.id);
        if args.adopts() {
            self.adopt_computed_blocks(request.id, args, total_computed);
        }
        let new_blocks = self.allocate_new_blocks(request.id, num_slots);
        if !args.delay_cache_blocks {
            // Draft tokens may be rejected: only final ones are cached.
            self.cache_up_to(request, num_final.min(request.num_tokens).min(max_model_len));
        }
        Ok(Some(new_blocks))
    }

    fn check_allocation(&self, computed: usize, args: &AllocateArgs<'_>) -> Result<()> {
        let AllocateArgs { num_new_computed_tokens, num_external_computed_tokens, .. } = *args;
        if args.num_new_tokens.max(num_new_computed_tokens).max(num_external_computed_tokens) == 0 {
            return Err(Error::Request(
                "num_new_tokens is 0; it must be positive when no computed tokens are adopted"
                    .into(),
            ));
        }
        if num_external_computed_tokens > 0 && computed > self.config.max_model_len {
            return Err(Error::Request(format!(
                "{computed} tokens would be computed, more than max_model_len {}",
                self.config.max_model_len
            )));
        }
        let hit = args.new_computed_blocks;
        if !hit.is_empty() && hit.len() != self.config.groups.len() {
            return Err(Error::Request(format!(
                "new_computed_blocks has {} groups; this manager has {}",
                hit.len(),
                self.config.groups.len()
            )));
        }
        let outside = |&block: &BlockId| block as usize >= self.config.num_blocks;
        if hit.iter().any(|blocks| blocks.tail().iter().any(outside)) {
            return Err(Error::Block("new_computed_blocks holds blocks outside this pool".into()));
        }
        Ok(())
    }

    fn check_adoption(
        &self,
        request: &RequestView<'_>,
        args: &AllocateArgs<'_>,
        total_computed: usize,
        num_slots: usize,
    ) -> Result<()> {
        let has_hit = has_blocks(args.new_computed_blocks);
        if !self.config.enable_caching && self.keeps_hit(args, total_computed) {
            return Err(Error::Precondition(
                "new_computed_blocks has blocks, but prefix caching is off".into(),
            ));
        }
        let held = self.requests.get(&request.id);
        let adopts = args.adopts();
        let is_running = || held.is_some_and(RequestBlocks::is_running);
        if has_hit && is_running() {
            return Err(takes_no_hit());
        }
        if adopts && !is_running() && held.is_some_and(RequestBlocks::holds_blocks) {
            return Err(Error::Precondition(
                "computed tokens were given for a request that was allocated without them; free \
                 it first"
                    .into(),
            ));
        }
        if !adopts && total_computed > 0 && !is_running() {
            self.check_lacking_blocks(held, total_computed, num_slots)?;
        }
        let num_local = args.num_local(request);
        for (group, blocks) in self.config.groups.iter().zip(args.new_computed_blocks) {
            if !blocks.is_empty() && !num_local.is_multiple_of(group.block_size) {
                return Err(Error::Request(format!(
                    "the hit ends at token {num_local}, inside a block of {} tokens; cut it to a \
                     multiple of the block size",
                    group.block_size
                )));
            }
        }
        Ok(())
    }

    /// Checks that there are blocks for a request that counts tokens as computed without holding
    /// theirs. The demand leaves out what a window skips; its table is filled nevertheless.
    #[cold]
    fn check_lacking_blocks(
        &self,
        held: Option<&RequestBlocks>,
        total_computed: usize,
        num_slots: usize,
    ) -> Result<()> {
        let groups = 0..self.config.groups.len();
        let num_held = |group: usize| held.map_or(0, |held| held.groups[group].blocks.len());
        if groups
            .clone()
            .all(|group| self.num_skipped_blocks(group, total_computed) <= num_held(group))
        {
            return Ok(());
        }
        let required = |group: usize| num_slots.div_ceil(self.config.groups[group].block_size);
        self.pool.check_free(groups.map(|g| required(g).saturating_sub(num_held(g))).sum())
    }

    /// Leading blocks of a table that no token after `total_computed` attends to.
    fn num_skipped_blocks(&self, group: usize, total_computed: usize) -> usize {
        let tokens = self.plan.kinds[group].num_skipped_tokens(total_computed);
        tokens / self.config.groups[group].block_size
    }

    /// Whether any block of a hit lies behind what its group skips.
    fn keeps_hit(&self, args: &AllocateArgs<'_>, total_computed: usize) -> bool {
        let mut hits = args.new_computed_blocks.iter().enumerate();
        hits.any(|(group, hit)| hit.len() > self.num_skipped_blocks(group, total_computed))
    }

    /// Whether there are free blocks for a demand and `kept` more. Finding out how many blocks of a
    /// hit are free reads each of them, so the answer is sought first as if all were.
    fn fits(
        &self,
        request: RequestId,
        demand: &BlockDemand<'_>,
        kept: usize,
        counted: &mut CountedHit,
    ) -> bool {
        let fits = |demand: usize| demand.saturating_add(kept) <= self.pool.num_free_blocks();
        fits(self.demand(request, demand, |_, adopted| adopted.len()))
            || fits(
                self.demand(request, demand, |g, adopted| counted.num_free(g, adopted, &self.pool)),
            )
    }

    /// Blocks that leave the free ones when a request is given what it asks for: new blocks, and
    /// free blocks of the hit.
    pub fn get_num_blocks_to_allocate(
        &self,
        request: RequestId,
        demand: &BlockDemand<'_>,
    ) -> Result<usize> {
        let held = self.requests.get(&request).map_or(&[][..], |held| &held.groups);
        let mut groups = held.iter().zip(demand.new_computed_blocks);
        if groups.any(|(state, hit)| state.num_cached_blocks.is_some() && !hit.is_empty()) {
            return Err(takes_no_hit());
        }
        Ok(self.demand(request, demand, |_, adopted| num_free(adopted, &self.pool)))
    }

    fn demand(
        &self,
        request: RequestId,
        demand: &BlockDemand<'_>,
        mut num_free: impl FnMut(usize, &[BlockId]) -> usize,
    ) -> usize {
        let held = self.requests.get(&request);
        let groups = 0..self.config.groups.len();
        let demands = groups.map(|group| {
            let (new, adopted) = self.group_demand(group, held, demand);
            new + num_free(group, adopted)
        });
        demands.fold(0, usize::saturating_add)
    }

    /// How many new blocks a group needs, and which blocks of the hit it adopts.
    fn group_demand<'a>(
        &self,
        group: usize,
        held: Option<&RequestBlocks>,
        demand: &BlockDemand<'a>,
    ) -> (usize, &'a [BlockId]) {
        let block_size = self.config.groups[group].block_size;
        let mut required = demand.num_tokens.div_ceil(block_size);
        if let (true, Some(cap)) = (demand.apply_admission_cap, self.max_admission_blocks[group]) {
            required = required.min(cap);
        }
        let state = held.map(|held| &held.groups[group]);
        let num_held = state.map_or(0, |state| state.blocks.len());
        if state.is_some_and(|state| state.num_cached_blocks.is_some()) {
            return (required.saturating_sub(num_held), &[]);
        }
        let skipped = self.num_skipped_blocks(group, demand.total_computed_tokens);
        let new = |num_local: usize| required.saturating_sub(skipped.max(num_local));
        let Some(hit) = demand.new_computed_blocks.get(group).filter(|hit| !hit.is_empty()) else {
            return (new(num_held), &[]);
        };
        let ends_inside = !demand.num_local_computed_tokens.is_multiple_of(block_size);
        let adopted = hit.tail_from(skipped.saturating_sub(num_held)).1;
        (new(num_held + hit.len()) + usize::from(ends_inside), adopted)
    }

    /// Makes a hit, and blocks for what a connector brings, the request's own. Every group's hit
    /// is taken before any block is allocated, so that no allocation evicts another group's hit.
    fn adopt_computed_blocks(&mut self, request: RequestId, args: &AllocateArgs<'_>, total: usize) {
        let num_groups = self.config.groups.len();
        let mut held = self.take_request(request);
        if !held.is_running() {
            for group in 0..num_groups {
                self.adopt_hit(group, &mut held, args.new_computed_blocks.get(group), total);
            }
            if args.num_external_computed_tokens > 0 {
                for group in 0..num_groups {
                    let zeroed = !args.skip_zeroing_group_ids.contains(&group);
                    self.allocate_external(group, &mut held, args, total, zeroed);
                }
            }
        }
        self.requests.insert(request, held);
    }

    fn adopt_hit(
        &mut self,
        group: usize,
        held: &mut RequestBlocks,
        hit: Option<&GroupBlocks>,
        total_computed: usize,
    ) {
        let skipped = self.num_skipped_blocks(group, total_computed);
        let state = &mut held.groups[group];
        state.blocks.push_nulls(skipped);
        if let Some(hit) = hit {
            self.pool.touch_null(hit.null_head().saturating_sub(skipped));
            self.pool.touch(hit.tail_from(skipped).1);
            state.blocks.extend_from(hit, skipped);
        }
        state.num_cached_blocks = Some(state.blocks.len());
    }

    fn allocate_external(
        &mut self,
        group: usize,
        held: &mut RequestBlocks,
        args: &AllocateArgs<'_>,
        total_computed: usize,
        zeroed: bool,
    ) {
        let skipped = self.plan.kinds[group].num_skipped_tokens(total_computed);
        let external =
            args.num_external_computed_tokens.min(total_computed.saturating_sub(skipped));
        if external > 0 {
            self.extend_table(group, held, total_computed, zeroed);
        }
    }

    /// Gives a request blocks in one group until it has slots for `num_tokens`; returns how many
    /// it had before.
    fn extend_table(
        &mut self,
        group: usize,
        held: &mut RequestBlocks,
        num_tokens: usize,
        zeroed: bool,
    ) -> usize {
        let table = &mut held.groups[group].blocks;
        let before = table.tail().len();
        let required = num_tokens.div_ceil(self.config.groups[group].block_size);
        if let Some(missing) = required.checked_sub(table.len()).filter(|&n| n > 0) {
            self.pool.take(missing, table.ids_mut());
            if self.config.needs_zeroing && zeroed {
                self.new_block_ids[group].extend_from_slice(&table.tail()[before..]);
            }
        }
        before
    }

    fn allocate_new_blocks(&mut self, request: RequestId, num_slots: usize) -> Vec<Vec<BlockId>> {
        let mut held = self.take_request(request);
        let new_blocks = (0..self.config.groups.len()).map(|group| {
            let before = self.extend_table(group, &mut held, num_slots, true);
            held.groups[group].blocks.tail()[before..].to_vec()
        });
        let new_blocks = new_blocks.collect();
        self.requests.insert(request, held);
        new_blocks
    }

    /// A request's blocks, out of the map for the time of a change.
    fn take_request(&mut self, request: RequestId) -> RequestBlocks {
        let num_groups = self.config.groups.len();
        self.requests.remove(&request).unwrap_or_else(|| RequestBlocks::new(num_groups))
    }
}

/// How many blocks of a hit are free, which one call asks up to twice.
#[derive(Default)]
struct CountedHit {
    /// Group, number of blocks at the end of its hit, and how many of those are free.
    counts: Vec<(usize, usize, usize)>,
}

impl CountedHit {
    fn num_free(&mut self, group: usize, adopted: &[BlockId], pool: &BlockPool) -> usize {
        if adopted.is_empty() {
            return 0;
        }
        let known = self.counts.iter().find(|count| (count.0, count.1) == (group, adopted.len()));
        if let Some(&(_, _, num_free)) = known {
            return num_free;
        }
        let num_free = num_free(adopted, pool);
        self.counts.push((group, adopted.len(), num_free));
        num_free
    }
}

fn num_free(adopted: &[BlockId], pool: &BlockPool) -> usize {
    let is_free = |&&block: &&BlockId| block != NULL_BLOCK && pool.is_free(block);
    adopted.iter().filter(is_free).count()
}

/// What the whole sequence of a request takes.
fn full_sequence_demand<'a>(
    request: &RequestView<'_>,
    args: &AllocateArgs<'a>,
    total_computed: usize,
    max_model_len: usize,
) -> BlockDemand<'a> {
    BlockDemand {
        num_tokens: request.num_tokens.min(max_model_len),
        new_computed_blocks: args.new_computed_blocks,
        total_computed_tokens: total_computed.min(max_model_len),
        num_local_computed_tokens: args.num_local(request),
        apply_admission_cap: true,
    }
}

fn takes_no_hit() -> Error {
    Error::Precondition(
        "the request holds blocks already and takes no new hit; free it first".into(),
    )
}

fn has_blocks(groups: &[GroupBlocks]) -> bool {
    groups.iter().any(|blocks| !blocks.is_empty())
}

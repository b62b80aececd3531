//! Allocates slots for a step of a request: attaches its hit, allocates new blocks and caches the
//! blocks that become full.

use hashbrown::hash_map::Entry;

use super::Manager;
use super::args::{AllocateArgs, Allocation};
use super::cache::num_cacheable_tokens;
use super::capacity::note_checkpoints;
use super::context::{RequestContext, RequestReads};
use super::outcomes::ObserveAdmission;
use crate::block::BlockId;
use crate::error::{Error, Result};
use crate::group::{Group, PlannedStep, SharedTail, Skipped, SlotDemand};
use crate::request::{GroupBlocks, HeldBlocks, RequestBlocks, RequestId, RequestView};
use crate::retention::{ActivePolicy, Admission};

impl Manager {
    /// Allocates slots for a step of a request. Returns the new blocks of each group, or `None` if
    /// too few blocks are free.
    ///
    /// An error changes nothing. With `None`, only blocks that left a window are released.
    pub fn allocate_slots(
        &mut self,
        request: &RequestView<'_>,
        args: &AllocateArgs<'_>,
    ) -> Result<Option<Vec<Vec<BlockId>>>> {
        self.allocate_observed_by(&mut (), request, args)
    }

    /// Does the same as [`Self::allocate_slots`] with an observer of an admission.
    #[inline(always)]
    pub(super) fn allocate_observed_by(
        &mut self,
        observer: &mut impl ObserveAdmission,
        request: &RequestView<'_>,
        args: &AllocateArgs<'_>,
    ) -> Result<Option<Vec<Vec<BlockId>>>> {
        let new_blocks = self.allocate_if_possible(observer, request, args);
        if !matches!(new_blocks, Ok(Some(_))) {
            self.forget_unless_known(request.id);
        } else if self.follower.is_some() {
            self.follow_allocation(request, args);
        }
        new_blocks
    }

    #[inline]
    fn allocate_if_possible(
        &mut self,
        observer: &mut impl ObserveAdmission,
        request: &RequestView<'_>,
        args: &AllocateArgs<'_>,
    ) -> Result<Option<Vec<Vec<BlockId>>>> {
        let id = request.id;
        let Self { config, layout, groups, requests, pool, .. } = self;
        let Self { retention, commands, admitted, memos, .. } = self;
        let mut entry = requests.entry(id);
        let mut held = match &mut entry {
            Entry::Occupied(entry) => Some(entry.get_mut()),
            Entry::Vacant(_) => None,
        };
        let reads =
            RequestReads { id, config, layout, groups, held: held.as_deref(), pool, retention };
        reads.check_args(args.total_computed(request), args)?;
        reads.check_takes_hit(args.new_computed_blocks)?;
        let allocation = Allocation::new(request, args, config);
        let refusal = reads.check_step(&allocation).err();
        // A lack of free blocks is reported before a refusal. But a refused call must not release
        // blocks.
        if let Some(refusal) = &refusal
            && reads.would_have_capacity(&allocation)
        {
            return Err(refusal.clone());
        }
        if !reads.has_capacity_for_whole(&allocation) {
            return Ok(None);
        }
        let step = &allocation.step;
        if let Some(held) = &mut held {
            let mut context = RequestContext { id, groups, held, pool, commands };
            context.release_before_step(retention, &allocation);
        }
        if layout.has_unusual_tables {
            note_checkpoints(id, groups, held.as_deref(), pool, retention, step);
        }
        let reads =
            RequestReads { id, config, layout, groups, held: held.as_deref(), pool, retention };
        if !reads.has_capacity_for_step(&allocation) || refusal.is_some() {
            return Ok(None);
        }
        if args.num_external_computed_tokens > 0 {
            reads.check_free_for_external(step)?;
        }
        memos.forget(id, pool.index_mut().removals_mut());
        let (held, hits_before) = match entry {
            Entry::Occupied(entry) => (entry.into_mut(), None),
            Entry::Vacant(entry) => {
                observer.admit(request, args, groups, pool);
                let before = retention.num_answer_block_hits(pool);
                let mut held = RequestBlocks::new(groups.len());
                let admission = Admission {
                    request,
                    hit: args.new_computed_blocks,
                    num_local_computed_tokens: args.num_local(request),
                    num_computed_tokens: args.total_computed(request),
                    hash_block_size: retention.rules().hash_block_size,
                };
                retention.admitted(pool, &mut held, &admission);
                (entry.insert(held), Some(before))
            }
        };
        let mut context = RequestContext { id, groups, held, pool, commands };
        if args.attaches() {
            context.attach(args, step);
        }
        if let Some(before) = hits_before {
            let num_answer_blocks = retention.num_answer_block_hits(context.pool) - before;
            admitted.count(request, args, context.groups, num_answer_blocks);
        }
        let new_blocks = context.each(|group, context| group.allocate(context, step)).collect();
        if let Some(num_tokens) = allocation.num_tokens_to_cache {
            context.cache(retention, request, num_tokens);
        }
        Ok(Some(new_blocks))
    }

    /// Removes a request from the groups' notes if the manager does not know it. Queries leave such
    /// notes.
    pub(super) fn forget_unless_known(&mut self, request: RequestId) {
        if self.layout.has_unusual_tables && !self.knows(request) {
            self.groups.iter_mut().for_each(|group| group.end(request, &mut self.commands));
        }
    }
}

/// Checks a step before anything changes.
impl RequestReads<'_> {
    fn check_args(&self, computed: usize, args: &AllocateArgs<'_>) -> Result<()> {
        let AllocateArgs { num_new_computed_tokens, num_external_computed_tokens, .. } = *args;
        if args.num_new_tokens.max(num_new_computed_tokens).max(num_external_computed_tokens) == 0 {
            return Err(Error::Request(
                "num_new_tokens is 0; it must be at least 1 if no computed tokens are adopted"
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
        let num_blocks = self.config.num_blocks as BlockId;
        let is_outside = |any, &block: &BlockId| any | (block >= num_blocks);
        if hit.iter().any(|blocks| blocks.ids().iter().fold(false, is_outside)) {
            return Err(Error::Block(
                "new_computed_blocks has blocks of another pool; pass the blocks of this manager's \
                 look-up"
                    .into(),
            ));
        }
        if !self.layout.has_unusual_tables {
            return Ok(());
        }
        let max_model_len = self.config.max_model_len;
        let num_tokens = computed.min(max_model_len).saturating_add(args.num_new_tokens);
        if num_tokens <= 2 * max_model_len {
            return Ok(());
        }
        Err(Error::Request(format!(
            "states for {num_tokens} tokens were requested, more than max_model_len {max_model_len}"
        )))
    }

    /// Checks that no group gets a hit that its kind refuses for a request with blocks. This check
    /// comes before the capacity check.
    pub(super) fn check_takes_hit(&self, hit: &[GroupBlocks]) -> Result<()> {
        if hit.is_empty() {
            return Ok(());
        }
        let Some(held) = self.held else { return Ok(()) };
        let mut groups = self.groups.iter().zip(&held.groups).zip(hit);
        let refuses = |((group, in_group), hit): ((&Group, &HeldBlocks), &GroupBlocks)| {
            let is_running = in_group.num_cached_blocks.is_some();
            is_running && !hit.is_empty() && group.refuses_hit_first
        };
        if groups.any(refuses) { Err(takes_no_hit()) } else { Ok(()) }
    }

    /// Checks for steps that would break tables or make vLLM's manager fail half-way.
    fn check_step(&self, allocation: &Allocation<'_>) -> Result<()> {
        let mut has_negative = allocation.args.reserved_blocks < 0;
        if self.layout.has_unusual_tables {
            has_negative |= self.check_groups(allocation)?;
        }
        self.check_attachment(allocation)?;
        if has_negative {
            self.check_free_for_step(allocation)?;
        }
        Ok(())
    }

    /// Checks that each group can serve the step. Returns whether some group needs a negative
    /// number of blocks. Such a number hides blocks that other groups take.
    fn check_groups(&self, allocation: &Allocation<'_>) -> Result<bool> {
        let &Allocation { request, args, step: ref demand, num_tokens_to_cache, .. } = allocation;
        self.each().try_fold(false, |has_negative, (group, read)| {
            let Some(states) = group.states() else { return Ok(has_negative) };
            let step = PlannedStep {
                request,
                num_processed_tokens: allocation.num_processed(),
                attaches: args.attaches(),
                num_tokens_to_cache: num_tokens_to_cache
                    .filter(|_| group.is_cacheable)
                    .map(|tokens| num_cacheable_tokens(self.retention.rules(), group, tokens)),
            };
            Ok(states.check_step(group, &read, demand, &step)? || has_negative)
        })
    }

    /// Checks that the hit and the external tokens fit the blocks that the request holds.
    fn check_attachment(&self, allocation: &Allocation<'_>) -> Result<()> {
        let Allocation { args, step, .. } = allocation;
        let computed = step.total_computed_tokens;
        let hit = args.new_computed_blocks;
        let mut hits = self.groups.iter().zip(hit);
        if !self.config.enable_caching
            && hits.any(|(group, blocks)| attaches_blocks(group, blocks, computed))
        {
            return Err(Error::Precondition(
                "new_computed_blocks has blocks, but prefix caching is disabled".into(),
            ));
        }
        let is_running = || self.held.is_some_and(RequestBlocks::is_running);
        if hit.iter().any(|blocks| !blocks.is_empty()) && is_running() {
            return Err(takes_no_hit());
        }
        let attaches = args.attaches();
        if attaches && !is_running() {
            if self.held.is_some_and(|held| self.holds_attachable(held)) {
                return Err(Error::Precondition(
                    "the request was allocated without computed tokens and cannot take any now; \
                     free it first"
                        .into(),
                ));
            }
            self.check_null_blocks(computed)?;
        }
        if !attaches && computed > 0 && !is_running() {
            self.check_free_for_skipped(allocation)?;
        }
        self.check_ends_of_hit(&allocation.step, hit)
    }

    /// Checks that no table would start with null blocks far past the longest request.
    fn check_null_blocks(&self, computed: usize) -> Result<()> {
        let max_model_len = self.config.max_model_len;
        let has_nulls = |group: &Group| group.is_state || group.skips != Skipped::Nothing;
        if computed <= 2 * max_model_len || !self.groups.iter().any(has_nulls) {
            return Ok(());
        }
        Err(Error::Request(format!(
            "{computed} tokens would be computed, more than twice max_model_len {max_model_len}"
        )))
    }

    /// Checks where the hit ends, in each group that attaches blocks of it. It must end at a block
    /// boundary, or where a partial hit can end.
    fn check_ends_of_hit(&self, step: &SlotDemand<'_>, hit: &[GroupBlocks]) -> Result<()> {
        let num_local = step.num_local_computed_tokens;
        let computed = step.total_computed_tokens;
        for (group, blocks) in self.groups.iter().zip(hit) {
            if !attaches_blocks(group, blocks, computed) {
                continue;
            }
            if group.has_partial_hits {
                SharedTail::check(group, blocks, num_local)?;
            } else if !num_local.is_multiple_of(group.block_size) {
                return Err(Error::Request(format!(
                    "the hit ends at token {num_local}, inside a block of {} tokens. Cut it to a \
                     multiple of the block size",
                    group.block_size
                )));
            }
        }
        Ok(())
    }

    /// Returns whether the request has a block in some group whose tables start with the blocks of
    /// a hit.
    fn holds_attachable(&self, held: &RequestBlocks) -> bool {
        let mut groups = self.groups.iter().zip(&held.groups);
        groups.any(|(group, in_group)| group.starts_with_hit && !in_group.blocks.is_empty())
    }
}

impl RequestContext<'_> {
    /// Releases the blocks that leave a window before a step.
    fn release_before_step(&mut self, retention: &ActivePolicy, allocation: &Allocation<'_>) {
        let num_prompt_tokens = Some(allocation.request.num_prompt_tokens);
        self.release_skipped(retention, allocation.num_processed(), num_prompt_tokens);
    }

    /// Attaches the hit, then allocates blocks for external tokens. All groups attach their hits
    /// first, so that no allocation evicts another group's hit.
    fn attach(&mut self, args: &AllocateArgs<'_>, step: &SlotDemand<'_>) {
        if self.held.is_running() {
            return;
        }
        self.each(|group, context| group.attach_hit(context, step)).for_each(drop);
        if args.num_external_computed_tokens > 0 {
            self.each(|group, context| {
                let is_zeroed = !args.skip_zeroing_group_ids.contains(&usize::from(group.id));
                group.allocate_external(context, step, is_zeroed);
            })
            .for_each(drop);
        }
    }
}

/// Returns whether a group attaches any block of a hit. It attaches only blocks after the skipped
/// ones.
fn attaches_blocks(group: &Group, hit: &GroupBlocks, computed: usize) -> bool {
    group.starts_with_hit && hit.len() > group.num_skipped_blocks(computed)
}

fn takes_no_hit() -> Error {
    Error::Precondition(
        "the request already holds blocks and cannot take a new hit; free it first".into(),
    )
}

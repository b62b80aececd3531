//! Retention decides which blocks stay cached, which value they have, and what happens to them when
//! a request releases them.
//!
//! A [`Policy`] is the policy that a caller asks for. [`ActivePolicy`] is that policy in one
//! manager, which calls it at four moments in the life of a request:
//!
//! | moment | call | with a standard policy | with adaptive retention |
//! |---|---|---|---|
//! | blocks became full | [`ActivePolicy::mask_in_pool`] | the tails in the mask are cached | tails that have a value are cached too, each with its value |
//! | it is admitted | [`ActivePolicy::admitted`] | | learns where earlier sequences were resumed |
//! | blocks left its window | [`ActivePolicy::window_left`] | pins them, if the policy has a pinned tier | protects valuable tails |
//! | it ends | [`ActivePolicy::release`] | releases its tables | learns, and releases its blocks in the order of their values |
//!
//! [`mask`] has vLLM's rules, and [`valuation`] determines the values of blocks. [`crate::pool`]
//! uses these values to decide which free block is evicted first. This module is listed after
//! `group` because groups ask for their masks. Of a group, it knows only the [`TailShape`].

mod default_reach;
mod estimate;
mod given_up;
mod sessions;
mod valuation;

mod mask;

mod older_rules;
mod policy;
mod rules;
mod shape;

pub use estimate::{DefaultHits, ShadowReport};
pub use mask::{MaskQuery, PartlyValued, RetentionMask, merge_runs};
pub use older_rules::OlderRules;
pub use policy::{Policy, ProtectedShare, Retention};
pub use valuation::{EndValue, EndValues, KeptBins, ResumeHistogram, ValueModel};

pub(crate) use rules::CacheRules;
pub(crate) use shape::TailShape;
pub(crate) use valuation::Admission;

use std::sync::Arc;

use default_reach::DefaultReach;
use sessions::Sessions;
use shape::AllTails;
use valuation::{SharedPrefix, Valuation};

use crate::block::{BlockId, GroupId, NULL_BLOCK};
use crate::error::{Error, Result};
use crate::pool::{Adaptive, AdaptiveConfig, BlockPool, RequestRetention};
use crate::request::{GroupBlocks, RequestBlocks, RequestView};

/// The retention policy of a manager, with everything that it has learnt.
#[derive(Debug)]
pub(crate) struct ActivePolicy {
    policy: Policy,
    rules: CacheRules,
    /// The shape of each group.
    shapes: Vec<TailShape>,
    tails: AllTails,
    /// Determines the values of blocks under adaptive retention.
    valuation: Option<Valuation>,
    sessions: Sessions,
    watches_windows: bool,
}

impl ActivePolicy {
    /// Creates the active policy of a manager with these groups. `before` has the groups' shapes
    /// before groups that are looked up together agreed on the blocks that they drop. `shapes` has
    /// the shapes after that.
    pub(crate) fn new(
        policy: Policy,
        rules: CacheRules,
        [before, shapes]: [Vec<TailShape>; 2],
    ) -> Self {
        let is_adaptive = policy.retention == Retention::Adaptive;
        let valuation = is_adaptive.then(|| Valuation::new(&before, rules.tail_alignment));
        let watches_windows = is_adaptive || policy.pin_min_drop_size.is_some();
        let tails = AllTails::of(&shapes);
        let sessions = Sessions::default();
        Self { policy, rules, shapes, tails, valuation, sessions, watches_windows }
    }

    /// Returns the rules that decide which blocks are cached.
    #[inline]
    pub(crate) fn rules(&self) -> &CacheRules {
        &self.rules
    }

    /// Returns the configuration with which the pool evicts by values; `None` for a standard
    /// policy.
    pub(crate) fn eviction(&self, num_blocks: usize) -> Option<AdaptiveConfig> {
        self.valuation.as_ref()?;
        Some(AdaptiveConfig {
            classes: shape::block_classes(&self.shapes),
            max_high_priority: self.policy.protected_share.of(num_blocks.saturating_sub(1)),
        })
    }

    /// Changes [`Policy::retention_interval`] to the interval of `policy`. All other fields of
    /// `policy` must be unchanged. Returns [`Error::Config`], and changes nothing, if the interval
    /// cannot work.
    pub(crate) fn set_policy(&mut self, policy: Policy) -> Result<()> {
        let is_sparse = self.shapes.iter().any(|shape| shape.is_sparse);
        policy.validate(is_sparse, self.rules.scheduler_block_size)?;
        let policy = policy.in_effect(is_sparse);
        self.rules.retention_interval = policy.retention_interval;
        self.policy = policy;
        Ok(())
    }
}

/// Handles blocks that became full.
impl ActivePolicy {
    /// Returns the mask of a range of a group's blocks, without blocks that have no value.
    pub(crate) fn mask(
        &self,
        group: GroupId,
        request: &RequestView<'_>,
        range: (usize, usize),
    ) -> RetentionMask {
        self.mask_with_room(group, request, range, false)
    }

    /// Returns the mask of a range of a group's blocks, and the value of each block in it: the caller
    /// gives these values to the blocks. The mask includes blocks without a value if the
    /// `num_queued` blocks in the free queue are enough to keep them until the prompt is computed.
    pub(crate) fn mask_in_pool(
        &self,
        group: GroupId,
        request: &RequestView<'_>,
        range: (usize, usize),
        num_queued: usize,
    ) -> RetentionMask {
        let has_room = |valuation: &Valuation| {
            valuation.model().has_room(request.num_prompt_tokens, num_queued)
        };
        let has_room = self.valuation.as_ref().is_some_and(has_room);
        self.mask_with_room(group, request, range, has_room)
    }

    fn mask_with_room(
        &self,
        group: GroupId,
        request: &RequestView<'_>,
        range: (usize, usize),
        has_room: bool,
    ) -> RetentionMask {
        let shape = &self.shapes[usize::from(group)];
        let model = self.valuation.as_ref().map(Valuation::model);
        self.rules.mask(model, shape, request, range, has_room)
    }

    /// Returns whether the state after `num_blocks` blocks is cached in every prompt of this
    /// length.
    pub(crate) fn keeps_state_at(
        &self,
        group: GroupId,
        request: &RequestView<'_>,
        num_blocks: usize,
    ) -> bool {
        let shape = &self.shapes[usize::from(group)];
        let model = self.valuation.as_ref().map(Valuation::model);
        self.rules.keeps_state_at(model, shape, request, num_blocks)
    }

    /// Returns whether the policy caches only the tails at boundaries where requests resume.
    pub(crate) fn keeps_boundaries_alone(&self) -> bool {
        self.rules.retention_interval == Some(0)
    }
}

/// Handles a request that is admitted.
impl ActivePolicy {
    /// Learns from a request that gets its first blocks. Called before its hit is attached.
    #[inline(never)]
    pub(crate) fn admitted(
        &mut self,
        pool: &mut BlockPool,
        held: &mut RequestBlocks,
        admission: &Admission<'_>,
    ) {
        let Some(valuation) = &mut self.valuation else { return };
        if let Some(full) = pool.adaptive().and_then(|adaptive| adaptive.full_group) {
            let full = &self.shapes[usize::from(full)];
            let alignment = self.rules.tail_alignment;
            let prefix = SharedPrefix::of(full, alignment, pool, admission);
            valuation.note_resume(pool, &prefix, admission.request);
            let tails = self.tails;
            let reach = DefaultReach { tails, full, alignment, prefix: &prefix };
            held.groups[usize::from(full.group)].without_tail = reach.note(pool, admission);
        }
        self.note_shared(pool, admission);
        let tails = held.tails.get_or_insert_default();
        tails.num_prompt_tokens = admission.request.num_prompt_tokens;
        tails.num_hit_tokens = admission.num_computed_tokens;
    }
}

/// Handles blocks that leave a window.
impl ActivePolicy {
    /// Returns whether the manager must report blocks that leave a window to the policy.
    #[inline]
    pub(crate) fn watches_windows(&self) -> bool {
        self.watches_windows
    }

    /// Prepares the pool for the release of blocks that leave the windows of a request.
    /// `is_skipped` returns whether a group is about to release the block at a position of its
    /// table.
    #[inline]
    pub(crate) fn window_leaves(
        &self,
        pool: &mut BlockPool,
        held: &RequestBlocks,
        is_skipped: impl Fn(usize, usize) -> bool,
    ) {
        if let Some((adaptive, _)) = pool.adaptive_mut() {
            adaptive.start_protecting();
        }
        if self.policy.pins_skipped_tails() {
            for (group, in_group) in held.groups.iter().enumerate() {
                pin_skipped(pool, &in_group.blocks, |position| is_skipped(group, position));
            }
        }
    }

    /// Pins the blocks of a request in a group. Does so only if enough blocks left the window at
    /// once, by the policy's `pin_min_drop_size`.
    #[cold]
    #[inline(never)]
    pub(crate) fn pin_if_many_left(
        &self,
        pool: &mut BlockPool,
        blocks: &GroupBlocks,
        num_released: usize,
    ) {
        if self.policy.pin_min_drop_size.is_some_and(|least| num_released >= least) {
            pool.pin(blocks.iter_owned_rev());
        }
    }

    /// Notes which tails became protected when blocks left the windows of a request.
    #[inline]
    pub(crate) fn window_left(&self, pool: &mut BlockPool, held: &mut RequestBlocks) {
        if let Some((adaptive, blocks)) = pool.adaptive_mut() {
            let tails = adaptive.stop_protecting();
            let alignment = self.rules.tail_alignment;
            valuation::note_protected_tails(held, adaptive, blocks, &tails, alignment);
        }
    }
}

/// Handles a request that ends.
impl ActivePolicy {
    /// Pins the cached blocks of a request that ends, if the policy has a pinned tier.
    pub(crate) fn pin_ended(&self, pool: &mut BlockPool, held: &RequestBlocks) {
        if self.policy.pin_min_drop_size.is_some() {
            held.groups.iter().for_each(|group| pool.pin(group.blocks.iter_owned_rev()));
        }
    }

    /// Releases every block of a request that ends.
    pub(crate) fn release(&mut self, pool: &mut BlockPool, held: &RequestBlocks) {
        if self.valuation.is_none() {
            held.groups.iter().for_each(|group| pool.release_table(group.blocks.ids()));
            return;
        }
        self.note_session_end(pool, held);
        let Some(valuation) = &mut self.valuation else { return };
        if let Some((adaptive, blocks)) = pool.adaptive_mut() {
            let values = valuation.note_end(&self.shapes, adaptive, blocks, held);
            let alignment = self.rules.tail_alignment;
            valuation::release_all(&self.shapes, adaptive, blocks, held, values, alignment);
        }
    }

    /// Ends the protection of a request's tails. The caller releases the request's other blocks.
    pub(crate) fn unprotect(&mut self, pool: &mut BlockPool, held: &RequestBlocks) {
        self.note_session_end(pool, held);
        if let Some((adaptive, blocks)) = pool.adaptive_mut() {
            valuation::unprotect_tails(adaptive, blocks, held);
        }
    }
}

/// Handles priorities that requests set for their blocks.
impl ActivePolicy {
    /// Checks that requests' priorities have an effect.
    pub(crate) fn check_takes_priorities(&self) -> Result<()> {
        match self.policy.retention {
            Retention::Adaptive => Ok(()),
            Retention::Standard => Err(Error::Request(
                "the request sets a retention, which needs adaptive retention; leave it out, or \
                 create the manager with Policy(retention='adaptive')"
                    .into(),
            )),
        }
    }

    /// Sets the retention that the request of the next calls asks for.
    pub(crate) fn set_requested(
        &self,
        pool: &mut BlockPool,
        requested: Option<Arc<RequestRetention>>,
    ) {
        if let Some((adaptive, _)) = pool.adaptive_mut() {
            adaptive.set_requested(requested);
        }
    }

    /// Returns whether some request's priority has a time to live.
    pub(crate) fn has_times_to_live(&self, pool: &BlockPool) -> bool {
        pool.adaptive().is_some_and(Adaptive::has_times_to_live)
    }

    /// Sets the time in milliseconds. Blocks whose time to live has ended get the default priority.
    pub(crate) fn set_now(&self, pool: &mut BlockPool, now: u64) {
        if let Some((adaptive, blocks)) = pool.adaptive_mut() {
            adaptive.set_now(blocks, now);
        }
    }
}

/// Pins the cached blocks of a request that will leave a window next.
#[cold]
#[inline(never)]
fn pin_skipped(pool: &mut BlockPool, table: &GroupBlocks, is_skipped: impl Fn(usize) -> bool) {
    let positions = table.null_head()..;
    let skipped = positions.zip(table.ids()).take_while(|&(position, _)| is_skipped(position));
    let skipped = skipped.map(|(_, &block)| block).filter(|&block: &BlockId| block != NULL_BLOCK);
    pool.pin(skipped);
}

//! One group of a manager: its data, and its kind for the rest.

use super::cache_rules::CacheRules;
use super::caching;
use super::data::GroupData;
use super::demand::{BlockDemand, GroupDemand};
use super::growing;
use super::kind::{Asked, Checkpoint, Kind, StepAhead};
use super::orders::WorkOrders;
use super::query::{GroupHit, HitQuery};
use super::turn::{Adoption, External, Slots, Turn};
use crate::block::BlockId;
use crate::error::Result;
use crate::request::{RequestId, RequestView};

/// A group. Kinds that keep a growing table as all others do are not asked at every step.
#[derive(Debug)]
pub struct Group {
    data: GroupData,
    kind: Box<dyn Kind>,
    has_own_joints: bool,
}

impl std::ops::Deref for Group {
    type Target = GroupData;

    #[inline]
    fn deref(&self) -> &GroupData {
        &self.data
    }
}

impl Group {
    /// A group of a kind.
    pub fn new(data: GroupData, kind: Box<dyn Kind>) -> Self {
        Self { data, has_own_joints: kind.has_own_joints(), kind }
    }

    /// Whether its hits drop their last block, once that is known.
    pub fn set_drops_eagle_block(&mut self, drops: bool) {
        self.data.drops_eagle_block = drops;
    }

    /// Whether hits can end inside its blocks, once that is known.
    pub fn set_has_partial_hits(&mut self, has: bool) {
        self.data.has_partial_hits = has && self.kind.supports_partial_hits();
    }

    /// Tells the kind, before the first request, what its manager caches and how.
    pub fn learn(&mut self, rules: &CacheRules) {
        self.kind.learn(rules);
        self.has_own_joints = self.kind.has_own_joints();
    }

    /// Whether its kind keeps its tables otherwise than most, or has memory of its own.
    #[inline]
    pub fn has_own_joints(&self) -> bool {
        self.has_own_joints
    }

    /// What sets its kind apart.
    pub fn kind(&self) -> &dyn Kind {
        &*self.kind
    }

    /// The longest prefix that the group can continue from.
    pub fn longest_hit(&self, query: &HitQuery<'_>) -> Result<GroupHit> {
        self.kind.longest_hit(query)
    }

    /// What the group needs for a demand.
    #[inline]
    pub fn demand<'a>(&mut self, asked: &Asked<'_>, demand: &BlockDemand<'a>) -> GroupDemand<'a> {
        match self.has_own_joints {
            false => growing::demand(&self.data, asked.state, demand),
            true => self.kind.demand(&self.data, asked, demand),
        }
    }

    /// Checks that a request can be served as the demand says. Whether it asks for less than
    /// nothing.
    pub fn check_step(
        &self,
        asked: &Asked<'_>,
        demand: &BlockDemand<'_>,
        step: &StepAhead<'_>,
    ) -> Result<bool> {
        self.kind.check_step(&self.data, asked, demand, step)
    }

    /// Blocks that a connector's tokens take beyond the demand.
    pub fn num_blocks_beyond_demand(&self, asked: &Asked<'_>, demand: &BlockDemand<'_>) -> isize {
        self.kind.num_blocks_beyond_demand(&self.data, asked, demand)
    }

    /// Makes the blocks of a hit the request's own.
    pub fn adopt(&mut self, turn: &mut Turn<'_>, adoption: &Adoption<'_>) {
        self.kind.adopt(&self.data, turn, adoption);
    }

    /// Takes blocks for what a connector brings.
    pub fn fill_external(&mut self, turn: &mut Turn<'_>, external: &External) {
        self.kind.fill_external(&self.data, turn, external);
    }

    /// Gives the request slots: the blocks that its table gained.
    #[inline]
    pub fn extend(&mut self, turn: &mut Turn<'_>, slots: &Slots) -> Vec<BlockId> {
        match self.has_own_joints {
            false => growing::extend(&self.data, turn, slots.num_tokens),
            true => self.kind.extend(&self.data, turn, slots),
        }
    }

    /// Gives back the blocks that no token after `num_computed_tokens` attends to; how many.
    #[inline]
    pub fn give_back(
        &mut self,
        turn: &mut Turn<'_>,
        num_computed_tokens: usize,
        num_prompt_tokens: Option<usize>,
    ) -> usize {
        match self.has_own_joints {
            false => growing::give_back(&self.data, turn, num_computed_tokens),
            true => self.kind.give_back(&self.data, turn, num_computed_tokens, num_prompt_tokens),
        }
    }

    /// Whether [`Self::give_back`] would give back what stands at a position of a request's table.
    pub fn is_given_back(
        &self,
        request: RequestId,
        position: usize,
        num_computed_tokens: usize,
        num_prompt_tokens: Option<usize>,
    ) -> bool {
        let Self { data, kind, .. } = self;
        kind.is_given_back(data, request, position, num_computed_tokens, num_prompt_tokens)
    }

    /// Caches what of the request is computed up to `num_tokens`.
    #[inline]
    pub fn cache(
        &mut self,
        turn: &mut Turn<'_>,
        rules: &CacheRules,
        request: &RequestView<'_>,
        num_tokens: usize,
    ) {
        let Self { data, kind, has_own_joints } = self;
        match has_own_joints {
            false => caching::cache(data, turn, rules, request, num_tokens, |reach| {
                kind.reachable_blocks(reach)
            }),
            true => kind.cache(data, turn, rules, request, num_tokens),
        }
    }

    /// Checks that what of a request is computed up to `num_tokens` can be cached.
    pub fn check_cache(
        &self,
        asked: &Asked<'_>,
        rules: &CacheRules,
        request: &RequestView<'_>,
        num_tokens: usize,
    ) -> Result<()> {
        self.kind.check_cache(&self.data, asked, rules, request, num_tokens)
    }

    /// Hands out, as a request ends, the block whose state stands for all of its computed tokens,
    /// and how many those are.
    pub fn finalize_partial_tail(&mut self, request: &RequestView<'_>) -> Option<(BlockId, usize)> {
        self.kind.finalize_partial_tail(request)
    }

    /// The state inside the chunk of a request that runs, if one is kept.
    pub fn checkpoint(&self, request: RequestId) -> Option<Checkpoint> {
        self.kind.checkpoint(request)
    }

    /// Forgets a request.
    #[inline]
    pub fn end(&mut self, request: RequestId, orders: &mut WorkOrders) {
        if self.has_own_joints {
            self.kind.end(&self.data, request, orders);
        }
    }

    /// Checks what the kind promises of a request's table; the error says what is broken.
    pub fn check(&self, asked: &Asked<'_>) -> std::result::Result<(), String> {
        self.kind.check(&self.data, asked)
    }

    /// A scheduling step starts.
    pub fn step_starts(&mut self) {
        self.kind.step_starts();
    }
}

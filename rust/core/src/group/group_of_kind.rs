//! One group of a manager: its data, and its kind for the rest.

use super::cache_rules::CacheRules;
use super::caching;
use super::data::GroupData;
use super::demand::{BlockDemand, GroupDemand};
use super::growing;
use super::kind::Kind;
use super::query::{GroupHit, HitQuery};
use super::turn::{External, Turn};
use crate::block::BlockId;
use crate::error::Result;
use crate::request::{GroupBlocks, GroupState, RequestId, RequestView};

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
    pub fn demand<'a>(
        &mut self,
        state: Option<&GroupState>,
        demand: &BlockDemand<'a>,
    ) -> GroupDemand<'a> {
        match self.has_own_joints {
            false => growing::demand(&self.data, state, demand),
            true => self.kind.demand(&self.data, state, demand),
        }
    }

    /// Makes the blocks of a hit the request's own.
    pub fn adopt(
        &mut self,
        turn: &mut Turn<'_>,
        hit: Option<&GroupBlocks>,
        total_computed_tokens: usize,
    ) {
        self.kind.adopt(&self.data, turn, hit, total_computed_tokens);
    }

    /// Takes blocks for what a connector brings.
    pub fn fill_external(&mut self, turn: &mut Turn<'_>, external: &External) {
        self.kind.fill_external(&self.data, turn, external);
    }

    /// Gives the request slots for `num_tokens`: the blocks that its table gained.
    #[inline]
    pub fn extend(&mut self, turn: &mut Turn<'_>, num_tokens: usize) -> Vec<BlockId> {
        match self.has_own_joints {
            false => growing::extend(&self.data, turn, num_tokens),
            true => self.kind.extend(&self.data, turn, num_tokens),
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

    /// Forgets a request.
    #[inline]
    pub fn end(&mut self, request: RequestId) {
        if self.has_own_joints {
            self.kind.end(request);
        }
    }

    /// A scheduling step starts.
    pub fn step_starts(&mut self) {
        self.kind.step_starts();
    }
}

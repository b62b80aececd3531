//! What sets one kind of group apart: behaviour, where it is not data.
//!
//! The joints, from [`Kind::demand`] on, are those of vLLM's managers of single groups. As they
//! stand here they are those of a table that grows with its request; a kind that keeps its blocks
//! otherwise, or has memory of its own, replaces those that differ and says so with
//! [`Kind::has_own_joints`].

use std::fmt::Debug;

use super::cache_rules::CacheRules;
use super::caching;
use super::data::{GroupData, Head};
use super::demand::{BlockDemand, GroupDemand};
use super::growing;
use super::orders::WorkOrders;
use super::query::{GroupHit, HitQuery};
use super::retention::{Reach, ReachableBlocks};
use super::turn::{Adoption, External, Slots, Turn};
use crate::block::BlockId;
use crate::error::Result;
use crate::pool::BlockPool;
use crate::request::{GroupState, RequestId, RequestView};

/// A kind of group. All lengths and positions are in tokens unless they are called blocks.
pub trait Kind: Debug + Send + Sync {
    /// The longest prefix that the group can continue from.
    fn longest_hit(&self, query: &HitQuery<'_>) -> Result<GroupHit>;

    /// Whether every prefix of a hit is a hit: a longer hit is then cut instead of searched anew.
    fn is_prefix_closed(&self) -> bool {
        false
    }

    /// Whether the group has a sliding window or states, which retention intervals are about.
    fn is_sparse(&self) -> bool {
        false
    }

    /// Whether a block is the state of a whole prefix, as in Mamba, instead of that of its tokens.
    fn is_state(&self) -> bool {
        false
    }

    /// Whether the blocks of a table lie at the positions of its tokens, so that those behind some
    /// number of tokens are no part of them.
    fn covers_tokens(&self) -> bool {
        !self.is_state()
    }

    /// Whether hits can end inside a block.
    fn supports_partial_hits(&self) -> bool {
        false
    }

    /// Whether such hits are worth their while where blocks are larger than hash blocks.
    fn asks_for_partial_hits(&self) -> bool {
        false
    }

    /// Which leading tokens need no block.
    fn head(&self) -> Head {
        Head::Kept
    }

    /// Which blocks of a range are worth caching.
    fn reachable_blocks(&self, _reach: &Reach<'_>) -> ReachableBlocks {
        ReachableBlocks::All
    }

    /// Blocks that a hit's end needs, where it does not need all of its prefix.
    fn tail_len(&self, _drops_eagle_block: bool) -> usize {
        0
    }

    /// The most blocks that a request holds at once, for kinds that give blocks back as they go.
    fn max_admission_blocks(
        &self,
        _max_in_flight_tokens: usize,
        _max_model_len: usize,
    ) -> Option<usize> {
        None
    }

    /// Whether tables start with the blocks of a hit.
    fn adopts_hits(&self) -> bool {
        true
    }

    /// Blocks of `block_size` that a request of so many tokens, all of them prompt, holds at its
    /// end.
    fn num_blocks_at_end(&self, block_size: usize, num_tokens: usize) -> usize {
        let all = num_tokens.div_ceil(block_size);
        match self.head() {
            Head::Kept => all,
            Head::Window(size) => all.min((size - 1).div_ceil(block_size) + 1),
            Head::Chunk(size) => all.min(size.div_ceil(block_size)),
        }
    }

    /// Whether the worker zeroes new blocks, where it zeroes any.
    fn is_zeroed(&self) -> bool {
        true
    }

    /// Whether the end of the prompt is cached although it ends inside a block.
    fn caches_partial_tail(&self) -> bool {
        false
    }

    /// Checks that the kind can be looked up at hits of this alignment, with or without the drop
    /// of the last block that EAGLE needs.
    fn check_lookup(&self, _alignment: usize, _drops_eagle_block: bool) -> Result<()> {
        Ok(())
    }

    /// Learns, before the first request, what its manager caches and how.
    fn learn(&mut self, _rules: &CacheRules) {}

    /// Whether the kind replaces any of the joints below. Those of other kinds are called without
    /// asking the kind, since a decode step is little more than these calls.
    fn has_own_joints(&self) -> bool {
        false
    }

    /// What the group needs for a demand.
    fn demand<'a>(
        &mut self,
        data: &GroupData,
        asked: &Asked<'_>,
        demand: &BlockDemand<'a>,
    ) -> GroupDemand<'a> {
        growing::demand(data, asked.state, demand)
    }

    /// Checks that a request can be served as the demand says, where the kind knows more than the
    /// number of blocks. Whether it asks for less than nothing.
    fn check_step(
        &self,
        _data: &GroupData,
        _asked: &Asked<'_>,
        _demand: &BlockDemand<'_>,
        _step: &StepAhead<'_>,
    ) -> Result<bool> {
        Ok(false)
    }

    /// Blocks that a connector's tokens take beyond the demand, or less than it if below zero.
    fn num_blocks_beyond_demand(
        &self,
        _data: &GroupData,
        _asked: &Asked<'_>,
        _demand: &BlockDemand<'_>,
    ) -> isize {
        0
    }

    /// Makes the blocks of a hit the request's own.
    fn adopt(&mut self, data: &GroupData, turn: &mut Turn<'_>, adoption: &Adoption<'_>) {
        growing::adopt(data, turn, adoption);
    }

    /// Takes blocks for what a connector brings.
    fn fill_external(&mut self, data: &GroupData, turn: &mut Turn<'_>, external: &External) {
        growing::fill_external(data, turn, external);
    }

    /// Gives the request slots: the blocks that its table gained.
    fn extend(&mut self, data: &GroupData, turn: &mut Turn<'_>, slots: &Slots) -> Vec<BlockId> {
        growing::extend(data, turn, slots.num_tokens)
    }

    /// Gives back the blocks that no token after `num_computed_tokens` attends to; how many.
    fn give_back(
        &mut self,
        data: &GroupData,
        turn: &mut Turn<'_>,
        num_computed_tokens: usize,
        _num_prompt_tokens: Option<usize>,
    ) -> usize {
        growing::give_back(data, turn, num_computed_tokens)
    }

    /// Whether [`Self::give_back`] would give back what stands at a position of a request's table.
    fn is_given_back(
        &self,
        data: &GroupData,
        _request: RequestId,
        position: usize,
        num_computed_tokens: usize,
        _num_prompt_tokens: Option<usize>,
    ) -> bool {
        position < data.num_skipped_blocks(num_computed_tokens)
    }

    /// Whether a hit for a request that is running is refused before anybody asks for room.
    fn refuses_hits_first(&self) -> bool {
        true
    }

    /// Caches what of the request is computed up to `num_tokens`.
    fn cache(
        &mut self,
        data: &GroupData,
        turn: &mut Turn<'_>,
        rules: &CacheRules,
        request: &RequestView<'_>,
        num_tokens: usize,
    ) {
        caching::cache(data, turn, rules, request, num_tokens, |reach| {
            self.reachable_blocks(reach)
        });
    }

    /// Checks that what of a request is computed up to `num_tokens` can be cached, where the kind
    /// knows more than the number of blocks.
    fn check_cache(
        &self,
        _data: &GroupData,
        _asked: &Asked<'_>,
        _rules: &CacheRules,
        _request: &RequestView<'_>,
        _num_tokens: usize,
    ) -> Result<()> {
        Ok(())
    }

    /// Hands out, as a request ends, the block whose state stands for all of its computed tokens,
    /// and how many those are.
    fn finalize_partial_tail(&mut self, _request: &RequestView<'_>) -> Option<(BlockId, usize)> {
        None
    }

    /// The state inside the chunk of a request that runs, if one is kept.
    fn checkpoint(&self, _request: RequestId) -> Option<Checkpoint> {
        None
    }

    /// Forgets a request, whose blocks are given back by the caller.
    fn end(&mut self, _data: &GroupData, _request: RequestId, _orders: &mut WorkOrders) {}

    /// A scheduling step starts.
    fn step_starts(&mut self) {}

    /// Tells, as numbers, what the kind remembers of its own.
    fn digest(&self, _put: &mut dyn FnMut(u64)) {}

    /// Checks what the kind promises of a request's table; the error says what is broken.
    fn check(&self, _data: &GroupData, _asked: &Asked<'_>) -> std::result::Result<(), String> {
        Ok(())
    }
}

/// What a step does beside giving slots.
#[derive(Clone, Copy, Debug)]
pub struct StepAhead<'a> {
    /// The request.
    pub request: &'a RequestView<'a>,
    /// Tokens before whose end blocks are given back first.
    pub num_processed_tokens: usize,
    /// Whether blocks are adopted, or taken for what a connector brings.
    pub adopts: bool,
    /// Tokens of the group that are cached at the end; `None` if nothing is.
    pub num_tokens_to_cache: Option<usize>,
}

/// A state inside a chunk of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Tokens that it stands for.
    pub num_tokens: usize,
    /// Its position in the request's table.
    pub position: usize,
}

/// A request that a group is asked about.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The request.
    pub request: RequestId,
    /// What it holds in the group, if anything in any.
    pub state: Option<&'a GroupState>,
    /// The pool.
    pub pool: &'a BlockPool,
}

//! A simulated pool that sees the requests of a manager.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::Manager;
use super::args::AllocateArgs;
use crate::block::{BlockId, CacheKey};
use crate::pool::{Adaptive, LeavingBlock, RequestRetention};
use crate::request::{RequestBlocks, RequestId, RequestView};
use crate::retention::DefaultHits;

/// Sees the calls of a manager, and decides which keys CPU memory keeps.
pub trait Follower: fmt::Debug + Send + Sync {
    /// Returns a function that returns whether a key is kept. Keys that follow each other in a prompt
    /// are found faster.
    fn keeps(&self) -> Box<dyn FnMut(&CacheKey) -> bool + '_>;

    /// Returns whether a key is kept.
    fn has(&self, key: &CacheKey) -> bool {
        self.keeps()(key)
    }

    /// Returns whether the block of a kept key is worth so much that a step waits for its store.
    fn is_worth_a_wait(&self, key: &CacheKey) -> bool;

    /// Returns the blocks of kept keys that no request uses, in the order in which they are given up,
    /// without those that were passed over. The blocks are the follower's.
    fn order(&self) -> Box<dyn Iterator<Item = LeavingBlock> + '_>;

    /// Leaves blocks out of the order until a request uses them, because CPU memory has given up
    /// their keys.
    fn pass_over(&mut self, blocks: &[BlockId]);

    /// Returns the keys that are no longer kept since the last call.
    fn take_given_up(&mut self) -> Vec<CacheKey>;

    /// Estimates the prompt tokens that vLLM's own policies would have hit in both memories.
    fn default_hits(&self) -> DefaultHits;

    /// Notes that a request has slots for its first `end` tokens. In this step, it hit `num_hit` of
    /// them in both memories. The request has all its hashes.
    fn reach(
        &mut self,
        request: &RequestView<'_>,
        num_hit: usize,
        end: usize,
        retention: Option<&Arc<RequestRetention>>,
    );

    /// Returns how many blocks would have been hit since the last call if neither memory had lost them.
    fn take_lost(&mut self) -> usize;

    /// Ends a request, or preempts it. Returns after how many tokens its blocks are given up, if they
    /// are.
    fn free(
        &mut self,
        request: RequestId,
        retention: Option<&Arc<RequestRetention>>,
    ) -> Option<usize>;

    /// Starts a step.
    fn step_starts(&mut self);

    /// Sets the time in milliseconds that ends of priorities are compared with.
    fn set_now(&mut self, milliseconds: u64);

    /// Sets the tokens between the states and windows that are cached.
    fn set_retention_interval(&mut self, interval: Option<usize>);

    /// Forgets all requests and keys.
    fn reset(&mut self);
}

impl Manager {
    /// Lets a follower see the calls from now on, in place of an earlier one. With a follower, each
    /// allocation needs all hashes of its request.
    pub fn set_follower(&mut self, follower: Option<Box<dyn Follower>>) {
        self.pool.note_leaving(follower.is_some());
        self.follower = follower;
    }

    /// Returns the blocks that were evicted since the last call and whose keys no other block has;
    /// none without a follower. Blocks that [`Self::take_leaving`] returned are left out. They have
    /// their contents until the step runs. Called once per step.
    pub fn take_evicted(&mut self) -> Vec<LeavingBlock> {
        self.pool.take_evicted()
    }

    /// Returns the cached ones of the blocks at `places` of the order in which the pool allocates them
    /// next, without blocks that an earlier call returned and that no request has used since; none
    /// without a follower.
    pub fn take_leaving(&mut self, places: Range<usize>) -> Vec<LeavingBlock> {
        self.pool.take_leaving(places)
    }

    /// Lets [`Self::take_leaving`] return all blocks again.
    pub fn forget_leaving(&mut self) {
        self.pool.forget_leaving();
    }

    /// Returns the follower, if there is one.
    #[inline]
    pub fn follower(&self) -> Option<&dyn Follower> {
        self.follower.as_deref()
    }

    /// Lets the follower pass over some of its blocks.
    pub fn pass_over(&mut self, blocks: &[BlockId]) {
        if let Some(follower) = &mut self.follower {
            follower.pass_over(blocks);
        }
    }

    /// Returns how many blocks would have been hit since the last call if neither memory had lost them.
    pub fn take_lost(&mut self) -> usize {
        self.follower.as_mut().map_or(0, |follower| follower.take_lost())
    }

    /// Returns the keys that the follower no longer keeps since the last call.
    pub fn take_given_up(&mut self) -> Vec<CacheKey> {
        self.follower.as_mut().map(|follower| follower.take_given_up()).unwrap_or_default()
    }

    #[cold]
    #[inline(never)]
    pub(super) fn follow_allocation(&mut self, request: &RequestView<'_>, args: &AllocateArgs<'_>) {
        let retention = self.requested_retention();
        if let Some(follower) = &mut self.follower {
            let num_hit = args.num_new_computed_tokens + args.num_external_computed_tokens;
            follower.reach(request, num_hit, args.num_final(request), retention.as_ref());
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn follow_end(&mut self, request: RequestId, held: &RequestBlocks) {
        let retention = self.requested_retention();
        let Some(follower) = &mut self.follower else { return };
        if let Some(start) = follower.free(request, retention.as_ref()) {
            self.retention.give_up_from(&mut self.pool, held, start);
        }
    }

    fn requested_retention(&self) -> Option<Arc<RequestRetention>> {
        self.pool.adaptive().and_then(Adaptive::requested)
    }
}

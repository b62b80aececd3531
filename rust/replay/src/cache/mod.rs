//! The cache of a scheduler: the block manager, or a cache that never evicts.

mod managed;
mod unlimited;

mod hit;

use kvoxide_core::{Manager, RequestId, RequestRetention, RequestView, RetentionReport};

use serde::{Deserialize, Serialize};

use crate::host::HostConnector;
use crate::losses::{Losses, Shared};
pub use hit::{Hit, Slots};
pub use managed::ManagedCache;
pub use unlimited::UnlimitedCache;

/// The calls of a scheduler. Lengths are in tokens.
pub trait Cache {
    /// Notes that a request arrives, at a time in microseconds. It can ask for a retention of its
    /// blocks.
    fn arrives(
        &mut self,
        _request: RequestId,
        _arrival: Option<u64>,
        _retention: Option<RequestRetention>,
    ) {
    }

    /// Returns the longest cached prefix of a request and its shared-prefix boundary.
    fn look_up(&mut self, request: &RequestView<'_>) -> Result<Hit, kvoxide_core::Error>;

    /// Looks up a request that does not wait for transfers: if it has to, they end now.
    fn look_up_at_once(&mut self, request: &RequestView<'_>) -> Result<Hit, kvoxide_core::Error> {
        let hit = self.look_up(request)?;
        if !hit.is_later {
            return Ok(hit);
        }
        if let Some((host, _)) = self.host() {
            host.end_all_transfers();
        }
        self.look_up(request)
    }

    /// Returns the hit of a request that does not read the cache.
    fn without_look_up(&mut self, _request: &RequestView<'_>) -> Hit {
        Hit::none()
    }

    /// Attaches a hit, if one is given, and allocates slots for more tokens. Returns `false` if too
    /// few blocks are free.
    fn allocate(
        &mut self,
        request: &RequestView<'_>,
        slots: Slots,
        hit: Option<&Hit>,
    ) -> Result<bool, kvoxide_core::Error>;

    /// Returns the losses of a request that got its first slots with a hit.
    fn losses(&self, _request: &RequestView<'_>, _hit: &Hit) -> Losses {
        Losses::default()
    }

    /// Returns the part of a request's prompt that earlier requests computed.
    fn shared(&self, _request: &RequestView<'_>) -> Shared {
        Shared::default()
    }

    /// Records that a request got slots for its tokens from `start` to `end`.
    fn note_computed(&mut self, _request: &RequestView<'_>, _start: usize, _end: usize) {}

    /// Releases all blocks of a request.
    fn free(&mut self, request: RequestId);

    /// Removes a request that ends. Its blocks return to the pool with [`Self::steps_ended`], once
    /// `num_steps` steps have ended.
    fn free_after(&mut self, request: RequestId, _num_steps: usize) {
        self.free(request);
    }

    /// Releases the blocks that are held until at most `num_steps` steps have ended.
    fn steps_ended(&mut self, _num_steps: usize) {}

    /// Returns whether blocks of requests that have ended are held until a step has ended.
    fn has_held_blocks(&self) -> bool {
        false
    }

    /// Releases the blocks of a request that left their windows. The output of
    /// `num_computed_tokens` tokens is known.
    fn leave_windows(&mut self, _request: &RequestView<'_>, _num_computed_tokens: usize) {}

    /// Releases all blocks of a request that will run again.
    fn preempt(&mut self, request: RequestId) {
        self.free(request);
    }

    /// Does the same as [`Self::preempt`], but the blocks return to the pool with
    /// [`Self::steps_ended`], once `num_steps` steps have ended.
    fn preempt_after(&mut self, request: RequestId, _num_steps: usize) {
        self.preempt(request);
    }

    /// Returns the CPU memory and the manager, if there is CPU memory.
    fn host(&mut self) -> Option<(&mut HostConnector, &mut Manager)> {
        None
    }

    /// Allocates blocks for the tokens of a hit and starts the load of those in CPU memory. Leaves
    /// `num_reserved` free blocks to other requests. Returns `false` if too few are free.
    fn load(
        &mut self,
        _request: &RequestView<'_>,
        _hit: &Hit,
        _slots: Slots,
        _num_reserved: isize,
    ) -> Result<bool, kvoxide_core::Error> {
        Ok(false)
    }

    /// Caches the blocks of a request whose load has ended.
    fn end_load(&mut self, _request: &RequestView<'_>) -> Result<(), kvoxide_core::Error> {
        Ok(())
    }

    /// Returns how many more blocks a request needs for its whole prompt.
    fn num_missing_blocks(
        &mut self,
        _request: &RequestView<'_>,
    ) -> Result<isize, kvoxide_core::Error> {
        Ok(0)
    }

    /// Caches the blocks of a request that are full after `num_computed_tokens` are computed.
    fn cache(&mut self, _request: &RequestView<'_>, _num_computed_tokens: usize) {}

    /// Forgets everything that is cached. If blocks are in use, forgets nothing and returns
    /// `false`.
    fn reset(&mut self) -> bool;

    /// Starts a step.
    fn step_starts(&mut self) {}

    /// Ends a step, which has also run its copies.
    fn step_has_run(&mut self) -> Result<(), kvoxide_core::Error> {
        Ok(())
    }

    /// Returns the occupancy of the pool.
    fn occupancy(&self) -> Occupancy;

    /// Returns the statistics of retention, if the cache has any. Takes time proportional to the
    /// pool.
    fn retention(&self) -> Option<RetentionReport> {
        None
    }

    /// Returns how many tokens all admitted requests hit in blocks with generated tokens, if the
    /// cache counts them.
    fn hit_answer_tokens(&self) -> Option<u64> {
        None
    }

    /// Returns the length of the hit that [`Self::look_up`] would find. Changes nothing.
    fn cached_length(&self, request: &RequestView<'_>) -> Result<usize, kvoxide_core::Error>;

    /// Returns the number of computed tokens at the next decode step that needs a call of
    /// [`Self::allocate`]. Steps are counted from `num_computed_tokens` on.
    fn next_call(&self, num_computed_tokens: usize) -> usize;
}

/// The occupancy of a pool, in blocks.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Occupancy {
    /// The number of blocks, without the null block.
    pub capacity: usize,
    /// The number of blocks in use.
    pub used: usize,
    /// The number of blocks with a key.
    pub cached: usize,
    /// The number of pinned blocks.
    pub pinned: usize,
    /// The number of evicted blocks so far.
    pub evictions: u64,
}

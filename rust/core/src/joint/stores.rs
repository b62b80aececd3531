//! The stores of a step: blocks that the pool evicts soon and the simulated pool keeps.

use crate::host::{Horizon, HostSearch, HostTier, LeavingStores};
use crate::manager::Manager;
use crate::pool::LeavingBlock;
use crate::request::RequestId;

/// A step whose stores are decided.
#[derive(Clone, Copy, Debug)]
pub struct StoredStep {
    /// Whether the step computes tokens.
    pub has_tokens: bool,
    /// Whether a request ended since the step before.
    pub has_ended: bool,
    /// Whether the blocks are stored that the step takes from the pool.
    pub stores_taken: bool,
}

/// The stores of a step.
#[derive(Clone, Debug, Default)]
pub struct StepStores {
    /// How many chunks were given up because the simulated pool no longer has their keys.
    pub num_given_up: usize,
    /// The blocks that the step takes from the pool. They are stored before it runs.
    pub taken: LeavingStores,
    /// The blocks that later steps can take soon.
    pub leaving: LeavingStores,
}

impl StepStores {
    /// Decides the stores of a step, and gives the blocks chunks in the tier.
    pub fn decide(
        manager: &mut Manager,
        tier: &mut HostTier,
        horizon: &mut Horizon,
        search: &HostSearch,
        step: StoredStep,
    ) -> Self {
        let num_given_up = tier.give_up(manager.take_given_up().into_iter());
        let taken = manager.take_evicted();
        let pool = manager.pool();
        let about = (step.has_tokens, step.has_ended);
        let num_blocks = horizon.after_step(pool.num_blocks(), pool.num_allocated(), about);
        let Some(joint) = manager.follower() else {
            return Self { num_given_up, ..Self::default() };
        };
        let is_kept = |block: &LeavingBlock| search.is_whole(block) && joint.has(&block.key);
        let taken = taken.into_iter().filter(|block| step.stores_taken && is_kept(block));
        let taken = tier.store_leaving(pool, taken, joint.order());
        let leaving = pool.leaving(num_blocks.unwrap_or(0)).filter(is_kept);
        let leaving = tier.store_leaving(pool, leaving, joint.order());
        Self { num_given_up, taken, leaving }
    }
}

/// Notes that a request uses its cached blocks, which the pool keeps for now.
pub fn note_used(manager: &Manager, tier: &mut HostTier, request: RequestId) {
    let Ok(held) = manager.blocks_of(request) else { return };
    let blocks = held.groups.iter().flat_map(|table| table.blocks.iter());
    let pool = manager.pool().blocks();
    tier.note_used_in_pool(blocks.filter_map(|block| pool.key(block)));
}

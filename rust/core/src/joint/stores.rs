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
    /// The blocks that the step takes from the pool. They are stored before it runs, if they are worth
    /// the wait.
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
        tier.note_lost(manager.take_lost());
        let has_asked = horizon.num_asked() > 0;
        let taken = manager.take_evicted();
        if horizon.is_new() {
            manager.forget_leaving();
        }
        let pool = manager.pool();
        let about = (step.has_tokens, step.has_ended);
        let num_blocks = horizon.after_step(pool.num_blocks(), pool.num_allocated(), about);
        let stores_pay = tier.stores_pay();
        // The next step would wait for the stores of the blocks that it takes.
        let first = if stores_pay { 0 } else { horizon.num_taken() };
        let leaving = manager.take_leaving(first..num_blocks.unwrap_or(0));
        let pool = manager.pool();
        let are_any = !(taken.is_empty() && leaving.is_empty());
        let Some(joint) = manager.follower().filter(|_| are_any) else {
            return Self { num_given_up, ..Self::default() };
        };
        let mut keeps = joint.keeps();
        let mut is_kept = |block: &LeavingBlock| search.is_whole(block) && keeps(&block.key);
        let mut is_worth_a_wait =
            |block: &LeavingBlock| is_kept(block) && joint.is_worth_a_wait(&block.key);
        let taken =
            taken.into_iter().filter(|it| step.stores_taken && stores_pay && is_worth_a_wait(it));
        let taken = tier.store_leaving(pool, taken, joint.order());
        let leaving = leaving.into_iter().filter(is_kept);
        let leaving = tier.store_leaving(pool, leaving, joint.order());
        drop(keeps);
        if has_asked {
            tier.note_waited(leaving.stored.len());
        }
        [&taken, &leaving].into_iter().for_each(|stores| manager.pass_over(&stores.passed));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{BlockHash, CacheKey};
    use crate::group::GroupSpec;
    use crate::host::{HostPolicy, HostRequest, HostTierConfig};
    use crate::joint::testing::{BLOCK, hashes, key};
    use crate::joint::{JointPool, search_of};
    use crate::manager::{AllocateArgs, ManagerConfig};
    use crate::request::RequestView;

    fn manager(num_blocks: usize, num_chunks: usize) -> Manager {
        let config = ManagerConfig::new(num_blocks, vec![GroupSpec::full(BLOCK)], 1 << 12);
        let mut manager = Manager::new(config).expect("a manager");
        JointPool::follow(&mut manager, num_chunks).expect("a pool");
        manager
    }

    /// Serves a prompt, and returns how many of its tokens were hit.
    fn serve(manager: &mut Manager, id: RequestId, hashes: &[BlockHash]) -> usize {
        let view = RequestView::new(id, hashes, BLOCK * hashes.len());
        let hit = manager.get_computed_blocks(id, &view.hashes, view.num_tokens - 1).expect("hits");
        let args = AllocateArgs {
            num_new_tokens: view.num_tokens - hit.length,
            num_new_computed_tokens: hit.length,
            new_computed_blocks: if hit.length > 0 { &hit.blocks } else { &[] },
            ..AllocateArgs::default()
        };
        manager.allocate_slots(&view, &args).expect("a call").expect("slots");
        manager.free(id).expect("an end");
        hit.length
    }

    fn keys_of(blocks: &[LeavingBlock]) -> Vec<CacheKey> {
        blocks.iter().map(|block| block.key).collect()
    }

    #[test]
    fn the_blocks_that_a_step_evicts_have_their_contents() {
        let (mut manager, computed) = (manager(5, 8), hashes(0, 2));
        serve(&mut manager, 1, &computed);
        assert!(manager.take_evicted().is_empty());
        // The blocks of the second request have no contents yet when the third one takes them.
        serve(&mut manager, 2, &hashes(100, 4));
        serve(&mut manager, 3, &hashes(200, 4));
        let wanted = [1, 0].map(|at: usize| key(&computed[at]));
        assert_eq!(keys_of(&manager.take_evicted()), wanted);
        assert!(manager.take_evicted().is_empty());
    }

    #[test]
    fn a_block_leaves_once_until_it_is_used() {
        let (mut manager, [first, second]) = (manager(9, 8), [hashes(0, 3), hashes(100, 3)]);
        serve(&mut manager, 1, &first);
        serve(&mut manager, 2, &second);
        let wanted: Vec<_> =
            [&first, &second].map(|it| it.iter().rev().map(key)).into_iter().flatten().collect();
        assert_eq!(keys_of(&manager.take_leaving(0..5)), wanted[..3]);
        assert_eq!(keys_of(&manager.take_leaving(0..8)), wanted[3..]);
        assert!(manager.take_leaving(0..8).is_empty());
        let longer = hashes(0, 4);
        assert_eq!(serve(&mut manager, 3, &longer), 3 * BLOCK);
        assert_eq!(
            keys_of(&manager.take_leaving(0..8)),
            longer.iter().rev().map(key).collect::<Vec<_>>()
        );
        manager.forget_leaving();
        assert_eq!(manager.take_leaving(0..8).len(), 7);
    }

    #[test]
    fn what_a_step_takes_is_not_returned_if_it_was_before() {
        let (mut manager, [first, second]) = (manager(7, 20), [hashes(0, 3), hashes(100, 3)]);
        serve(&mut manager, 1, &first);
        serve(&mut manager, 2, &second);
        manager.take_evicted();
        assert_eq!(manager.take_leaving(0..2).len(), 2);
        serve(&mut manager, 3, &hashes(200, 4));
        let wanted = [&first[0], &second[2]].map(key);
        assert_eq!(keys_of(&manager.take_evicted()), wanted);
    }

    #[test]
    fn the_order_passes_over_blocks_until_they_are_used() {
        let (mut manager, [first, second]) = (manager(9, 8), [hashes(0, 3), hashes(100, 3)]);
        serve(&mut manager, 1, &first);
        serve(&mut manager, 2, &second);
        let order =
            |manager: &Manager| -> Vec<_> { manager.follower().expect("a pool").order().collect() };
        let (passed, left) = {
            let mut all = order(&manager);
            let left = all.split_off(3);
            (all, left)
        };
        manager.pass_over(&passed.iter().map(|it| it.block).collect::<Vec<_>>());
        assert_eq!(order(&manager), left);
        assert_eq!(serve(&mut manager, 3, &hashes(0, 4)), 3 * BLOCK);
        assert_eq!(order(&manager).len(), 7);
    }

    /// Plays steps of one prompt each. Returns how many steps waited for stores: of blocks that they
    /// took, before they ran or begun by the step before.
    fn num_steps_that_wait(with_loads: bool) -> usize {
        let mut manager = manager(9, 40);
        let mut tier =
            HostTier::new(&HostTierConfig::new(40, HostPolicy::Adaptive)).expect("a tier");
        let (mut horizon, search) = (Horizon::default(), search_of(&manager));
        let step = StoredStep { has_tokens: true, has_ended: true, stores_taken: true };
        let (mut before, mut num_waits) = (Vec::new(), 0);
        for id in 1..100 {
            serve(&mut manager, id, &hashes(1000 * id, 4));
            let is_taken = |key: &CacheKey| manager.pool().find(key).is_none();
            let waits_for_leaving = before.iter().any(is_taken);
            let StepStores { taken, leaving, .. } =
                StepStores::decide(&mut manager, &mut tier, &mut horizon, &search, step);
            if id >= 50 {
                num_waits += usize::from(waits_for_leaving || !taken.stored.is_empty());
            }
            before = keys_of(&leaving.stored);
            let stored = keys_of(&[taken.stored, leaving.stored].concat());
            tier.complete_store(stored.iter().copied(), true);
            if with_loads {
                let loaded = stored.iter().map(|&key| (key, None));
                tier.prepare_load(&mut HostRequest::default(), loaded).expect("hits");
                tier.complete_load(stored.into_iter()).expect("a load");
            }
        }
        num_waits
    }

    #[test]
    fn a_step_waits_for_stores_only_while_chunks_are_loaded() {
        assert_eq!([true, false].map(num_steps_that_wait), [50, 0]);
    }
}

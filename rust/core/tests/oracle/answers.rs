//! Compares [`JointPool`]'s decision on answers with a naive model. The model has a manager of both
//! sizes, a count of kept and hit tokens, and the set of generated blocks that were not used again.

use std::collections::HashSet;
use std::sync::Arc;

use kvoxide_core::joint::JointPool;
use kvoxide_core::{
    AllocateArgs, BlockHash, CacheKey, Follower, GroupSpec, Manager, ManagerConfig, Policy,
    RequestId, RequestRetention, RequestView,
};
use proptest::prelude::*;

const BLOCK: usize = 16;
const GPU: usize = 24;
const CPU: usize = 40;

#[derive(Clone, Debug)]
struct Turn {
    /// The earlier sequence that the prompt begins with, and how many of its blocks.
    continues: prop::sample::Index,
    num_shared: usize,
    num_new: usize,
    num_generated: usize,
    is_preempted: bool,
}

fn turn() -> impl Strategy<Value = Turn> {
    let parts = (any::<prop::sample::Index>(), 0..12usize, 1..4usize, 0..6usize);
    (parts, prop::bool::weighted(0.1)).prop_map(|(parts, is_preempted)| {
        let (continues, num_shared, num_new, num_generated) = parts;
        Turn { continues, num_shared, num_new, num_generated, is_preempted }
    })
}

struct Model {
    manager: Manager,
    kept: u64,
    hit: u64,
    counted: u64,
    ended: u64,
    /// The generated blocks that only the request that generated them has used.
    unused: HashSet<BlockHash>,
}

impl Model {
    const ENOUGH: u64 = ((GPU + CPU) * BLOCK / 4) as u64;

    fn gives_up(&self) -> bool {
        self.kept >= Self::ENOUGH && self.hit < self.kept / 16
    }

    fn has(&self, hash: &BlockHash) -> bool {
        let is_cached = self.manager.pool().find(&key(hash)).is_some();
        is_cached && !(self.gives_up() && self.unused.contains(hash))
    }

    fn serve(
        &mut self,
        id: RequestId,
        hashes: &[BlockHash],
        num_prompt: usize,
        is_preempted: bool,
    ) -> Option<usize> {
        let (prompt, end) = (num_prompt * BLOCK, hashes.len() * BLOCK);
        let view = RequestView { is_waiting: true, ..RequestView::new(id, hashes, prompt) };
        let hit = self.manager.get_computed_blocks(id, &view.hashes, prompt - 1).expect("a hit");
        let args = AllocateArgs {
            num_new_tokens: prompt - hit.length,
            num_new_computed_tokens: hit.length,
            new_computed_blocks: if hit.length > 0 { &hit.blocks } else { &[] },
            ..AllocateArgs::default()
        };
        self.manager.allocate_slots(&view, &args).expect("a call").expect("room");
        for (place, hash) in hashes.iter().enumerate() {
            if place < num_prompt {
                self.unused.remove(hash);
            } else {
                self.unused.insert(*hash);
            }
        }
        if end > prompt {
            let view = RequestView {
                num_tokens: end,
                num_computed_tokens: prompt,
                is_waiting: false,
                ..view
            };
            let args = AllocateArgs { num_new_tokens: end - prompt, ..AllocateArgs::default() };
            self.manager.allocate_slots(&view, &args).expect("a call").expect("room");
        }
        let given_up =
            (end > prompt && !is_preempted && !self.keeps((end - prompt) as u64)).then_some(prompt);
        let retention = given_up
            .map(|start| Arc::new(RequestRetention::default().giving_up(start..usize::MAX)));
        self.manager
            .with_retention(retention.as_ref(), |manager| manager.free(id))
            .expect("a request");
        given_up
    }

    fn keeps(&mut self, num_tokens: u64) -> bool {
        self.ended += 1;
        let counted = self.manager.admitted().hit_answer_tokens;
        self.hit += counted - self.counted;
        self.counted = counted;
        let is_sampled = (self.ended.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32).is_multiple_of(8);
        if self.gives_up() && !is_sampled {
            return false;
        }
        self.kept += num_tokens;
        if self.kept > 2 * Self::ENOUGH {
            self.kept /= 2;
            self.hit /= 2;
        }
        true
    }
}

fn key(hash: &BlockHash) -> CacheKey {
    CacheKey { hash: *hash, group: 0 }
}

fn config(num_blocks: usize) -> ManagerConfig {
    let groups = vec![GroupSpec::full(BLOCK)];
    ManagerConfig { policy: Policy::adaptive(), ..ManagerConfig::new(num_blocks, groups, 1 << 12) }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn answers_are_given_up_as_in_the_model(
        turns in prop::collection::vec(turn(), 1..200),
        returns in prop::collection::vec(any::<bool>(), 4),
    ) {
        let mut joint = JointPool::new(&config(GPU), CPU).expect("a pool");
        let manager = Manager::new(config(GPU + CPU)).expect("a manager");
        let unused = HashSet::new();
        let mut model = Model { manager, kept: 0, hit: 0, counted: 0, ended: 0, unused };
        // The blocks of each prompt with its answer, and the number of blocks of the prompt.
        let mut sequences: Vec<(Vec<BlockHash>, usize)> = vec![(Vec::new(), 0)];
        let mut next = 0;
        for (number, turn) in turns.iter().enumerate() {
            let (earlier, num_prompt) = turn.continues.get(&sequences);
            // In each part of the run, answers come back or do not.
            let may_return = returns[number * returns.len() / turns.len()];
            let most = if may_return { earlier.len() } else { *num_prompt };
            let mut hashes = earlier[..most.min(turn.num_shared)].to_vec();
            let num_prompt = hashes.len() + turn.num_new;
            for _ in 0..turn.num_new + turn.num_generated {
                next += 1;
                hashes.push(BlockHash([u64::wrapping_mul(next, 0x9E37_79B9), next, 1, 1]));
            }
            let (id, prompt) = (number as RequestId, num_prompt * BLOCK);
            let view = RequestView::new(id, &hashes[..], prompt);
            joint.reach(&view, 0, prompt, None);
            let view = RequestView { num_tokens: hashes.len() * BLOCK, ..view };
            joint.reach(&view, 0, hashes.len() * BLOCK, None);
            let preempted = Arc::new(RequestRetention::default().while_preempted());
            let given_up = joint.free(id, turn.is_preempted.then_some(&preempted));
            prop_assert_eq!(given_up, model.serve(id, &hashes, num_prompt, turn.is_preempted));
            sequences.push((hashes, num_prompt));
            for hash in sequences.iter().flat_map(|(hashes, _)| hashes) {
                prop_assert_eq!(joint.has(&key(hash)), model.has(hash));
            }
        }
    }
}

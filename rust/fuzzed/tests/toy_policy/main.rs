//! Plays requests with a toy eviction policy that orders one block at a time
//! ([`EvictionPolicy`]). It shows that such a policy needs only the trait. The simple policies of the
//! replay are played, too.

mod last_hit;
#[path = "../traffic/mod.rs"]
mod traffic;

use std::sync::Arc;

use kvoxide_core::pool::EvictionPolicy;
use kvoxide_core::{
    AllocateArgs, BlockHash, BlockId, GroupSpec, HashWindow, Manager, ManagerConfig, Policy,
    RequestId, RequestView, check,
};
use kvoxide_fuzzed::manager::Traffic;
use kvoxide_replay::baselines::Baseline;
use proptest::prelude::*;

use last_hit::LastHit;
use traffic::{call, config};

const BLOCK_SIZE: usize = 4;

fn toy() -> Box<dyn EvictionPolicy> {
    Box::new(LastHit::default())
}

/// A manager, and how many blocks requests hit.
struct Server {
    manager: Manager,
    num_hit_blocks: usize,
}

impl Server {
    fn new(num_blocks: usize, policy: Option<Box<dyn EvictionPolicy>>) -> Self {
        let config = ManagerConfig::new(num_blocks, vec![GroupSpec::full(BLOCK_SIZE)], 1024);
        let mut manager = Manager::new(config).expect("a configuration that can work");
        if let Some(policy) = policy {
            manager.pool_mut().evict_by(policy).expect("a fresh pool");
        }
        Self { manager, num_hit_blocks: 0 }
    }

    /// Computes a prompt of whole blocks and one token, which has a block of its own. `blocks` are
    /// what the blocks say.
    fn begin(&mut self, id: RequestId, blocks: &[u64]) {
        let hashes = hashes(blocks);
        let num_tokens = blocks.len() * BLOCK_SIZE + 1;
        let request = RequestView::new(id, &hashes[..], num_tokens);
        let hit = self.manager.get_computed_blocks(id, &request.hashes, num_tokens - 1);
        let hit = hit.expect("a look-up");
        let args = AllocateArgs {
            num_new_tokens: num_tokens - hit.length,
            num_new_computed_tokens: hit.length,
            new_computed_blocks: &hit.blocks,
            ..AllocateArgs::default()
        };
        self.manager.allocate_slots(&request, &args).expect("a valid call").expect("free blocks");
        self.num_hit_blocks += hit.length / BLOCK_SIZE;
        assert_eq!(check(&self.manager), Ok(()));
    }

    fn end(&mut self, id: RequestId) {
        self.manager.free(id).expect("a request that runs");
        assert_eq!(check(&self.manager), Ok(()));
    }

    /// Returns how many of the blocks a prompt that begins with them would hit.
    fn look_up(&mut self, blocks: &[u64]) -> usize {
        let hashes = hashes(blocks);
        let hashes = HashWindow::from(&hashes[..]);
        let hit = self.manager.find_longest_hit(&hashes, blocks.len() * BLOCK_SIZE);
        hit.expect("a look-up").length / BLOCK_SIZE
    }

    fn serve(&mut self, id: RequestId, blocks: &[u64]) {
        self.begin(id, blocks);
        self.end(id);
    }

    fn order(&self) -> Vec<BlockId> {
        self.manager.pool().eviction_order()
    }
}

/// Returns the chain of hashes of blocks.
fn hashes(blocks: &[u64]) -> Vec<BlockHash> {
    let mix = |hash: &mut u64, &block: &u64| {
        *hash = (*hash ^ block).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
        Some(BlockHash([*hash, 0, 0, 0]))
    };
    blocks.iter().scan(7, mix).collect()
}

/// Checks the order of eviction after overlapping requests, and which prefixes are hit once two
/// cached blocks were evicted.
fn check_order(
    policy: Option<Box<dyn EvictionPolicy>>,
    order: [BlockId; 7],
    [short_hits, long_hits]: [usize; 2],
) {
    let mut server = Server::new(8, policy);
    // A long request, in blocks 1, 2 and 3.
    server.begin(1, &[10, 11]);
    // Short ones begin and end meanwhile. The second hits block 4 of the first.
    server.serve(2, &[20]);
    server.serve(3, &[20]);
    server.end(1);
    assert_eq!(server.order(), order);
    // Six blocks. Four of them were empty.
    server.serve(4, &[30, 31, 32, 33, 34]);
    assert_eq!(server.look_up(&[20]), short_hits);
    assert_eq!(server.look_up(&[10, 11]), long_hits);
}

#[test]
fn a_block_that_was_hit_later_outlives_one_that_was_hit_earlier() {
    // By default the blocks of the request that ended last go last.
    check_order(None, [3, 5, 6, 7, 4, 2, 1], [0, 1]);
    check_order(Some(toy()), [3, 5, 6, 7, 1, 2, 4], [1, 0]);
}

#[test]
fn a_hot_prefix_survives_long_requests_that_are_not_repeated() {
    let num_hit_blocks = |policy| {
        let mut server = Server::new(41, policy);
        let prefix: Vec<u64> = (0..10).collect();
        server.serve(0, &prefix);
        for round in 1..20 {
            let long: Vec<u64> = (0..20).map(|block| 1000 * round + block).collect();
            server.begin(2 * round, &long);
            server.serve(2 * round + 1, &prefix);
            server.end(2 * round);
        }
        server.num_hit_blocks
    };
    let (by_default, by_last_hit) = (num_hit_blocks(None), num_hit_blocks(Some(toy())));
    assert_eq!(by_last_hit, 190, "every look-up hits the whole prefix");
    assert!(by_default < by_last_hit, "{by_default} blocks by default");
}

#[test]
fn a_policy_is_refused_where_it_would_not_know_all_blocks() {
    let mut server = Server::new(8, None);
    server.serve(1, &[10]);
    let refused = server.manager.pool_mut().evict_by(toy()).expect_err("a used pool");
    assert!(refused.to_string().contains("new pool"), "{refused}");
    server = Server::new(8, Some(toy()));
    assert!(server.manager.pool_mut().evict_by(toy()).is_err(), "a second policy");
    let config = ManagerConfig {
        policy: Policy::adaptive(),
        ..ManagerConfig::new(8, vec![GroupSpec::full(BLOCK_SIZE)], 1024)
    };
    let mut adaptive = Manager::new(config).expect("a configuration that can work");
    assert!(adaptive.pool_mut().evict_by(toy()).is_err(), "adaptive retention");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn every_invariant_holds_after_every_call(
        policy in prop::option::of(prop::sample::select(&Baseline::ALL[..])),
        config in config(),
        calls in prop::collection::vec(call(), 1..120),
    ) {
        let mut manager = Manager::new(config).expect("a configuration that can work");
        let pool = manager.pool_mut();
        let capacity = pool.num_blocks() - 1;
        let simple = |simple: Baseline| simple.policy(capacity, Arc::default());
        pool.evict_by(policy.map_or_else(toy, simple)).expect("a fresh pool");
        let mut traffic = Traffic::new(manager);
        calls.iter().for_each(|call| traffic.make(call));
        traffic.end();
    }
}

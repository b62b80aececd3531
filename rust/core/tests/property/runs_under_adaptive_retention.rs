//! Runs of blocks under adaptive retention. They are compared with a pool that gets the same blocks
//! in parts that are too small for runs.

use std::sync::Arc;

use kvoxide_core::pool::{Adaptive, AdaptiveConfig, BlockClass, Blocks, SampleCounts, ValueLevel};
use kvoxide_core::{
    BlockHash, BlockId, BlockPool, CacheKey, RecycleOrder, RequestRetention, RetentionPriority,
};
use proptest::prelude::*;

const NUM_BLOCKS: usize = 900;
/// The number of blocks in a part. It is smaller than any run.
const PART: usize = 13;

#[derive(Clone, Debug)]
enum Step {
    /// Takes blocks and caches all but every `uncached`-th block in one of the groups.
    Take { num: usize, uncached: usize, group: u16 },
    /// Releases the blocks of a holding.
    Release { holding: usize },
    /// Takes references to a part of an earlier holding, forwards or backwards.
    Touch { list: usize, first: usize, len: usize, is_turned: bool },
    /// Does the same for a request with a priority.
    Claim { list: usize, priority: i64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1..400usize, 2..500usize, 0..2u16)
            .prop_map(|(num, uncached, group)| Step::Take { num, uncached, group }),
        4 => (0..9usize).prop_map(|holding| Step::Release { holding }),
        4 => (0..20usize, 0..120usize, 1..400usize, any::<bool>()).prop_map(
            |(list, first, len, is_turned)| Step::Touch { list, first, len, is_turned }
        ),
        1 => (0..20usize, 0..100i64).prop_map(|(list, priority)| Step::Claim { list, priority }),
    ]
}

fn pool() -> BlockPool {
    let whole = BlockClass { is_sampleable: true, ..BlockClass::default() };
    let tail = BlockClass { value: ValueLevel::new(2), is_tail: true, ..BlockClass::default() };
    let order = AdaptiveConfig { classes: vec![whole, tail], max_high_priority: 100 };
    BlockPool::new(NUM_BLOCKS, 2, RecycleOrder::UncachedFirst, false, Some(order)).expect("a pool")
}

/// Returns hashes whose words are not consecutive.
fn hash(n: u64) -> BlockHash {
    let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    BlockHash([mixed ^ mixed >> 29, n, 0, 0])
}

/// A pool that gets whole lists, and a pool that gets them in parts.
struct World {
    whole: BlockPool,
    parts: BlockPool,
    holdings: Vec<Vec<BlockId>>,
    lists: Vec<Vec<BlockId>>,
    num_keys: u64,
}

impl World {
    fn new() -> Self {
        let (holdings, lists) = (Vec::new(), Vec::new());
        Self { whole: pool(), parts: pool(), holdings, lists, num_keys: 0 }
    }

    fn make(&mut self, step: &Step) {
        match *step {
            Step::Take { num, uncached, group } => self.take(num, uncached, group),
            Step::Release { holding } => self.release(holding),
            Step::Touch { list, first, len, is_turned } => {
                let list = self.lists.get(list).into_iter().flatten().copied();
                let mut part: Vec<_> = list.skip(first).take(len).collect();
                if is_turned {
                    part.reverse();
                }
                self.touch(part);
            }
            Step::Claim { list, priority } => {
                let requested = RetentionPriority::new(priority, None).expect("a priority");
                let requested = Arc::new(RequestRetention::from(requested));
                self.each_pool(|pool| {
                    adaptive(pool).0.set_requested(Some(Arc::clone(&requested)));
                });
                self.touch(self.lists.get(list).cloned().unwrap_or_default());
                self.each_pool(|pool| adaptive(pool).0.set_requested(None));
            }
        }
        self.compare();
    }

    fn each_pool(&mut self, change: impl Fn(&mut BlockPool)) {
        change(&mut self.whole);
        change(&mut self.parts);
    }

    fn take(&mut self, num: usize, uncached: usize, group: u16) {
        let num = num.min(self.whole.num_free_blocks() as usize);
        let (mut taken, mut other) = (Vec::new(), Vec::new());
        self.whole.allocate(num, &mut taken);
        self.parts.allocate(num, &mut other);
        assert_eq!(taken, other);
        for (i, &block) in taken.iter().enumerate() {
            if (i + 1) % uncached > 0 {
                self.num_keys += 1;
                let key = CacheKey { hash: hash(self.num_keys), group };
                self.each_pool(|pool| {
                    pool.insert_key(block, key, 16);
                });
            }
        }
        self.holdings.push(taken.clone());
        self.lists.push(taken);
    }

    fn release(&mut self, holding: usize) {
        if self.holdings.is_empty() {
            return;
        }
        let held = self.holdings.swap_remove(holding % self.holdings.len());
        let (whole, blocks) = adaptive(&mut self.whole);
        whole.release_by(blocks, |release| release.release_all(&held));
        let (parts, blocks) = adaptive(&mut self.parts);
        parts.release_by(blocks, |release| {
            held.iter().rev().for_each(|&block| _ = release.release(block));
        });
    }

    fn touch(&mut self, part: Vec<BlockId>) {
        self.whole.touch(&part);
        part.chunks(PART).for_each(|part| self.parts.touch(part));
        self.holdings.push(part);
    }

    fn compare(&self) {
        let Self { whole, parts, .. } = self;
        assert!(whole.free_blocks().eq(parts.free_blocks()));
        assert!(whole.listed_blocks().eq(parts.listed_blocks()));
        let references = |pool: &BlockPool| -> Vec<_> {
            (0..NUM_BLOCKS as BlockId).map(|block| pool.ref_count(block)).collect()
        };
        assert_eq!(references(whole), references(parts));
        // The blocks that the default policy would have kept depend on which blocks are hit at the
        // same time. Here these are blocks of all groups.
        let counts = |pool: &BlockPool| {
            let counts = pool.adaptive().map(|adaptive| adaptive.shadow().counts);
            counts.map(|counts| SampleCounts { kept_by_default: 0, ..counts })
        };
        assert_eq!(counts(whole), counts(parts));
    }
}

fn adaptive(pool: &mut BlockPool) -> (&mut Adaptive, &mut Blocks) {
    pool.adaptive_mut().expect("the adaptive policy")
}

proptest! {
    #[test]
    fn runs_are_handled_as_single_blocks(steps in prop::collection::vec(step(), 1..60)) {
        let mut world = World::new();
        steps.iter().for_each(|step| world.make(step));
    }
}

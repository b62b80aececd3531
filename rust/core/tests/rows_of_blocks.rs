//! Blocks whose ids are in a row are touched, given back and taken as one. A queue of single blocks
//! must come out the same.

use std::collections::VecDeque;

use kvoxide_core::{BlockHash, BlockId, BlockPool, CacheKey, RecycleOrder};
use proptest::prelude::*;

const NUM_BLOCKS: usize = 700;

#[derive(Clone, Debug)]
enum Step {
    /// Takes so many blocks and caches those of some positions: each `n`-th, or all, or none.
    Take { num: usize, cached: usize },
    /// Gives a holding back, first to last or last to first.
    Release { holding: usize, is_turned: bool },
    /// Holds the part of some holding, or of what was held once, a second time.
    Touch { list: usize, first: usize, len: usize },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1..300usize, 0..4usize).prop_map(|(num, cached)| Step::Take { num, cached }),
        (0..9usize, any::<bool>())
            .prop_map(|(holding, is_turned)| Step::Release { holding, is_turned }),
        (0..20usize, 0..120usize, 1..300usize).prop_map(|(list, first, len)| Step::Touch {
            list,
            first,
            len
        }),
    ]
}

/// The pool beside a queue that moves one block at a time.
struct World {
    pool: BlockPool,
    order: RecycleOrder,
    queue: VecDeque<BlockId>,
    references: Vec<u32>,
    is_cached: Vec<bool>,
    holdings: Vec<Vec<BlockId>>,
    lists: Vec<Vec<BlockId>>,
    num_keys: u64,
}

impl World {
    fn new(order: RecycleOrder) -> Self {
        Self {
            pool: BlockPool::new(NUM_BLOCKS, 1, order, false).expect("a pool"),
            order,
            queue: (1..NUM_BLOCKS as BlockId).collect(),
            references: vec![0; NUM_BLOCKS],
            is_cached: vec![false; NUM_BLOCKS],
            holdings: Vec::new(),
            lists: Vec::new(),
            num_keys: 0,
        }
    }

    fn play(&mut self, step: &Step) {
        match *step {
            Step::Take { num, cached } => self.take(num.min(self.queue.len()), cached),
            Step::Release { holding, is_turned } => self.release(holding, is_turned),
            Step::Touch { list, first, len } => self.touch(list, first, len),
        }
        assert!(self.pool.free_blocks().eq(self.queue.iter().copied()));
        let references = (0..NUM_BLOCKS as BlockId).map(|block| self.pool.ref_count(block) as u32);
        assert!(references.eq(self.references.iter().copied()));
    }

    fn take(&mut self, num: usize, cached: usize) {
        let mut taken = Vec::new();
        self.pool.take(num, &mut taken);
        assert_eq!(taken, self.queue.drain(..num).collect::<Vec<_>>());
        for (i, &block) in taken.iter().enumerate() {
            self.references[block as usize] = 1;
            self.is_cached[block as usize] = cached > 0 && i % cached == 0;
            if self.is_cached[block as usize] {
                self.num_keys += 1;
                let key = CacheKey { hash: BlockHash([self.num_keys, 0, 0, 0]), group: 0 };
                self.pool.insert_key(block, key, 16);
            }
        }
        self.holdings.push(taken.clone());
        self.lists.push(taken);
    }

    fn release(&mut self, holding: usize, is_turned: bool) {
        if self.holdings.is_empty() {
            return;
        }
        let held = self.holdings.swap_remove(holding % self.holdings.len());
        let mut order = held.clone();
        if is_turned {
            order.reverse();
            self.pool.release_table(&held);
        } else {
            self.pool.release(&held);
        }
        let mut front = Vec::new();
        for block in order {
            self.references[block as usize] -= 1;
            if self.references[block as usize] > 0 {
                continue;
            }
            match self.is_cached[block as usize] || self.order == RecycleOrder::Fifo {
                true => self.queue.push_back(block),
                false => front.push(block),
            }
        }
        front.into_iter().rev().for_each(|block| self.queue.push_front(block));
    }

    fn touch(&mut self, list: usize, first: usize, len: usize) {
        let Some(list) = self.lists.get(list) else { return };
        let part: Vec<_> = list.iter().copied().skip(first).take(len).collect();
        self.pool.touch(&part);
        for &block in &part {
            self.references[block as usize] += 1;
        }
        self.queue.retain(|&block| self.references[block as usize] == 0);
        self.holdings.push(part);
    }
}

proptest! {
    #[test]
    fn rows_go_where_single_blocks_would(
        steps in prop::collection::vec(step(), 1..60),
        is_fifo in any::<bool>(),
    ) {
        let order = if is_fifo { RecycleOrder::Fifo } else { RecycleOrder::UncachedFirst };
        let mut world = World::new(order);
        steps.iter().for_each(|step| world.play(step));
    }
}

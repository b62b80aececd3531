//! The engine, compared with an oracle. The oracle consists of naive models that handle one block
//! at a time and are easy to read. The engine handles runs of blocks, in one pass over memory or
//! lazily, and must make the same decisions.

mod adaptive;
mod adaptive_world;
mod answers;
mod host;
mod leaving;
mod pool;
mod request_world;
mod value_world;

use kvoxide_core::pool::{EvictionHints, FullBlocks, NO_SEGMENT, ValueLevel, WithoutTail};
use kvoxide_core::{BlockHash, BlockId, BlockPool, CacheKey, NULL_BLOCK, RecycleOrder};
use proptest::prelude::*;
use proptest::sample::Index;

const NUM_BLOCKS: usize = 500;
const NUM_GROUPS: u16 = 2;
const BLOCK_SIZE: usize = 16;
/// This is few enough that blocks are often duplicates.
const NUM_HASHES: u64 = 400;

#[derive(Clone, Debug)]
enum Step {
    /// Allocates blocks for a new holding, with null blocks at its head.
    Take {
        num: Index,
        num_null: usize,
    },
    /// Caches some of a holding's blocks under consecutive hashes.
    Cache {
        holding: Index,
        part: Part,
        first_hash: u64,
        group: u16,
    },
    /// Adds a key to a block in use.
    AddKey {
        holding: Index,
        at: Index,
        hash: u64,
        group: u16,
    },
    /// Moves the keys of a block in use to another block in use that has none.
    MoveKeys {
        from: (Index, Index),
        to: (Index, Index),
    },
    /// Adds a reference to some blocks of earlier holdings that are still cached.
    Touch {
        holding: Index,
        part: Part,
    },
    Release {
        holding: Index,
        how: Release,
    },
    Pin {
        holding: Index,
        part: Part,
    },
    Evict {
        holding: Index,
        part: Part,
    },
    Reset,
}

#[derive(Clone, Copy, Debug)]
enum Release {
    FirstToLast,
    LastToFirst,
    ToBack,
}

/// Positions of a holding: every `every`-th position of `len` positions from `first` on.
#[derive(Clone, Copy, Debug)]
struct Part {
    first: usize,
    len: usize,
    every: usize,
}

fn part() -> impl Strategy<Value = Part> {
    (0..100usize, 1..300usize, prop_oneof![4 => Just(1usize), 1 => 2..5usize])
        .prop_map(|(first, len, every)| Part { first, len, every })
}

fn step() -> impl Strategy<Value = Step> {
    let at = any::<Index>;
    let release =
        prop_oneof![Just(Release::FirstToLast), Just(Release::LastToFirst), Just(Release::ToBack)];
    prop_oneof![
        6 => (at(), 0..3usize).prop_map(|(num, num_null)| Step::Take { num, num_null }),
        6 => (at(), part(), 0..NUM_HASHES, 0..NUM_GROUPS).prop_map(
            |(holding, part, first_hash, group)| Step::Cache { holding, part, first_hash, group }
        ),
        2 => (at(), at(), 0..NUM_HASHES, 0..NUM_GROUPS).prop_map(
            |(holding, at, hash, group)| Step::AddKey { holding, at, hash, group }
        ),
        1 => ((at(), at()), (at(), at())).prop_map(|(from, to)| Step::MoveKeys { from, to }),
        6 => (at(), part()).prop_map(|(holding, part)| Step::Touch { holding, part }),
        8 => (at(), release).prop_map(|(holding, how)| Step::Release { holding, how }),
        2 => (at(), part()).prop_map(|(holding, part)| Step::Pin { holding, part }),
        2 => (at(), part()).prop_map(|(holding, part)| Step::Evict { holding, part }),
        1 => Just(Step::Reset),
    ]
}

/// The engine's pool, the oracle, and the blocks that their users hold.
struct World {
    engine: BlockPool,
    model: pool::Pool,
    holdings: Vec<Vec<BlockId>>,
    /// Blocks of earlier holdings. Some of them are still cached.
    past: Vec<Vec<BlockId>>,
}

impl World {
    fn new(order: RecycleOrder) -> Self {
        let engine = BlockPool::new(NUM_BLOCKS, usize::from(NUM_GROUPS), order, true, None);
        Self {
            engine: engine.expect("a pool"),
            model: pool::Pool::new(NUM_BLOCKS, order),
            holdings: Vec::new(),
            past: Vec::new(),
        }
    }

    fn play(&mut self, step: &Step) {
        match *step {
            Step::Take { num, num_null } => self.take(num, num_null),
            Step::Cache { holding, part, first_hash, group } => {
                self.cache(&self.part_of(holding, part), first_hash, group);
            }
            Step::AddKey { holding, at, hash, group } => self.add_key((holding, at), hash, group),
            Step::MoveKeys { from, to } => self.move_keys(from, to),
            Step::Touch { holding, part } => self.touch(holding, part),
            Step::Release { holding, how } => self.release(holding, how),
            Step::Pin { holding, part } => {
                let blocks = self.held_part_of(holding, part);
                self.engine.pin(blocks.iter().copied());
                self.model.pin(&blocks);
            }
            Step::Evict { holding, part } => self.evict(holding, part),
            Step::Reset => assert_eq!(self.engine.reset(), self.model.reset()),
        }
        self.compare();
    }

    fn take(&mut self, num: Index, num_null: usize) {
        if self.model.num_free() == 0 {
            return;
        }
        let num = 1 + num.index(self.model.num_free());
        let mut taken = vec![NULL_BLOCK; num_null];
        self.engine.allocate(num, &mut taken);
        assert_eq!(taken[num_null..], self.model.take(num));
        self.past.push(taken.clone());
        self.holdings.push(taken);
    }

    fn cache(&mut self, blocks: &[BlockId], first_hash: u64, group: u16) {
        let hashes: Vec<_> = (first_hash..).map(hash).take(blocks.len()).collect();
        let full = FullBlocks {
            group,
            blocks,
            hashes: &hashes,
            per_block: 1,
            first_num_tokens: BLOCK_SIZE,
            block_size: BLOCK_SIZE,
            segment: NO_SEGMENT,
        };
        let hints = EvictionHints {
            value: ValueLevel::default(),
            num_prompt_tokens: 0,
            without_tail: WithoutTail::default(),
        };
        for batch in full.batches(kvoxide_core::pool::PrefixIndex::BATCH) {
            self.engine.cache_batch(&batch, hints);
        }
        for (&block, &hash) in blocks.iter().zip(&hashes) {
            self.model.cache(block, CacheKey { hash, group });
        }
    }

    fn add_key(&mut self, (holding, at): (Index, Index), n: u64, group: u16) {
        let Some(block) = self.block_in_use(holding, at) else { return };
        let key = CacheKey { hash: hash(n), group };
        self.engine.insert_key(block, key, BLOCK_SIZE);
        self.model.add_key(block, key);
    }

    fn move_keys(&mut self, from: (Index, Index), to: (Index, Index)) {
        let Some(from) = self.block_in_use(from.0, from.1) else { return };
        let Some(to) = self.block_in_use(to.0, to.1) else { return };
        if from != to && self.model.blocks[to as usize].keys.is_empty() {
            self.engine.move_keys(from, to);
            self.model.move_keys(from, to);
        }
    }

    fn touch(&mut self, holding: Index, part: Part) {
        if self.past.is_empty() {
            return;
        }
        let past = &self.past[holding.index(self.past.len())];
        let mut found: Vec<_> = part.of(past);
        found.retain(|&block| {
            block == NULL_BLOCK || !self.model.blocks[block as usize].keys.is_empty()
        });
        self.engine.touch(&found);
        self.model.touch(&found);
        self.holdings.push(found);
    }

    fn release(&mut self, holding: Index, how: Release) {
        if self.holdings.is_empty() {
            return;
        }
        let mut held = self.holdings.swap_remove(holding.index(self.holdings.len()));
        match how {
            Release::FirstToLast => {
                self.engine.release(&held);
                self.model.release(&held);
            }
            Release::LastToFirst => {
                self.engine.release_table(&held);
                self.model.release_table(&held);
            }
            Release::ToBack => {
                held.retain(|&block| block != NULL_BLOCK);
                self.engine.release_to_back(held.iter().copied());
                self.model.release_to_back(&held);
            }
        }
    }

    fn evict(&mut self, holding: Index, part: Part) {
        if self.past.is_empty() {
            return;
        }
        let mut blocks = part.of(&self.past[holding.index(self.past.len())]);
        blocks.retain(|&block| block != NULL_BLOCK);
        self.engine.evict(blocks.iter().copied());
        self.model.evict(&blocks);
    }

    fn part_of(&self, holding: Index, part: Part) -> Vec<BlockId> {
        match self.holdings.len() {
            0 => Vec::new(),
            len => part.of(&self.holdings[holding.index(len)]),
        }
    }

    fn held_part_of(&self, holding: Index, part: Part) -> Vec<BlockId> {
        self.part_of(holding, part).into_iter().filter(|&block| block != NULL_BLOCK).collect()
    }

    fn block_in_use(&self, holding: Index, at: Index) -> Option<BlockId> {
        let held = self.holdings.get(holding.index(self.holdings.len().max(1)))?;
        held.get(at.index(held.len().max(1))).copied().filter(|&block| block != NULL_BLOCK)
    }

    fn compare(&mut self) {
        let Self { engine, model, .. } = self;
        assert_eq!(engine.index_mut().events_mut().take(), std::mem::take(&mut model.events));
        assert_eq!(engine.free_blocks().collect::<Vec<_>>(), model.queue);
        assert_eq!(engine.pinned_blocks().collect::<Vec<_>>(), model.pinned);
        assert_eq!(engine.num_free_blocks(), model.num_free() as isize);
        assert_eq!(engine.index().num_keys(), model.index.len());
        for (id, block) in (0..).zip(&model.blocks).skip(1) {
            assert_eq!(engine.ref_count(id), block.references as i32, "references of {id}");
            assert_eq!(engine.keys_of(id).collect::<Vec<_>>(), block.keys, "keys of {id}");
        }
        for (key, blocks) in &model.index {
            assert_eq!(engine.find(key), model.find(key));
            assert_eq!(engine.index().blocks_of(engine.blocks(), key), *blocks);
        }
    }
}

impl Part {
    fn has(self, at: usize) -> bool {
        let end = self.first + self.len;
        (self.first..end).contains(&at) && (at - self.first).is_multiple_of(self.every)
    }

    fn of(self, blocks: &[BlockId]) -> Vec<BlockId> {
        blocks.iter().copied().skip(self.first).take(self.len).step_by(self.every).collect()
    }
}

/// Returns hashes whose words are not consecutive, as in real hashes.
fn hash(n: u64) -> BlockHash {
    let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    BlockHash([mixed ^ mixed >> 29, n, 0, 0])
}

proptest! {
    #[test]
    fn the_pool_agrees_with_the_oracle(
        steps in prop::collection::vec(step(), 1..80),
        is_fifo in any::<bool>(),
    ) {
        let order = if is_fifo { RecycleOrder::Fifo } else { RecycleOrder::UncachedFirst };
        let mut world = World::new(order);
        steps.iter().for_each(|step| world.play(step));
    }
}

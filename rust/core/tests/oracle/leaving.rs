//! The host tier under `adaptive`, compared with a naive model that holds two lists of keys.

use std::collections::HashMap;

use kvoxide_core::host::{ChunkState, HostPolicy, HostRequest, HostTier, HostTierConfig};
use kvoxide_core::pool::LeavingBlock;
use kvoxide_core::{BlockHash, BlockPool, CacheKey, RecycleOrder};
use proptest::prelude::*;

const NUM_KEYS: u64 = 40;
const NUM_BLOCKS: usize = 24;
const NUM_GROUPS: usize = 2;

#[derive(Clone, Debug)]
enum Step {
    /// A request computes blocks for keys, and ends.
    Compute {
        first: u64,
        len: u64,
    },
    /// The tier stores what the pool evicts next.
    Store {
        num_blocks: usize,
        order: Vec<u64>,
    },
    CompleteStore {
        at: usize,
        is_success: bool,
    },
    /// Loads the ready ones of some keys.
    Load {
        first: u64,
        len: u64,
    },
    CompleteLoad {
        at: usize,
    },
    /// Requests use keys in the pool.
    Use {
        first: u64,
        len: u64,
    },
    GiveUp {
        first: u64,
        len: u64,
    },
    /// Loads wait for stores.
    Wait {
        num_stores: usize,
    },
    /// Some blocks would have been hit that neither memory has.
    Lose {
        num_blocks: usize,
    },
    Reset,
}

fn step() -> impl Strategy<Value = Step> {
    let keys = || (0..NUM_KEYS, 1..8u64);
    prop_oneof![
        8 => keys().prop_map(|(first, len)| Step::Compute { first, len }),
        8 => (0..NUM_BLOCKS, order())
            .prop_map(|(num_blocks, order)| Step::Store { num_blocks, order }),
        6 => (any::<usize>(), prop::bool::weighted(0.8))
            .prop_map(|(at, is_success)| Step::CompleteStore { at, is_success }),
        4 => keys().prop_map(|(first, len)| Step::Load { first, len }),
        4 => any::<usize>().prop_map(|at| Step::CompleteLoad { at }),
        3 => keys().prop_map(|(first, len)| Step::Use { first, len }),
        2 => keys().prop_map(|(first, len)| Step::GiveUp { first, len }),
        2 => (0..8usize).prop_map(|num_stores| Step::Wait { num_stores }),
        1 => (0..2usize).prop_map(|num_blocks| Step::Lose { num_blocks }),
        1 => Just(Step::Reset),
    ]
}

/// Some of the keys in any order.
fn order() -> impl Strategy<Value = Vec<u64>> {
    let all: Vec<_> = (0..NUM_KEYS).collect();
    prop::sample::subsequence(all, 0..=NUM_KEYS as usize).prop_shuffle()
}

fn keys(first: u64, len: u64) -> impl Iterator<Item = CacheKey> + Clone {
    let hash = |n: u64| BlockHash([n.wrapping_mul(7919), n, 0, 0]);
    let key = move |n: u64| CacheKey { hash: hash(n), group: u16::from(n.is_multiple_of(3)) };
    (first..(first + len).min(NUM_KEYS)).map(key)
}

/// The naive tier.
#[derive(Default)]
struct Model {
    capacity: usize,
    /// The references of each key; -1 while it is stored.
    references: HashMap<CacheKey, i32>,
    copies: Vec<CacheKey>,
    others: Vec<CacheKey>,
    /// How many copies are kept.
    num_kept: usize,
    /// The chunks of each group that were stored and loaded since the last comparison.
    transfers: [(usize, usize); NUM_GROUPS],
    is_waste: bool,
}

impl Model {
    fn forget(&mut self, key: CacheKey) {
        self.references.remove(&key);
        self.copies.retain(|other| *other != key);
        self.others.retain(|other| *other != key);
    }

    fn stores_pay(&mut self) -> bool {
        let num_stored: usize = self.transfers.iter().map(|(num_stored, _)| num_stored).sum();
        if num_stored > 0 && num_stored >= self.capacity {
            let pays = |&(num_stored, num_loaded)| num_stored > 0 && num_loaded * 12 >= num_stored;
            self.is_waste = !self.transfers.iter().any(pays);
            self.transfers = Default::default();
        }
        !self.is_waste
    }

    fn set_copy(&mut self, key: CacheKey, is_copy: bool) {
        if self.references.contains_key(&key) {
            self.copies.retain(|other| *other != key);
            self.others.retain(|other| *other != key);
            if is_copy { self.copies.push(key) } else { self.others.push(key) }
        }
    }

    fn is_evictable(&self, key: CacheKey) -> bool {
        self.references.get(&key) == Some(&0)
    }

    /// Returns the stored keys, the evicted ones, and the keys of `order` that made room.
    fn store(
        &mut self,
        pool: &BlockPool,
        keys: &[CacheKey],
        order: &[CacheKey],
    ) -> (Vec<CacheKey>, Vec<CacheKey>, Vec<CacheKey>) {
        keys.iter().for_each(|&key| self.set_copy(key, false));
        let absent = keys.iter().copied().filter(|key| !self.references.contains_key(key));
        let mut absent: Vec<_> = absent.collect();
        let mut evicted = Vec::new();
        let mut missing = (absent.len() + self.references.len()).saturating_sub(self.capacity);
        for key in self.copies.clone().into_iter().rev() {
            if missing == 0 || self.copies.len() <= self.num_kept {
                break;
            }
            if pool.find(&key).is_none() {
                self.set_copy(key, false);
            } else if self.is_evictable(key) {
                self.forget(key);
                evicted.push(key);
                missing -= 1;
            }
        }
        let mut taken = Vec::new();
        for &key in order {
            if missing == 0 {
                break;
            }
            if absent.contains(&key) {
                absent.retain(|other| *other != key);
            } else if self.is_evictable(key) {
                self.forget(key);
                evicted.push(key);
            } else {
                continue;
            }
            taken.push(key);
            missing -= 1;
        }
        for key in self.copies.clone().into_iter().rev().chain(self.others.clone()) {
            if missing > 0 && self.is_evictable(key) {
                self.forget(key);
                evicted.push(key);
                missing -= 1;
            }
        }
        absent.truncate(self.capacity - self.references.len());
        for &key in &absent {
            self.references.insert(key, -1);
            self.transfers[usize::from(key.group)].0 += 1;
            self.others.push(key);
        }
        (absent, evicted, taken)
    }
}

struct World {
    pool: BlockPool,
    tier: HostTier,
    model: Model,
    request: HostRequest,
    stores: Vec<Vec<CacheKey>>,
    loads: Vec<Vec<CacheKey>>,
}

impl World {
    fn new(capacity: usize) -> Self {
        let config = HostTierConfig::new(capacity, HostPolicy::Adaptive);
        let pool = BlockPool::new(NUM_BLOCKS, NUM_GROUPS, RecycleOrder::default(), false, None);
        Self {
            pool: pool.expect("a pool"),
            tier: HostTier::new(&config).expect("a tier"),
            model: Model { capacity, ..Model::default() },
            request: HostRequest::default(),
            stores: Vec::new(),
            loads: Vec::new(),
        }
    }

    fn play(&mut self, step: &Step) {
        match *step {
            Step::Compute { first, len } => self.compute(first, len),
            Step::Store { num_blocks, ref order } => {
                let order: Vec<_> = order.iter().flat_map(|&n| keys(n, 1)).collect();
                self.store(num_blocks, &order);
            }
            Step::CompleteStore { at, is_success } if !self.stores.is_empty() => {
                let keys = self.stores.swap_remove(at % self.stores.len());
                self.tier.complete_store(keys.iter().copied(), is_success);
                for key in keys {
                    match is_success {
                        true => _ = self.model.references.insert(key, 0),
                        false => self.model.forget(key),
                    }
                }
            }
            Step::Load { first, len } => self.load(first, len),
            Step::CompleteLoad { at } if !self.loads.is_empty() => {
                let keys = self.loads.swap_remove(at % self.loads.len());
                self.tier.complete_load(keys.iter().copied()).expect("a load");
                for key in keys {
                    *self.model.references.get_mut(&key).expect("a loaded key") -= 1;
                    self.model.transfers[usize::from(key.group)].1 += 1;
                    self.model.set_copy(key, true);
                }
            }
            Step::Use { first, len } => {
                self.tier.note_used_in_pool(keys(first, len));
                keys(first, len).for_each(|key| self.model.set_copy(key, true));
            }
            Step::GiveUp { first, len } => {
                let given_up: Vec<_> =
                    keys(first, len).filter(|&key| self.model.is_evictable(key)).collect();
                assert_eq!(self.tier.give_up(keys(first, len)), given_up.len());
                given_up.into_iter().for_each(|key| self.model.forget(key));
            }
            Step::Wait { num_stores } => {
                self.tier.note_waited(num_stores);
                self.model.num_kept = (self.model.num_kept + num_stores).min(self.model.capacity);
            }
            Step::Lose { num_blocks } => {
                self.tier.note_lost(num_blocks);
                self.model.num_kept = self.model.num_kept.saturating_sub(16 * num_blocks);
            }
            Step::Reset => {
                self.tier.reset();
                let Model { capacity, is_waste, .. } = self.model;
                self.model = Model { capacity, is_waste, ..Model::default() };
                self.stores.clear();
                self.loads.clear();
            }
            Step::CompleteStore { .. } | Step::CompleteLoad { .. } => {}
        }
        self.compare();
        assert_eq!(self.tier.stores_pay(), self.model.stores_pay());
    }

    fn compute(&mut self, first: u64, len: u64) {
        for key in keys(first, len) {
            let mut blocks = Vec::new();
            self.pool.allocate(1, &mut blocks);
            self.pool.insert_key(blocks[0], key, 16 * (key.hash.0[1] as usize + 1));
            self.pool.release(&blocks);
        }
    }

    fn store(&mut self, num_blocks: usize, next_given_up: &[CacheKey]) {
        let order = self.pool.eviction_order();
        let next = order.into_iter().take(num_blocks);
        let next: Vec<_> =
            next.filter_map(|block| Some((block, self.pool.blocks().key(block)?))).collect();
        let serves = |&(block, key): &(_, CacheKey)| self.pool.find(&key) == Some(block);
        let wanted: Vec<_> = next.into_iter().filter(serves).collect();
        let leaving: Vec<LeavingBlock> = self.pool.leaving(0..num_blocks).collect();
        let found: Vec<_> = leaving.iter().map(|block| (block.block, block.key)).collect();
        assert_eq!(found, wanted);
        let place = |(at, &key)| LeavingBlock { block: at as u32, key, num_tokens: 0 };
        let in_order = next_given_up.iter().enumerate().map(place);
        let stores = self.tier.store_leaving(&self.pool, leaving.into_iter(), in_order);
        let passed = stores.passed.iter().map(|&at| next_given_up[at as usize]);
        let keys: Vec<_> = wanted.into_iter().map(|(_, key)| key).collect();
        let (stored, evicted, taken) = self.model.store(&self.pool, &keys, next_given_up);
        assert_eq!(passed.collect::<Vec<_>>(), taken);
        let own: Vec<_> = stores.stored.iter().map(|block| block.key).collect();
        assert_eq!((&own, &stores.evicted), (&stored, &evicted));
        assert_eq!(stores.chunks.len(), own.len());
        self.stores.extend((!own.is_empty()).then_some(own));
    }

    fn load(&mut self, first: u64, len: u64) {
        let is_ready = |key: &CacheKey| self.model.references.get(key).is_some_and(|&n| n >= 0);
        let ready: Vec<_> = keys(first, len).filter(is_ready).collect();
        let positioned = ready.iter().map(|&key| (key, None));
        self.tier.prepare_load(&mut self.request, positioned).expect("hits");
        for key in &ready {
            *self.model.references.get_mut(key).expect("a hit") += 1;
        }
        self.loads.push(ready);
    }

    fn compare(&self) {
        let Self { tier, model, .. } = self;
        assert_eq!(tier.adaptive_lists(), Some([model.copies.clone(), model.others.clone()]));
        for (key, &references) in &model.references {
            let state = match u32::try_from(references) {
                Ok(num_loads) => ChunkState::Ready { num_loads },
                Err(_) => ChunkState::Pending,
            };
            assert_eq!(tier.lookup(key), Some(state));
        }
        assert_eq!(tier.keys().count(), model.references.len());
        assert_eq!(tier.num_free(), model.capacity - model.references.len());
    }
}

proptest! {
    #[test]
    fn the_tier_under_adaptive_agrees_with_its_model(
        steps in prop::collection::vec(step(), 1..120),
        capacity in prop::sample::select(vec![0usize, 1, 2, 7, 20, 60]),
    ) {
        let mut world = World::new(capacity);
        steps.iter().for_each(|step| world.play(step));
    }
}

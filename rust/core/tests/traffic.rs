//! Random traffic through the manager: after every call, every invariant holds.

use kvoxide_core::invariant::check;
use kvoxide_core::{
    AllocateArgs, BlockHash, GroupSpec, Manager, ManagerConfig, Policy, RecycleOrder, RequestView,
};
use proptest::prelude::*;

/// One call of the traffic. Numbers are reduced to what exists when the call is made.
#[derive(Clone, Debug)]
enum Op {
    /// A request whose prompt has `len` tokens of `family` and then tokens of its own.
    Arrive {
        family: u8,
        len: usize,
    },
    /// Admits the first waiting request, or serves a running one, with up to `tokens` tokens.
    Admit {
        tokens: usize,
        lookahead: usize,
        external: usize,
        delay: bool,
        must_fit: bool,
    },
    Serve {
        which: usize,
        tokens: usize,
        lookahead: usize,
    },
    CacheNow {
        which: usize,
    },
    Free {
        which: usize,
    },
    Preempt {
        which: usize,
    },
    PopAndRelease {
        which: usize,
    },
    Skip {
        which: usize,
    },
    Evict {
        first: u32,
        step: u32,
    },
    Reset,
}

fn op() -> impl Strategy<Value = Op> {
    let (which, tokens, lookahead) = (0..8_usize, 1..90_usize, 0..4_usize);
    let coin = prop::bool::weighted(0.15);
    prop_oneof![
        4 => (0..4_u8, 1..200_usize).prop_map(|(family, len)| Op::Arrive { family, len }),
        5 => (tokens.clone(), lookahead.clone(), 0..3_usize, coin, coin).prop_map(
            |(tokens, lookahead, external, delay, must_fit)| {
                Op::Admit { tokens, lookahead, external: external * 32, delay, must_fit }
            }
        ),
        9 => (which.clone(), tokens, lookahead)
            .prop_map(|(which, tokens, lookahead)| Op::Serve { which, tokens, lookahead }),
        1 => which.clone().prop_map(|which| Op::CacheNow { which }),
        3 => which.clone().prop_map(|which| Op::Free { which }),
        1 => which.clone().prop_map(|which| Op::Preempt { which }),
        1 => which.clone().prop_map(|which| Op::PopAndRelease { which }),
        1 => which.prop_map(|which| Op::Skip { which }),
        1 => (0..50_u32, 1..9_u32).prop_map(|(first, step)| Op::Evict { first, step }),
        1 => Just(Op::Reset),
    ]
}

fn groups() -> impl Strategy<Value = Vec<GroupSpec>> {
    prop::sample::select(vec![
        vec![GroupSpec::full(16)],
        vec![GroupSpec::sliding_window(8, 20)],
        vec![GroupSpec::chunked_local(8, 32)],
        vec![GroupSpec::full(16), GroupSpec::sliding_window(16, 40)],
        vec![GroupSpec::full(32), GroupSpec::sliding_window(8, 8)],
        vec![
            GroupSpec::full(32),
            GroupSpec::sliding_window(8, 30),
            GroupSpec::sliding_window(8, 30),
            GroupSpec::sliding_window(4, 3),
        ],
        vec![GroupSpec::full(16), GroupSpec::chunked_local(16, 48), GroupSpec::full(16)],
        vec![GroupSpec::sliding_window(8, 1), GroupSpec::sliding_window(16, 100)],
    ])
}

fn config() -> impl Strategy<Value = ManagerConfig> {
    let policy = (
        prop::bool::ANY,
        prop::bool::weighted(0.8),
        prop::sample::select(vec![None, Some(0), Some(64), Some(192)]),
        prop::sample::select(vec![None, Some(1), Some(3)]),
    );
    (groups(), 8..160_usize, prop::bool::weighted(0.3), prop::bool::weighted(0.8), policy).prop_map(
        |(groups, num_blocks, use_eagle, enable_caching, (fifo, mask, interval, pin))| {
            let has_chunks = groups.iter().any(|g| g.attention_chunk_size.is_some());
            let has_window = groups.iter().any(|g| g.sliding_window.is_some());
            ManagerConfig {
                use_eagle: use_eagle && !has_chunks,
                enable_caching,
                enable_events: true,
                needs_zeroing: true,
                watermark: 0.05,
                policy: Policy {
                    recycle_order: if fifo { RecycleOrder::Fifo } else { RecycleOrder::default() },
                    reachable_block_mask: mask,
                    retention_interval: interval.filter(|_| has_window),
                    pin_min_drop_size: pin,
                },
                ..ManagerConfig::new(num_blocks, groups, 400)
            }
        },
    )
}

/// A request of the traffic.
struct Request {
    id: u64,
    tokens: Vec<u64>,
    num_prompt_tokens: usize,
    num_computed_tokens: usize,
    num_delayed_tokens: usize,
    boundary: usize,
    hashes: Vec<BlockHash>,
}

struct Traffic {
    manager: Manager,
    waiting: Vec<Request>,
    running: Vec<Request>,
    next_id: u64,
}

impl Traffic {
    fn new(config: ManagerConfig) -> Self {
        let manager = Manager::new(config).expect("a configuration that can work");
        Self { manager, waiting: Vec::new(), running: Vec::new(), next_id: 1 }
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Arrive { family, len } => self.arrive(family, len),
            Op::Admit { .. } => self.admit(op),
            Op::Serve { which, tokens, lookahead } => self.serve(which, tokens, lookahead),
            Op::CacheNow { which } => self.cache_now(which),
            Op::Free { which } => {
                if let Some(request) = self.take_running(which) {
                    self.manager.free(request.id).expect("a request that runs");
                }
            }
            Op::Preempt { which } => {
                if let Some(mut request) = self.take_running(which) {
                    self.manager.free(request.id).expect("a request that runs");
                    request.num_computed_tokens = 0;
                    self.waiting.insert(0, request);
                }
            }
            Op::PopAndRelease { which } => {
                if let Some(request) = self.take_running(which) {
                    let blocks = self.manager.pop_blocks_for_free(request.id).expect("runs");
                    check(&self.manager).expect("invariants with blocks that no request holds");
                    let reversed: Vec<_> = blocks.into_iter().rev().collect();
                    self.manager.release_blocks(&reversed).expect("blocks with a reference");
                }
            }
            Op::Skip { which } => {
                if let Some(request) = self.pick(which) {
                    let (id, computed) = (request.id, request.num_computed_tokens);
                    self.manager.remove_skipped_blocks(id, computed).expect("a running request");
                }
            }
            Op::Evict { first, step } => {
                let num_blocks = self.manager.config().num_blocks as u32;
                let blocks: Vec<_> = (first..num_blocks).step_by(step as usize * 7).collect();
                self.manager.evict_blocks(&blocks).expect("ids of the pool");
            }
            Op::Reset => {
                let done = self.manager.reset_prefix_cache();
                assert!(!done || self.manager.pool().num_cached_blocks() == 0);
            }
        }
    }

    fn arrive(&mut self, family: u8, len: usize) {
        let shared = len * 3 / 4;
        let own = 1_000_000 + self.next_id * 1_000;
        let token = |t: usize| if t < shared { u64::from(family) * 1_000 } else { own } + t as u64;
        let mut request = Request {
            id: self.next_id,
            tokens: (0..len).map(token).collect(),
            num_prompt_tokens: len,
            num_computed_tokens: 0,
            num_delayed_tokens: 0,
            boundary: 0,
            hashes: Vec::new(),
        };
        self.next_id += 1;
        hash(&mut request, self.manager.hash_block_size());
        self.waiting.push(request);
    }

    fn admit(&mut self, op: &Op) {
        let Op::Admit { tokens, lookahead, external, delay, must_fit } = *op else { return };
        if self.waiting.is_empty() {
            return;
        }
        let mut request = self.waiting.remove(0);
        let view = request.view(true);
        let max_length = request.tokens.len() - 1;
        let hit = self.manager.get_computed_blocks(view.id, &view.hashes, max_length);
        let hit = hit.expect("a look-up");
        assert!(hit.length < request.tokens.len());
        assert!(hit.length.is_multiple_of(match self.manager.config().groups.len() {
            1 => self.manager.hash_block_size(),
            _ => self.manager.scheduler_block_size(),
        }));
        request.boundary = hit.shared_prefix_boundary;
        let left = request.tokens.len() - hit.length;
        let external = external.min(left - 1);
        let num_new = tokens.min(left - external);
        let args = AllocateArgs {
            num_new_tokens: num_new,
            num_new_computed_tokens: hit.length,
            new_computed_blocks: &hit.blocks,
            num_lookahead_tokens: lookahead,
            num_external_computed_tokens: external,
            delay_cache_blocks: delay,
            full_sequence_must_fit: must_fit,
            reserved_blocks: 0,
            has_scheduled_reqs: !self.running.is_empty(),
            skip_zeroing_group_ids: &[0],
        };
        let admitted = self.manager.allocate_slots(&request.view(true), &args).expect("admission");
        if admitted.is_none() {
            self.waiting.push(request);
            return;
        }
        request.num_computed_tokens = hit.length + external + num_new;
        request.num_delayed_tokens = if delay { request.num_computed_tokens } else { 0 };
        self.running.push(request);
    }

    fn serve(&mut self, which: usize, tokens: usize, lookahead: usize) {
        let hash_block_size = self.manager.hash_block_size();
        let max_len = self.manager.config().max_model_len;
        let Some(request) = self.pick(which) else { return };
        if request.num_computed_tokens == request.tokens.len() {
            if request.tokens.len() >= max_len {
                return;
            }
            request.tokens.push(u64::MAX - request.id * 1_000 - request.tokens.len() as u64);
            hash(request, hash_block_size);
        }
        let num_new_tokens = tokens.min(request.tokens.len() - request.num_computed_tokens);
        let args = AllocateArgs {
            num_new_tokens,
            num_lookahead_tokens: lookahead,
            ..AllocateArgs::default()
        };
        let index = which % self.running.len();
        let served = self.manager.allocate_slots(&self.running[index].view(false), &args);
        if served.expect("a step of a running request").is_some() {
            self.running[index].num_computed_tokens += num_new_tokens;
        }
    }

    fn cache_now(&mut self, which: usize) {
        if self.running.is_empty() {
            return;
        }
        let index = which % self.running.len();
        let computed = self.running[index].num_delayed_tokens;
        self.manager.cache_blocks(&self.running[index].view(false), computed).expect("computed");
    }

    fn pick(&mut self, which: usize) -> Option<&mut Request> {
        let len = self.running.len().max(1);
        self.running.get_mut(which % len)
    }

    fn take_running(&mut self, which: usize) -> Option<Request> {
        let len = self.running.len();
        (len > 0).then(|| self.running.remove(which % len))
    }
}

impl Request {
    fn view(&self, is_waiting: bool) -> RequestView<'_> {
        RequestView {
            id: self.id,
            hashes: self.hashes[..].into(),
            num_tokens: self.tokens.len(),
            num_prompt_tokens: self.num_prompt_tokens,
            num_computed_tokens: self.num_computed_tokens,
            num_in_flight_tokens: 0,
            shared_prefix_boundary: self.boundary,
            is_waiting,
        }
    }
}

/// A chain that is good enough for a test: each hash is made of the parent and a sum.
fn hash(request: &mut Request, hash_block_size: usize) {
    let blocks = request.tokens.chunks_exact(hash_block_size).skip(request.hashes.len());
    for block in blocks {
        let parent = request.hashes.last().map_or(7, |hash| hash.0[0]);
        let digest = block.iter().fold(parent, |state, &token| {
            (state ^ token).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23)
        });
        request.hashes.push(BlockHash([digest, digest ^ 1, 0, 0]));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn every_invariant_holds_after_every_call(
        config in config(),
        ops in prop::collection::vec(op(), 1..120),
    ) {
        let mut traffic = Traffic::new(config);
        for op in &ops {
            traffic.apply(op);
            if let Err(broken) = check(&traffic.manager) {
                panic!("after {op:?}: {broken}");
            }
        }
        for request in std::mem::take(&mut traffic.running) {
            traffic.manager.free(request.id).expect("a running request");
        }
        let pool = traffic.manager.pool();
        prop_assert_eq!(pool.num_free_blocks(), pool.num_blocks() - 1);
        prop_assert_eq!(pool.usage(), 0.0);
        prop_assert!(traffic.manager.reset_prefix_cache());
        prop_assert_eq!(check(&traffic.manager), Ok(()));
    }
}

//! Random requests of a manager with adaptive retention, compared with [`Model`].

mod asked;

use std::collections::BTreeMap;

use kvoxide_core::{
    AllocateArgs, BlockHash, BlockId, GroupBlocks, GroupSpec, Manager, ManagerConfig, NULL_BLOCK,
    Policy, RecycleOrder, RequestView, check, pool::BlockClass,
};
use proptest::prelude::*;
use proptest::sample::Index;

use crate::adaptive::Adaptive;
use crate::adaptive::requests::{Group, Manager as Model, Step as ModelStep};
use crate::adaptive_world::compare;
use crate::pool::Pool;
use asked::{AskedFor, asked_for};

const MAX_MODEL_LEN: usize = 4096;
const HASH_BLOCK_SIZE: usize = 16;
/// The most epochs. After more, the engine forgets names in use without events, and the oracle does
/// not model this.
const MAX_EPOCHS: usize = 127;

#[derive(Clone, Debug)]
enum Step {
    /// Starts a request. Up to a position, its prompt is the prompt of its family.
    Begin {
        family: u64,
        parts_at: usize,
        num_tokens: usize,
        chunk: usize,
        asked: AskedFor,
    },
    /// Serves requests one after the other. Each diverges from the previous one the same number of
    /// tokens before the end of that one.
    Follow {
        family: u64,
        num_tokens: usize,
        num_before: usize,
        num_requests: usize,
    },
    /// Sends a prompt repeatedly, each time with `num_more` more tokens. One token of each answer
    /// is computed.
    Grow {
        family: u64,
        num_more: usize,
        num_requests: usize,
    },
    /// Starts a request that continues an earlier one, including its answer. It asks for the same,
    /// or for something else.
    Continue {
        ended: Index,
        num_tokens: usize,
        chunk: usize,
        asked: Option<AskedFor>,
    },
    /// Lets a running request compute more of its prompt, or generate tokens.
    Go {
        request: Index,
        num_tokens: usize,
    },
    End {
        request: Index,
    },
    /// Ends a request. The caller releases its blocks.
    Forget {
        request: Index,
    },
    Wait {
        half_seconds: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let parts_at = prop_oneof![Just(0_usize), (0..20_usize).prop_map(|i| i * 64), 0..1500_usize];
    let num_tokens = prop_oneof![1..300_usize, 300..1500_usize];
    let chunk = prop_oneof![1..200_usize, Just(512_usize), Just(2000_usize)];
    let request = any::<Index>;
    prop_oneof![
        5 => (0..3_u64, parts_at, num_tokens, chunk, asked_for()).prop_map(
            |(family, parts_at, num_tokens, chunk, asked)| Step::Begin {
                family, parts_at, num_tokens, chunk, asked
            }
        ),
        1 => (0..3_u64, 100..400_usize, 0..200_usize, 5..50_usize).prop_map(
            |(family, num_tokens, num_before, num_requests)| Step::Follow {
                family, num_tokens, num_before, num_requests
            }
        ),
        // A family of 7 would have a hash of 0, because each chain starts with 7.
        1 => (10..30_u64, prop_oneof![1..20_usize, 30..300_usize], 2..20_usize).prop_map(
            |(family, num_more, num_requests)| Step::Grow { family, num_more, num_requests }
        ),
        3 => (request(), 1..200_usize, prop::option::weighted(0.3, asked_for())).prop_map(
            |(ended, num_tokens, asked)| Step::Continue { ended, num_tokens, chunk: 4000, asked }
        ),
        6 => (request(), prop_oneof![1..40_usize, 100..700_usize]).prop_map(
            |(request, num_tokens)| Step::Go { request, num_tokens }
        ),
        4 => request().prop_map(|request| Step::End { request }),
        1 => request().prop_map(|request| Step::Forget { request }),
        1 => (0..4_u64).prop_map(|half_seconds| Step::Wait { half_seconds }),
    ]
}

/// Generates small models: with full attention, with windows, also of other block sizes, and with
/// both.
fn groups() -> impl Strategy<Value = Vec<Group>> {
    let full = |block_size| Group { block_size, window: None };
    let window = |block_size, window| Group { block_size, window: Some(window) };
    prop_oneof![
        Just(vec![full(16)]),
        Just(vec![full(16), window(16, 40)]),
        Just(vec![window(16, 128), full(16), window(16, 20)]),
        Just(vec![full(64), window(16, 50), window(32, 70)]),
        Just(vec![full(16), window(64, 100)]),
        Just(vec![window(16, 60)]),
    ]
}

/// A request of a scheduler.
struct Request {
    hashes: Vec<BlockHash>,
    num_prompt_tokens: usize,
    num_tokens: usize,
    num_computed: usize,
    shared_prefix_boundary: usize,
    asked: AskedFor,
    /// The seed of the tokens after the part that the request shares with its family.
    own: u64,
}

impl Request {
    /// Appends tokens and the hashes of full blocks, as a chain.
    fn grow(&mut self, num_tokens: usize, content: impl Fn(usize) -> u64) {
        self.num_tokens += num_tokens;
        while (self.hashes.len() + 1) * HASH_BLOCK_SIZE <= self.num_tokens {
            let end = (self.hashes.len() + 1) * HASH_BLOCK_SIZE;
            let before = self.hashes.last().map_or(7, |hash: &BlockHash| hash.0[0]);
            let mixed = (before ^ content(end)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            self.hashes.push(BlockHash([mixed ^ mixed >> 29, 0, 0, 0]));
        }
    }

    fn view(&self, id: u64) -> RequestView<'_> {
        RequestView {
            num_prompt_tokens: self.num_prompt_tokens,
            num_computed_tokens: self.num_computed,
            shared_prefix_boundary: self.shared_prefix_boundary,
            is_waiting: false,
            ..RequestView::new(id, &self.hashes[..], self.num_tokens)
        }
    }
}

struct World {
    engine: Manager,
    model: Model,
    running: BTreeMap<u64, Request>,
    /// The hashes of requests that ended, and what they asked for.
    ended: Vec<(Vec<BlockHash>, AskedFor)>,
    num_begun: u64,
}

impl World {
    fn new(num_blocks: usize, groups: &[Group]) -> Self {
        let specs = groups.iter().map(|group| match group.window {
            None => GroupSpec::full(group.block_size),
            Some(window) => GroupSpec::sliding_window(group.block_size, window),
        });
        let config = ManagerConfig {
            enable_events: true,
            hash_block_size: Some(HASH_BLOCK_SIZE),
            policy: Policy::adaptive(),
            ..ManagerConfig::new(num_blocks, specs.collect(), MAX_MODEL_LEN)
        };
        let are_all_tails = groups.iter().all(|group| group.window.is_some());
        let classes = groups.iter().map(|group| BlockClass {
            is_tail: group.window.is_some(),
            is_sampleable: are_all_tails || group.window.is_none(),
            ..BlockClass::default()
        });
        let max_protected = Policy::adaptive().protected_share.of(num_blocks - 1);
        let pool = Pool::new(num_blocks, RecycleOrder::UncachedFirst);
        let alignment = groups.iter().map(|group| group.block_size).max().expect("a group");
        let policy = Adaptive::new(pool, classes.collect(), max_protected);
        Self {
            engine: Manager::new(config).expect("a manager"),
            model: Model::new(policy, groups, HASH_BLOCK_SIZE, alignment),
            running: BTreeMap::new(),
            ended: Vec::new(),
            num_begun: 0,
        }
    }

    fn play(&mut self, step: &Step) {
        match *step {
            Step::Begin { family, parts_at, num_tokens, chunk, ref asked } => {
                let request = self.request(family, parts_at, num_tokens, asked.clone());
                self.begin(request, chunk);
            }
            Step::Follow { family, num_tokens, num_before, num_requests } => {
                for _ in 0..num_requests {
                    let parts_at = num_tokens.saturating_sub(num_before);
                    let request = self.request(family, parts_at, num_tokens, AskedFor::default());
                    if self.begin(request, num_tokens) {
                        self.end_request(self.num_begun);
                    }
                }
            }
            Step::Grow { family, num_more, num_requests } => {
                for num_tokens in (1..=num_requests).map(|i| 100 + i * num_more) {
                    let request = self.request(family, num_tokens, num_tokens, AskedFor::default());
                    if num_tokens < MAX_MODEL_LEN && self.begin(request, num_tokens) {
                        let id = self.num_begun;
                        let mut request = self.running.remove(&id).expect("a request that runs");
                        self.go(id, &mut request, 1, None);
                        self.running.insert(id, request);
                        self.end_request(id);
                    }
                }
            }
            Step::Continue { ended, num_tokens, chunk, ref asked } => {
                if self.ended.is_empty() {
                    return;
                }
                let (hashes, same) = self.ended[ended.index(self.ended.len())].clone();
                let asked = asked.clone().unwrap_or(same);
                let num_known = hashes.len() * HASH_BLOCK_SIZE;
                if num_known + num_tokens <= MAX_MODEL_LEN {
                    let mut request = self.request(0, 0, 0, asked);
                    (request.hashes, request.num_tokens) = (hashes, num_known);
                    let own = request.own;
                    request.grow(num_tokens, |_| own);
                    request.num_prompt_tokens = request.num_tokens;
                    self.begin(request, chunk);
                }
            }
            Step::Go { request, num_tokens } => {
                if let Some((id, mut request)) = self.remove(request) {
                    self.go(id, &mut request, num_tokens, None);
                    self.running.insert(id, request);
                }
            }
            Step::End { request } => {
                if let Some(id) = self.some_id(request) {
                    self.end_request(id);
                }
            }
            Step::Forget { request } => self.forget(request),
            Step::Wait { half_seconds } => {
                let now = self.model.policy.priorities.now + 500 * half_seconds;
                self.engine.set_now(now);
                self.model.policy.set_now(now);
            }
        }
        self.model.policy.pool.events.clear();
        self.engine.take_events();
        compare(self.engine.pool(), &self.model.policy);
        check(&self.engine).expect("invariants");
    }

    fn request(
        &mut self,
        family: u64,
        parts_at: usize,
        num_tokens: usize,
        asked: AskedFor,
    ) -> Request {
        self.num_begun += 1;
        let own = 1000 + self.num_begun;
        let mut request = Request {
            hashes: Vec::new(),
            num_prompt_tokens: num_tokens,
            num_tokens: 0,
            num_computed: 0,
            shared_prefix_boundary: 0,
            asked,
            own,
        };
        request.grow(num_tokens, |end| if end <= parts_at { family } else { own });
        request
    }

    fn some_id(&self, which: Index) -> Option<u64> {
        let ids: Vec<_> = self.running.keys().copied().collect();
        ids.get(which.index(ids.len().max(1))).copied()
    }

    fn remove(&mut self, which: Index) -> Option<(u64, Request)> {
        let id = self.some_id(which)?;
        Some((id, self.running.remove(&id)?))
    }

    fn begin(&mut self, mut request: Request, chunk: usize) -> bool {
        let id = self.num_begun;
        let max_length = request.num_tokens - 1;
        let hashes = request.view(id).hashes;
        let hit = self.engine.get_computed_blocks(id, &hashes, max_length).expect("a look-up");
        request.shared_prefix_boundary = hit.shared_prefix_boundary;
        let has_room = self.go(id, &mut request, chunk, Some((hit.length, &hit.blocks)));
        if has_room {
            self.running.insert(id, request);
        }
        has_room
    }

    /// Computes tokens of a request. Returns whether enough blocks were free.
    fn go(
        &mut self,
        id: u64,
        request: &mut Request,
        num_new: usize,
        hit: Option<(usize, &[GroupBlocks])>,
    ) -> bool {
        let num_hit = hit.map_or(0, |(length, _)| length);
        let num_left = request.num_tokens - request.num_computed - num_hit;
        let num_new = match num_left {
            0 if request.num_tokens + num_new > MAX_MODEL_LEN => return true,
            0 => {
                let own = request.own;
                request.grow(num_new, |_| own);
                num_new
            }
            left => num_new.min(left),
        };
        let args = AllocateArgs {
            num_new_tokens: num_new,
            num_new_computed_tokens: num_hit,
            new_computed_blocks: hit.map_or(&[], |(_, blocks)| blocks),
            ..AllocateArgs::default()
        };
        let (view, asked) = (request.view(id), request.asked.of_engine());
        let allocated =
            self.engine.with_retention(Some(&asked), |engine| engine.allocate_slots(&view, &args));
        let hit: Option<Vec<Vec<BlockId>>> =
            hit.map(|(_, groups)| groups.iter().map(|group| group.iter().collect()).collect());
        let step = ModelStep {
            id,
            hashes: &request.hashes,
            num_prompt_tokens: request.num_prompt_tokens,
            num_computed: request.num_computed + num_hit,
            num_new,
            hit: hit.as_deref(),
            shared_prefix_boundary: request.shared_prefix_boundary,
        };
        let new = allocated.expect("a valid call");
        self.model.asking(&request.asked.of_model(), |model| match &new {
            Some(new) => assert_eq!(*new, model.allocate(&step)),
            None => model.leave_behind(id, step.num_computed),
        });
        if new.is_some() {
            request.num_computed += num_hit + num_new;
        }
        new.is_some()
    }

    fn end_request(&mut self, id: u64) {
        let request = self.running.remove(&id).expect("a request that runs");
        let asked = request.asked.of_engine();
        let freed = self.engine.with_retention(Some(&asked), |engine| engine.free(id));
        freed.expect("a request that runs");
        self.model.asking(&request.asked.of_model(), |model| model.free(id));
        self.ended.push((request.hashes, request.asked));
    }

    fn forget(&mut self, which: Index) {
        if let Some((id, request)) = self.remove(which) {
            let mut blocks = self
                .engine
                .with_retention(Some(&request.asked.of_engine()), |engine| {
                    engine.pop_blocks_for_free(id)
                })
                .expect("a request");
            blocks.retain(|&block| block != NULL_BLOCK);
            let asked = request.asked.of_model();
            assert_eq!(blocks, self.model.asking(&asked, |model| model.forget(id)));
            blocks.reverse();
            self.engine.release_blocks(&blocks).expect("blocks in use");
            self.model.policy.release(&blocks);
        }
    }
}

proptest! {
    #[test]
    fn requests_agree_with_the_oracle(
        steps in prop::collection::vec(step(), 1..150),
        groups in groups(),
        num_blocks in prop_oneof![Just(150_usize), Just(400), Just(1000)],
    ) {
        let mut world = World::new(num_blocks, &groups);
        for step in &steps {
            if world.model.policy.epoch < MAX_EPOCHS {
                world.play(step);
            }
        }
    }
}

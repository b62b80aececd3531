//! Measures the calls of a manager and of a host tier for long prompts, with a policy of vLLM in the
//! tier, or with both deciding together.

use kvoxide_core::host::{
    HashKeys, Horizon, HostHit, HostPolicy, HostRequest, HostSearch, HostTier, HostTierConfig,
    LeavingStores, PositionedKey, WantedLoad,
};
use kvoxide_core::joint::{
    JointPool, StepStores, StoredStep, attached_tables, blocks_to_load, note_used, search_of,
};
use kvoxide_core::{AllocateArgs, CacheKey, Error, Result};

use crate::{CHUNK, CONTEXT, LONG, RUNNING, Request, STEPS, World, config, counted, hash, require};

pub(crate) type Operation = fn(&mut Both) -> Result<()>;

pub(crate) const OPERATIONS: [(&str, Operation); 4] =
    [("store", store), ("load", load), ("decode", decode), ("serve", serve)];

/// Tokens of a block, and of a chunk.
const SIZE: usize = 16;
/// The number of chunks of a tier. Two long prompts and a half fit.
const NUM_CHUNKS: usize = LONG / SIZE * 5 / 2;

/// Computes a prompt with blocks and chunks of others.
fn store(both: &mut Both) -> Result<()> {
    both.warm_up()?;
    both.compute(3, |call| counted(call))
}

/// Loads a prompt that the pool has evicted.
fn load(both: &mut Both) -> Result<()> {
    both.warm_up()?;
    both.load(1, |call| counted(call))
}

/// Loads a prompt and computes another one, from the look-up to the end, with all stores.
fn serve(both: &mut Both) -> Result<()> {
    both.warm_up()?;
    counted(|| {
        both.load(1, |call| call())?;
        both.compute(3, |call| call())
    })
}

fn decode(both: &mut Both) -> Result<()> {
    let mut running = Vec::new();
    for prompt in 0..RUNNING {
        let mut request = both.world.request(prompt, CONTEXT + STEPS);
        (request.num_tokens, request.num_prompt_tokens) = (CONTEXT, CONTEXT);
        let hit = both.world.look_up(&request)?;
        both.world.admit(&mut request, &hit, CONTEXT)?;
        both.end_step(&mut HostRequest::default(), &keys(prompt, 0, CONTEXT), false)?;
        running.push((prompt, request, HostRequest::default()));
    }
    for _ in 0..STEPS {
        for (prompt, request, seen) in &mut running {
            request.num_tokens += 1;
            let (start, end) = (request.num_computed_tokens, request.num_tokens);
            counted(|| {
                both.world.next(request, 1)?;
                both.offer(seen, &keys(*prompt, start, end))
            })?;
        }
        counted(|| both.end_step(&mut HostRequest::default(), &[], false))?;
    }
    Ok(())
}

/// Runs a part of an operation, and counts it or not.
type Run<'a> = &'a mut dyn FnMut() -> Result<()>;

/// A manager and a host tier.
pub(crate) struct Both {
    world: World,
    host: HostTier,
    search: HostSearch,
    horizon: Horizon,
}

impl Both {
    pub(crate) fn new(policy: HostPolicy) -> Result<Self> {
        let config = config("full").ok_or_else(|| Error::Config("no such layout".into()))?;
        let mut world = World::new(config, false)?;
        if policy == HostPolicy::Adaptive {
            JointPool::follow(&mut world.manager, NUM_CHUNKS)?;
        }
        let host = HostTier::new(&HostTierConfig::new(NUM_CHUNKS, policy))?;
        Ok(Self { search: search_of(&world.manager), world, host, horizon: Horizon::default() })
    }

    fn decides_together(&self) -> bool {
        self.host.policy() == HostPolicy::Adaptive
    }

    /// Fills both memories, so that the tier has the second prompt and the pool has not.
    fn warm_up(&mut self) -> Result<()> {
        (0..3).try_for_each(|prompt| self.compute(prompt, |call| call()))
    }

    /// Computes a prompt, chunk by chunk.
    fn compute(&mut self, prompt: u64, run: impl Fn(Run<'_>) -> Result<()>) -> Result<()> {
        let mut request = self.world.request(prompt, LONG);
        let mut seen = HostRequest::default();
        run(&mut || {
            let hit = self.world.look_up(&request)?;
            self.world.admit(&mut request, &hit, CHUNK)?;
            if self.decides_together() {
                note_used(&self.world.manager, &mut self.host, request.id);
            }
            let computed = keys(prompt, hit.length, request.num_computed_tokens);
            self.end_step(&mut seen, &computed, false)
        })?;
        while request.num_computed_tokens < LONG {
            let start = request.num_computed_tokens;
            let computed = keys(prompt, start, (start + CHUNK).min(LONG));
            run(&mut || {
                self.world.next(&mut request, CHUNK.min(LONG - start))?;
                self.end_step(&mut seen, &computed, false)
            })?;
        }
        run(&mut || self.end(&request, &mut seen))
    }

    /// Loads a prompt, and ends its request.
    fn load(&mut self, prompt: u64, run: impl Fn(Run<'_>) -> Result<()>) -> Result<()> {
        let mut request = self.world.request(prompt, LONG);
        let mut seen = HostRequest::default();
        run(&mut || {
            let (num_local, num_tokens) = match self.look_up(&request, true)? {
                Some(found) => found,
                None => {
                    self.end_step(&mut seen, &[], false)?;
                    self.look_up(&request, false)?.ok_or_else(not_found)?
                }
            };
            require(num_tokens > LONG / 2);
            self.fill(&mut request, &mut seen, (num_local, num_tokens))?;
            self.end_step(&mut seen, &[], false)?;
            self.end(&request, &mut seen)
        })
    }

    /// Returns the tokens in the pool and the tokens to load; `None` if the load has to wait for
    /// stores.
    fn look_up(&mut self, request: &Request, may_wait: bool) -> Result<Option<(usize, usize)>> {
        let hit = self.world.look_up(request)?;
        let (view, manager) = (request.view(), &self.world.manager);
        let keys = [HashKeys::of(&self.search.groups[0], view.hashes, SIZE)];
        let wanted = WantedLoad {
            num_computed: hit.length,
            num_tokens: view.num_tokens,
            max_new: None,
            max_load: None,
        };
        let found = match self.decides_together() {
            true => self.search.find_in_both(wanted, &keys, manager.pool(), &self.host),
            false => self.search.find(wanted, &keys, &self.host),
        };
        let Ok(HostHit { num_tokens: Some(num_tokens), num_blocks, .. }) = found else {
            return Err(not_found());
        };
        let waits = may_wait && num_blocks > 0 && self.horizon.ask_for(num_blocks as u64);
        Ok((!waits).then_some((hit.length, num_tokens)))
    }

    /// Gives a request the blocks of a load, and makes the load.
    fn fill(
        &mut self,
        request: &mut Request,
        seen: &mut HostRequest,
        (num_local, num_tokens): (usize, usize),
    ) -> Result<()> {
        let tokens = (num_local, num_local + num_tokens);
        let hit = self.world.look_up(request)?;
        let manager = &mut self.world.manager;
        let view = request.view();
        let groups = &self.search.groups;
        let tables = match self.host.policy() {
            HostPolicy::Adaptive => attached_tables(manager, &view, groups, &hit.blocks, tokens),
            HostPolicy::Lru | HostPolicy::Arc => hit.blocks.to_vec(),
        };
        let args = AllocateArgs {
            num_new_computed_tokens: num_local,
            new_computed_blocks: &tables,
            num_external_computed_tokens: num_tokens,
            delay_cache_blocks: true,
            ..AllocateArgs::default()
        };
        require(manager.allocate_slots(&view, &args)?.is_some());
        let filled = blocks_to_load(manager, &view, groups, tokens)?;
        let keys = || filled.iter().map(|it| (it.key, Some(it.position)));
        self.host.prepare_load(seen, keys())?;
        self.host.complete_load(keys().map(|(key, _)| key))?;
        manager.cache_blocks(&view, tokens.1)?;
        request.num_computed_tokens = tokens.1;
        Ok(())
    }

    /// Offers the chunks that a request computed, under a policy of vLLM.
    fn offer(&mut self, seen: &mut HostRequest, computed: &[PositionedKey]) -> Result<()> {
        if self.decides_together() || computed.is_empty() {
            return Ok(());
        }
        let plan = self.host.prepare_store_of_distinct(seen, computed.iter().copied())?;
        require(plan.is_some());
        self.host.complete_store(computed.iter().map(|&(key, _)| key), true);
        Ok(())
    }

    /// Makes the stores of a step.
    fn end_step(
        &mut self,
        seen: &mut HostRequest,
        computed: &[PositionedKey],
        has_ended: bool,
    ) -> Result<()> {
        if !self.decides_together() {
            return self.offer(seen, computed);
        }
        let step = StoredStep { has_tokens: true, has_ended, stores_taken: true };
        let Self { world, host, search, horizon } = self;
        let stores = StepStores::decide(&mut world.manager, host, horizon, search, step);
        for LeavingStores { stored, .. } in [stores.taken, stores.leaving] {
            host.complete_store(stored.iter().map(|block| block.key), true);
        }
        Ok(())
    }

    fn end(&mut self, request: &Request, seen: &mut HostRequest) -> Result<()> {
        self.world.free(request)?;
        self.host.finish_request(seen, []);
        if self.decides_together() {
            self.end_step(seen, &[], true)?;
        }
        Ok(())
    }
}

/// Returns the keys of the blocks of a prompt that are full after `end` tokens and were not after
/// `start`, with their positions.
fn keys(prompt: u64, start: usize, end: usize) -> Vec<PositionedKey> {
    let places = start / SIZE..end / SIZE;
    let key = |at: usize| CacheKey { hash: hash(prompt, at as u64), group: 0 };
    places.map(|at| (key(at), Some(((at + 1) * SIZE) as u32))).collect()
}

fn not_found() -> Error {
    Error::Precondition("the prompt is not in CPU memory".into())
}

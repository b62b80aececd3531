//! A small scheduler whose managers observe outcomes.

use std::collections::{HashMap, HashSet};

use kvoxide_core::outcomes::{Positions, PromptStart};
use kvoxide_core::{
    AllocateArgs, BlockHash, BlockId, HashWindow, Manager, ManagerConfig, ObservedAdmission,
    ObservedRequest, Outcome, PrefixHit, RequestView, check, digest,
};

use crate::oracle::{Oracle, Prompt};

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
const MAX_TOKENS: usize = 380;

/// A call of the scheduler.
#[derive(Clone, Copy, Debug)]
pub enum Call {
    /// Admits a new request. Its prompt continues the history of a family after `shared` tokens, in
    /// which one token can be `changed`.
    Admit {
        family: u8,
        shared: usize,
        changed: Option<usize>,
        len: usize,
        chunk: usize,
        external: usize,
        cut: usize,
        reads_cache: bool,
    },
    /// Computes more tokens of a request, and then generates one at a time.
    Step { which: usize, chunk: usize },
    /// Ends a request. Its tokens become the history of its family.
    End { which: usize },
    /// Preempts a request and admits it again.
    Preempt { which: usize },
    /// Evicts blocks by id.
    Evict { first: usize, num: usize },
    /// Resets the cache, if no request has blocks.
    Reset,
}

#[derive(Clone)]
struct Request {
    id: u64,
    family: u8,
    /// A number for the salt; 0 for none.
    realm: u64,
    tokens: Vec<u64>,
    hashes: Vec<BlockHash>,
    num_prompt_tokens: usize,
    num_computed_tokens: usize,
    num_hit_tokens: usize,
}

impl Request {
    fn hash(&mut self, size: usize) {
        for block in self.tokens.chunks_exact(size).skip(self.hashes.len()) {
            let parent = self.hashes.last().map_or(7 + self.realm, |hash| hash.0[0]);
            let mix =
                |state: u64, &token: &u64| (state ^ token).wrapping_mul(MULTIPLIER).rotate_left(23);
            let digest = block.iter().fold(parent, mix);
            self.hashes.push(BlockHash([digest, digest ^ 1, 0, 0]));
        }
    }

    fn view(&self) -> RequestView<'_> {
        RequestView {
            num_prompt_tokens: self.num_prompt_tokens,
            num_computed_tokens: self.num_computed_tokens,
            ..RequestView::new(self.id, &self.hashes[..], self.tokens.len())
        }
    }
}

/// How much a manager remembers.
#[derive(Clone, Copy, Debug)]
pub enum Memory {
    /// All that a world needs.
    Exact,
    /// Eight keys and prefixes.
    Tiny,
    /// As much as managers usually remember.
    Usual,
}

/// A manager that observes outcomes, one that does not, and the naive classification.
pub struct World {
    manager: Manager,
    /// Makes the same decisions. `None` if decisions are not compared.
    unobserved: Option<Manager>,
    /// `None` if only sums are checked.
    oracle: Option<Oracle>,
    histories: HashMap<u8, Vec<u64>>,
    running: Vec<Request>,
    /// Whether each block held generated tokens when it was cached last.
    answers: HashMap<BlockId, bool>,
    last_total: [u64; 10],
    next_id: u64,
    has_salts: bool,
    pub num_admitted: u64,
}

impl World {
    /// Returns a world whose manager remembers evicted keys and the starts of prompts. With an exact
    /// memory, outcomes are compared with the naive classification. Some requests can have salts.
    pub fn new(config: &ManagerConfig, memory: Memory, has_salts: bool) -> Self {
        let mut manager = Manager::new(config.clone()).expect("a configuration that can work");
        let (num_keys, num_starts) = match memory {
            Memory::Exact => (1 << 16, 1 << 20),
            Memory::Tiny => (8, 8),
            Memory::Usual => (config.num_blocks / 2, config.num_blocks * 3 / 4),
        };
        manager.observe_outcomes_with_memory(num_keys, num_starts).expect("a new manager");
        let is_exact = matches!(memory, Memory::Exact);
        let unobserved = is_exact.then(|| Manager::new(config.clone()).expect("the same"));
        Self {
            manager,
            unobserved,
            oracle: is_exact.then(|| Oracle::new(config)),
            histories: HashMap::new(),
            running: Vec::new(),
            answers: HashMap::new(),
            last_total: [0; 10],
            next_id: 1,
            has_salts,
            num_admitted: 0,
        }
    }

    pub fn make(&mut self, call: Call) {
        self.manager.set_outcome_time(self.next_id as f64 / 4.0);
        let request = self.continued_by(call);
        let before = self.places(request);
        match call {
            Call::Admit { .. } => self.admit(call),
            Call::Step { which, chunk } => self.step(which, chunk),
            Call::End { which } => self.end(which),
            Call::Preempt { which } => self.preempt(which),
            Call::Evict { first, num } => {
                let len = self.manager.pool().num_blocks();
                let ids: Vec<_> = (0..num).map(|i| ((first + i) % len) as BlockId).collect();
                self.both(|manager| manager.evict_blocks(&ids).expect("ids of the pool"));
            }
            Call::Reset => self.reset(),
        }
        self.take_copies();
        // The call can have written to the blocks that the request kept.
        let kept = self.places(request);
        self.note(&before.intersection(&kept).map(|&(_, _, block)| block).collect());
    }

    /// Returns the request that a call continues.
    fn continued_by(&self, call: Call) -> Option<u64> {
        match call {
            Call::Step { which, .. } => self.index(which).map(|i| self.running[i].id),
            _ => None,
        }
    }

    /// Returns the blocks of a request, with their groups and positions.
    fn places(&self, request: Option<u64>) -> HashSet<(usize, usize, BlockId)> {
        let request = request.filter(|_| self.oracle.is_some());
        let held = request.and_then(|id| self.manager.blocks_of(id).ok());
        let groups = held.iter().flat_map(|held| held.groups.iter().enumerate());
        groups
            .flat_map(|(i, group)| {
                group.blocks.iter().enumerate().map(move |(j, block)| (i, j, block))
            })
            .collect()
    }

    fn both(&mut self, call: impl Fn(&mut Manager)) {
        call(&mut self.manager);
        self.unobserved.iter_mut().for_each(call);
    }

    /// Notes what is cached, and checks that totals only grow.
    fn note(&mut self, written: &HashSet<BlockId>) {
        if let Some(oracle) = &mut self.oracle {
            oracle.note(&self.manager, written);
        }
        if let Some(unobserved) = &self.unobserved {
            assert_eq!(digest(&self.manager), digest(unobserved), "decisions differ");
            assert_eq!(check(&self.manager), Ok(()));
        }
        let total = *self.manager.outcome_report().expect("observed").outcomes.counts();
        assert!(total.iter().zip(self.last_total).all(|(now, before)| *now >= before));
        self.last_total = total;
    }

    fn take_copies(&mut self) {
        self.both(|manager| {
            let copies = manager.take_block_copies();
            let ends: Vec<_> = copies.into_iter().flat_map(|(from, to)| [from, to]).collect();
            manager.release_blocks(&ends).expect("ends of copies");
        });
    }

    fn new_request(
        &mut self,
        family: u8,
        (shared, changed): (usize, Option<usize>),
        len: usize,
    ) -> Request {
        let history = self.histories.get(&family).map_or(&[][..], |tokens| tokens);
        let shared = shared.min(history.len()).min(MAX_TOKENS - 60);
        let id = self.next_id;
        self.next_id += 1;
        let mut tokens = history[..shared].to_vec();
        if let Some(changed) = changed.and_then(|position| tokens.get_mut(position)) {
            *changed = id * 1_000;
        }
        // Prompts without a history share their first tokens with their family.
        let own =
            |t: usize| if tokens.is_empty() && t < 40 { u64::from(family) } else { id * 1_000 };
        let len = (shared + len).clamp(1, MAX_TOKENS - 40);
        let new: Vec<_> = (shared..len).map(|t| own(t) + t as u64).collect();
        tokens.extend(new);
        let mut request = Request {
            id,
            family,
            realm: if self.has_salts && family == 3 { id % 3 } else { 0 },
            num_prompt_tokens: tokens.len(),
            tokens,
            hashes: Vec::new(),
            num_computed_tokens: 0,
            num_hit_tokens: 0,
        };
        request.hash(self.manager.hash_block_size());
        request
    }

    fn admit(&mut self, call: Call) {
        let Call::Admit { family, shared, changed, len, chunk, external, cut, reads_cache } = call
        else {
            return;
        };
        let request = self.new_request(family, (shared, changed), len);
        let view = request.view();
        let max_length = request.tokens.len() - 1;
        let mut hit = match reads_cache {
            true => self.look_up(&request, max_length),
            false => PrefixHit { blocks: Vec::new().into(), length: 0, shared_prefix_boundary: 0 },
        };
        // A hit in chunks alone can pass everything that was computed, see the oracle.
        let can_cut = self.manager.config().groups[0].kind != "chunked_local_attention";
        if cut > 0 && can_cut && hit.length > 0 {
            let alignment = self.manager.scheduler_block_size();
            let length = (hit.length / 2) / alignment * alignment;
            if let Ok(blocks) = self.manager.truncated(&hit.blocks, length) {
                hit = PrefixHit { blocks: blocks.into(), length, ..hit };
            }
        }
        let external = external.min(max_length - hit.length);
        let external = external - external % self.manager.scheduler_block_size();
        let left = request.tokens.len() - hit.length - external;
        let args = AllocateArgs {
            num_new_tokens: left.min(1 + chunk),
            num_new_computed_tokens: hit.length,
            new_computed_blocks: &hit.blocks,
            num_external_computed_tokens: external,
            has_scheduled_reqs: true,
            ..AllocateArgs::default()
        };
        let prompt = Prompt {
            hashes: &request.hashes,
            tokens: &request.tokens,
            realm: request.realm,
            num_prompt_tokens: request.num_prompt_tokens,
            num_tokens: request.tokens.len(),
            num_local: hit.length,
            num_external: external,
            num_answer: self.num_answer(&hit),
            reads_cache,
        };
        let expected = self.oracle.as_ref().map(|oracle| oracle.classify(&self.manager, &prompt));
        let hashes = HashWindow::from(&request.hashes[..]);
        let realm = request.realm;
        let positions = self.manager.start_positions(realm, request.num_prompt_tokens, hit.length);
        let text: Vec<i64> = positions
            .flat_map(Positions::iter)
            .map(|position| request.tokens[position] as i64)
            .collect();
        let start = PromptStart { tokens: &text, realm };
        let observed = ObservedRequest { hashes: &hashes, reads_cache, start: Some(start) };
        let before = self.manager.outcome_report();
        let admitted = self.manager.admit_observed(&view, &args, observed);
        if let Some(unobserved) = &mut self.unobserved {
            let other = unobserved.allocate_slots(&view, &args);
            assert_eq!(
                admitted.clone().map(|admitted| admitted.map(|admitted| admitted.blocks)),
                other
            );
        }
        let Ok(Some(ObservedAdmission { outcomes: Some(outcomes), .. })) = admitted else {
            assert_eq!(self.manager.outcome_report(), before, "a refused request counts nothing");
            return;
        };
        assert_eq!(outcomes.num_tokens(), request.num_prompt_tokens as u64);
        if let Some(expected) = expected {
            let named = |counts: &[u64; 10]| {
                Outcome::ALL
                    .map(Outcome::name)
                    .into_iter()
                    .zip(*counts)
                    .filter(|(_, n)| *n > 0)
                    .collect::<Vec<_>>()
            };
            assert_eq!(named(outcomes.counts()), named(&expected), "{call:?}");
        }
        if let Some(oracle) = &mut self.oracle {
            oracle.remember(&self.manager, &prompt);
        }
        self.num_admitted += 1;
        let num_computed_tokens = hit.length + external + args.num_new_tokens;
        let request = Request { num_computed_tokens, num_hit_tokens: hit.length, ..request };
        self.note_answers(&request);
        self.running.push(request);
    }

    fn look_up(&mut self, request: &Request, max_length: usize) -> PrefixHit {
        let hashes = HashWindow::from(&request.hashes[..]);
        if let Some(unobserved) = &mut self.unobserved {
            unobserved.get_computed_blocks(request.id, &hashes, max_length).expect("hashes");
        }
        self.manager.get_computed_blocks(request.id, &hashes, max_length).expect("hashes")
    }

    /// Returns the number of hit tokens in blocks with generated tokens.
    fn num_answer(&self, hit: &PrefixHit) -> usize {
        let groups =
            || self.manager.groups().iter().zip(hit.blocks.iter()).filter(|(g, _)| g.is_cacheable);
        let owned = |blocks: &kvoxide_core::GroupBlocks| blocks.iter().filter(|&b| b != 0).count();
        let counted = groups()
            .find(|(group, _)| group.is_prefix_closed)
            .or_else(|| groups().max_by_key(|(group, blocks)| owned(blocks) * group.block_size));
        let Some((group, blocks)) = counted.filter(|_| self.oracle.is_some()) else { return 0 };
        let mut num = 0;
        for (i, block) in blocks.iter().enumerate() {
            if block != 0 && self.answers[&block] {
                num += (hit.length - i * group.block_size).min(group.block_size);
            }
        }
        num
    }

    /// Notes which blocks of a request that are cached now hold generated tokens.
    fn note_answers(&mut self, request: &Request) {
        if self.oracle.is_none() {
            return;
        }
        let Ok(held) = self.manager.blocks_of(request.id) else { return };
        let states = self.manager.pool().blocks();
        for (group, held) in self.manager.groups().iter().zip(&held.groups) {
            let size = group.block_size;
            // The request did not compute the blocks of its hit.
            for (i, block) in held.blocks.iter().enumerate().skip(request.num_hit_tokens / size) {
                if block != 0 && states.is_cached(block) {
                    let is_answer = (i + 1) * size > request.num_prompt_tokens
                        && states.hash_num_tokens(block) > Some(request.num_prompt_tokens);
                    self.answers.insert(block, is_answer);
                }
            }
        }
    }

    fn index(&self, which: usize) -> Option<usize> {
        which.checked_rem(self.running.len())
    }

    fn step(&mut self, which: usize, chunk: usize) {
        let Some(i) = self.index(which) else { return };
        let size = self.manager.hash_block_size();
        let mut request = self.running[i].clone();
        let left = request.tokens.len() - request.num_computed_tokens;
        if left == 0 {
            if request.tokens.len() == MAX_TOKENS {
                return;
            }
            let next = request.tokens.len() as u64 * 31 + request.id;
            request.tokens.push(next);
            request.hash(size);
        }
        let num_new_tokens = left.clamp(1, 1 + chunk);
        let args =
            AllocateArgs { num_new_tokens, has_scheduled_reqs: true, ..AllocateArgs::default() };
        let view = RequestView { is_waiting: false, ..request.view() };
        let done = self.manager.allocate_slots(&view, &args);
        if let Some(unobserved) = &mut self.unobserved {
            assert_eq!(done, unobserved.allocate_slots(&view, &args));
        }
        if let Ok(Some(_)) = done {
            request.num_computed_tokens += num_new_tokens;
            self.note_answers(&request);
            self.running[i] = request;
        } else {
            self.end(which);
        }
    }

    fn end(&mut self, which: usize) {
        let Some(i) = self.index(which) else { return };
        let request = self.running.remove(i);
        self.both(|manager| manager.free(request.id).expect("a request that runs"));
        self.histories.insert(request.family, request.tokens);
    }

    fn preempt(&mut self, which: usize) {
        let Some(i) = self.index(which) else { return };
        let mut request = self.running.remove(i);
        self.both(|manager| manager.free(request.id).expect("a request that runs"));
        request.num_computed_tokens = 0;
        let hit = self.look_up(&request, request.tokens.len() - 1);
        let args = AllocateArgs {
            num_new_tokens: request.tokens.len() - hit.length,
            num_new_computed_tokens: hit.length,
            new_computed_blocks: &hit.blocks,
            has_scheduled_reqs: true,
            ..AllocateArgs::default()
        };
        let before = self.manager.outcome_report().map(|report| report.outcomes);
        let done = self.manager.allocate_slots(&request.view(), &args);
        if let Some(unobserved) = &mut self.unobserved {
            assert_eq!(done, unobserved.allocate_slots(&request.view(), &args));
        }
        assert_eq!(self.manager.outcome_report().map(|report| report.outcomes), before);
        if let Ok(Some(_)) = done {
            request.num_computed_tokens = request.tokens.len();
            request.num_hit_tokens = hit.length;
            self.note_answers(&request);
            self.running.push(request);
        }
    }

    fn reset(&mut self) {
        while !self.running.is_empty() {
            self.end(0);
        }
        self.take_copies();
        self.both(|manager| assert!(manager.reset_prefix_cache()));
        if let Some(oracle) = &mut self.oracle {
            oracle.reset();
        }
    }
}

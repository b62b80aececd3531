//! Tests that a joint pool decides the same with and without quiet steps.

use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::Index;

use super::JointPool;
use super::testing::hashes;
use crate::block::BlockHash;
use crate::check::digest;
use crate::group::{GroupSpec, Size};
use crate::manager::{Follower, ManagerConfig, QuietSteps};
use crate::pool::RequestRetention;
use crate::request::{RequestId, RequestView};
use crate::retention::Policy;

#[derive(Clone, Debug)]
enum Step {
    /// A request comes that shares its first hashes with a document.
    Start {
        document: u64,
        num_shared: usize,
        num_prompt_tokens: usize,
        session: Option<u64>,
    },
    /// A request computes tokens. After its prompt, `num_known` of them were generated, and slots
    /// for `num_ahead` more are drafts or tokens in flight.
    Compute {
        at: Index,
        num_known: usize,
        num_ahead: usize,
        num_in_flight: isize,
    },
    /// A request that runs gets a longer prompt.
    Extend {
        at: Index,
        num_tokens: usize,
    },
    End {
        at: Index,
        is_preempted: bool,
    },
    Begin,
    SetInterval(Option<usize>),
    Reset,
}

fn step() -> impl Strategy<Value = Step> {
    let tokens = || prop_oneof![8 => 1..4usize, 2 => 4..40usize, 1 => 40..200usize];
    let start = (0..4u64, 0..30usize, tokens(), tokens(), prop::option::of(0..3u64));
    let start = start.prop_map(|(document, num_shared, one, other, session)| Step::Start {
        document,
        num_shared,
        num_prompt_tokens: one + other,
        session,
    });
    let compute = (any::<Index>(), tokens(), 0..4usize, -1..6isize);
    let compute = compute.prop_map(|(at, num_known, num_ahead, num_in_flight)| Step::Compute {
        at,
        num_known,
        num_ahead,
        num_in_flight,
    });
    let end = (any::<Index>(), prop::bool::weighted(0.2));
    prop_oneof![
        4 => start,
        60 => compute,
        1 => (any::<Index>(), tokens())
            .prop_map(|(at, num_tokens)| Step::Extend { at, num_tokens }),
        4 => end.prop_map(|(at, is_preempted)| Step::End { at, is_preempted }),
        4 => Just(Step::Begin),
        1 => prop::option::of(0..3usize).prop_map(|n| Step::SetInterval(n.map(|n| n * 96))),
        1 => Just(Step::Reset),
    ]
}

fn groups() -> impl Strategy<Value = Vec<GroupSpec>> {
    let whole = |group| GroupSpec { dcp_sharded: Some(false), ..group };
    let (full, window) = (GroupSpec::full, |size, n| whole(GroupSpec::sliding_window(size, n)));
    let of_drafts = GroupSpec { is_eagle_group: true, ..window(16, 40) };
    let retained = window(16, 33).with(Size::ExtraRetainedTokens, 9);
    let chunked = whole(GroupSpec::chunked_local(16, 48));
    let [states, circular] = ["mamba", "circular_buffer"].map(|kind| GroupSpec::new(kind, 16));
    let rswa = GroupSpec::new("rswa", 16).with(Size::RswaWindow, 40);
    prop::sample::select(vec![
        vec![full(16)],
        vec![window(16, 40)],
        vec![full(16), window(16, 40)],
        vec![full(32), window(8, 16), window(4, 9), whole(circular)],
        vec![full(32), of_drafts, retained],
        vec![full(16), chunked],
        vec![full(16), states.clone(), states],
        vec![rswa],
    ])
}

fn config() -> impl Strategy<Value = ManagerConfig> {
    let pinned = Policy { pin_min_drop_size: Some(2), ..Policy::default() };
    let policies = [Policy::adaptive(), Policy::default(), Policy::every_tail(), pinned];
    let policy = prop::sample::select(policies.to_vec());
    let switches = any::<[bool; 2]>();
    let numbers = (1..3usize, 0..3usize, 0..3usize);
    let sizes = (40..120usize, prop_oneof![Just(600usize), 100..300usize]);
    let parts = (groups(), policy, switches, numbers, sizes);
    parts.prop_map(|(groups, policy, [use_eagle, has_small_hashes], numbers, sizes)| {
        let (dcp_world_size, num_hash_lookahead_tokens, num_prefill_lookahead) = numbers;
        // Chunks take neither EAGLE nor groups with larger blocks.
        let is_chunked = groups.iter().any(|group| group.kind == "chunked_local_attention");
        ManagerConfig {
            policy,
            use_eagle: use_eagle && !is_chunked,
            hash_block_size: (has_small_hashes && !is_chunked && groups.len() > 1).then_some(4),
            dcp_world_size: if is_chunked { 1 } else { dcp_world_size },
            num_hash_lookahead_tokens,
            num_prefill_lookahead,
            ..ManagerConfig::new(sizes.0, groups, sizes.1)
        }
    })
}

/// A request, as a scheduler keeps it.
#[derive(Debug)]
struct Request {
    id: RequestId,
    hashes: Vec<BlockHash>,
    num_prompt_tokens: usize,
    num_tokens: usize,
    end: usize,
    retention: Option<Arc<RequestRetention>>,
}

/// Two pools with the same traffic. One of them sees every step.
struct Pools {
    quiet: JointPool,
    every: JointPool,
    running: Vec<Request>,
    num_requests: u64,
}

impl Pools {
    fn new(config: &ManagerConfig) -> Self {
        let [quiet, every] = [(); 2].map(|()| JointPool::new(config, 20).expect("a pool"));
        Self { quiet, every, running: Vec::new(), num_requests: 0 }
    }

    fn each<T>(&mut self, mut call: impl FnMut(&mut JointPool) -> T) -> [T; 2] {
        [&mut self.quiet, &mut self.every].map(&mut call)
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Start { document, num_shared, num_prompt_tokens, session } => {
                self.num_requests += 1;
                let id = self.num_requests;
                let mut all = hashes(1000 * document, num_shared as u64);
                all.extend(hashes(10_000 * id, 200));
                self.running.push(Request {
                    id,
                    hashes: all,
                    num_prompt_tokens,
                    num_tokens: num_prompt_tokens,
                    end: 0,
                    retention: session
                        .map(|session| Arc::new(RequestRetention::default().in_session(session))),
                });
            }
            Step::Compute { at, num_known, num_ahead, num_in_flight } => {
                self.compute(at, num_known, num_ahead, num_in_flight);
            }
            Step::Extend { at, num_tokens } => {
                if !self.running.is_empty() {
                    let request = at.get_mut(&mut self.running);
                    request.num_tokens += num_tokens;
                    request.num_prompt_tokens = request.num_tokens;
                }
            }
            Step::End { at, is_preempted } => {
                if !self.running.is_empty() {
                    let request = self.running.swap_remove(at.index(self.running.len()));
                    let asked = request.retention.unwrap_or_default();
                    let asked = is_preempted.then(|| Arc::new(asked.while_preempted()));
                    let [one, other] = self.each(|pool| pool.free(request.id, asked.as_ref()));
                    assert_eq!(one, other);
                }
            }
            Step::Begin => _ = self.each(JointPool::step_starts),
            Step::SetInterval(interval) => {
                self.each(|pool| pool.set_retention_interval(interval));
            }
            Step::Reset => {
                self.running.clear();
                self.each(JointPool::reset);
            }
        }
    }

    fn compute(&mut self, at: Index, num_known: usize, num_ahead: usize, num_in_flight: isize) {
        let Self { quiet, every, running, .. } = self;
        if running.is_empty() {
            return;
        }
        let request = at.get_mut(running);
        if request.end < request.num_prompt_tokens {
            request.end = request.num_prompt_tokens.min(request.end + num_known);
        } else {
            request.num_tokens += num_known.min(4);
            request.end = request.num_tokens + num_ahead;
        }
        let config = quiet.manager.config();
        let num_hashed = request.num_tokens.saturating_sub(config.num_hash_lookahead_tokens);
        let num_hashes = num_hashed / quiet.manager.hash_block_size();
        let view = RequestView {
            num_prompt_tokens: request.num_prompt_tokens,
            num_in_flight_tokens: num_in_flight,
            ..RequestView::new(request.id, &request.hashes[..num_hashes], request.num_tokens)
        };
        let retention = request.retention.as_ref();
        quiet.reach(&view, 0, request.end, retention);
        if let Some(served) = every.requests.get_mut(&request.id) {
            served.quiet = QuietSteps::default();
        }
        every.reach(&view, 0, request.end, retention);
    }

    fn check(&mut self) {
        let [one, other] = self.each(|pool| digest(&pool.manager));
        assert_eq!(one, other);
        let [one, other] = self.each(|pool| pool.order().collect::<Vec<_>>());
        assert_eq!(one, other);
        let [one, other] = self.each(JointPool::take_given_up);
        assert_eq!(one, other);
        let [one, other] = self.each(JointPool::take_lost);
        assert_eq!(one, other);
        let [one, other] = self.each(|pool| pool.default_hits());
        assert_eq!(one, other);
    }
}

proptest! {
    #[test]
    fn a_pool_decides_the_same_without_quiet_steps(
        config in config(),
        steps in prop::collection::vec(step(), 1..300),
    ) {
        let mut pools = Pools::new(&config);
        for step in &steps {
            pools.take(step);
            pools.check();
        }
    }
}

/// Returns after how many tokens the steps of decoding end that are not quiet.
fn loud_steps(groups: &[GroupSpec], num_prompt_tokens: usize) -> Vec<usize> {
    let config = ManagerConfig::new(100, groups.to_vec(), 600);
    let (mut pool, all) = (JointPool::new(&config, 20).expect("a pool"), hashes(0, 200));
    let mut is_loud = |&end: &usize| {
        let hashes = &all[..end / pool.manager.hash_block_size()];
        let view = RequestView { num_prompt_tokens, ..RequestView::new(1, hashes, end) };
        let served = pool.requests.get(&1);
        let is_quiet = served.is_some_and(|served| served.quiet.has(&view, (end - 1, end)));
        pool.reach(&view, 0, end, None);
        !is_quiet
    };
    (num_prompt_tokens..num_prompt_tokens + 50).filter(|end| is_loud(end)).collect()
}

#[test]
fn few_steps_of_decoding_are_not_quiet() {
    let (full, window) = (GroupSpec::full, GroupSpec::sliding_window);
    // Blocks become full after 64, 80 and 96 tokens, and the next ones begin.
    assert_eq!(loud_steps(&[full(16)], 50), [50, 64, 65, 80, 81, 96, 97]);
    // The first step releases a block before the window. Others leave it at 72, 88 and 104 tokens.
    let wanted = [60, 61, 64, 65, 72, 80, 81, 88, 96, 97, 104];
    assert_eq!(loud_steps(&[full(16), window(16, 40)], 60), wanted);
    // A window of small blocks caches blocks where a block of full attention ends.
    let wanted = [66, 67, 69, 70, 73, 74, 77, 78, 81, 82, 85, 86, 89, 90, 93, 94, 96, 97, 98];
    let loud = loud_steps(&[full(32), window(4, 10)], 66);
    assert_eq!(loud[..wanted.len()], wanted);
    assert_eq!(loud_steps(&[full(16), GroupSpec::new("mamba", 16)], 50).len(), 50);
}

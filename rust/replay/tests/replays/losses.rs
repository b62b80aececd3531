//! Losses in pools that are small enough to know the reasons.

use kvoxide_core::{GroupSpec, Policy, RecycleOrder};
use kvoxide_replay::losses::Losses;
use kvoxide_replay::trace::{Prompt, TraceRequest};
use kvoxide_replay::{Report, Settings, Trace};
use proptest::prelude::*;

use crate::{play, traffic};

fn settings(groups: &[GroupSpec], num_blocks: Option<usize>, policy: Policy) -> Settings {
    Settings { policy, ..crate::settings(groups, num_blocks) }
}

/// Returns prompts that consist of parts with consecutive tokens: (first token, number of tokens).
fn trace(prompts: &[&[(i64, usize)]]) -> Trace {
    let piece = |&(first, length): &(i64, usize)| first..first + length as i64;
    let mut trace = Trace::default();
    for prompt in prompts {
        let prompt = Prompt::of_tokens(prompt.iter().flat_map(piece).collect());
        trace.push(TraceRequest { prompt, ..TraceRequest::of_tokens(vec![], 1) }).expect("tokens");
    }
    trace
}

/// Returns the hit of the last request, and its losses.
fn last(report: &Report) -> (usize, Losses) {
    let last = report.requests.last().expect("requests");
    (last.hit_tokens.expect("an admitted request"), last.losses)
}

const NONE: Losses = Losses { evicted_full: 0, evicted_tail: 0, never_cached: 0 };

fn interval(tokens: usize) -> Policy {
    Policy { retention_interval: Some(tokens), ..Policy::every_tail() }
}

fn full_and_window() -> [GroupSpec; 2] {
    [GroupSpec::full(16), GroupSpec::sliding_window(16, 32)]
}

#[test]
fn new_tokens_and_the_last_block_are_no_losses() {
    let trace = trace(&[&[(0, 320)], &[(0, 320)], &[(0, 100), (5_000, 200)]]);
    let report = play(&trace, &settings(&[GroupSpec::full(16)], Some(100), Policy::every_tail()));
    let hits: Vec<_> = report.requests.iter().map(|r| (r.hit_tokens, r.losses)).collect();
    assert_eq!(hits, [(Some(0), NONE), (Some(304), NONE), (Some(96), NONE)]);
}

#[test]
fn blocks_of_full_attention_are_evicted() {
    let trace = trace(&[&[(0, 320)], &[(5_000, 160)], &[(0, 320)]]);
    let groups = [GroupSpec::full(16)];
    // The pool has 25 blocks. 6 of the first prompt's 20 blocks are evicted, the last block first.
    let report = play(&trace, &settings(&groups, Some(26), Policy::every_tail()));
    assert_eq!(last(&report), (224, Losses { evicted_full: 80, ..NONE }));
    let unlimited = play(&trace, &settings(&groups, None, Policy::every_tail()));
    assert_eq!(last(&unlimited), (304, NONE));
}

#[test]
fn tails_are_evicted_before_the_blocks_of_their_prefix() {
    // When the first prompt ends, all of its window blocks but the last are at the front of the
    // queue.
    let trace = trace(&[&[(0, 320)], &[(5_000, 160)], &[(0, 200), (9_000, 100)]]);
    let report = play(&trace, &settings(&full_and_window(), Some(42), Policy::every_tail()));
    assert_eq!(last(&report), (0, Losses { evicted_tail: 192, ..NONE }));
}

#[test]
fn tails_inside_a_prompt_are_never_cached_with_an_interval_of_0() {
    let fork = |n: i64| [(0, 500), (n * 1_000, 100)];
    let trace = trace(&[&[(0, 1000)], &fork(5), &fork(6)]);
    let report = play(&trace, &settings(&full_and_window(), Some(500), interval(0)));
    let losses: Vec<_> = report.requests.iter().map(|r| (r.hit_tokens, r.losses)).collect();
    let second = Losses { never_cached: 496, ..NONE };
    // The second request caches a tail where it diverges.
    assert_eq!(losses, [(Some(0), NONE), (Some(0), second), (Some(496), NONE)]);
}

#[test]
fn of_cached_tails_the_last_counts() {
    // The tails at 256 and 512 are evicted. After the last tail, no tail was ever cached.
    let trace = trace(&[&[(0, 1000)], &[(5_000, 800)], &[(0, 600), (9_000, 10)]]);
    let report = play(&trace, &settings(&full_and_window(), Some(116), interval(256)));
    let losses = last(&report).1;
    assert_eq!(last(&report).0 + losses.num_tokens(), 592);
    assert_eq!((losses.evicted_tail, losses.never_cached), (512, 80));
}

#[test]
fn windows_alone_lose_tails() {
    let groups = [GroupSpec::sliding_window(16, 32)];
    let trace = trace(&[&[(0, 320)], &[(5_000, 320)], &[(0, 200), (9_000, 100)]]);
    let report = play(&trace, &settings(&groups, Some(12), Policy::every_tail()));
    assert_eq!(last(&report), (0, Losses { evicted_tail: 192, ..NONE }));
    let thinned = play(&trace, &settings(&groups, Some(100), interval(0)));
    assert_eq!(last(&thinned), (0, Losses { never_cached: 192, ..NONE }));
}

#[test]
fn states_are_lost_where_no_chunk_ended() {
    let groups = [GroupSpec::full(16), GroupSpec::new("mamba", 16)];
    let trace = trace(&[&[(0, 1000)], &[(0, 500)], &[(0, 500)]]);
    for num_blocks in [Some(500), None] {
        let report = play(&trace, &settings(&groups, num_blocks, Policy::every_tail()));
        let losses: Vec<_> = report.requests.iter().map(|r| (r.hit_tokens, r.losses)).collect();
        let second = Losses { never_cached: 48, ..NONE };
        assert_eq!(losses, [(Some(0), NONE), (Some(448), second), (Some(496), NONE)]);
    }
}

#[test]
fn states_alone_lose_states() {
    let groups = [GroupSpec::new("mamba", 16)];
    let others: Vec<Vec<_>> = (1..8).map(|n| vec![(n * 10_000, 200)]).collect();
    let mut prompts: Vec<&[_]> = vec![&[(0, 200)]];
    prompts.extend(others.iter().map(|prompt| &prompt[..]));
    prompts.push(&[(0, 200)]);
    let report = play(&trace(&prompts), &settings(&groups, Some(8), Policy::every_tail()));
    assert_eq!(last(&report), (0, Losses { evicted_tail: 192, ..NONE }));
}

#[test]
fn a_hit_inside_a_block_needs_the_end_of_a_prompt_there() {
    let groups = [GroupSpec::full(16), GroupSpec::new("mamba", 64)];
    let trace = trace(&[&[(0, 1000)], &[(0, 990)], &[(0, 1000)]]);
    let report = play(&trace, &settings(&groups, Some(500), Policy::every_tail()));
    let losses: Vec<_> = report.requests.iter().map(|r| (r.hit_tokens, r.losses)).collect();
    // Chunks end at 960 and at 992, the end of the first prompt.
    let second = Losses { never_cached: 16, ..NONE };
    assert_eq!(losses, [(Some(0), NONE), (Some(960), second), (Some(992), NONE)]);
}

#[test]
fn of_groups_with_several_block_sizes_the_first_missing_block_counts() {
    let groups = [GroupSpec::full(16), GroupSpec::full(32)];
    let trace = trace(&[&[(0, 320)], &[(5_000, 160)], &[(0, 320)]]);
    let report = play(&trace, &settings(&groups, Some(38), Policy::every_tail()));
    let (hit, losses) = last(&report);
    assert!(hit < 288, "{hit}");
    assert_eq!(losses, Losses { evicted_full: 288 - hit, ..NONE });
}

fn models() -> impl Strategy<Value = (Vec<GroupSpec>, Policy)> {
    let full_and_windows = || {
        vec![
            GroupSpec::full(32),
            GroupSpec::sliding_window(16, 40),
            GroupSpec::sliding_window(8, 8),
        ]
    };
    let fifo = Policy {
        recycle_order: RecycleOrder::Fifo,
        reachable_block_mask: false,
        ..Policy::every_tail()
    };
    let pins = Policy { pin_min_drop_size: Some(2), ..Policy::every_tail() };
    prop_oneof![
        Just((vec![GroupSpec::full(16)], Policy::every_tail())),
        Just((vec![GroupSpec::full(16)], Policy::adaptive())),
        Just((vec![GroupSpec::full(16), GroupSpec::full(32)], Policy::every_tail())),
        Just((vec![GroupSpec::full(16), GroupSpec::chunked_local(16, 64)], Policy::every_tail())),
        Just((vec![GroupSpec::sliding_window(16, 40)], interval(64))),
        Just((full_and_windows(), Policy::every_tail())),
        Just((full_and_windows(), Policy::adaptive())),
        Just((full_and_windows(), interval(96))),
        Just((full_and_windows(), fifo)),
        Just((full_and_windows(), pins)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..Default::default() })]

    /// Checks that with one request at a time, hits and losses together are the hits of a pool that
    /// never evicts.
    #[test]
    fn hits_and_losses_are_what_could_have_been_hit(
        (groups, policy) in models(),
        requests in traffic::requests(1..20, 1..300, 1..100, 1..2),
        num_blocks in prop_oneof![70..160_usize, Just(5_000)],
    ) {
        let trace = traffic::trace(&requests);
        let report = play(&trace, &settings(&groups, Some(num_blocks), policy.clone()));
        let unlimited = play(&trace, &settings(&groups, None, policy));
        for (here, there) in report.requests.iter().zip(&unlimited.requests) {
            let lost = here.losses.num_tokens();
            prop_assert_eq!(here.hit_tokens.map(|hit| hit + lost), there.hit_tokens);
            if report.last.evictions == 0 {
                prop_assert_eq!((here.losses.evicted_full, here.losses.evicted_tail), (0, 0));
            }
        }
    }

    /// Checks that losses count as evictions only if blocks were evicted. No state is lost in a
    /// pool that holds all of them.
    #[test]
    fn states_are_evicted_only_where_something_was(
        block_size in prop_oneof![Just(16_usize), Just(48)],
        requests in traffic::requests(1..20, 1..300, 1..100, 1..2),
        concurrency in 1..4_usize,
        num_blocks in prop_oneof![60..160_usize, Just(5_000)],
        is_adaptive in any::<bool>(),
    ) {
        let groups = [GroupSpec::full(32), GroupSpec::new("mamba", block_size)];
        let policy = if is_adaptive { Policy::adaptive() } else { Policy::every_tail() };
        let settings = Settings { concurrency, ..settings(&groups, Some(num_blocks), policy) };
        let report = play(&traffic::trace(&requests), &settings);
        for request in report.requests.iter().filter(|request| request.hit_tokens.is_some()) {
            let Losses { evicted_full, evicted_tail, .. } = request.losses;
            prop_assert!(report.last.evictions > 0 || evicted_full + evicted_tail == 0);
            prop_assert!(request.hit_tokens.unwrap_or(0) + request.losses.num_tokens() < request.prompt_tokens);
        }
    }
}

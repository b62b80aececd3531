//! The clairvoyant bound: no policy has more hits. If the most hits are known, the bound is exact.

use kvoxide_core::{GroupSpec, Policy, RecycleOrder, Size};
use kvoxide_replay::clairvoyant::Bound;
use kvoxide_replay::trace::TraceRequest;
use kvoxide_replay::{Control, Report, Settings, Trace, run};
use proptest::prelude::*;

use crate::play;
use crate::traffic::{self, Request};

fn settings(groups: &[GroupSpec], num_blocks: Option<usize>) -> Settings {
    Settings { has_bound: true, ..crate::settings(groups, num_blocks) }
}

fn trace_of(prompts: impl IntoIterator<Item = (Vec<i64>, usize)>) -> Trace {
    let request = |(prompt, output_length)| TraceRequest::of_tokens(prompt, output_length);
    traffic::trace_of(prompts.into_iter().map(request))
}

fn bound(report: &Report) -> &Bound {
    report.bound.as_ref().expect("it was asked for")
}

fn num_hit_tokens(report: &Report) -> usize {
    report.counted().filter_map(|request| request.hit_tokens).sum()
}

/// Returns requests for pages of one block each. A request reads its page and generates one token,
/// in another block.
fn pages(references: &[i64]) -> Trace {
    trace_of(references.iter().map(|page| ((0..17).map(|token| page * 100 + token).collect(), 0)))
}

/// The reference string of the textbooks.
const REFERENCES: [i64; 20] = [7, 0, 1, 2, 0, 3, 0, 4, 2, 3, 0, 3, 2, 1, 2, 0, 1, 7, 0, 1];

#[test]
fn the_bound_is_beladys_where_a_page_is_a_block() {
    let trace = pages(&REFERENCES);
    // The pool has this many frames in addition to the null block and the request's last block. The
    // numbers of faults are from textbooks.
    for (num_frames, num_faults) in [(3, 9), (4, 8), (6, 6)] {
        let report = play(&trace, &settings(&[GroupSpec::full(16)], Some(2 + num_frames)));
        assert_eq!(bound(&report).num_hit_tokens(), (20 - num_faults) * 16, "{num_frames} frames");
        assert!(num_hit_tokens(&report) <= (20 - num_faults) * 16);
    }
}

#[test]
fn two_groups_of_full_attention_need_twice_the_blocks() {
    let trace = pages(&REFERENCES);
    let groups = [GroupSpec::full(16), GroupSpec::full(16)];
    for num_blocks in [9, 10] {
        let report = play(&trace, &settings(&groups, Some(num_blocks)));
        assert_eq!(bound(&report).num_hit_tokens(), 11 * 16);
    }
}

#[test]
fn a_window_takes_blocks_only_while_it_is_in_use() {
    let trace = pages(&REFERENCES);
    let groups = [GroupSpec::full(16), GroupSpec::sliding_window(16, 32)];
    // A request holds two blocks in each group.
    let report = play(&trace, &settings(&groups, Some(7)));
    assert_eq!(bound(&report).num_hit_tokens(), 11 * 16);
}

#[test]
fn a_state_is_hit_only_where_a_chunk_ended() {
    let prompts = [1000, 1000, 500, 500].map(|length| ((0..length).collect(), 3));
    let groups = [GroupSpec::full(16), mamba(16)];
    let report = play(&trace_of(prompts), &settings(&groups, Some(500)));
    assert_eq!(bound(&report).hit_tokens, [Some(0), Some(992), Some(448), Some(496)]);
}

#[test]
fn requests_that_run_at_the_same_time_share_a_prefix() {
    let prompt = |tail: i64| (0..64).chain([tail]).collect::<Vec<i64>>();
    let trace = trace_of((1..=6).map(|tail| (prompt(-100 * tail), 40)));
    // The pool holds the shared prefix, and three blocks for each of the three requests that run at
    // a time.
    let three = Settings { concurrency: 3, ..settings(&[GroupSpec::full(16)], Some(14)) };
    let report = play(&trace, &three);
    assert_eq!(bound(&report).hit_tokens[1..], [Some(64); 5]);
}

#[test]
fn requests_that_do_not_count_have_no_bound() {
    let trace = pages(&[1, 1, 1]);
    let warmed = Settings { report_from: 1, ..settings(&[GroupSpec::full(16)], Some(50)) };
    assert_eq!(bound(&play(&trace, &warmed)).hit_tokens, [None, Some(16), Some(16)]);
    let rejected = trace_of([((0..400).collect(), 0), ((0..40).collect(), 0)]);
    let report = play(&rejected, &settings(&[GroupSpec::full(16)], Some(6)));
    assert_eq!(bound(&report).hit_tokens, [None, Some(0)]);
}

#[test]
fn a_pool_that_never_evicts_hits_its_bound() {
    let trace = pages(&[1, 2, 1, 3, 2]);
    for groups in [vec![GroupSpec::full(16)], vec![GroupSpec::full(16), mamba(16)]] {
        let report = play(&trace, &settings(&groups, None));
        let hits: Vec<_> = report.requests.iter().map(|request| request.hit_tokens).collect();
        assert_eq!(bound(&report).hit_tokens, hits);
    }
}

#[test]
fn there_is_no_bound_unless_the_settings_ask_for_it() {
    let unasked = Settings { has_bound: false, ..settings(&[GroupSpec::full(16)], Some(50)) };
    assert!(play(&pages(&[1]), &unasked).bound.is_none());
}

fn mamba(block_size: usize) -> GroupSpec {
    GroupSpec::new("mamba", block_size)
}

/// Returns models: their groups, and the alignment of their hits in tokens.
fn models() -> Vec<(Vec<GroupSpec>, usize)> {
    let full = GroupSpec::full;
    let window = GroupSpec::sliding_window;
    let exporting = mamba(32)
        .with(Size::NumPrefillCheckpointBlocks, 1)
        .with(Size::PrefillCheckpointAlignment, 1);
    let uncached =
        GroupSpec { prefix_cacheable: Some(false), ..GroupSpec::new("sliding_window_mla", 4) }
            .with(Size::SlidingWindow, 9);
    vec![
        (vec![full(8)], 8),
        (vec![full(8), full(8)], 8),
        (vec![full(8), full(16), GroupSpec::new("mla_attention", 16)], 16),
        (vec![full(8), window(8, 20)], 8),
        (vec![full(8), window(8, 20).with(Size::ExtraRetainedTokens, 13)], 8),
        (vec![full(16), window(8, 8), window(4, 5), window(4, 5)], 16),
        (vec![full(8), window(24, 30)], 24),
        (vec![window(8, 20)], 8),
        (vec![window(8, 20), window(16, 33)], 16),
        (vec![full(8), GroupSpec::chunked_local(8, 32)], 8),
        (vec![full(8), mamba(8)], 8),
        (vec![full(8), mamba(32), mamba(32)], 8),
        (vec![full(32), mamba(48)], 16),
        (vec![full(8), mamba(32).with(Size::NumSpeculativeBlocks, 2), window(8, 9)], 8),
        (vec![exporting.clone(), full(32)], 32),
        (vec![exporting, full(8)], 8),
        (vec![mamba(16)], 16),
        (vec![GroupSpec::new("rswa", 8).with(Size::RswaWindow, 12)], 8),
        (vec![full(16), uncached, GroupSpec::new("circular_buffer", 8)], 16),
    ]
}

fn policies() -> Vec<Policy> {
    let fifo = Policy { recycle_order: RecycleOrder::Fifo, ..Policy::every_tail() };
    let pin = Policy { pin_min_drop_size: Some(1), ..Policy::every_tail() };
    let interval = |tokens| Policy { retention_interval: Some(tokens), ..Policy::every_tail() };
    vec![
        Policy::every_tail(),
        fifo,
        pin.clone(),
        interval(0),
        interval(96),
        Policy { retention_interval: Some(0), ..pin },
        Policy::adaptive(),
    ]
}

fn requests() -> impl Strategy<Value = Vec<Request>> {
    traffic::requests(1..20, 0..160, 1..100, 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn no_policy_hits_more(
        requests in requests(),
        model in prop::sample::select(models()),
        policy in prop::sample::select(policies()),
        num_blocks in 12..160_usize,
        concurrency in 1..6_usize,
        max_batched_tokens in prop::sample::select(vec![7_usize, 32, 64, 200, 1000]),
        report_from in prop::sample::select(vec![0_usize, 0, 0, 4]),
    ) {
        let (groups, alignment) = model;
        let trace = traffic::trace(&requests);
        let with = Settings { policy, concurrency, max_batched_tokens, report_from, ..settings(&groups, Some(num_blocks)) };
        // Not every policy works with every model.
        let report = run(&trace, &with, &Control::default())
            .unwrap_or_else(|_| play(&trace, &Settings { policy: Policy::every_tail(), ..with }));
        prop_assert!(num_hit_tokens(&report) <= bound(&report).num_hit_tokens(), "{report:?}");

        let one_by_one = settings(&[GroupSpec::full(alignment)], None);
        let most = play(&trace, &one_by_one).requests.into_iter().map(|request| request.hit_tokens);
        for (bound, most) in bound(&report).hit_tokens.iter().zip(most) {
            prop_assert!(bound.unwrap_or(0) <= most.unwrap_or(0));
        }
    }

    #[test]
    fn a_pool_that_never_fills_hits_its_bound(
        requests in requests(),
        model in prop::sample::select(models()[..10].to_vec()),
        concurrency in 1..6_usize,
    ) {
        let trace = traffic::trace(&requests);
        let with = Settings { concurrency, ..settings(&model.0, Some(20_000)) };
        let report = play(&trace, &with);
        prop_assert_eq!(report.last.evictions, 0);
        prop_assert_eq!(num_hit_tokens(&report), bound(&report).num_hit_tokens());
    }
}

//! Runs of small traces with known outcomes.

use kvoxide_core::GroupSpec;
use kvoxide_replay::trace::TraceRequest;
use kvoxide_replay::{Control, Report, Settings, Trace, run};
use proptest::prelude::*;

use crate::{play, settings, traffic};

/// Returns a trace of requests with consecutive tokens: (first token, prompt length, output
/// length).
fn trace(requests: &[(i64, usize, usize)]) -> Trace {
    traffic::trace_of(requests.iter().map(|&(first, length, output_length)| {
        TraceRequest::of_tokens((first..first + length as i64).collect(), output_length)
    }))
}

fn hits(report: &Report) -> Vec<Option<usize>> {
    report.requests.iter().map(|request| request.hit_tokens).collect()
}

#[test]
fn a_repeated_prompt_hits_all_full_blocks_before_its_last_token() {
    let trace = trace(&[(0, 1000, 3), (0, 1000, 3), (0, 1008, 3), (0, 1009, 0)]);
    let report = play(&trace, &settings(&[GroupSpec::full(16)], Some(500)));
    assert_eq!(hits(&report), [Some(0), Some(992), Some(992), Some(1008)]);
    let generated: Vec<_> = report.requests.iter().map(|r| r.output_tokens).collect();
    assert_eq!(generated, [3, 3, 3, 0]);
}

#[test]
fn every_generated_token_takes_a_slot() {
    let trace = trace(&[(0, 16, 17)]);
    let report = play(&trace, &settings(&[GroupSpec::full(16)], Some(4)));
    assert_eq!(report.peak_used_blocks, 3);
    assert_eq!(report.steps, 18);
}

#[test]
fn a_request_that_cannot_fit_is_rejected_and_the_others_continue() {
    let trace = trace(&[(0, 40, 1), (100, 400, 1), (0, 40, 1), (500, 60, 100)]);
    let report = play(&trace, &settings(&[GroupSpec::full(16)], Some(6)));
    assert_eq!(hits(&report), [Some(0), None, Some(32), None]);
    assert_eq!(report.num_rejected(), 2);
    assert_eq!(report.last.used, 0);
}

#[test]
fn the_newest_request_is_preempted_when_blocks_run_out() {
    let trace = trace(&[(0, 16, 40), (100, 16, 40), (200, 16, 40)]);
    let both = Settings { concurrency: 3, ..settings(&[GroupSpec::full(16)], Some(8)) };
    let report = play(&trace, &both);
    let preemptions: Vec<_> = report.requests.iter().map(|r| r.preemptions).collect();
    assert_eq!(preemptions[0], 0);
    assert!(preemptions[2] >= 1, "{preemptions:?}");
    assert!(report.requests.iter().all(|r| r.output_tokens == 40 && r.hit_tokens == Some(0)));
}

#[test]
fn requests_before_report_from_warm_the_cache_and_do_not_count() {
    let trace = trace(&[(0, 100, 1), (0, 100, 1)]);
    let warmed = Settings { report_from: 1, ..settings(&[GroupSpec::full(16)], Some(50)) };
    let report = play(&trace, &warmed);
    assert_eq!(report.counted().map(|r| r.hit_tokens).collect::<Vec<_>>(), [Some(96)]);
}

#[test]
fn a_cancelled_run_stops() {
    let control = Control::default();
    control.cancelled.store(true, std::sync::atomic::Ordering::Relaxed);
    let stopped = run(&trace(&[(0, 10, 1)]), &settings(&[GroupSpec::full(16)], Some(9)), &control);
    assert_eq!(stopped.expect_err("cancelled"), kvoxide_replay::Stopped::Cancelled);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_pool_that_never_fills_hits_what_the_unlimited_cache_hits(
        requests in traffic::requests(1..12, 1..300, 0..1, 0..20),
        concurrency in 1..4_usize,
    ) {
        let groups = [
            GroupSpec::full(32),
            GroupSpec::sliding_window(16, 40),
            GroupSpec::sliding_window(8, 8),
        ];
        let trace = traffic::trace(&requests);
        let with = |num_blocks| Settings { concurrency, ..settings(&groups, num_blocks) };
        let managed = play(&trace, &with(Some(5_000)));
        let unlimited = play(&trace, &with(None));
        prop_assert_eq!(managed.last.evictions, 0);
        prop_assert_eq!(hits(&managed), hits(&unlimited));
    }
}

#[test]
fn a_state_is_hit_where_a_chunk_ended() {
    let groups = [GroupSpec::full(16), GroupSpec::new("mamba", 16)];
    let trace = trace(&[(0, 1000, 3), (0, 1000, 3), (0, 500, 3), (0, 500, 3)]);
    for num_blocks in [Some(500), None] {
        let report = play(&trace, &settings(&groups, num_blocks));
        // Chunks have 64 tokens. 448 is the last boundary with a state below 500, until the third
        // request leaves a state at 496.
        assert_eq!(hits(&report), [Some(0), Some(992), Some(448), Some(496)]);
        assert_eq!(report.last.used, 0, "copies are given back");
    }
}

#[test]
fn a_state_is_hit_inside_a_block() {
    let groups = [GroupSpec::full(16), GroupSpec::new("mamba", 64)];
    let trace = trace(&[(0, 1000, 70), (0, 1000, 3), (0, 990, 3), (0, 1070, 3)]);
    for num_blocks in [Some(500), None] {
        let report = play(&trace, &settings(&groups, num_blocks));
        assert_eq!(hits(&report), [Some(0), Some(992), Some(960), Some(992)]);
        assert_eq!(report.last.used, 0, "copies are given back");
    }
}

#[test]
fn requests_of_one_step_wait_for_the_state_that_they_share() {
    let groups = [GroupSpec::full(16), GroupSpec::new("mamba", 16)];
    let trace = trace(&[(0, 40, 3), (0, 40, 3), (0, 40, 3)]);
    let at_once = Settings { concurrency: 3, ..settings(&groups, Some(100)) };
    assert_eq!(hits(&play(&trace, &at_once)), [Some(0), Some(32), Some(32)]);
}

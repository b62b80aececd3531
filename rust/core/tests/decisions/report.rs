//! Statistics of retention.

use kvoxide_core::{
    Admitted, BlockCounts, ByKind, GroupSpec, Manager, ManagerConfig, Policy, RetentionReport,
};

use crate::small::{Request, admit, config, decode, look_up, made, serve, step};

fn managed(num_blocks: usize, policy: Policy) -> Manager {
    let groups = [GroupSpec::full(4), GroupSpec::sliding_window(4, 8)];
    made(ManagerConfig { policy, ..config(num_blocks, &groups) })
}

fn num_blocks(report: &RetentionReport) -> u64 {
    report.in_use + report.evictable.full + report.evictable.tail + report.protected + report.empty
}

#[test]
fn every_block_is_counted_once_by_its_state() {
    let mut manager = managed(61, Policy::every_tail());
    assert_eq!(manager.retention_report().empty, 60);
    let mut request = Request::new(&manager, 1, 0..18);
    admit(&mut manager, &mut request); // five blocks in each group, four of them full
    assert_eq!(manager.retention_report().in_use, 10);
    manager.free(1).expect("a request that runs");
    let report = manager.retention_report();
    assert_eq!((report.in_use, report.empty), (0, 52));
    assert_eq!(report.evictable, ByKind { full: 4, tail: 4 });
    let counts = BlockCounts { in_use: 0, evictable: 8, protected: 0, empty: 52 };
    assert_eq!(manager.count_blocks(), counts);
    assert_eq!((report.scoring_function, report.sample), (None, None));
}

#[test]
fn pinned_and_protected_blocks_are_counted_separately() {
    let pins = Policy { pin_min_drop_size: Some(1), ..Policy::every_tail() };
    let mut manager = managed(61, pins);
    serve(&mut manager, 1, 0..18);
    let report = manager.retention_report();
    assert_eq!((report.protected, report.evictable), (8, ByKind::default()));
    assert_eq!(num_blocks(&report), 60);
    let counts = BlockCounts { in_use: 0, evictable: 0, protected: 8, empty: 52 };
    assert_eq!(manager.count_blocks(), counts);

    let mut manager = managed(1000, Policy::adaptive());
    let mut request = Request::new(&manager, 1, 0..1200);
    [200, 200, 200, 4]
        .into_iter()
        .for_each(|num_tokens| step(&mut manager, &mut request, num_tokens));
    let report = manager.retention_report();
    assert_eq!((report.protected, num_blocks(&report)), (4, 999), "two tails of two blocks");
}

#[test]
fn evictions_are_counted_by_kind_with_adaptive_retention_or_on_request() {
    for (policy, asks) in
        [(Policy::every_tail(), false), (Policy::every_tail(), true), (Policy::adaptive(), false)]
    {
        let mut manager = managed(41, policy.clone());
        if asks {
            manager.pool_mut().index_mut().count_evictions_by_group();
        }
        for id in 0..20 {
            serve(&mut manager, id, id * 100..id * 100 + 41);
        }
        let ByKind { full, tail } = manager.retention_report().evictions;
        let num_expected = match asks || policy == Policy::adaptive() {
            true => manager.pool().index().evictions(),
            false => 0,
        };
        assert_eq!(full + tail, num_expected, "{policy:?}");
        assert_eq!(full > 100, num_expected > 0);
        assert_eq!(num_blocks(&manager.retention_report()), 40);
    }
}

#[test]
fn hits_count_at_admission_but_not_after_preemption() {
    let mut manager = managed(61, Policy::every_tail());
    serve(&mut manager, 1, 0..40);
    let mut request = Request::new(&manager, 2, 0..30);
    admit(&mut manager, &mut request);
    let expected = Admitted { prompt_tokens: 70, hit_tokens: 28, hit_answer_tokens: 0 };
    assert_eq!(manager.retention_report().admitted, expected);
    decode(&mut manager, &mut request, 500..510);
    manager.free(2).expect("a request that runs");
    request.num_computed_tokens = 0;
    admit(&mut manager, &mut request);
    assert_eq!(manager.retention_report().admitted, expected, "preempted");
}

#[test]
fn hits_on_blocks_with_generated_tokens_are_counted_apart() {
    for (policy, expected) in [(Policy::adaptive(), 20), (Policy::every_tail(), 0)] {
        let mut manager = managed(100, policy);
        let mut first = Request::new(&manager, 1, 0..30);
        admit(&mut manager, &mut first);
        decode(&mut manager, &mut first, 500..520);
        manager.free(1).expect("a request that runs");
        // 28 tokens fill blocks of the prompt. The next block has two tokens of the prompt and two
        // of the answer.
        serve(&mut manager, 2, (0..30).chain(500..530));
        let admitted = Admitted { prompt_tokens: 90, hit_tokens: 48, hit_answer_tokens: expected };
        assert_eq!(manager.retention_report().admitted, admitted);
        // The second request computed these tokens itself, so they do not count as an answer.
        serve(&mut manager, 3, (0..30).chain(500..530));
        let admitted = manager.retention_report().admitted;
        assert_eq!((admitted.hit_tokens, admitted.hit_answer_tokens), (48 + 56, 2 * expected));
    }
}

#[test]
fn the_shadow_caches_count_the_hits_of_each_scoring_function() {
    let mut manager = managed(4000, Policy::adaptive());
    for id in 0..60 {
        serve(&mut manager, id, id % 30 * 1000..id % 30 * 1000 + 201);
    }
    let report = manager.retention_report();
    assert_eq!(report.scoring_function.map(|function| function.name()), Some("recency"));
    let sample = report.sample.expect("adaptive retention");
    // All 30 prompts of 50 blocks fit, so all of them are hit the second time.
    assert!((60..130).contains(&sample.hit), "{sample:?}");
    assert_eq!((sample.asked, sample.kept), (2 * sample.hit, [sample.hit; 3]));
    assert_eq!(look_up(&mut manager, 0..201).length, 200);
}

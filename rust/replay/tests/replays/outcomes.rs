//! Outcomes of prompt tokens. They sum to the prompt.

use kvoxide_core::{GroupSpec, Outcome, Policy};
use kvoxide_replay::trace::{Reader, TraceRequest};
use kvoxide_replay::{Report, Settings, Trace};
use proptest::prelude::*;

use crate::{play, settings, traffic};

/// Returns the outcomes of the last request that have tokens.
fn last(report: &Report) -> Vec<(&'static str, u32)> {
    let outcomes = report.requests.last().expect("requests").outcomes();
    let named = Outcome::ALL.map(Outcome::name).into_iter().zip(outcomes.tokens);
    named.filter(|(_, tokens)| *tokens > 0).collect()
}

/// Returns prompts that consist of tokens from a first number up to another.
fn prompts(prompts: &[&[(i64, i64)]]) -> Trace {
    let mut trace = Trace::default();
    for parts in prompts {
        let tokens = parts.iter().flat_map(|&(first, end)| first..end).collect();
        trace.push(TraceRequest::of_tokens(tokens, 1)).expect("tokens");
    }
    trace
}

fn hybrid() -> [GroupSpec; 2] {
    [GroupSpec::full(160), GroupSpec::new("mamba", 160)]
}

#[test]
fn a_shared_prefix_shorter_than_a_block_is_below_the_block() {
    let trace = prompts(&[&[(0, 100), (500, 700)], &[(0, 100), (900, 1100)]]);
    let report = play(&trace, &settings(&hybrid(), Some(50)));
    assert_eq!(last(&report), [("first_time", 200), ("below_block", 100)]);
}

#[test]
fn a_prompt_that_shares_nothing_is_new() {
    let trace = prompts(&[&[(0, 320)], &[(1000, 1320)]]);
    assert_eq!(last(&play(&trace, &settings(&hybrid(), Some(50)))), [("first_time", 320)]);
}

#[test]
fn the_last_token_of_a_repeated_prompt_is_not_cacheable() {
    let trace = prompts(&[&[(0, 320)], &[(0, 320)]]);
    let report = play(&trace, &settings(&[GroupSpec::full(16)], Some(100)));
    assert_eq!(last(&report), [("hit_gpu", 304), ("below_block", 15), ("not_cacheable", 1)]);
}

#[test]
fn a_prompt_that_skips_the_cache_is_not_cacheable() {
    let mut trace = prompts(&[&[(0, 320)]]);
    let skipping = TraceRequest::of_tokens((0..320).collect(), 1);
    trace.push(TraceRequest { skips_reading: true, ..skipping }).expect("tokens");
    let report = play(&trace, &settings(&[GroupSpec::full(16)], Some(100)));
    assert_eq!(last(&report), [("not_cacheable", 320)]);
    assert_eq!(report.requests[1].losses.evicted_full, 0);
}

#[test]
fn without_prefix_caching_nothing_is_cacheable() {
    let trace = prompts(&[&[(0, 320)], &[(0, 320)]]);
    let settings =
        Settings { enable_caching: false, ..settings(&[GroupSpec::full(16)], Some(100)) };
    assert_eq!(last(&play(&trace, &settings)), [("not_cacheable", 320)]);
}

fn line(outcomes: &str) -> Result<Trace, String> {
    let mut reader = Reader::of_dialect("recording").expect("a format");
    let mut trace = Trace::with_tokens_per_id(16);
    let line = format!(
        r#"{{"request": 0, "timestamp": 1, "input_length": 20, "output_length": 2,
            "hash_ids": [0, 1], "outcomes": {outcomes}}}"#
    );
    trace.push_line(&mut reader, line.as_bytes()).map_err(|error| error.to_string())?;
    Ok(trace)
}

#[test]
fn recorded_outcomes_are_read_by_name() {
    for (place, name) in Outcome::ALL.map(Outcome::name).into_iter().enumerate() {
        let trace = line(&format!(r#"{{"{name}": 20}}"#)).expect("a line");
        let tokens = trace.requests()[0].outcomes.as_ref().expect("outcomes").tokens;
        assert_eq!((tokens[place], tokens.iter().sum::<u32>()), (20, 20), "{name}");
    }
    assert_eq!(line("null").expect("a line").requests()[0].outcomes, None);
}

#[test]
fn wrong_outcomes_are_refused() {
    for (outcomes, message) in [
        ("[20]", "is [20]; expected an object with numbers of tokens"),
        (r#"{"hit_disk": 20}"#, r#"has "hit_disk"; expected hit_gpu, hit_host"#),
        (r#"{"hit_gpu": -1}"#, "has hit_gpu -1; expected an integer from 0 to"),
        (r#"{"hit_gpu": 1.5}"#, "has hit_gpu 1.5; expected an integer from 0 to"),
        (r#"{"hit_gpu": 19}"#, "has 19 tokens, but the prompt (input_length) has 20"),
    ] {
        let error = line(outcomes).expect_err("a wrong line");
        assert!(error.starts_with(&format!("field 'outcomes' {message}")), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() })]

    #[test]
    fn outcomes_sum_to_the_prompt(
        groups in prop_oneof![
            Just(vec![GroupSpec::full(16)]),
            Just(vec![GroupSpec::full(32), GroupSpec::sliding_window(16, 40)]),
            Just(vec![GroupSpec::full(48), GroupSpec::new("mamba", 48)]),
        ],
        is_adaptive in any::<bool>(),
        requests in traffic::requests(1..20, 1..300, 1..100, 1..8),
        num_blocks in prop_oneof![70..160_usize, Just(5_000)],
        concurrency in 1..4_usize,
    ) {
        let policy = if is_adaptive { Policy::adaptive() } else { Policy::every_tail() };
        let settings =
            Settings { policy, concurrency, ..settings(&groups, Some(num_blocks)) };
        let report = play(&traffic::trace(&requests), &settings);
        for request in report.requests.iter().filter(|request| request.hit_tokens.is_some()) {
            prop_assert_eq!(request.outcomes().num_tokens(), request.prompt_tokens);
        }
    }
}

//! Prompts in which only whole blocks have ids, or no block has one.

use kvoxide_core::GroupSpec;
use kvoxide_replay::trace::{Prompt, TraceRequest};
use kvoxide_replay::{Settings, Trace};
use proptest::prelude::*;

use super::traffic::{self, Request};
use super::{play, settings};

const WIDTH: usize = 16;

/// Returns a trace of prompts with ids for whole blocks. With `has_all_ids`, the rest of a prompt
/// has an id too, which no other prompt has.
fn trace(requests: &[Request], has_all_ids: bool) -> Trace {
    let mut trace = Trace::with_tokens_per_id(WIDTH);
    // With these lengths, only one of both kinds of ids is possible.
    for (number, request) in requests.iter().enumerate() {
        let (length, first) = (request.num_shared, request.family);
        let whole = first..first + (length / WIDTH) as i64;
        let rest = 1000 + number as i64;
        let rest = (has_all_ids && !length.is_multiple_of(WIDTH)).then_some(rest);
        let prompt = Prompt::of_ids(length, whole.chain(rest));
        trace.push(TraceRequest::of_prompt(prompt, request.num_output)).expect("ids of 16 tokens");
    }
    trace
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn tokens_without_an_id_are_like_no_others(
        requests in traffic::requests(1..12, 1..90, 0..1, 0..6),
        num_blocks in prop::option::of(20..60_usize),
    ) {
        let groups = [GroupSpec::full(8), GroupSpec::sliding_window(8, 20)];
        let settings =
            Settings { has_bound: true, concurrency: 2, ..settings(&groups, num_blocks) };
        let reports = [true, false].map(|has_all| play(&trace(&requests, has_all), &settings));
        let [all, whole] = reports.map(|report| {
            let bound = report.bound.expect("it was asked for").hit_tokens;
            let of = |it: &kvoxide_replay::report::RequestReport| (it.hit_tokens, it.losses);
            (report.requests.iter().map(of).collect::<Vec<_>>(), bound, report.last.evictions)
        });
        prop_assert_eq!(all, whole);
    }
}

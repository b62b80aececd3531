//! Conversations with known outputs: later requests hit the outputs of earlier ones.

use kvoxide_core::GroupSpec;
use kvoxide_replay::trace::{Prompt, TraceRequest};
use kvoxide_replay::{Control, Report, Settings, Trace, run};
use proptest::prelude::*;

use crate::traffic::{self, Turn};

const WIDTH: usize = 16;

fn settings(groups: &[GroupSpec], num_blocks: Option<usize>, concurrency: usize) -> Settings {
    Settings { concurrency, has_bound: true, ..crate::settings(groups, num_blocks) }
}

/// Returns a request whose prompt has the first `input` of these blocks and `tail` more tokens.
fn turn(blocks: &[i64], input: usize, tail: usize, output_length: usize) -> TraceRequest {
    let length = input * WIDTH + tail;
    let num_prompt_ids = length.div_ceil(WIDTH);
    let num_output_ids = Some(blocks.len() - num_prompt_ids);
    let hash_ids = blocks.iter().copied().collect();
    TraceRequest::of_prompt(Prompt::HashIds { length, hash_ids, num_output_ids }, output_length)
}

fn play(turns: &[TraceRequest], settings: &Settings) -> Report {
    let mut trace = Trace::with_tokens_per_id(WIDTH);
    turns.iter().for_each(|turn| trace.push(turn.clone()).expect("ids that go together"));
    run(&trace, settings, &Control::default()).expect("settings that can work")
}

fn hits(report: &Report) -> Vec<usize> {
    report.requests.iter().map(|request| request.hit_tokens.unwrap_or(0)).collect()
}

#[test]
fn a_second_request_hits_the_output_of_the_first() {
    // 40 prompt tokens and 50 output tokens fill blocks 0 to 4. The third block has both kinds.
    let first = turn(&[0, 1, 2, 3, 4], 2, 8, 50);
    let second = turn(&[0, 1, 2, 3, 4, 5, 6], 6, 3, 1);
    let other = turn(&[0, 1, 7, 8, 9, 10, 11], 6, 3, 1);
    let untold = TraceRequest::of_prompt(Prompt::of_ids(40, [0, 1, 2]), 50);
    for blocks in [Some(100), None] {
        let settings = settings(&[GroupSpec::full(WIDTH)], blocks, 1);
        let both = play(&[first.clone(), second.clone(), other.clone()], &settings);
        assert_eq!(hits(&both), [0, 80, 32]);
        assert!(both.requests.iter().all(|request| request.losses.num_tokens() == 0));
        assert_eq!(hits(&play(&[untold.clone(), second.clone()], &settings)), [0, 32]);
    }
}

#[test]
fn evicted_output_is_lost() {
    let first = turn(&[0, 1, 2, 3, 4], 2, 8, 50);
    let between = turn(&[20, 21, 22, 23, 24, 25], 6, 0, 1);
    let second = turn(&[0, 1, 2, 3, 4, 5, 6], 6, 3, 1);
    let settings = settings(&[GroupSpec::full(WIDTH)], Some(9), 1);
    let report = play(&[first, between, second], &settings);
    let last = report.requests[2];
    assert_eq!(last.hit_tokens.expect("admitted") + last.losses.evicted_full, 80);
    assert!(last.losses.evicted_full > 0);
}

/// Generates conversations in turn. Each prompt continues the previous prompt and output.
fn conversations() -> impl Strategy<Value = Vec<TraceRequest>> {
    traffic::turns(4, 1..40_usize, 0..60).prop_map(|turns| {
        let (mut known, mut next) = (vec![(Vec::new(), 0); 4], 100);
        let mut trace = Vec::new();
        for Turn { conversation, num_added, num_output } in turns {
            let (ids, length): &mut (Vec<i64>, usize) = &mut known[conversation];
            let input = *length + num_added;
            let total = input + num_output;
            let num_known = (total.max(1) - 1) / WIDTH;
            let num_ids = num_known.max(input.div_ceil(WIDTH));
            // A block that was partial has another id when it is full.
            ids.truncate(*length / WIDTH);
            while ids.len() < num_ids {
                ids.push(next);
                next += 1;
            }
            let num_output_ids = Some(num_ids - input.div_ceil(WIDTH));
            let hash_ids = ids.iter().copied().collect();
            let prompt = Prompt::HashIds { length: input, hash_ids, num_output_ids };
            trace.push(TraceRequest::of_prompt(prompt, num_output));
            ids.truncate(num_known.max(input / WIDTH));
            *length = ids.len() * WIDTH;
        }
        trace
    })
}

fn groups() -> impl Strategy<Value = Vec<GroupSpec>> {
    prop_oneof![
        Just(vec![GroupSpec::full(16)]),
        Just(vec![GroupSpec::full(32)]),
        Just(vec![GroupSpec::full(16), GroupSpec::sliding_window(16, 40)]),
        Just(vec![GroupSpec::full(16), GroupSpec::new("mamba", 16)]),
    ]
}

proptest! {
    #[test]
    fn a_pool_that_never_fills_hits_all_that_was_computed(turns in conversations()) {
        for width in [16, 32] {
            let groups = [GroupSpec::full(width)];
            let report = play(&turns, &settings(&groups, Some(5000), 3));
            let unlimited = play(&turns, &settings(&groups, None, 3));
            prop_assert_eq!(hits(&report), hits(&unlimited));
            let lost = report.requests.iter().map(|request| request.losses.num_tokens());
            prop_assert_eq!(lost.sum::<usize>(), 0);
        }
    }

    #[test]
    fn a_bound_lies_above_what_is_hit(
        turns in conversations(), groups in groups(), blocks in 20..200_usize,
    ) {
        let report = play(&turns, &settings(&groups, Some(blocks), 3));
        let bound = report.bound.as_ref().expect("it was asked for").num_hit_tokens();
        let hit: usize = report.counted().filter_map(|request| request.hit_tokens).sum();
        prop_assert!(hit <= bound, "{hit} tokens hit, {bound} can be");
    }
}

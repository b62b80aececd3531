//! Answers that are sent again: outputs that are found in follow-ups and are then hit.

use std::collections::HashMap;

use kvoxide_core::GroupSpec;
use kvoxide_replay::Trace;
use kvoxide_replay::trace::{Prompt, TraceRequest};
use proptest::prelude::*;
use serde_json::json;

use crate::traffic::{self, Turn};
use crate::{play, settings};

/// Returns a trace of requests. Each has its conversation, the number of prompt and output tokens,
/// and ids.
fn trace(width: usize, lines: &[(&str, usize, usize, &[i64])]) -> Trace {
    let mut trace = Trace::with_tokens_per_id(width);
    for (conversation, input, output, ids) in lines {
        let line = format!(
            r#"{{{conversation}, "input_length": {input}, "output_length": {output},
                "hash_ids": {ids:?}}}"#
        );
        push(&mut trace, &line);
    }
    trace
}

fn push(trace: &mut Trace, line: &str) {
    let request = TraceRequest::from_line(line.as_bytes()).expect("a good line");
    trace.push(request).expect("lines that go together");
}

fn hits(trace: &Trace, block_size: usize, num_blocks: Option<usize>) -> Vec<usize> {
    let report = play(trace, &settings(&[GroupSpec::full(block_size)], num_blocks));
    report.requests.iter().map(|request| request.hit_tokens.expect("admitted")).collect()
}

/// Returns the number of answers that were found, and the hits with them in blocks of 16 and of 4
/// tokens.
fn returned(mut trace: Trace) -> (usize, Vec<usize>, Vec<usize>) {
    let found = trace.return_answers().expect("conversations");
    (found, hits(&trace, 16, None), hits(&trace, 4, None))
}

const S: &str = r#""session_id": "s""#;
const OTHER: &str = r#""session_id": "t""#;

#[test]
fn a_follow_up_hits_the_answer_but_for_its_last_token() {
    let lines: [(_, _, _, &[i64]); 2] = [(S, 20, 30, &[0, 1]), (S, 70, 1, &[0, 7, 8, 9, 10])];
    let plain = trace(16, &lines);
    assert_eq!((plain.has_answers(), plain.num_follow_ups()), (false, Some(1)));
    assert_eq!((hits(&plain, 16, None), hits(&plain, 4, None)), (vec![0, 16], vec![0, 16]));
    assert_eq!(returned(plain), (1, vec![0, 48], vec![0, 48]));
    let width = trace(512, &[(S, 600, 30, &[0, 1]), (S, 700, 1, &[0, 2])]);
    assert_eq!(hits(&width, 4, None), [0, 512]);
    assert_eq!(returned(width), (1, vec![0, 624], vec![0, 628]));
}

#[test]
fn the_end_of_a_prompt_is_shared_with_those_that_have_its_id() {
    let again =
        trace(16, &[(S, 28, 9, &[0, 1]), (S, 60, 9, &[0, 2, 3, 4]), (OTHER, 28, 1, &[0, 1])]);
    assert_eq!(returned(again), (1, vec![0, 32, 16], vec![0, 36, 24]));
    let branches = [
        (S, 20, 8, &[0, 1][..]),
        (S, 40, 8, &[0, 2, 3]),
        (S, 60, 8, &[0, 2, 4, 5]),
        (S, 80, 8, &[0, 2, 4, 6, 7]),
    ];
    assert_eq!(returned(trace(16, &branches)), (3, vec![0, 16, 32, 64], vec![0, 24, 44, 64]));
}

#[test]
fn a_prompt_without_room_for_the_answer_is_no_follow_up() {
    let second = |input: usize, ids: &'static [i64]| (S, input, 1, ids);
    for (second, expected) in [
        (second(49, &[0, 7, 8, 9]), 0),
        (second(50, &[0, 7, 8, 9]), 1),
        (second(50, &[5, 7, 8, 9]), 0),
        ((OTHER, 50, 1, &[0, 7, 8, 9]), 0),
    ] {
        let lines = trace(16, &[(S, 20, 30, &[0, 1]), second]);
        assert_eq!(returned(lines).0, expected, "{second:?}");
    }
    let shorter_than_an_id = trace(16, &[(S, 10, 5, &[0]), (S, 40, 5, &[1, 2, 3])]);
    assert_eq!(returned(shorter_than_an_id), (0, vec![0, 0], vec![0, 0]));
}

#[test]
fn of_equal_prompts_the_last_has_the_answer() {
    let lines = [(S, 20, 3, &[0, 1][..]), (S, 20, 30, &[0, 1]), (S, 70, 1, &[0, 7, 8, 9, 10])];
    assert_eq!(returned(trace(16, &lines)), (1, vec![0, 16, 48], vec![0, 16, 48]));
}

#[test]
fn a_chat_contains_the_answer_of_its_parent() {
    let chat = |id: usize, parent: i64| format!(r#""chat_id": {id}, "parent_chat_id": {parent}"#);
    let (first, second) = (chat(1, -1), chat(2, 1));
    let lines = [(&*first, 20, 30, &[0, 1][..]), (&*second, 70, 1, &[0, 7, 8, 9, 10])];
    assert_eq!(trace(16, &lines).num_follow_ups(), Some(1));
    assert_eq!(returned(trace(16, &lines)), (1, vec![0, 48], vec![0, 48]));
    let unrelated = chat(2, -1);
    let lines = [lines[0], (&*unrelated, 70, 1, &[0, 7, 8, 9, 10])];
    assert_eq!(trace(16, &lines).num_follow_ups(), Some(0));
    assert_eq!(returned(trace(16, &lines)), (0, vec![0, 16], vec![0, 16]));
}

#[test]
fn tokens_show_the_answer_as_it_was() {
    let line = |prompt: std::ops::Range<i64>, output_length: usize| {
        let tokens: Vec<_> = prompt.collect();
        let line =
            json!({"session_id": 1, "prompt_token_ids": tokens, "output_length": output_length});
        line.to_string()
    };
    for (second, expected) in [(0..80, (1, vec![0, 48])), (1..80, (0, vec![0, 0]))] {
        let mut trace = Trace::default();
        push(&mut trace, &line(0..20, 30));
        push(&mut trace, &line(second, 1));
        let (found, hits, _) = returned(trace);
        assert_eq!((found, hits), expected);
    }
}

#[test]
fn answers_return_once_and_by_conversation() {
    let mut nameless = trace(16, &[(r#""other": 1"#, 20, 30, &[0, 1])]);
    assert_eq!(nameless.num_follow_ups(), None);
    assert_eq!(nameless.return_answers().expect_err("no conversation").field, "session_id");
    let mut twice = trace(16, &[(S, 20, 30, &[0, 1]), (S, 70, 1, &[0, 7, 8, 9, 10])]);
    assert_eq!((twice.return_answers(), twice.return_answers()), (Ok(1), Ok(0)));
    assert_eq!((twice.tokens_per_id(), twice.tokens_per_stored_id()), (Ok(16), Ok(1)));
    let late = TraceRequest::of_tokens(vec![1], 1);
    assert!(twice.push(late).is_err());
}

/// Generates turns of three conversations. A request that adds no tokens repeats the last prompt.
fn turns() -> impl Strategy<Value = Vec<Turn>> {
    traffic::turns(3, prop_oneof![1 => Just(0), 4 => 1..60_usize], 0..50)
}

/// Returns a trace with the requests of conversations, all of whose computed tokens are known, and
/// a trace of their lines.
fn conversations(turns: &[Turn], width: usize, has_common: bool) -> (Trace, Trace) {
    let beginning = |start: i64| ((start..start + 70).collect::<Vec<_>>(), Vec::new());
    let mut contexts = [0, 100, 200].map(|start| beginning(if has_common { 0 } else { start }));
    let (mut next, mut ids) = (1000, HashMap::new());
    let (mut known, mut lines) = (Trace::default(), Trace::with_tokens_per_id(width));
    for &Turn { conversation, num_added, num_output } in turns {
        let (prompt, answer) = &mut contexts[conversation];
        let mut fresh = |count: usize| {
            next += count as i64;
            next - count as i64..next
        };
        if num_added > 0 {
            prompt.append(answer);
            prompt.extend(fresh(num_added));
        }
        *answer = fresh(num_output).collect();
        let tokens = [&prompt[..], &answer[..num_output.saturating_sub(1)]].concat();
        let length = prompt.len();
        let request = TraceRequest::of_prompt(Prompt::Tokens { tokens, length }, num_output);
        known.push(request).expect("tokens");
        let num_ids = length.div_ceil(width);
        let hash_ids: Vec<_> = (1..=num_ids)
            .map(|place| {
                let number = ids.len();
                *ids.entry(prompt[..length.min(place * width)].to_vec()).or_insert(number)
            })
            .collect();
        let line = json!({"session_id": conversation, "input_length": length,
            "output_length": num_output, "hash_ids": hash_ids});
        push(&mut lines, &line.to_string());
    }
    (known, lines)
}

proptest! {
    #[test]
    fn conversations_hit_what_they_hit_with_known_answers(
        turns in turns(), width in 1..70_usize, block_size in 1..20_usize, has_common: bool,
    ) {
        let (known, mut lines) = conversations(&turns, width, has_common);
        lines.return_answers().expect("conversations");
        for num_blocks in [None, Some(20_000)] {
            let [derived, known] = [&lines, &known].map(|t| hits(t, block_size, num_blocks));
            // If different conversations diverge within an id, the id's first tokens are not known.
            match has_common {
                true => prop_assert!(derived.iter().zip(&known).all(|(hit, most)| hit <= most)),
                false => prop_assert_eq!(derived, known),
            }
        }
    }
}

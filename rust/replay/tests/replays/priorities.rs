//! Requests of a trace that set a retention priority.

use kvoxide_core::{GroupSpec, Policy, RetentionPriority};
use kvoxide_replay::Settings;
use kvoxide_replay::trace::{Trace, TraceRequest};

use crate::{play, settings};

/// Returns the number of tokens that each request hits. The first and the last request have the
/// same prompt of 64 tokens, and the requests between them have others. One request arrives per
/// second.
fn hits(policy: Policy, priority: Option<RetentionPriority>) -> Vec<Option<usize>> {
    let mut trace = Trace::default();
    for i in 0..40_i64 {
        let first = if i == 0 || i == 39 { 0 } else { i * 1_000 };
        let request = TraceRequest {
            priority: priority.filter(|_| i == 0),
            arrival: Some(i as u64 * 1_000_000),
            ..TraceRequest::of_tokens((first..first + 64).collect(), 1)
        };
        trace.push(request).expect("tokens");
    }
    let settings = Settings { policy, ..settings(&[GroupSpec::full(4)], Some(161)) };
    let report = play(&trace, &settings);
    report.requests.iter().map(|request| request.hit_tokens).collect()
}

#[test]
fn a_priority_keeps_a_prompt_for_its_time_to_live() {
    let last = |policy: Policy, priority: Option<(i64, Option<f64>)>| {
        let priority = priority
            .map(|(priority, ttl)| RetentionPriority::new(priority, ttl).expect("a priority"));
        hits(policy, priority)[39]
    };
    for (priority, expected) in [
        (None, 0),
        (Some((80, None)), 60),
        (Some((80, Some(100.0))), 60),
        (Some((80, Some(5.0))), 0),
        (Some((20, None)), 0),
    ] {
        assert_eq!(last(Policy::adaptive(), priority), Some(expected), "{priority:?}");
        assert_eq!(last(Policy::every_tail(), priority), Some(0), "has no effect: {priority:?}");
    }
}

/// Returns the number of tokens that the last request hits. Two sessions share a prompt of 32
/// tokens, and each adds 32 of its own. Then others fill the pool, and the last request repeats the
/// prompt of the session that did not end.
fn hit_after_an_end(is_first_over: bool) -> Option<usize> {
    let own = |session: i64| session * 1_000..session * 1_000 + 32;
    let turn = |session: i64| (0..32).chain(own(session)).collect::<Vec<_>>();
    let mut trace = Trace::default();
    let others = (3..7).map(|other| (9, own(other).collect(), false));
    let lines = [(2, turn(2), false), (1, turn(1), is_first_over)].into_iter().chain(others);
    for (session, tokens, is_over) in lines.chain([(2, turn(2), false)]) {
        let line = format!(
            r#"{{"session_id": {session}, "prompt_token_ids": {tokens:?}, "output_length": 1,
                "session_end": {is_over}}}"#
        );
        let request = TraceRequest::from_line(line.as_bytes()).expect("a line");
        trace.push(request).expect("tokens");
    }
    let settings =
        Settings { policy: Policy::adaptive(), ..settings(&[GroupSpec::full(4)], Some(49)) };
    play(&trace, &settings).requests.last().expect("a request").hit_tokens
}

#[test]
fn a_session_that_ended_is_evicted_first_without_the_shared_prompt() {
    assert_eq!([false, true].map(hit_after_an_end), [Some(32), Some(60)]);
}

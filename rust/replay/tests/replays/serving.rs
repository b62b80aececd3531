//! Replays of small traces over time, with known times.

use kvoxide_core::{GroupSpec, Policy, Size};
use kvoxide_replay::clock::{Nanoseconds, RequestTimes, StepTime};
use kvoxide_replay::router::Routing;
use kvoxide_replay::serving::{Arrivals, Served, Serving, serve};
use kvoxide_replay::trace::TraceRequest;
use kvoxide_replay::{Control, Report, Settings, Stopped, Trace, run};
use proptest::prelude::*;

use crate::traffic::{self, Request};

const MILLISECOND: Nanoseconds = 1_000_000;

fn settings(groups: &[GroupSpec], num_blocks: Option<usize>) -> Settings {
    Settings { concurrency: 4, ..crate::settings(groups, num_blocks) }
}

/// Returns settings with which a step takes 10 ms, and 1 ms more per prefilled token.
fn serving() -> Serving {
    Serving {
        step_time: StepTime { base: 10e-3, prefill: 1e-3, context: 0.0, running: 0.0 },
        arrivals: Arrivals::Trace { speed: 1.0 },
        instances: 1,
        routing: Routing::RoundRobin,
        as_recorded: false,
    }
}

fn with_routing(instances: usize, routing: Routing) -> Serving {
    Serving { instances, routing, ..serving() }
}

/// Returns a trace of requests: (arrival in milliseconds, first token, prompt length, output
/// length).
fn trace(requests: &[(u64, i64, usize, usize)]) -> Trace {
    let mut trace = Trace::default();
    for &(arrival, first, length, output_length) in requests {
        let tokens = (first..first + length as i64).collect();
        let request = TraceRequest::of_tokens(tokens, output_length);
        let arrival = Some(arrival * 1000);
        trace.push(TraceRequest { arrival, ..request }).expect("tokens");
    }
    trace
}

fn play(trace: &Trace, settings: &Settings, serving: &Serving) -> (Report, Served) {
    serve(trace, settings, serving, &Control::default()).expect("settings that can work")
}

/// Returns the times of arrival, first token and last token, in milliseconds.
fn moments(served: &Served) -> Vec<(u64, u64, u64)> {
    let in_milliseconds = |times: &RequestTimes| {
        let first = times.first_token.expect("a token");
        (times.arrived / MILLISECOND, first / MILLISECOND, times.last_token / MILLISECOND)
    };
    served.times.requests.iter().map(in_milliseconds).collect()
}

#[test]
fn a_request_waits_for_the_step_that_runs_when_it_arrives() {
    let trace = trace(&[(0, 0, 20, 3), (5, 100, 10, 2)]);
    let (report, served) = play(&trace, &settings(&[GroupSpec::full(16)], Some(50)), &serving());
    // The first step computes 20 tokens until 30 ms. The second step computes a decode and 10
    // tokens until 50 ms. The third step computes two decodes until 60 ms, with the last tokens of
    // both. The fourth step fills their slots until 70 ms.
    assert_eq!(moments(&served), [(0, 30, 60), (5, 50, 60)]);
    assert_eq!(report.steps, 4);
    assert_eq!(served.all.makespan, 0.070);
    assert_eq!(served.all.utilisation, 1.0);
    let first = served.all.latencies.time_to_first_token.expect("tokens");
    assert_eq!((first.p50, first.p99), (0.030, 0.045));
}

#[test]
fn a_long_prompt_takes_several_steps_and_a_hit_shortens_it() {
    let trace = trace(&[(0, 0, 100, 1), (1000, 0, 100, 1)]);
    let (report, served) = play(&trace, &settings(&[GroupSpec::full(16)], Some(50)), &serving());
    // The first prompt takes two steps, with 64 and 36 tokens. The second takes one step with 4 of
    // its 100 tokens.
    assert_eq!(moments(&served), [(0, 120, 120), (1000, 1014, 1014)]);
    assert_eq!(report.requests[1].hit_tokens, Some(96));
    // The idle time between them has no steps, but it counts.
    assert_eq!(report.steps, 5);
    let busy = served.all.utilisation * served.all.makespan;
    assert!((busy - (0.120 + 0.010 + 0.014 + 0.010)).abs() < 1e-9, "{busy}");
}

#[test]
fn context_and_requests_take_time() {
    let step_time = StepTime { base: 10e-3, prefill: 0.0, context: 1e-3, running: 100e-3 };
    let trace = trace(&[(0, 0, 20, 2)]);
    let serving = Serving { step_time, ..serving() };
    let (_, served) = play(&trace, &settings(&[GroupSpec::full(16)], Some(50)), &serving);
    assert_eq!(moments(&served), [(0, 110, 240)]);
    assert_eq!(served.all.makespan, 0.240 + 0.131);
}

#[test]
fn time_can_be_compressed() {
    let trace = trace(&[(500, 0, 20, 1), (1500, 100, 20, 1)]);
    let faster = Serving { arrivals: Arrivals::Trace { speed: 4.0 }, ..serving() };
    let (_, served) = play(&trace, &settings(&[GroupSpec::full(16)], Some(50)), &faster);
    assert_eq!(moments(&served), [(0, 30, 30), (250, 280, 280)]);
}

#[test]
fn at_the_limit_a_request_arrives_when_another_has_ended() {
    let trace = trace(&[(0, 0, 20, 1), (0, 100, 20, 1), (0, 200, 20, 1)]);
    let settings = Settings { concurrency: 2, ..settings(&[GroupSpec::full(16)], Some(50)) };
    let full = Serving { arrivals: Arrivals::Full, ..serving() };
    let (_, served) = play(&trace, &settings, &full);
    // Both prompts are computed until 50 ms, and their tokens get slots until 60 ms. Then the third
    // request starts.
    assert_eq!(moments(&served), [(0, 50, 50), (0, 50, 50), (60, 90, 90)]);
}

#[test]
fn a_preempted_request_waits_longer_for_its_next_token() {
    let trace = trace(&[(0, 0, 16, 20), (0, 100, 16, 20)]);
    let (report, served) = play(&trace, &settings(&[GroupSpec::full(16)], Some(4)), &serving());
    assert!(report.requests[1].preemptions > 0);
    let between = served.all.latencies.time_between_tokens.expect("tokens");
    assert!(between.p50 < 0.011 && between.p99 > 0.1, "{between:?}");
    let moments = moments(&served);
    assert!(moments[0].2 < moments[1].2);
}

#[test]
fn a_trace_without_times_cannot_be_replayed_by_them() {
    let mut trace = Trace::default();
    trace.push(TraceRequest::of_tokens(vec![1], 1)).expect("tokens");
    let settings = settings(&[GroupSpec::full(16)], Some(50));
    let refused = serve(&trace, &settings, &serving(), &Control::default()).map(|_| ());
    let Err(Stopped::Refused(error)) = refused else { panic!("{refused:?}") };
    assert!(error.to_string().contains("request 1 of the trace has no time of arrival"), "{error}");
}

#[test]
fn a_bound_is_for_one_instance() {
    let settings = Settings { has_bound: true, ..settings(&[GroupSpec::full(16)], Some(50)) };
    let trace = trace(&[(0, 0, 40, 1), (0, 0, 40, 1)]);
    let two = with_routing(2, Routing::RoundRobin);
    assert!(serve(&trace, &settings, &two, &Control::default()).is_err());
    let (report, _) = play(&trace, &settings, &serving());
    let untimed = run(&trace, &settings, &Control::default()).expect("a run");
    let bound = |report: &Report| report.bound.as_ref().map(|bound| bound.hit_tokens.clone());
    assert_eq!(bound(&report), bound(&untimed));
}

#[test]
fn each_instance_has_its_own_pool() {
    let twice = [(0, 0, 40, 1), (500, 0, 40, 1), (1000, 0, 40, 1)];
    let settings = settings(&[GroupSpec::full(16)], Some(50));
    let (report, served) = play(&trace(&twice), &settings, &with_routing(2, Routing::RoundRobin));
    let hits: Vec<_> = report.requests.iter().map(|r| r.hit_tokens).collect();
    assert_eq!(hits, [Some(0), Some(0), Some(32)]);
    assert_eq!(served.instance_of, [0, 1, 0]);
    let each: Vec<_> = served.instances.iter().map(|i| (i.requests, i.hit_tokens)).collect();
    assert_eq!(each, [(2, 32), (1, 0)]);
    assert_eq!((served.all.requests, served.all.hit_tokens), (3, 32));
}

#[test]
fn a_prefix_router_follows_the_prefix_unless_the_load_is_too_high() {
    let prefix = |overlap| with_routing(2, Routing::Prefix { overlap });
    let settings = settings(&[GroupSpec::full(16)], Some(50));
    // The last two requests share a prefix. The third arrives while the first still runs.
    let idle = trace(&[(0, 0, 40, 1), (500, 100, 40, 1), (1000, 0, 40, 1), (1500, 100, 40, 1)]);
    assert_eq!(play(&idle, &settings, &prefix(1.0)).1.instance_of, [0, 1, 0, 1]);
    let busy = trace(&[(0, 0, 40, 500), (500, 100, 40, 1), (1000, 0, 40, 1)]);
    assert_eq!(play(&busy, &settings, &prefix(1.0)).1.instance_of, [0, 1, 1]);
    assert_eq!(play(&busy, &settings, &prefix(10.0)).1.instance_of, [0, 1, 0]);
}

#[test]
fn the_least_loaded_instance_is_not_the_one_that_runs() {
    let least = with_routing(2, Routing::LeastLoaded { pressure: 6.0 });
    let settings = settings(&[GroupSpec::full(16)], Some(500));
    let trace = trace(&[(0, 0, 40, 500), (100, 100, 40, 1), (500, 200, 40, 1)]);
    assert_eq!(play(&trace, &settings, &least).1.instance_of, [0, 1, 1]);
}

/// Returns the times of first tokens, computed by a naive scheduler. It has blocks for all requests
/// and no hits.
fn plain(requests: &[(u64, usize, usize)], concurrency: usize, budget: usize) -> Vec<u64> {
    let mut order: Vec<usize> = (0..requests.len()).collect();
    order.sort_by_key(|&request| requests[request].0);
    let start = requests[order[0]].0;
    let mut first_tokens = vec![0; requests.len()];
    let (mut now, mut running) = (0, Vec::<(usize, usize, usize)>::new());
    while !order.is_empty() || !running.is_empty() {
        if running.is_empty() {
            now = now.max(requests[order[0]].0 - start);
        }
        let (mut left, mut prefilled) = (budget, 0);
        let mut scheduled = Vec::new();
        for &(request, computed, total) in &running {
            scheduled.push((total - computed).min(left));
            left -= scheduled[scheduled.len() - 1];
            prefilled +=
                if computed < requests[request].1 { scheduled[scheduled.len() - 1] } else { 0 };
        }
        while left > 0
            && running.len() < concurrency
            && order.first().is_some_and(|&next| requests[next].0 - start <= now)
        {
            let request = order.remove(0);
            scheduled.push(requests[request].1.min(left));
            left -= scheduled[scheduled.len() - 1];
            prefilled += scheduled[scheduled.len() - 1];
            running.push((request, 0, requests[request].1));
        }
        now += 10 + prefilled as u64;
        for ((request, computed, total), new) in running.iter_mut().zip(scheduled) {
            *computed += new;
            let (_, prompt, output) = requests[*request];
            if *computed == *total && *total - prompt < output {
                *total += 1;
                if *total == prompt + 1 {
                    first_tokens[*request] = now;
                }
            } else if *computed == *total {
                *total = 0;
            }
        }
        running.retain(|&(_, _, total)| total > 0);
    }
    first_tokens
}

fn requests() -> impl Strategy<Value = Vec<Request>> {
    traffic::requests(1..12, 1..200, 0..1, 1..60)
}

fn groups() -> impl Strategy<Value = (Vec<GroupSpec>, Policy)> {
    let full = GroupSpec::full(16);
    let chunked = GroupSpec::new("chunked_local_attention", 16).with(Size::AttentionChunkSize, 40);
    let windows =
        vec![full.clone(), GroupSpec::sliding_window(16, 40), GroupSpec::sliding_window(8, 9)];
    let mixed = vec![GroupSpec::full(32), GroupSpec::sliding_window(24, 100)];
    let adaptive = Policy { retention: kvoxide_core::Retention::Adaptive, ..Policy::every_tail() };
    prop_oneof![
        Just((vec![full.clone()], Policy::every_tail())),
        Just((vec![full.clone(), chunked], Policy::every_tail())),
        Just((windows.clone(), Policy::every_tail())),
        Just((windows, adaptive.clone())),
        Just((mixed, Policy::every_tail())),
        Just((vec![full.clone(), GroupSpec::new("mamba", 16)], adaptive)),
    ]
}

fn counts(report: &Report) -> impl PartialEq + std::fmt::Debug + use<> {
    let last = &report.last;
    let rest = (report.steps, report.peak_used_blocks, last.evictions, last.cached, last.used);
    (report.requests.clone(), rest)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..Default::default() })]

    #[test]
    fn with_a_clock_everything_is_decided_as_without(
        requests in requests(),
        (groups, policy) in groups(),
        num_blocks in prop_oneof![Just(None), (12..80_usize).prop_map(Some)],
        concurrency in 1..6_usize,
    ) {
        let settings = Settings { policy, concurrency, ..settings(&groups, num_blocks) };
        let at_once: Vec<_> = requests.into_iter().map(|it| Request { arrival: 7, ..it }).collect();
        let trace = traffic::timed_trace(&at_once);
        let untimed = run(&trace, &settings, &Control::default()).expect("a run");
        let full = Serving { arrivals: Arrivals::Full, ..serving() };
        for serving in [full, serving()] {
            let (report, served) = play(&trace, &settings, &serving);
            prop_assert_eq!(counts(&report), counts(&untimed));
            prop_assert_eq!(served.all.requests, untimed.counted().count());
        }
    }

    #[test]
    fn first_tokens_are_those_of_a_plain_loop(
        requests in requests(),
        concurrency in 1..6_usize,
    ) {
        let own = |(i, request): (usize, &Request)| Request { family: i as i64, ..request.clone() };
        let requests: Vec<_> = requests.iter().enumerate().map(own).collect();
        let trace = traffic::timed_trace(&requests);
        let settings = Settings { concurrency, ..settings(&[GroupSpec::full(16)], None) };
        let (_, served) = play(&trace, &settings, &serving());
        let first: Vec<_> = moments(&served).iter().map(|moments| moments.1).collect();
        let lengths = |it: &Request| (it.arrival, it.num_shared, it.num_output);
        let requests: Vec<_> = requests.iter().map(lengths).collect();
        prop_assert_eq!(first, plain(&requests, concurrency, 64));
    }

    #[test]
    fn instances_share_the_work_and_lose_none(
        requests in requests(),
        instances in 1..5_usize,
        routing in prop_oneof![
            Just(Routing::RoundRobin),
            Just(Routing::LeastLoaded { pressure: 6.0 }),
            Just(Routing::Session),
            Just(Routing::Prefix { overlap: 1.0 }),
            Just(Routing::Scored { prefix: 3.0, queue: 2.0, cache: 2.0 }),
        ],
        arrivals in prop_oneof![Just(Arrivals::Full), Just(Arrivals::Trace { speed: 1.0 })],
    ) {
        let trace = traffic::timed_trace(&requests);
        let settings = settings(&[GroupSpec::full(16)], Some(40));
        let serving = Serving { arrivals, ..with_routing(instances, routing) };
        let (report, served) = play(&trace, &settings, &serving);
        prop_assert_eq!(report.num_rejected(), 0);
        let generated = report.requests.iter().map(|request| request.output_tokens);
        prop_assert!(generated.eq(requests.iter().map(|request| request.num_output)));
        prop_assert_eq!(served.all.requests, requests.len());
        prop_assert_eq!(served.instances.iter().map(|i| i.requests).sum::<usize>(), requests.len());
        prop_assert_eq!(report.last.used, 0);
        let moments_are_in_order = |times: &RequestTimes| {
            times.first_token.is_some_and(|first| times.arrived < first && first <= times.last_token)
        };
        prop_assert!(served.times.requests.iter().all(moments_are_in_order));
        let (again, served_again) = play(&trace, &settings, &serving);
        prop_assert_eq!(counts(&report), counts(&again));
        prop_assert_eq!(moments(&served), moments(&served_again));
        if instances == 1 {
            let other = Serving { routing: Routing::RoundRobin, ..serving };
            prop_assert_eq!(moments(&served), moments(&play(&trace, &settings, &other).1));
        }
    }
}

//! Compares the outcomes of prompts with a naive classification, for all kinds of groups. With a
//! memory of any size, the outcomes of a prompt sum to the prompt.

mod oracle;
mod starts;
#[expect(dead_code, reason = "other tests use the calls of this module")]
#[path = "../traffic/mod.rs"]
mod traffic;
mod world;

use kvoxide_core::{GroupSpec, ManagerConfig, Policy};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use traffic::config;
use world::{Call, Memory, World};

fn call() -> impl Strategy<Value = Call> {
    let admit = (
        0..4_u8,
        prop_oneof![Just(0), 0..380_usize, Just(380)],
        prop_oneof![4 => Just(None), 1 => (0..380_usize).prop_map(Some)],
        0..150_usize,
        0..300_usize,
        prop_oneof![6 => Just(0), 1 => 0..200_usize],
        prop_oneof![6 => Just(0), 1 => Just(1_usize)],
        prop::bool::weighted(0.95),
    );
    prop_oneof![
        8 => admit.prop_map(
            |(family, shared, changed, len, chunk, external, cut, reads_cache)| Call::Admit {
                family,
                shared,
                changed,
                len,
                chunk,
                external,
                cut,
                reads_cache,
            },
        ),
        14 => (0..8_usize, 0..200_usize).prop_map(|(which, chunk)| Call::Step { which, chunk }),
        6 => (0..8_usize).prop_map(|which| Call::End { which }),
        1 => (0..8_usize).prop_map(|which| Call::Preempt { which }),
        1 => (0..200_usize, 0..9_usize).prop_map(|(first, num)| Call::Evict { first, num }),
        1 => prop::bool::weighted(0.2).prop_map(|is_reset| match is_reset {
            true => Call::Reset,
            false => Call::End { which: 0 },
        }),
    ]
}

/// Generates configurations. Some have blocks that are large enough to look inside.
fn any_config() -> impl Strategy<Value = ManagerConfig> {
    let large = prop::sample::select(vec![
        vec![GroupSpec::full(96)],
        vec![GroupSpec::full(96), GroupSpec::new("mamba", 96)],
        vec![GroupSpec::full(64), GroupSpec::sliding_window(16, 40)],
        vec![GroupSpec::full(128), GroupSpec::sliding_window(32, 100)],
    ]);
    let large = (config(), large).prop_map(|(config, groups)| {
        let policy = Policy { retention_interval: None, ..config.policy };
        ManagerConfig { groups, policy, ..config }
    });
    prop_oneof![3 => config(), 1 => large]
}

fn is_adaptive() -> impl Strategy<Value = bool> {
    prop::bool::weighted(0.3)
}

fn with_policy(config: ManagerConfig, is_adaptive: bool) -> ManagerConfig {
    let policy = if is_adaptive { Policy::adaptive() } else { config.policy.clone() };
    ManagerConfig { policy, ..config }
}

fn cases(default: u32) -> ProptestConfig {
    let given = std::env::var("PROPTEST_CASES").ok();
    let cases = given.map_or(default, |text| text.parse().expect("a number of cases"));
    ProptestConfig { cases, failure_persistence: None, ..Default::default() }
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn outcomes_equal_the_naive_classification_if_nothing_is_forgotten(
        config in any_config(),
        is_adaptive in is_adaptive(),
        has_salts in any::<bool>(),
        calls in prop::collection::vec(call(), 1..80),
    ) {
        let config = with_policy(config, is_adaptive);
        let mut world = World::new(&config, Memory::Exact, has_salts);
        calls.into_iter().for_each(|call| world.make(call));
    }
}

/// Checks sums and totals for as many random requests as `OUTCOME_REQUESTS` says, with a memory of
/// eight keys or of half the pool.
#[test]
fn outcomes_sum_to_the_prompt_with_a_tiny_memory() {
    let given = std::env::var("OUTCOME_REQUESTS").ok();
    let goal = given.map_or(20_000, |text| text.parse().expect("a number of requests"));
    let mut runner = TestRunner::new_with_rng(
        Config::default(),
        TestRng::deterministic_rng(RngAlgorithm::ChaCha),
    );
    let worlds = (any_config(), is_adaptive(), any::<bool>(), any::<bool>());
    let calls = prop::collection::vec(call(), 4_000..4_001);
    let mut num_admitted = 0;
    while num_admitted < goal {
        let (config, is_adaptive, is_tiny, has_salts) =
            worlds.new_tree(&mut runner).expect("a world").current();
        let calls = calls.new_tree(&mut runner).expect("calls").current();
        let memory = if is_tiny { Memory::Tiny } else { Memory::Usual };
        let mut world = World::new(&with_policy(config, is_adaptive), memory, has_salts);
        calls.into_iter().for_each(|call| world.make(call));
        num_admitted += world.num_admitted;
    }
    println!("{num_admitted} admitted requests");
}

//! Checks that every invariant holds after every call of random traffic. The variable
//! `PROPTEST_CASES` sets the number of cases.

mod traffic;

use kvoxide_core::{Manager, ManagerConfig, OlderRules, Policy, ProtectedShare};
use kvoxide_fuzzed::manager::{Call, Traffic};
use proptest::prelude::*;

use traffic::{call, config};

/// Generates calls of a scheduler whose requests set priorities, and calls that let time pass.
fn call_with_priorities() -> impl Strategy<Value = Call> {
    let priority = (0..6_u8, 0..=100_u8, 0..6_u8);
    prop_oneof![
        6 => call(),
        2 => priority.prop_map(|(which, priority, tenths)| Call::SetPriority { which, priority, tenths }),
        1 => (0..400_u16).prop_map(|milliseconds| Call::Wait { milliseconds }),
    ]
}

fn make_all(config: ManagerConfig, calls: &[Call]) {
    let mut traffic = Traffic::new(Manager::new(config).expect("a configuration that can work"));
    calls.iter().for_each(|call| traffic.make(call));
    traffic.end();
}

fn cases() -> ProptestConfig {
    let given = std::env::var("PROPTEST_CASES").ok();
    let cases = given.map_or(1000, |text| text.parse().expect("a number of cases"));
    ProptestConfig { cases, failure_persistence: None, ..Default::default() }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn every_invariant_holds_after_every_call(
        config in config(),
        calls in prop::collection::vec(call(), 1..120),
    ) {
        make_all(config, &calls);
    }

    #[test]
    fn every_invariant_holds_with_the_rules_of_older_releases(
        config in config(),
        calls in prop::collection::vec(call(), 1..120),
    ) {
        let names = OlderRules::NAMES.iter().copied();
        let older_rules = OlderRules::named(names).expect("the names are those of the rules");
        make_all(ManagerConfig { older_rules, recaches_known_tail: true, ..config }, &calls);
    }

    #[test]
    fn every_invariant_holds_under_adaptive_retention(
        config in config(),
        calls in prop::collection::vec(call(), 1..120),
    ) {
        make_all(ManagerConfig { policy: Policy::adaptive(), ..config }, &calls);
    }

    #[test]
    fn every_invariant_holds_with_priorities_of_requests(
        config in config(),
        share in prop::sample::select(vec![0.0, 0.1, 0.125, 1.0]),
        calls in prop::collection::vec(call_with_priorities(), 1..120),
    ) {
        let protected_share = ProtectedShare::new(share).expect("a share");
        let policy = Policy { protected_share, ..Policy::adaptive() };
        make_all(ManagerConfig { policy, ..config }, &calls);
    }
}

//! Random traffic: after every call, every invariant holds.

mod traffic;

use kvoxide_core::{Manager, ManagerConfig, Policy};
use kvoxide_fuzzed::manager::Traffic;
use proptest::prelude::*;

use traffic::{call, config};

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn every_invariant_holds_after_every_call(
        config in config(),
        calls in prop::collection::vec(call(), 1..120),
    ) {
        let mut traffic = Traffic::new(Manager::new(config).expect("a configuration that can work"));
        calls.iter().for_each(|call| traffic.make(call));
        traffic.end();
    }

    #[test]
    fn every_invariant_holds_in_adaptive_order(
        config in config(),
        calls in prop::collection::vec(call(), 1..120),
    ) {
        let config = ManagerConfig { policy: Policy::adaptive(), ..config };
        let mut traffic = Traffic::new(Manager::new(config).expect("a configuration that can work"));
        calls.iter().for_each(|call| traffic.make(call));
        traffic.end();
    }
}

//! Random traffic: after every call, every invariant holds.

mod traffic;

use kvoxide_core::{Manager, ManagerConfig, Policy, ProtectedShare};
use kvoxide_fuzzed::manager::{Call, Traffic};
use proptest::prelude::*;

use traffic::{call, config};

/// A call of a scheduler whose requests ask for priorities, and time that goes by.
fn call_with_claims() -> impl Strategy<Value = Call> {
    let claim = (0..6_u8, 0..=100_u8, 0..6_u8);
    prop_oneof![
        6 => call(),
        2 => claim.prop_map(|(which, priority, tenths)| Call::Claim { which, priority, tenths }),
        1 => (0..400_u16).prop_map(|milliseconds| Call::Wait { milliseconds }),
    ]
}

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

    #[test]
    fn every_invariant_holds_where_requests_claim_priorities(
        config in config(),
        share in prop::sample::select(vec![0.0, 0.1, 0.25, 1.0]),
        calls in prop::collection::vec(call_with_claims(), 1..120),
    ) {
        let protected_share = ProtectedShare::new(share).expect("a share");
        let policy = Policy { protected_share, ..Policy::adaptive() };
        let config = ManagerConfig { policy, ..config };
        let mut traffic = Traffic::new(Manager::new(config).expect("a configuration that can work"));
        calls.iter().for_each(|call| traffic.make(call));
        traffic.end();
    }
}

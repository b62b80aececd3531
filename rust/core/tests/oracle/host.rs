//! The host tier, compared with its model.

mod model;
mod world;

use kvoxide_core::host::{HostPolicy, HostTierConfig, VllmVersion};
use proptest::prelude::*;

use world::{NUM_REQUESTS, Step, World};

fn step() -> impl Strategy<Value = Step> {
    let (first, len) = (0..12usize, 1..8usize);
    let groups = prop::sample::subsequence(vec![0u16, 1, 2], 1..=3).prop_shuffle();
    prop_oneof![
        8 => (0..NUM_REQUESTS, first.clone(), len.clone(), groups).prop_map(
            |(request, first, len, groups)| Step::Store { request, first, len, groups }
        ),
        6 => (any::<usize>(), prop::bool::weighted(0.8))
            .prop_map(|(at, is_success)| Step::CompleteStore { at, is_success }),
        4 => (0..NUM_REQUESTS, first.clone(), len.clone(), 0..3u16).prop_map(
            |(request, first, len, group)| Step::Load { request, first, len, group }
        ),
        4 => any::<usize>().prop_map(|at| Step::CompleteLoad { at }),
        2 => (0..NUM_REQUESTS, first.clone(), len.clone(), 0..3u16).prop_map(
            |(request, first, len, group)| Step::Read { request, first, len, group }
        ),
        2 => any::<usize>().prop_map(|at| Step::CompleteRead { at }),
        1 => (0..4u64, first, len).prop_map(|(prompt, first, len)| Step::Touch { prompt, first, len }),
        8 => (0..NUM_REQUESTS, 0..3usize, 1..12usize, 0..3u16, (1..4usize, 1..5usize)).prop_map(
            |(request, first, len, group, windows)| {
                Step::LookUp { request, first, len, group, windows }
            }
        ),
        3 => (0..NUM_REQUESTS).prop_map(|request| Step::Finish { request }),
        1 => (0..NUM_REQUESTS, 0..12usize, 1..8usize, 0..3u16).prop_map(
            |(request, first, len, group)| Step::Refused { request, first, len, group }
        ),
        1 => Just(Step::Reset),
    ]
}

proptest! {
    #[test]
    fn the_host_tier_agrees_with_its_model(
        steps in prop::collection::vec(step(), 1..120),
        num_chunks in prop::sample::select(vec![0usize, 1, 2, 7, 20, 60]),
        (is_arc, is_old) in any::<(bool, bool)>(),
        store_threshold in 0..4u32,
        max_tracker_size in 0..20usize,
        unknown in prop::sample::select(vec![0usize, 0, 1, 4]),
    ) {
        let policy = if is_arc { HostPolicy::Arc } else { HostPolicy::Lru };
        let release = if is_old { VllmVersion::V0_32 } else { VllmVersion::V0_33 };
        let config = HostTierConfig {
            release, store_threshold, max_tracker_size, ..HostTierConfig::new(num_chunks, policy)
        };
        let mut world = World::new(config, unknown);
        steps.iter().for_each(|step| world.play(step));
    }
}

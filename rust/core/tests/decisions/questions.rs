//! Calls that read a manager without changing it.

use kvoxide_core::digest;
use kvoxide_core::{Error, GroupSpec, ManagerConfig, Policy, SlotDemand};

use crate::small::{Request, admit, config, decode, look_up, made, manager, serve, step};

#[test]
fn the_blocks_that_a_request_would_take() {
    let mut manager = manager(&[GroupSpec::full(4), GroupSpec::sliding_window(4, 8)]);
    let demand = |num_tokens| SlotDemand { num_tokens, ..SlotDemand::default() };
    assert_eq!(manager.get_num_blocks_to_allocate(1, &demand(17)), Ok(10));
    serve(&mut manager, 1, 0..16);
    let hit = look_up(&mut manager, 0..17).blocks;
    let with_hit =
        SlotDemand { new_computed_blocks: &hit, total_computed_tokens: 16, ..demand(20) };
    // Each group needs a new block. Four blocks of the hit and two of the window are free.
    assert_eq!(manager.get_num_blocks_to_allocate(2, &with_hit), Ok(8));
    // If a hit ends inside a block, the block is copied to one more block.
    let inside = SlotDemand { num_local_computed_tokens: 14, ..with_hit };
    assert_eq!(manager.get_num_blocks_to_allocate(2, &inside), Ok(10));
    let mut request = Request::new(&manager, 2, 0..17);
    admit(&mut manager, &mut request);
    assert_eq!(manager.get_num_blocks_to_allocate(2, &demand(24)), Ok(2));
    assert_eq!(manager.get_num_blocks_to_allocate(3, &with_hit), Ok(2));
}

#[test]
fn a_demand_for_uncountable_tokens_is_refused() {
    let mut manager = manager(&[GroupSpec::full(1)]);
    serve(&mut manager, 1, 0..16);
    let hit = look_up(&mut manager, 0..17).blocks;
    let demand =
        |num_tokens| SlotDemand { num_tokens, new_computed_blocks: &hit, ..Default::default() };
    let most = usize::MAX / 4;
    assert_eq!(manager.get_num_blocks_to_allocate(2, &demand(most)), Ok(most as isize));
    let main_model = SlotDemand { num_tokens_main_model: most + 1, ..demand(17) };
    let encoder = SlotDemand { num_encoder_tokens: most + 1, ..demand(17) };
    for beyond in [demand(most + 1), demand(usize::MAX), main_model, encoder] {
        let refused = manager.get_num_blocks_to_allocate(2, &beyond);
        assert!(matches!(refused, Err(Error::Request(_))), "{refused:?}");
    }
}

#[test]
fn the_admission_cap_counts_blocks_held_at_once() {
    for (group, capped) in
        [(GroupSpec::sliding_window(4, 8), 5), (GroupSpec::chunked_local(4, 8), 4)]
    {
        let config = ManagerConfig { max_in_flight_tokens: Some(8), ..config(41, &[group]) };
        let mut manager = made(config);
        for (apply_admission_cap, expected) in [(false, 25), (true, capped)] {
            let demand =
                SlotDemand { num_tokens: 100, apply_admission_cap, ..SlotDemand::default() };
            assert_eq!(manager.get_num_blocks_to_allocate(1, &demand), Ok(expected));
        }
    }
}

#[test]
fn cached_tokens_are_those_of_the_group_with_the_fewest() {
    let mut manager = manager(&[GroupSpec::full(4), GroupSpec::sliding_window(8, 8)]);
    let mut request = Request::new(&manager, 1, 0..30);
    step(&mut manager, &mut request, 22);
    assert_eq!(manager.estimate_cached_tokens(1), Ok(16));
    step(&mut manager, &mut request, 2);
    assert_eq!(manager.estimate_cached_tokens(1), Ok(24));
}

#[test]
fn the_first_hash_that_an_allocation_reads() {
    let mut manager = manager(&[GroupSpec::full(4), GroupSpec::sliding_window(8, 8)]);
    assert_eq!(manager.first_hash_needed(1, 80, 0, 20, &[]), 0);
    let request = serve(&mut manager, 1, 0..64);
    let hit = look_up(&mut manager, 0..65).blocks;
    assert_eq!(request.hashes.len(), 16);
    // Hashes are read from three before the last one that is cached in every group.
    assert_eq!(manager.first_hash_needed(2, 80, 0, 20, &hit), 13);
    assert_eq!(manager.first_hash_needed(2, 40, 0, 20, &hit), 7);
    assert_eq!(manager.first_hash_needed(2, 80, 0, 10, &hit), 7);
    let mut request = Request::new(&manager, 3, 0..40);
    admit(&mut manager, &mut request);
    assert_eq!(manager.first_hash_needed(3, 80, 0, 20, &[]), 7);
}

#[test]
fn how_many_hashes_an_allocation_reads() {
    let windows = manager(&[GroupSpec::full(4), GroupSpec::sliding_window(8, 8)]);
    assert_eq!([0, 1, 8, 9].map(|n| windows.num_hashes_needed(n)), [0, 1, 2, 3]);
    let states = manager(&[GroupSpec::full(4), GroupSpec::new("mamba", 8)]);
    assert_eq!(states.num_hashes_needed(8), usize::MAX);
}

#[test]
fn requests_are_known_until_they_are_freed() {
    let mut manager = manager(&[GroupSpec::full(4)]);
    assert!(!manager.knows(1));
    let mut request = Request::new(&manager, 1, 0..10);
    admit(&mut manager, &mut request);
    assert_eq!((manager.knows(1), manager.num_requests()), (true, 1));
    manager.free(1).expect("a request that runs");
    assert_eq!((manager.knows(1), manager.num_requests()), (false, 0));
    assert_eq!(manager.no_blocks().len(), 1);
}

#[test]
fn the_digest_distinguishes_states() {
    let policy = Policy { pin_min_drop_size: Some(1), ..Policy::every_tail() };
    let config = ManagerConfig {
        policy,
        needs_zeroing: true,
        enable_events: true,
        ..config(41, &[GroupSpec::full(4)])
    };
    let mut manager = made(config);
    let mut request = Request::new(&manager, 1, 0..10);
    let mut digests = vec![digest(&manager)];
    admit(&mut manager, &mut request);
    digests.push(digest(&manager));
    manager.take_events();
    digests.push(digest(&manager));
    manager.take_new_block_ids();
    digests.push(digest(&manager));
    decode(&mut manager, &mut request, [1, 2]);
    digests.push(digest(&manager));
    manager.free(1).expect("a request that runs");
    digests.push(digest(&manager));
    manager.evict_blocks(&[1]).expect("a block of the pool");
    digests.push(digest(&manager));
    assert_eq!(digest(&manager), digests[6]);
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), 7);
}

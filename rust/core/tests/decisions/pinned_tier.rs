//! The pinned tier: blocks that later hits need are evicted last.

use kvoxide_core::{GroupSpec, Manager, ManagerConfig, Policy};

use crate::small::{
    Request, admit, config, decode, free_ids, held, look_up, made, pinned_ids, serve, step,
};

fn pinning(num_blocks: usize, group: GroupSpec, min_drop_size: usize) -> Manager {
    let policy = Policy { pin_min_drop_size: Some(min_drop_size), ..Policy::every_tail() };
    made(ManagerConfig { policy, ..config(num_blocks, &[group]) })
}

#[test]
fn a_large_drop_flags_the_window_that_is_left() {
    for (min_drop_size, flagged) in [(6, &[7, 8][..]), (7, &[])] {
        let mut manager = pinning(41, GroupSpec::sliding_window(4, 8), min_drop_size);
        let mut request = Request::new(&manager, 1, 0..40);
        step(&mut manager, &mut request, 32);
        step(&mut manager, &mut request, 8); // blocks 1 to 6 leave the window
        let states = manager.pool().blocks();
        let mut blocks = held(&manager, 1).concat();
        blocks.retain(|&block| states.is_pinned(block));
        assert_eq!(blocks, flagged);
    }
}

#[test]
fn a_flagged_block_that_leaves_the_window_is_pinned() {
    let mut manager = pinning(41, GroupSpec::sliding_window(4, 8), 3);
    let mut request = Request::new(&manager, 1, 0..64);
    step(&mut manager, &mut request, 32);
    step(&mut manager, &mut request, 32);
    decode(&mut manager, &mut request, [100]);
    assert_eq!(pinned_ids(&manager), [8, 7]);
    assert!(free_ids(&manager).ends_with(&[14, 13, 12, 11, 10, 9]));
    manager.free(1).expect("a request that runs");
    assert_eq!(pinned_ids(&manager), [8, 7, 16, 15]);
    assert_eq!(free_ids(&manager)[0], 17); // not cached, so not pinned
}

/// With an interval, cached tails leave the window together with the blocks between them.
#[test]
fn the_tails_of_an_interval_are_pinned_however_small_the_drop() {
    let policy = Policy {
        pin_min_drop_size: Some(100),
        retention_interval: Some(16),
        ..Policy::every_tail()
    };
    for (policy, pinned) in [
        (policy.clone(), &[8, 7, 4, 3][..]),
        (Policy { retention_interval: None, ..policy.clone() }, &[]),
        (Policy { pin_min_drop_size: None, ..policy }, &[]),
    ] {
        let group = GroupSpec::sliding_window(4, 8);
        let mut manager = made(ManagerConfig { policy, ..config(41, &[group]) });
        let mut request = Request::new(&manager, 1, 0..60);
        step(&mut manager, &mut request, 42);
        step(&mut manager, &mut request, 4); // eight blocks leave the window
        step(&mut manager, &mut request, 4); // one more
        step(&mut manager, &mut request, 4);
        assert_eq!(pinned_ids(&manager), pinned);
    }
}

#[test]
fn only_as_many_pinned_blocks_as_needed_are_unpinned_oldest_first() {
    let mut manager = pinning(12, GroupSpec::full(4), 16);
    serve(&mut manager, 1, 0..8);
    serve(&mut manager, 2, 50..62);
    assert_eq!(pinned_ids(&manager), [2, 1, 5, 4, 3]);
    assert_eq!(free_ids(&manager), [6, 7, 8, 9, 10, 11]);
    let mut request = Request::new(&manager, 3, 100..130);
    admit(&mut manager, &mut request);
    // Eight blocks are needed: the whole free queue and the two oldest pinned blocks.
    assert_eq!(held(&manager, 3), [[6, 7, 8, 9, 10, 11, 2, 1]]);
    assert_eq!(pinned_ids(&manager), [5, 4, 3]);
    assert_eq!(look_up(&mut manager, 0..9).length, 0);
    assert_eq!(look_up(&mut manager, 50..63).length, 12);
}

#[test]
fn pinned_blocks_can_be_hit_and_stay_flagged() {
    let mut manager = pinning(11, GroupSpec::full(4), 16);
    serve(&mut manager, 1, 0..8);
    serve(&mut manager, 2, 50..58);
    assert_eq!(pinned_ids(&manager), [2, 1, 4, 3]);
    let mut request = Request::new(&manager, 3, 0..9);
    assert_eq!(admit(&mut manager, &mut request), 8);
    assert_eq!(pinned_ids(&manager), [4, 3]);
    manager.free(3).expect("a request that runs");
    assert_eq!(pinned_ids(&manager), [4, 3, 2, 1]); // used last, so at the end
}

#[test]
fn eviction_by_id_unpins() {
    let mut manager = pinning(11, GroupSpec::full(4), 16);
    serve(&mut manager, 1, 0..8);
    manager.evict_blocks(&[1]).expect("a block of the pool");
    assert_eq!(pinned_ids(&manager), [2]);
    assert_eq!(free_ids(&manager)[0], 1);
}

//! The order of eviction, and which of several duplicates serves a key.

use kvoxide_core::{GroupSpec, ManagerConfig, Policy, RecycleOrder};

use crate::small::{Request, admit, config, free_ids, held, ids, look_up, made, serve};

fn small_pool(recycle_order: RecycleOrder) -> ManagerConfig {
    let policy = Policy { recycle_order, ..Policy::every_tail() };
    ManagerConfig { policy, ..config(8, &[GroupSpec::full(4)]) }
}

#[test]
fn the_end_of_a_request_is_evicted_before_its_beginning() {
    for (recycle_order, expected) in [
        (RecycleOrder::UncachedFirst, [3, 4, 5, 6, 7, 2, 1]),
        (RecycleOrder::Fifo, [4, 5, 6, 7, 3, 2, 1]),
    ] {
        let mut manager = made(small_pool(recycle_order));
        serve(&mut manager, 1, 0..10);
        assert_eq!(free_ids(&manager), expected);
    }
}

#[test]
fn a_hit_leaves_the_free_queue_and_comes_back_to_its_end() {
    let mut manager = made(small_pool(RecycleOrder::default()));
    serve(&mut manager, 1, 0..9);
    serve(&mut manager, 2, 50..58);
    assert_eq!(free_ids(&manager), [5, 6, 7, 2, 1, 4, 3]);
    let mut again = Request::new(&manager, 3, 0..9);
    assert_eq!(admit(&mut manager, &mut again), 8);
    assert_eq!(free_ids(&manager), [6, 7, 4, 3]);
    manager.free(3).expect("a request that runs");
    assert_eq!(free_ids(&manager), [5, 6, 7, 4, 3, 2, 1]);
}

#[test]
fn a_shared_block_is_in_use_until_its_last_request_ends() {
    let mut manager = made(small_pool(RecycleOrder::default()));
    let mut requests = [1, 2].map(|id| Request::new(&manager, id, 0..9));
    for request in &mut requests {
        admit(&mut manager, request);
    }
    assert_eq!(held(&manager, 2), [[1, 2, 4]]);
    assert_eq!(manager.pool().ref_count(1), 2);
    manager.free(1).expect("a request that runs");
    assert_eq!((manager.pool().ref_count(1), free_ids(&manager)), (1, vec![3, 5, 6, 7]));
    manager.free(2).expect("a request that runs");
    assert_eq!(free_ids(&manager), [4, 3, 5, 6, 7, 2, 1]);
}

#[test]
fn allocation_evicts_the_keys_of_a_block() {
    let mut manager = made(small_pool(RecycleOrder::default()));
    serve(&mut manager, 1, 0..12);
    serve(&mut manager, 2, 50..70); // the four free blocks, and block 3 of the first request
    assert_eq!(manager.pool().index().evictions(), 1);
    assert_eq!(look_up(&mut manager, 0..13).length, 8);
}

#[test]
fn the_first_of_duplicates_is_served_and_the_next_one_after_its_eviction() {
    let mut manager = made(config(41, &[GroupSpec::full(4)]));
    let mut requests = [1, 2, 3].map(|id| Request::new(&manager, id, 0..4));
    for request in &mut requests {
        admit(&mut manager, request); // of four tokens none can be hit
    }
    for served in [1, 2, 3] {
        assert_eq!(ids(&look_up(&mut manager, 0..5).blocks), [[served]]);
        manager.evict_blocks(&[served]).expect("a block of the pool");
    }
    assert_eq!(look_up(&mut manager, 0..5).length, 0);
}

#[test]
fn blocks_released_to_the_back_are_evicted_last() {
    let mut manager = made(small_pool(RecycleOrder::default()));
    let mut request = Request::new(&manager, 1, 0..10);
    admit(&mut manager, &mut request);
    let blocks = manager.pop_blocks_for_free(1).expect("a request that runs");
    assert_eq!(blocks, [1, 2, 3]);
    manager.release_blocks_to_back(&blocks).expect("blocks with a reference");
    assert_eq!(free_ids(&manager), [4, 5, 6, 7, 1, 2, 3]);
}

//! The pool without a manager, as a connector uses it.

use kvoxide_core::pool::{
    BlockPool, EvictionHints, FullBlocks, KeyLayout, MAX_REFERENCES, Observation, QueueEnd,
    ValueLevel, WithoutTail,
};
use kvoxide_core::{BlockHash, BlockId, CacheKey, Event, MAX_BLOCKS, RecycleOrder};

fn pool(num_blocks: usize) -> BlockPool {
    BlockPool::new(num_blocks, 2, RecycleOrder::default(), true, None).expect("a pool of this size")
}

fn taken(pool: &mut BlockPool, n: usize) -> Vec<BlockId> {
    let mut blocks = Vec::new();
    pool.allocate(n, &mut blocks);
    blocks
}

fn key(n: u64, group: u16) -> CacheKey {
    CacheKey { hash: BlockHash([n, 0, 0, 0]), group }
}

#[test]
fn blocks_are_counted() {
    let mut pool = pool(11);
    assert_eq!((pool.num_blocks(), pool.num_free_blocks(), pool.index().num_keys()), (11, 10, 0));
    taken(&mut pool, 4);
    assert_eq!((pool.usage(), pool.num_free_blocks()), (0.4, 6));
    pool.insert_key(1, key(1, 0), 4);
    pool.insert_key(2, key(1, 0), 4);
    pool.insert_key(2, key(2, 0), 2);
    assert_eq!(
        (pool.index().num_keys(), pool.index().num_cached(), pool.num_pinned_blocks()),
        (2, 2, 0)
    );
    assert!(pool.check_free(6).is_ok() && pool.check_free(7).is_err());
    assert!(pool.check_free(usize::MAX).is_err(), "a number beyond every isize");
    let least = BlockPool::new(1, 1, RecycleOrder::default(), false, None).expect("the null block");
    assert_eq!(least.usage(), 0.0);
    assert!(BlockPool::new(MAX_BLOCKS, 1, RecycleOrder::default(), false, None).is_err());
}

#[test]
fn withheld_blocks_cannot_be_taken() {
    let mut pool = pool(11);
    let held = taken(&mut pool, 4);
    assert!(pool.set_num_free_blocks(7).is_err());
    assert_eq!(pool.num_free_blocks(), 6);
    pool.set_num_free_blocks(1).expect("fewer than are free");
    assert!(pool.check_free(1).is_ok() && pool.check_free(2).is_err());
    pool.touch(&[9, 10]);
    assert_eq!(pool.num_free_blocks(), -1, "a hit takes what is withheld too");
    pool.release(&[9, 10]);
    pool.release(&held);
    assert_eq!(pool.num_free_blocks(), 5);
    assert!(!pool.reset(), "some seem to be in use");
    pool.set_num_free_blocks(10).expect("as many as are free");
    assert!(pool.reset());
}

#[test]
fn a_key_knows_its_blocks_and_the_pool_its_keys() {
    let mut pool = pool(5);
    taken(&mut pool, 3);
    for (block, n) in [(2, 1), (1, 1), (3, 2), (3, 1)] {
        pool.insert_key(block, key(n, 0), 4);
    }
    assert_eq!(pool.index().blocks_of(pool.blocks(), &key(1, 0)), [2, 1, 3]);
    assert_eq!(
        [3, 9].map(|group| pool.index().blocks_of(pool.blocks(), &key(1, group))),
        [vec![], vec![]]
    );
    let mut keys: Vec<_> = pool.index().keys(pool.blocks()).map(|key| key.hash.0[0]).collect();
    keys.sort_unstable();
    assert_eq!(keys, [1, 2]);
}

/// Returns the free blocks. Checks that both directions have the same blocks.
fn walked(pool: &BlockPool) -> Vec<BlockId> {
    let forward: Vec<_> = pool.blocks().free_from(pool.blocks().first_free()).collect();
    let back = |&block: &BlockId| pool.blocks().free_before(block);
    let mut backward: Vec<_> = std::iter::successors(pool.blocks().last_free(), back).collect();
    backward.reverse();
    assert_eq!(forward, backward);
    forward
}

#[test]
fn free_blocks_are_walked_from_both_ends() {
    let mut pool = pool(5);
    assert_eq!(walked(&pool), [1, 2, 3, 4]);
    assert_eq!([0, 1].map(|block| pool.blocks().is_free(block)), [false, true]);
    pool.touch(&[2]);
    assert_eq!((walked(&pool), pool.blocks().is_free(2)), (vec![1, 3, 4], false));
    taken(&mut pool, 3);
    assert_eq!((pool.blocks().first_free(), pool.blocks().last_free()), (None, None));
}

#[test]
fn the_pinned_tier_is_walked_behind_the_free_queue() {
    let mut pool = pool(5);
    let blocks = taken(&mut pool, 2);
    pool.insert_key(blocks[0], key(1, 0), 4);
    pool.insert_key(blocks[1], key(2, 0), 4);
    pool.pin(blocks.iter().copied());
    pool.release(&blocks);
    assert_eq!((pool.num_pinned_blocks(), &blocks[..]), (2, &[1, 2][..]));
    assert_eq!(walked(&pool), [3, 4, 1, 2]);
    assert!(pool.unqueue(1));
    assert_eq!((walked(&pool), pool.num_pinned_blocks()), (vec![3, 4, 2], 1));
}

#[test]
fn a_block_removed_from_the_queue_by_hand_is_loose_until_counted_or_put_back() {
    let mut pool = pool(6);
    assert!(pool.unqueue(2) && !pool.unqueue(2) && !pool.unqueue(0));
    assert_eq!(
        (pool.ref_count(2), pool.by_hand().is_loose(2), pool.num_free_blocks()),
        (0, true, 4)
    );
    assert!(pool.by_hand().check_has_none([1, 2].into_iter()).is_err());
    pool.enqueue(&[2], QueueEnd::Front).expect("a loose block");
    assert_eq!(walked(&pool), [2, 1, 3, 4, 5]);
    // References are counted before the block leaves the queue, and are removed by hand.
    pool.set_ref_count(3, 2).expect("a count that fits");
    assert!(pool.check_free(1).is_ok() && pool.check_free(3).is_err());
    assert_eq!((pool.ref_count(3), pool.blocks().is_free(3), pool.unqueue(3)), (2, true, true));
    assert_eq!((pool.ref_count(3), pool.by_hand().is_loose(3)), (2, false));
    pool.set_ref_count(3, 0).expect("a count that fits");
    pool.enqueue(&[3], QueueEnd::Back).expect("a loose block");
    assert_eq!(walked(&pool), [2, 1, 4, 5, 3]);
}

#[test]
fn blocks_that_may_not_be_queued_are_refused_and_nothing_changes() {
    let mut pool = pool(6);
    assert!([4, 5].into_iter().all(|block| pool.unqueue(block)));
    pool.set_ref_count(5, 1).expect("a count that fits");
    let refused = [
        (&[4, 0][..], "it is the null block"),
        (&[4, 1], "it is already in the queue"),
        (&[4, 5], "it has 1 references"),
        (&[4, 4], "it was given twice"),
    ];
    for (blocks, why) in refused {
        let error = pool.enqueue(blocks, QueueEnd::Back).expect_err(why).to_string();
        assert!(error.contains(why) && error.ends_with("(invariant 2)"), "{error}");
        assert_eq!((walked(&pool), pool.by_hand().is_loose(4)), (vec![1, 2, 3], true));
    }
}

#[test]
fn hashes_with_the_same_fingerprint_are_distinguished() {
    let mut pool = pool(5);
    let hash = |[a, c]: [u64; 2]| BlockHash([a, 5, c, 0]);
    let keys =
        [[1, 0], [1 ^ 1 << 23, 1], [1 ^ 1 << 24, 2]].map(|n| CacheKey { hash: hash(n), group: 1 });
    let layout = KeyLayout::new(2);
    assert_eq!(layout.fingerprint_of(&keys[0]), layout.fingerprint_of(&keys[1]));
    assert_eq!(layout.fingerprint_of(&keys[0]), layout.fingerprint_of(&keys[2]));
    let found = |pool: &BlockPool| keys.map(|key| pool.find(&key));
    pool.insert_key(1, keys[0], 4);
    assert_eq!(found(&pool), [Some(1), None, None]);
    pool.insert_key(2, keys[1], 4);
    assert_eq!(found(&pool), [Some(1), Some(2), None]);
    pool.remove_keys(1);
    assert_eq!(found(&pool), [None, Some(2), None]);
}

#[test]
fn references_to_the_null_block_are_counted_on_request() {
    let mut pool = pool(5);
    pool.touch(&[0, 0]);
    assert_eq!((pool.counts_null_references(), pool.ref_count(0)), (false, 0));
    pool.count_null_references();
    pool.touch(&[0, 1, 0]);
    pool.touch_null(3);
    assert_eq!((pool.counts_null_references(), pool.ref_count(0)), (true, 5));
    pool.release(&[0, 1]);
    pool.release_null(6);
    assert_eq!((pool.ref_count(0), pool.ref_count(1)), (-2, 0));
    pool.set_ref_count(0, 7).expect("a count that fits");
    assert_eq!(pool.ref_count(0), 7);
}

#[test]
fn a_reference_count_can_be_set_as_far_as_it_fits() {
    let mut pool = pool(5);
    taken(&mut pool, 1);
    pool.insert_key(1, key(1, 0), 4);
    pool.set_ref_count(1, MAX_REFERENCES).expect("the most there is");
    assert_eq!(pool.blocks().ref_count(1), MAX_REFERENCES);
    assert!(pool.set_ref_count(1, MAX_REFERENCES + 1).is_err());
    pool.set_ref_count(1, 0).expect("a count that fits");
    assert_eq!((pool.ref_count(1), pool.blocks().is_cached(1)), (0, true));
}

#[test]
fn observations_are_in_order() {
    let mut pool = pool(5);
    taken(&mut pool, 1);
    assert_eq!(pool.take_observations(), []);
    pool.observe();
    taken(&mut pool, 2);
    pool.touch(&[2]);
    pool.evict([3]);
    let expected = [
        Observation::Taking(2),
        Observation::Taken(2),
        Observation::Taken(3),
        Observation::Touched(2),
        Observation::Evicted(3),
    ];
    assert_eq!(pool.take_observations(), expected);
    assert_eq!(pool.take_observations(), []);
}

#[test]
fn unhashed_blocks_do_not_include_null_blocks() {
    let mut pool = pool(6);
    taken(&mut pool, 4);
    pool.insert_key(2, key(1, 0), 4);
    assert_eq!(pool.blocks().unhashed(&[1, 0, 2, 3]), [1, 3]);
}

#[test]
fn keys_of_unknown_groups_find_nothing_and_are_refused() {
    let mut pool = pool(5);
    taken(&mut pool, 1);
    assert!(pool.insert_foreign_key(1, key(1, 2), 4).is_err());
    assert_eq!(pool.find(&key(1, 2)), None);
    pool.insert_foreign_key(1, key(1, 1), 4).expect("a group of the pool");
    assert_eq!((pool.find(&key(1, 1)), pool.find(&key(1, 0))), (Some(1), None));
}

#[test]
fn a_block_with_several_keys_loses_all_of_them() {
    let mut pool = pool(5);
    taken(&mut pool, 2);
    for (n, num_tokens) in [(1, 8), (2, 4), (3, 2)] {
        pool.insert_key(1, key(n, 0), num_tokens);
    }
    pool.insert_key(2, key(2, 0), 4);
    assert_eq!(pool.keys_of(1).collect::<Vec<_>>(), [1, 2, 3].map(|n| key(n, 0)));
    assert_eq!(pool.blocks().hash_num_tokens(1), Some(8));
    pool.remove_keys(1);
    let removed = [1, 2, 3].map(|n| Event::Removed { hash: key(n, 0).hash, group: 0 });
    assert_eq!(
        (pool.index().events().count(), pool.index_mut().events_mut().take()),
        (3, removed.to_vec())
    );
    assert_eq!([1, 2, 3].map(|n| pool.find(&key(n, 0))), [None, Some(2), None]);
    pool.insert_key(1, key(4, 0), 4);
    pool.remove_keys_silently(1);
    assert_eq!((pool.find(&key(4, 0)), pool.index_mut().events_mut().take()), (None, vec![]));
}

#[test]
fn allocated_cached_blocks_count_as_evictions() {
    let mut pool = pool(3);
    taken(&mut pool, 2);
    pool.insert_key(1, key(1, 0), 4);
    pool.insert_key(2, key(2, 0), 4);
    pool.insert_key(2, key(3, 0), 2);
    pool.release(&[1, 2]);
    assert_eq!(taken(&mut pool, 2), [1, 2]);
    assert_eq!(
        (pool.index().evictions(), pool.index().num_keys(), pool.index().num_cached()),
        (2, 0, 0)
    );
}

#[test]
fn a_reset_is_refused_while_a_block_is_in_use() {
    let mut pool = pool(5);
    taken(&mut pool, 1);
    pool.insert_key(1, key(1, 0), 4);
    assert!(!pool.reset());
    assert_eq!(pool.find(&key(1, 0)), Some(1));
    pool.release(&[1]);
    assert!(pool.reset());
    assert_eq!(
        (pool.find(&key(1, 0)), pool.index_mut().events_mut().take()),
        (None, vec![Event::Cleared])
    );
}

#[test]
fn the_index_can_grow_while_a_batch_is_cached() {
    let mut pool =
        BlockPool::new(8, 1, RecycleOrder::default(), false, None).expect("a pool of 8 blocks");
    for n in 0..9 {
        pool.insert_key(1, key(n, 0), 4);
    }
    let hashes: Vec<_> = (100..106).map(|n| key(n, 0).hash).collect();
    let batch = FullBlocks {
        group: 0,
        blocks: &[2, 3, 4, 5, 6, 7],
        hashes: &hashes,
        per_block: 1,
        first_num_tokens: 4,
        block_size: 4,
        segment: kvoxide_core::pool::NO_SEGMENT,
    };
    pool.cache_batch(
        &batch,
        EvictionHints {
            value: ValueLevel::BEST,
            num_prompt_tokens: usize::MAX,
            without_tail: WithoutTail::default(),
        },
    );
    let found = (100..106).map(|n| pool.find(&key(n, 0))).collect::<Vec<_>>();
    assert_eq!(found, [2, 3, 4, 5, 6, 7].map(Some));
    assert_eq!(pool.index().num_keys(), 15);
}

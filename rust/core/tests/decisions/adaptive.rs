//! Adaptive retention: blocks are kept by their value and evicted in the best order for the
//! traffic.

use kvoxide_core::{
    AllocateArgs, BlockId, Error, GroupSpec, Manager, ManagerConfig, Policy, RecycleOrder,
    RequestView, digest, pool::ScoringFunction,
};

use crate::small::{
    Request, admit, config, decode, free_ids, held, look_up, made, num_protected_tails, serve, step,
};

fn managed(num_blocks: usize, groups: &[GroupSpec], policy: Policy) -> Manager {
    made(ManagerConfig { policy, ..config(num_blocks, groups) })
}

fn adaptive(num_blocks: usize, groups: &[GroupSpec]) -> Manager {
    managed(num_blocks, groups, Policy::adaptive())
}

fn full_and_window() -> [GroupSpec; 2] {
    [GroupSpec::full(4), GroupSpec::sliding_window(4, 8)]
}

fn listed(manager: &Manager) -> Vec<BlockId> {
    let mut blocks: Vec<_> = manager.pool().listed_blocks().collect();
    blocks.sort_unstable();
    blocks
}

/// Returns tokens that no other prompt has.
fn once(i: usize, num_tokens: usize) -> std::ops::Range<u64> {
    let first = 1_000_000 + i as u64 * 10_000;
    first..first + num_tokens as u64
}

/// Serves prompts that are not repeated.
fn serve_once(manager: &mut Manager, num_prompts: usize, num_tokens: usize) {
    (0..num_prompts).for_each(|i| drop(serve(manager, 1000 + i as u64, once(i, num_tokens))));
}

/// Serves a prompt of 256 tokens twice, then prompts that are not repeated. Repeats this until the
/// current scoring function keeps blocks that were used often.
fn serve_until_recency_is_behind(manager: &mut Manager, num_prompts: usize) {
    for round in 0..8 {
        (0..2).for_each(|id| drop(serve(manager, id, once(7, 256))));
        for i in 0..num_prompts {
            serve(manager, 2, once(100 + num_prompts * round + i, 40));
        }
    }
    let scoring_function = manager.pool().adaptive().expect("adaptive").shadow().in_force();
    assert_ne!(scoring_function, ScoringFunction::Recency);
}

#[test]
fn free_cached_blocks_are_evictable() {
    let mut manager = adaptive(8, &[GroupSpec::full(4)]);
    let mut request = Request::new(&manager, 1, 0..10);
    admit(&mut manager, &mut request);
    assert_eq!((listed(&manager), manager.pool().num_free_blocks()), (vec![], 4));
    manager.free(1).expect("a request that runs");
    assert_eq!((listed(&manager), free_ids(&manager)), (vec![1, 2], vec![3, 4, 5, 6, 7]));
    assert_eq!(manager.pool().num_free_blocks(), 7);
    assert!((1..8).all(|block| manager.pool().blocks().is_free(block)));
    let mut again = Request::new(&manager, 2, 0..9);
    assert_eq!(admit(&mut manager, &mut again), 8);
    assert_eq!((listed(&manager), held(&manager, 2)), (vec![], vec![vec![1, 2, 3]]));
}

#[test]
fn uncached_blocks_are_evicted_before_cached_ones() {
    let mut manager = adaptive(8, &[GroupSpec::full(4)]);
    serve(&mut manager, 1, 0..10);
    serve(&mut manager, 2, 50..67); // four full blocks and one that is not
    assert_eq!((manager.pool().index().evictions(), look_up(&mut manager, 0..9).length), (0, 8));
    serve(&mut manager, 3, 90..95); // takes one more
    assert_eq!(manager.pool().index().evictions(), 1);
}

#[test]
fn blocks_in_use_are_never_taken() {
    let mut manager = adaptive(9, &[GroupSpec::full(4)]);
    serve(&mut manager, 1, 0..12);
    let mut running = Request::new(&manager, 2, 0..13);
    assert_eq!(admit(&mut manager, &mut running), 12);
    let blocks = held(&manager, 2);
    serve_once(&mut manager, 20, 16); // each takes all the others
    assert_eq!((held(&manager, 2), look_up(&mut manager, 0..13).length), (blocks, 12));
}

#[test]
fn the_older_of_two_duplicates_is_evicted_first() {
    let mut manager = adaptive(5, &[GroupSpec::full(4)]);
    serve(&mut manager, 1, 50..54);
    for id in [2, 3] {
        serve(&mut manager, id, 0..4); // of four tokens none can be hit
    }
    assert_eq!(listed(&manager), [1, 3]);
    let mut request = Request::new(&manager, 4, 90..97);
    admit(&mut manager, &mut request);
    assert_eq!(held(&manager, 4), [[4, 2]]);
    assert_eq!(look_up(&mut manager, 0..5).length, 4);
}

#[test]
fn a_reset_cache_has_no_evictable_blocks() {
    let mut manager = adaptive(61, &full_and_window());
    let mut request = Request::new(&manager, 1, 0..60);
    admit(&mut manager, &mut request);
    assert!(!manager.reset_prefix_cache());
    manager.free(1).expect("a request that runs");
    assert!(!listed(&manager).is_empty() && manager.reset_prefix_cache());
    let adaptive = manager.pool().adaptive().expect("adaptive retention");
    assert_eq!(
        (adaptive.num_listed(), num_protected_tails(&manager), listed(&manager)),
        (0, 0, vec![])
    );
    assert_eq!((manager.pool().num_free_blocks(), free_ids(&manager).len()), (60, 60));
}

#[test]
fn eviction_by_id_moves_a_block_to_the_free_queue() {
    let mut manager = adaptive(8, &[GroupSpec::full(4)]);
    serve(&mut manager, 1, 0..10);
    manager.evict_blocks(&[2]).expect("a block of the pool");
    assert_eq!((listed(&manager), free_ids(&manager)), (vec![1], vec![2, 3, 4, 5, 6, 7]));
    assert_eq!(manager.pool().num_free_blocks(), 7);
    assert_eq!(look_up(&mut manager, 0..9).length, 4);
}

/// Returns the number of tokens that are hit in `num_passes` passes over 160 prompts of 5 blocks.
fn hits_of_a_scan(policy: Policy, num_blocks: usize, num_passes: u64) -> usize {
    let mut manager = managed(num_blocks, &[GroupSpec::full(4)], policy);
    let mut hits = 0;
    for pass in 0..num_passes {
        for prompt in 0..160 {
            let id = pass * 160 + prompt;
            let mut request = Request::new(&manager, id, once(prompt as usize, 21));
            hits += admit(&mut manager, &mut request);
            manager.free(id).expect("a request that runs");
        }
    }
    hits
}

#[test]
fn a_scan_that_is_larger_than_the_pool_gets_hits() {
    assert_eq!(hits_of_a_scan(Policy::every_tail(), 600, 40), 0);
    let hits = hits_of_a_scan(Policy::adaptive(), 600, 40);
    assert!(hits > 40 * 160 * 20 / 4, "{hits} tokens of {}", 40 * 160 * 20);
}

#[test]
fn a_prefix_that_is_used_often_outlives_those_used_once() {
    for (policy, num_hit) in [(Policy::every_tail(), 0), (Policy::adaptive(), 32)] {
        let is_adaptive = policy == Policy::adaptive();
        let mut manager = managed(200, &[GroupSpec::full(4)], policy);
        if is_adaptive {
            serve_until_recency_is_behind(&mut manager, 20);
        }
        for id in 0..8 {
            serve(&mut manager, id, (0..32).chain(500 + id * 10..504 + id * 10));
        }
        serve_once(&mut manager, 30, 40); // 300 blocks
        assert_eq!(look_up(&mut manager, 0..33).length, num_hit);
    }
}

/// Computes the first 600 tokens of a prompt of 1,200. Tails at multiples of 256 have the value of
/// full blocks, and the tails between them at most a quarter of it.
fn long_prompt(manager: &mut Manager) -> Request {
    let mut request = Request::new(manager, 1, 0..1200);
    [200, 200, 200, 4].into_iter().for_each(|num_tokens| step(manager, &mut request, num_tokens));
    request
}

#[test]
fn tails_that_leave_the_window_are_protected_until_their_request_ends() {
    let ends: [fn(&mut Manager); 2] = [
        |manager| manager.free(1).expect("a request that runs"),
        |manager| drop(manager.pop_blocks_for_free(1).expect("a request that runs")),
    ];
    for end in ends {
        let mut manager = adaptive(1000, &full_and_window());
        long_prompt(&mut manager);
        assert_eq!(num_protected_tails(&manager), 4, "two tails of two blocks");
        let waiting = listed(&manager);
        end(&mut manager);
        assert_eq!(num_protected_tails(&manager), 0);
        assert!(waiting.iter().all(|block| listed(&manager).contains(block)));
    }
}

#[test]
fn protected_tails_are_evicted_last() {
    let mut manager = adaptive(400, &full_and_window());
    long_prompt(&mut manager); // holds 153 blocks, of which 151 are of full attention
    serve_once(&mut manager, 20, 160);
    assert_eq!(num_protected_tails(&manager), 4);
    assert_eq!(look_up(&mut manager, 0..257).length, 256);
    let num_free = manager.pool().num_free_blocks() as usize;
    let mut greedy = Request::new(&manager, 2, once(99, 1000));
    step(&mut manager, &mut greedy, num_free / 2 * 4);
    assert!(num_protected_tails(&manager) < 4);
}

#[test]
fn a_prompt_with_a_window_survives_traffic_under_which_the_default_evicts_it() {
    for (policy, num_hit) in [(Policy::every_tail(), 0), (Policy::adaptive(), 1000)] {
        let mut manager = managed(2200, &full_and_window(), policy);
        serve(&mut manager, 1, 0..1000);
        serve_once(&mut manager, 4, 1000);
        assert_eq!(look_up(&mut manager, 0..1001).length, num_hit);
    }
}

#[test]
fn tails_without_a_value_are_cached_while_the_free_queue_is_longer_than_the_prompt() {
    // 1,000 tokens take 500 blocks. Tails at multiples of 32 have a value.
    for (num_blocks, num_hit) in [(1001, 100), (1000, 96)] {
        let mut manager = adaptive(num_blocks, &full_and_window());
        serve(&mut manager, 1, 0..1000);
        assert_eq!(look_up(&mut manager, 0..102).length, num_hit);
        serve_once(&mut manager, 2, 600);
        assert_eq!(look_up(&mut manager, 0..102).length, 96);
    }
}

/// Checks a window group: generated tails at multiples of 16 have a small value.
#[test]
fn generated_blocks_are_evicted_before_prompt_blocks() {
    let mut manager = adaptive(100, &[GroupSpec::sliding_window(4, 8)]);
    let mut request = Request::new(&manager, 1, 0..40);
    admit(&mut manager, &mut request);
    decode(&mut manager, &mut request, 40..120);
    manager.free(1).expect("a request that runs");
    let hits = |manager: &mut Manager| [53, 41].map(|n| look_up(manager, 0..n).length);
    assert_eq!(hits(&mut manager), [52, 40]);
    serve_once(&mut manager, 1, 300); // six blocks more than were never cached
    assert_eq!((manager.pool().index().evictions(), hits(&mut manager)), (6, [48, 40]));
}

fn fork(num_shared: u64) -> impl IntoIterator<Item = u64> {
    (0..num_shared).chain([7])
}

/// Serves one prompt `num_passes` times, with other prompts between. With `is_hit`, also serves a
/// prompt that diverges from it after 120 tokens. Returns the hit of that other prompt at the end.
/// Later hits used only the full-attention blocks of the shared prefix.
fn hit_of_fork_after_its_prefix(num_passes: u64, is_hit: bool) -> usize {
    let mut manager = adaptive(400, &full_and_window());
    serve(&mut manager, 1, 0..161);
    if is_hit {
        serve(&mut manager, 100, fork(120));
    }
    for id in 2..num_passes {
        serve(&mut manager, id, 0..161);
        serve(&mut manager, 200 + id, once(id as usize, 160)); // a fifth of the pool
    }
    look_up(&mut manager, fork(120)).length
}

#[test]
fn a_tail_at_which_a_prompt_resumed_gets_a_second_chance() {
    assert_eq!(hit_of_fork_after_its_prefix(10, true), 120);
}

#[test]
fn a_tail_inside_longer_prompts_gets_no_second_chance() {
    assert!(hit_of_fork_after_its_prefix(10, false) < 120);
}

/// Checks tails of 8 tokens, 64 tokens apart. They have more value than a prompt of 161 tokens.
#[test]
fn a_tail_of_high_value_gets_second_chances_while_its_prefix_is_used() {
    let mut manager = adaptive(400, &full_and_window());
    for id in 1..40 {
        serve(&mut manager, id, 0..161);
        serve(&mut manager, 200 + id, once(id as usize, 160));
    }
    assert_eq!(look_up(&mut manager, fork(130)).length, 128);
    assert_eq!(look_up(&mut manager, fork(120)).length, 0);
}

#[test]
fn a_tail_has_as_many_uses_as_its_prefix() {
    let mut manager = adaptive(400, &full_and_window());
    serve_until_recency_is_behind(&mut manager, 40);
    for id in 1..12 {
        serve(&mut manager, id, 0..161);
    }
    serve(&mut manager, 12, fork(120)); // the tail's first hit
    serve_once(&mut manager, 10, 160); // twice the pool
    assert_eq!(look_up(&mut manager, fork(120)).length, 120);
}

#[test]
fn options_that_adaptive_retention_decides_itself_are_refused() {
    let adaptive = Policy::adaptive;
    for policy in [
        Policy { recycle_order: RecycleOrder::Fifo, ..adaptive() },
        Policy { reachable_block_mask: false, ..adaptive() },
        Policy { retention_interval: Some(0), ..adaptive() },
        Policy { pin_min_drop_size: Some(16), ..adaptive() },
    ] {
        let refused = Manager::new(ManagerConfig {
            policy: policy.clone(),
            ..config(61, &full_and_window())
        });
        let Err(Error::Config(message)) = refused else { panic!("{policy:?} is not refused") };
        assert!(message.starts_with("adaptive retention itself decides"), "{message}");
    }
}

#[test]
fn an_interval_set_later_is_refused_too() {
    let mut manager = adaptive(61, &full_and_window());
    serve(&mut manager, 1, 0..60);
    let before = digest(&manager);
    assert!(matches!(manager.set_retention_interval(Some(16)), Err(Error::Config(_))));
    assert_eq!((digest(&manager), manager.config().policy.clone()), (before, Policy::adaptive()));
    assert_eq!(manager.set_retention_interval(None), Ok(()));
}

/// Serves pairs of prompts. The second prompt of a pair continues the first one at its last
/// multiple of 512 tokens.
#[test]
fn tails_near_the_end_are_kept_where_follow_ups_resume() {
    let num_cached = |num_pairs: u64| {
        let mut manager = adaptive(4000, &[GroupSpec::full(16), GroupSpec::sliding_window(16, 32)]);
        for pair in 0..num_pairs {
            let first = pair * 100_000;
            serve(&mut manager, 2 * pair, first..first + 1000);
            serve(&mut manager, 2 * pair + 1, (first..first + 512).chain(once(pair as usize, 9)));
        }
        let last = 99_000_000;
        serve(&mut manager, 9999, last..last + 1000);
        let shared = [520, 700, 950].map(|shared| (last..last + shared).chain([7]));
        shared.map(|tokens| look_up(&mut manager, tokens).length)
    };
    assert_eq!(num_cached(5), [512, 688, 944]);
    // Tails at multiples of 64 have a small value because of their position.
    assert_eq!(num_cached(200), [512, 640, 896]);
}

#[test]
fn a_shared_prefix_boundary_beyond_all_tokens_changes_nothing() {
    let groups = [GroupSpec::full(4), GroupSpec::sliding_window(2, 8)];
    let mut manager = adaptive(100, &groups);
    for (id, junction) in [usize::MAX, usize::MAX / 2 - 1, 50].into_iter().enumerate() {
        let request = Request::new(&manager, id as u64, 0..40);
        let view = RequestView { shared_prefix_boundary: junction, ..request.view() };
        let args = AllocateArgs { num_new_tokens: 40, ..AllocateArgs::default() };
        assert!(manager.allocate_slots(&view, &args).expect("an allocation").is_some());
        manager.free(id as u64).expect("a request that runs");
    }
    assert_eq!(look_up(&mut manager, 0..39).length, 36);
}

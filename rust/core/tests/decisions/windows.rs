//! Blocks that left a window, and the blocks of a window that are cached.

use kvoxide_core::{BlockId, GroupSpec, Manager, ManagerConfig, Policy, Size};

use crate::small::{Request, config, free_ids, held, look_up, made, manager, serve, step};

fn cached_positions(manager: &Manager, blocks: &[BlockId]) -> Vec<usize> {
    let states = manager.pool().blocks();
    (0..blocks.len()).filter(|&i| states.is_cached(blocks[i])).collect()
}

#[test]
fn blocks_that_left_the_window_are_released_from_the_next_token_on() {
    for (num_computed_tokens, skipped) in [(30, 5), (31, 6), (34, 6), (35, 7)] {
        let mut manager = manager(&[GroupSpec::sliding_window(4, 8)]);
        let mut request = Request::new(&manager, 1, 0..50);
        step(&mut manager, &mut request, num_computed_tokens);
        step(&mut manager, &mut request, 1);
        let nulls = held(&manager, 1)[0].iter().filter(|&&block| block == 0).count();
        // The next token attends to itself and to the 7 tokens before it.
        assert_eq!(nulls, skipped, "after {num_computed_tokens} tokens");
    }
}

#[test]
fn blocks_that_leave_a_window_are_evicted_last_block_first() {
    let mut manager = manager(&[GroupSpec::sliding_window(4, 8)]);
    let mut request = Request::new(&manager, 1, 0..40);
    step(&mut manager, &mut request, 32);
    step(&mut manager, &mut request, 8);
    assert_eq!(held(&manager, 1), [[0, 0, 0, 0, 0, 0, 7, 8, 9, 10]]);
    assert!(free_ids(&manager).ends_with(&[6, 5, 4, 3, 2, 1]));
}

#[test]
fn blocks_of_steps_in_flight_stay_in_the_window() {
    let mut manager = manager(&[GroupSpec::sliding_window(4, 8)]);
    let mut request = Request::new(&manager, 1, 0..40);
    step(&mut manager, &mut request, 32);
    request.num_in_flight_tokens = 8;
    step(&mut manager, &mut request, 4);
    assert_eq!(held(&manager, 1), [[0, 0, 0, 0, 5, 6, 7, 8, 9]]);
}

#[test]
fn extra_retained_tokens_delay_the_release_of_a_window() {
    let group = GroupSpec::sliding_window(4, 8).with(Size::ExtraRetainedTokens, 4);
    let mut manager = manager(&[group]);
    let mut request = Request::new(&manager, 1, 0..40);
    step(&mut manager, &mut request, 32);
    step(&mut manager, &mut request, 4);
    assert_eq!(held(&manager, 1), [[0, 0, 0, 0, 0, 6, 7, 8, 9]]);
}

#[test]
fn a_finished_chunk_is_released() {
    let mut manager = manager(&[GroupSpec::chunked_local(4, 8)]);
    let mut request = Request::new(&manager, 1, 0..20);
    step(&mut manager, &mut request, 12);
    step(&mut manager, &mut request, 4);
    assert_eq!(held(&manager, 1), [[0, 0, 3, 4]]);
    step(&mut manager, &mut request, 4);
    assert_eq!(held(&manager, 1), [[0, 0, 0, 0, 5]]);
}

/// Returns the positions of the window group's blocks that are cached after `num_tokens` are
/// computed.
fn kept(num_tokens: u64, config: ManagerConfig) -> Vec<usize> {
    let mut manager = made(config);
    let mut request = Request::new(&manager, 1, 0..num_tokens);
    step(&mut manager, &mut request, num_tokens as usize);
    cached_positions(&manager, &held(&manager, 1)[1])
}

#[test]
fn a_mask_keeps_the_blocks_that_a_hit_can_end_with() {
    let groups = [GroupSpec::full(32), GroupSpec::sliding_window(8, 8)];
    assert_eq!(kept(64, config(61, &groups)), [3, 7]);
    // A hit at 32 matches the block up to 40 and then drops it.
    assert_eq!(kept(64, ManagerConfig { use_eagle: true, ..config(61, &groups) }), [3, 4, 7]);
}

#[test]
fn an_interval_keeps_a_tail_for_each_boundary_and_for_the_replay() {
    let groups = [GroupSpec::full(16), GroupSpec::sliding_window(16, 16)];
    // The last token is always computed. So 144 of 160 tokens can be hit, and the last block of the
    // hit is 8.
    for (interval, expected) in [(0, &[8][..]), (64, &[3, 7, 8]), (48, &[2, 5, 8])] {
        let policy = Policy { retention_interval: Some(interval), ..Policy::every_tail() };
        let found = kept(160, ManagerConfig { policy, ..config(61, &groups) });
        assert_eq!(found, expected, "interval {interval}");
    }
}

#[test]
fn without_a_shared_prefix_an_interval_keeps_only_the_replay() {
    let groups = [GroupSpec::full(16), GroupSpec::sliding_window(16, 16)];
    let policy = Policy { retention_interval: Some(0), ..Policy::every_tail() };
    // A repeated or extended prompt hits 128 or 144 tokens, and also matches the next block.
    let found = kept(160, ManagerConfig { policy, use_eagle: true, ..config(61, &groups) });
    assert_eq!(found, [7, 8, 9]);
}

#[test]
fn a_shared_prefix_is_kept_from_its_second_request_on() {
    let groups = [GroupSpec::full(16), GroupSpec::sliding_window(16, 16)];
    let policy = Policy { retention_interval: Some(0), ..Policy::every_tail() };
    let mut manager = made(ManagerConfig { policy, ..config(100, &groups) });
    let tokens = |own: u64| (0..85).chain(own..own + 60);
    serve(&mut manager, 1, tokens(1000));
    let hit = look_up(&mut manager, tokens(2000));
    // Full attention has cached 80 tokens of the prefix, the window group none.
    assert_eq!((hit.length, hit.shared_prefix_boundary), (0, 80));
    serve(&mut manager, 2, tokens(2000));
    assert_eq!(look_up(&mut manager, tokens(3000)).length, 80);
}

#[test]
fn full_attention_keeps_even_blocks_of_one_token() {
    let mut manager = manager(&[GroupSpec::full(1)]);
    let mut request = Request::new(&manager, 1, 0..5);
    step(&mut manager, &mut request, 4);
    step(&mut manager, &mut request, 1);
    assert_eq!(held(&manager, 1), [[1, 2, 3, 4, 5]]);
}

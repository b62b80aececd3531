//! Tables of recurrent states: which state is hit, which one is copied, which blocks move.

use kvoxide_core::{AllocateArgs, BlockHash, CacheKey, GroupSpec, Manager, Size};

use crate::small::{Request, admit, config, held, ids, look_up, made, manager, step};

fn states(num_drafts: usize) -> GroupSpec {
    GroupSpec::new("mamba", 16).with(Size::NumSpeculativeBlocks, num_drafts)
}

/// Returns a manager and a request that has computed 40 of its 42 tokens in two chunks. Attention
/// is in blocks of one hash block, states in blocks of four.
fn after_a_prefill() -> (Manager, Request) {
    let mut manager = manager(&[GroupSpec::full(4), states(1)]);
    let mut first = Request::new(&manager, 1, 0..42);
    step(&mut manager, &mut first, 16);
    manager.new_step_starts();
    step(&mut manager, &mut first, 24);
    manager.new_step_starts();
    (manager, first)
}

#[test]
fn a_hit_is_the_last_state_without_the_states_before() {
    let (mut manager, _) = after_a_prefill();
    // Attention has blocks 1 to 4 and 7 to 12. Block 5 is the state after 16 tokens. Block 6 was
    // for drafts first and is now the state after 40 tokens.
    assert_eq!(held(&manager, 1)[1], [5, 0, 6, 13]);
    let hit = look_up(&mut manager, 0..60);
    assert_eq!(hit.length, 40);
    assert_eq!(ids(&hit.blocks), [vec![1, 2, 3, 4, 7, 8, 9, 10, 11, 12], vec![0, 0, 6]]);
    assert_eq!(look_up(&mut manager, 0..40).length, 16, "its last token is computed again");
}

#[test]
fn a_hit_inside_a_block_is_a_copy() {
    let (mut manager, _) = after_a_prefill();
    let mut second = Request::new(&manager, 2, 0..60);
    assert_eq!(admit(&mut manager, &mut second), 40);
    // Attention takes blocks 14 to 18 first. The first block that the states take is the copy.
    assert_eq!(manager.take_block_copies(), [(6, 19)]);
    assert_eq!(held(&manager, 2)[1], [0, 0, 19, 20, 21]);
    assert_eq!(manager.pool().blocks().ref_count(19), 2, "one for the copy");
}

#[test]
fn a_running_request_keeps_its_block_and_the_copy_is_hit() {
    let (mut manager, mut first) = after_a_prefill();
    step(&mut manager, &mut first, 2);
    assert_eq!(manager.take_block_copies(), [(6, 15)]);
    assert_eq!(held(&manager, 1)[1], [0, 0, 6, 13]);
    manager.new_step_starts();
    assert_eq!(ids(&look_up(&mut manager, 0..60).blocks)[1], [0, 0, 15]);
    assert!(manager.take_block_copies().is_empty(), "asked for twice");
}

#[test]
fn a_step_is_refused_if_its_state_was_released_elsewhere() {
    let (mut manager, first) = after_a_prefill();
    manager.release_blocks(&[6]).expect("a block with a reference");
    let before = kvoxide_core::digest(&manager);
    let args = AllocateArgs { num_new_tokens: 2, ..AllocateArgs::default() };
    let refusal = manager.allocate_slots(&first.view(), &args).expect_err("a refusal");
    assert!(refusal.to_string().contains("group 1: the state from which the step continues"));
    assert_eq!(kvoxide_core::digest(&manager), before);
}

#[test]
fn a_step_is_refused_if_its_state_is_cached_already() {
    let mut manager = manager(&[GroupSpec::full(4), states(1)]);
    let mut first = Request::new(&manager, 1, 0..42);
    let uncached = AllocateArgs { delay_cache_blocks: true, ..AllocateArgs::default() };
    let args = AllocateArgs { num_new_tokens: 16, ..uncached };
    assert!(manager.allocate_slots(&first.view(), &args).expect("a valid call").is_some());
    first.num_computed_tokens = 16;
    let state = held(&manager, 1)[1][0];
    let key = CacheKey { hash: BlockHash([7; 4]), group: 1 };
    manager.pool_mut().insert_foreign_key(state, key, 16).expect("a block of the pool");
    let before = kvoxide_core::digest(&manager);
    let args = AllocateArgs { num_new_tokens: 16, ..AllocateArgs::default() };
    let refusal = manager.allocate_slots(&first.view(), &args).expect_err("a refusal");
    assert!(refusal.to_string().contains("group 1: the state at position 0 is already cached"));
    assert_eq!(kvoxide_core::digest(&manager), before);
    // A step that caches nothing, or skips the state, is not refused.
    let args = AllocateArgs { num_new_tokens: 16, ..uncached };
    assert!(manager.allocate_slots(&first.view(), &args).expect("a valid call").is_some());
}

/// A step is refused only if enough blocks are free. Blocks that leave the window first count as
/// free.
#[test]
fn a_lack_of_blocks_comes_before_a_refusal() {
    let mut manager = manager(&[GroupSpec::sliding_window(4, 4), states(0)]);
    let mut first = Request::new(&manager, 1, 0..80);
    first.num_in_flight_tokens = 32;
    let uncached = AllocateArgs { delay_cache_blocks: true, ..AllocateArgs::default() };
    let args = AllocateArgs { num_new_tokens: 32, ..uncached };
    assert!(manager.allocate_slots(&first.view(), &args).expect("a valid call").is_some());
    first.num_computed_tokens = 32;
    first.num_in_flight_tokens = 0;
    let state = held(&manager, 1)[1][1];
    let key = CacheKey { hash: BlockHash([7; 4]), group: 1 };
    manager.pool_mut().insert_foreign_key(state, key, 32).expect("a block of the pool");
    // Seven window blocks are released. Four window blocks and a state are needed.
    let num_free = manager.pool().num_free_blocks();
    let step = |reserved_blocks| AllocateArgs {
        num_new_tokens: 16,
        reserved_blocks,
        ..AllocateArgs::default()
    };
    let before = kvoxide_core::digest(&manager);
    assert!(manager.allocate_slots(&first.view(), &step(num_free + 2)).is_err());
    assert_eq!(kvoxide_core::digest(&manager), before);
    assert_eq!(manager.allocate_slots(&first.view(), &step(num_free + 3)), Ok(None));
    assert_eq!(held(&manager, 1)[0][..7], [0; 7], "as in vLLM");
}

/// With a negative reserve, too few blocks pass the capacity check. The request is still refused.
#[test]
fn a_negative_reserve_adds_no_blocks() {
    let mut manager = made(config(6, &[GroupSpec::full(4)]));
    let request = Request::new(&manager, 1, 0..40);
    let args = |num_new_tokens, reserved_blocks| AllocateArgs {
        num_new_tokens,
        reserved_blocks,
        ..AllocateArgs::default()
    };
    let before = kvoxide_core::digest(&manager);
    assert_eq!(manager.allocate_slots(&request.view(), &args(24, 0)), Ok(None));
    assert!(manager.allocate_slots(&request.view(), &args(24, -1)).is_err());
    assert_eq!(kvoxide_core::digest(&manager), before);
    assert!(manager.allocate_slots(&request.view(), &args(24, isize::MIN)).is_err());
    assert!(manager.allocate_slots(&request.view(), &args(20, -1)).expect("room").is_some());
}

#[test]
fn a_negative_reserve_takes_nothing_from_a_running_request() {
    let mut manager = made(config(6, &[GroupSpec::sliding_window(4, 4)]));
    let mut request = Request::new(&manager, 1, 0..80);
    step(&mut manager, &mut request, 20);
    let args = |num_new_tokens| AllocateArgs {
        num_new_tokens,
        reserved_blocks: -1,
        ..AllocateArgs::default()
    };
    // Four of the request's five blocks leave the window first.
    let before = kvoxide_core::digest(&manager);
    assert!(manager.allocate_slots(&request.view(), &args(20)).is_err());
    assert_eq!(kvoxide_core::digest(&manager), before);
    assert!(manager.allocate_slots(&request.view(), &args(16)).expect("room").is_some());
}

/// A table that is longer than the step needs counts against a block that attention takes. It frees
/// no block.
#[test]
fn a_table_that_is_too_long_adds_no_blocks() {
    for (num_free, is_served) in [(22, Some(false)), (23, None), (24, Some(true))] {
        let mut manager =
            made(config(num_free + 4, &[GroupSpec::full(4), GroupSpec::new("mamba", 4)]));
        let mut request = Request::new(&manager, 1, 0..20);
        step(&mut manager, &mut request, 8);
        assert_eq!(manager.pool().num_free_blocks(), num_free as isize);
        request.num_computed_tokens = 0;
        let args = AllocateArgs {
            num_new_tokens: 4,
            num_lookahead_tokens: 100,
            ..AllocateArgs::default()
        };
        let before = kvoxide_core::digest(&manager);
        let served = manager.allocate_slots(&request.view(), &args);
        assert_eq!(served.as_ref().ok().map(Option::is_some), is_served, "{served:?}");
        assert_eq!(kvoxide_core::digest(&manager) == before, is_served != Some(true));
    }
}

#[test]
fn states_are_kept_at_the_interval_that_is_in_force() {
    let mut manager = manager(&[GroupSpec::full(4), states(0)]);
    for (interval, id, hits) in [(None, 1, [16, 32, 48]), (Some(32), 2, [0, 32, 48])] {
        manager.set_retention_interval(interval).expect("a multiple of the block size");
        let tokens = move |n: u64| (0..n).map(move |token| 1000 * id + token);
        let mut request = Request::new(&manager, id, tokens(49));
        for _ in 0..3 {
            step(&mut manager, &mut request, 16);
            manager.new_step_starts();
        }
        let hit = |n: &u64| look_up(&mut manager, tokens(*n)).length;
        assert_eq!([17, 33, 49].iter().map(hit).collect::<Vec<_>>(), hits);
    }
    let before = kvoxide_core::digest(&manager);
    assert!(manager.set_retention_interval(Some(24)).is_err(), "no multiple of 16");
    assert_eq!(kvoxide_core::digest(&manager), before);
}

#[test]
fn a_state_of_this_step_is_hit_in_the_next() {
    let mut manager = manager(&[GroupSpec::full(4), states(1)]);
    let mut first = Request::new(&manager, 1, 0..42);
    step(&mut manager, &mut first, 40);
    let mut second = Request::new(&manager, 2, 0..60);
    let hit = look_up(&mut manager, 0..60);
    let args = AllocateArgs {
        num_new_tokens: 20,
        num_new_computed_tokens: hit.length,
        new_computed_blocks: &hit.blocks,
        ..AllocateArgs::default()
    };
    assert!(manager.allocate_slots(&second.view(), &args).expect("a valid call").is_none());
    manager.new_step_starts();
    assert_eq!(admit(&mut manager, &mut second), 40);
}

#[test]
fn blocks_for_drafts_move_with_the_running_state() {
    let mut manager = manager(&[states(2)]);
    let mut request = Request::new(&manager, 1, 0..200);
    step(&mut manager, &mut request, 16);
    assert_eq!(held(&manager, 1), [[1, 2, 3]]);
    step(&mut manager, &mut request, 48);
    assert_eq!(held(&manager, 1), [[1, 0, 0, 2, 3, 4]]);
    // The state after 16 tokens is released, and so is everything before the state after 64 tokens.
    step(&mut manager, &mut request, 16);
    assert_eq!(held(&manager, 1), [[0, 0, 0, 2, 3, 4, 5]]);
}

#[test]
fn states_behind_steps_in_flight_are_released_once_these_are_done() {
    let mut manager = manager(&[states(0)]);
    let mut request = Request::new(&manager, 1, 0..200);
    request.num_in_flight_tokens = 48;
    for _ in 0..3 {
        step(&mut manager, &mut request, 16);
    }
    assert_eq!(held(&manager, 1), [[1, 2, 3]]);
    assert_eq!(manager.remove_skipped_blocks(1, 48, None), Ok(()));
    assert_eq!(held(&manager, 1), [[0, 0, 3]]);
}

#[test]
fn the_state_at_the_end_of_a_prompt_leaves_its_last_token_to_compute() {
    let mut manager = manager(&[GroupSpec::full(4), states(0)]);
    let mut request = Request::new(&manager, 1, 0..44);
    step(&mut manager, &mut request, 40);
    manager.new_step_starts();
    assert_eq!(look_up(&mut manager, 0..60).length, 40);
}

#[test]
fn a_state_inside_a_chunk_and_a_block_stands_before_the_running_one() {
    let exported = states(0)
        .with(Size::NumPrefillCheckpointBlocks, 1)
        .with(Size::PrefillCheckpointAlignment, 1);
    let mut manager = manager(&[GroupSpec::full(4), exported]);
    let mut request = Request::new(&manager, 1, 0..58);
    step(&mut manager, &mut request, 58);
    manager.new_step_starts();
    let hit = look_up(&mut manager, 0..60);
    let row = &held(&manager, 1)[1];
    assert_eq!((hit.length, row.len()), (56, 4));
    assert_eq!(ids(&hit.blocks)[1], [0, 0, 0, row[2]]);
}

#[test]
fn a_state_inside_the_last_chunk_stands_before_the_running_one() {
    let exported = states(0)
        .with(Size::NumPrefillCheckpointBlocks, 1)
        .with(Size::PrefillCheckpointAlignment, 1);
    let mut manager = manager(&[GroupSpec::full(16), exported]);
    let mut request = Request::new(&manager, 1, 0..60);
    step(&mut manager, &mut request, 60);
    assert_eq!(held(&manager, 1), [[1, 2, 3, 4], [0, 0, 5, 6]]);
    manager.new_step_starts();
    let hit = look_up(&mut manager, 0..60);
    assert_eq!((hit.length, &ids(&hit.blocks)[1][..]), (48, &[0, 0, 5][..]));
}

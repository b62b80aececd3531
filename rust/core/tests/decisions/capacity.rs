//! Capacity checks: which tokens and blocks they count.

use kvoxide_core::{AllocateArgs, Error, GroupSpec, Manager, ManagerConfig, Size};

use crate::small::{Request, admit, allocate, config, ids, look_up, made, manager, serve, step};

fn tokens(num_new_tokens: usize) -> AllocateArgs<'static> {
    AllocateArgs { num_new_tokens, ..AllocateArgs::default() }
}

/// Counts more tokens as computed than the model takes. The window of the whole request ends at the
/// model length.
#[test]
fn the_whole_request_ends_where_the_model_does() {
    for (watermark, is_served) in [(0.84, true), (0.91, false)] {
        let groups = [GroupSpec::sliding_window(4, 4)];
        let config = ManagerConfig { watermark, max_model_len: 16, ..config(11, &groups) };
        let mut manager = made(config);
        let mut request = Request::new(&manager, 1, 0..40);
        request.num_computed_tokens = 30;
        let args =
            AllocateArgs { full_sequence_must_fit: true, has_scheduled_reqs: true, ..tokens(4) };
        // The window counts one block for the whole request and none for the step. Nine or ten of
        // the ten free blocks are reserved.
        let served = manager.allocate_slots(&request.view(), &args);
        assert_eq!(served.expect("a valid call").is_some(), is_served);
    }
}

#[test]
fn usual_tables_take_any_number_of_tokens_and_state_tables_twice_the_model_length() {
    let with = |group| made(ManagerConfig { max_model_len: 16, ..config(41, &[group]) });
    let answer = |manager: &mut Manager, num_new_tokens| {
        let request = Request::new(manager, 1, 0..100);
        let served = manager.allocate_slots(&request.view(), &tokens(num_new_tokens));
        served.map(|new| new.is_some())
    };
    assert_eq!(answer(&mut with(GroupSpec::full(4)), 100), Ok(true));
    let states = || with(GroupSpec::new("mamba", 4));
    assert_eq!(answer(&mut states(), 32), Ok(true));
    assert!(matches!(answer(&mut states(), 33), Err(Error::Request(_))));
}

/// Frees five blocks of full attention's hit and two blocks of the window's hit.
#[test]
fn free_blocks_of_a_hit_are_counted_group_by_group() {
    let groups = [GroupSpec::full(4), GroupSpec::sliding_window(4, 8)];
    for (least, full_sequence_must_fit) in [(9, false), (9, true)] {
        for num_free in [least - 1, least] {
            let mut manager = manager(&groups);
            serve(&mut manager, 1, 0..20);
            let hit = look_up(&mut manager, 0..21);
            assert_eq!(ids(&hit.blocks), [vec![1, 2, 3, 4, 5], vec![0, 0, 0, 9, 10]]);
            manager.pool_mut().touch(&[6, 7, 8]);
            let num_taken = manager.pool().num_free_blocks() as usize - num_free;
            manager.pool_mut().allocate(num_taken, &mut Vec::new());
            let request = Request::new(&manager, 2, 0..21);
            let args = AllocateArgs {
                num_new_computed_tokens: 20,
                new_computed_blocks: &hit.blocks,
                full_sequence_must_fit,
                ..tokens(1)
            };
            let served = manager.allocate_slots(&request.view(), &args).expect("a valid call");
            assert_eq!(served.is_some(), num_free == least);
        }
    }
}

/// Checks tables of buffers and encoders. They attach no hit, so external tokens are accepted
/// although the tables have blocks.
#[test]
fn a_request_whose_tables_attach_no_hit_takes_external_tokens() {
    let uncached =
        |groups: &[GroupSpec]| made(ManagerConfig { enable_caching: false, ..config(41, groups) });
    let external = AllocateArgs { num_external_computed_tokens: 8, ..tokens(4) };
    for kind in ["circular_buffer", "cross_attention"] {
        let group = GroupSpec::new(kind, 8);
        let mut manager = uncached(std::slice::from_ref(&group));
        let mut request = Request::new(&manager, 1, 0..40);
        let first = AllocateArgs { num_encoder_tokens: 4, ..tokens(4) };
        assert_eq!(allocate(&mut manager, &mut request, &first), [[1]]);
        assert_eq!(allocate(&mut manager, &mut request, &external), [[0; 0]]);
        let mut manager = uncached(&[GroupSpec::full(4), group]);
        let mut request = Request::new(&manager, 1, 0..40);
        allocate(&mut manager, &mut request, &first);
        let refused = manager.allocate_slots(&request.view(), &external);
        assert!(matches!(refused, Err(Error::Precondition(_))), "{refused:?}");
    }
}

/// Checks that external tokens allocate the buffer before the step does. A hit does not.
#[test]
fn a_buffer_is_new_to_a_request_with_a_hit() {
    let mut manager = manager(&[GroupSpec::full(4), GroupSpec::new("circular_buffer", 8)]);
    serve(&mut manager, 1, 0..20);
    let hit = look_up(&mut manager, 0..20);
    let mut request = Request::new(&manager, 2, 0..20);
    let args = AllocateArgs {
        num_new_computed_tokens: hit.length,
        new_computed_blocks: &hit.blocks,
        ..tokens(4)
    };
    let new = allocate(&mut manager, &mut request, &args);
    assert_eq!(new.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1]);
}

/// The step continues in a block of the table. The whole request needs one more state.
#[test]
fn the_whole_table_of_a_running_state_must_fit() {
    for (num_taken, is_served) in [(59, true), (60, false)] {
        let mut manager = manager(&[GroupSpec::new("mamba", 4)]);
        let mut request = Request::new(&manager, 1, 0..40);
        step(&mut manager, &mut request, 2);
        manager.pool_mut().allocate(num_taken - 1, &mut Vec::new());
        let args = AllocateArgs { full_sequence_must_fit: true, ..tokens(1) };
        let served = manager.allocate_slots(&request.view(), &args).expect("a valid call");
        assert_eq!(served.is_some(), is_served);
    }
}

#[test]
fn a_table_without_the_states_of_computed_tokens_takes_the_running_one() {
    let mut manager = made(config(2, &[GroupSpec::new("mamba", 4)]));
    let mut request = Request::new(&manager, 1, 0..120);
    request.num_computed_tokens = 100;
    assert_eq!(allocate(&mut manager, &mut request, &tokens(4))[0].last(), Some(&1));
    assert_eq!(manager.pool().num_free_blocks(), 0);
}

#[test]
fn a_step_that_takes_no_block_makes_no_observation() {
    let exporting = GroupSpec::new("mamba", 4)
        .with(Size::NumPrefillCheckpointBlocks, 1)
        .with(Size::PrefillCheckpointAlignment, 4);
    // The table has a position for a state inside its second chunk, but the step demands no block
    // for it.
    for (group, computed, num_new) in
        [(GroupSpec::full(4), [0, 3], [3, 1]), (exporting, [2, 4], [10, 8])]
    {
        let mut manager = made(ManagerConfig { observe: true, ..config(41, &[group]) });
        let mut request = Request::new(&manager, 1, 0..40);
        for (num_computed_tokens, num_new_tokens) in computed.into_iter().zip(num_new) {
            manager.pool_mut().take_observations();
            request.num_computed_tokens = num_computed_tokens;
            step(&mut manager, &mut request, num_new_tokens);
        }
        assert_eq!(manager.pool_mut().take_observations(), []);
    }
}

#[test]
fn without_caching_an_empty_list_is_no_hit() {
    for (group, blocks) in [(GroupSpec::full(4), 5), (GroupSpec::sliding_window(4, 4), 5)] {
        let mut manager = made(ManagerConfig { enable_caching: false, ..config(41, &[group]) });
        let mut request = Request::new(&manager, 1, 0..20);
        assert_eq!(admit(&mut manager, &mut request), 0);
        assert_eq!(manager.blocks_of(1).map(|held| held.groups[0].blocks.len()), Ok(blocks));
    }
}

/// With this many external tokens, the window skips the whole hit, wherever the hit ends.
#[test]
fn a_hit_that_every_window_skips_may_end_anywhere() {
    let mut manager = manager(&[GroupSpec::sliding_window(8, 4)]);
    serve(&mut manager, 1, 0..8);
    let hit = look_up(&mut manager, 0..9).blocks;
    let request = Request::new(&manager, 2, 0..60);
    let answer = |manager: &mut Manager, external| {
        let args = AllocateArgs {
            num_new_computed_tokens: 7,
            new_computed_blocks: &hit,
            num_external_computed_tokens: external,
            ..tokens(1)
        };
        manager.allocate_slots(&request.view(), &args)
    };
    // After 10 tokens the window starts at 7, after 11 at 8.
    let refused = answer(&mut manager, 3);
    assert!(matches!(refused, Err(Error::Request(_))), "{refused:?}");
    assert!(answer(&mut manager, 4).is_ok_and(|new| new.is_some()));
}

/// Draft blocks are allocated for the whole step, with or without lookahead.
#[test]
fn lookahead_takes_no_state() {
    let group = GroupSpec::new("mamba", 4).with(Size::NumSpeculativeBlocks, 1);
    let mut manager = manager(&[group]);
    let mut request = Request::new(&manager, 1, 0..4);
    let args = AllocateArgs { num_lookahead_tokens: 9, ..tokens(4) };
    assert_eq!(allocate(&mut manager, &mut request, &args), [[1, 2]]);
}

/// Counts tokens as computed although the request holds no blocks for them. The ten blocks that it
/// releases and the six blocks after them fill its table.
#[test]
fn released_blocks_of_a_request_fill_its_own_table() {
    for (num_blocks, is_served) in [(16, false), (17, true)] {
        let config = config(num_blocks, &[GroupSpec::sliding_window(4, 16)]);
        let mut manager = made(ManagerConfig { enable_caching: false, ..config });
        let mut request = Request::new(&manager, 1, 0..120);
        manager.allocate_slots(&request.view(), &tokens(40)).expect("a valid call").expect("room");
        request.num_computed_tokens = 100;
        let served = manager.allocate_slots(&request.view(), &tokens(4));
        assert_eq!(served.is_ok(), is_served, "{served:?}");
        let held = manager.blocks_of(1).expect("a request that runs").groups[0].blocks.iter();
        let whole =
            [[0; 10].as_slice(), &[10, 9, 8, 7, 6, 5, 4, 3, 2, 1], &[11, 12, 13, 14, 15, 16]];
        let rows = if is_served { whole.concat() } else { (1..11).collect() };
        assert_eq!(held.collect::<Vec<_>>(), rows);
    }
}

//! Allocations of slots: which ones succeed, which are refused, and external tokens.

use kvoxide_core::{AllocateArgs, Error, GroupSpec, Manager, ManagerConfig};

use crate::small::{Request, admit, allocate, config, held, look_up, made, manager, serve, step};

/// Returns whether a request gets slots for the first `num_new_tokens` of `args`.
fn fits(manager: &mut Manager, num_tokens: u64, is_waiting: bool, args: AllocateArgs<'_>) -> bool {
    let mut request = Request::new(manager, 99, 1000..1000 + num_tokens);
    request.is_waiting = is_waiting;
    manager.allocate_slots(&request.view(), &args).expect("a valid call").is_some()
}

fn tokens(num_new_tokens: usize) -> AllocateArgs<'static> {
    AllocateArgs { num_new_tokens, ..AllocateArgs::default() }
}

fn ten_blocks() -> Manager {
    made(ManagerConfig { watermark: 0.2, ..config(11, &[GroupSpec::full(4)]) })
}

#[test]
fn an_allocation_without_enough_free_blocks_returns_none() {
    assert!(!fits(&mut ten_blocks(), 41, true, tokens(41)));
    assert!(fits(&mut ten_blocks(), 40, true, tokens(40)));
}

#[test]
fn the_watermark_is_kept_free_by_waiting_requests_beside_others() {
    let beside = |n| AllocateArgs { has_scheduled_reqs: true, ..tokens(n) };
    assert_eq!(ten_blocks().watermark_blocks(), 2);
    assert!(!fits(&mut ten_blocks(), 36, true, beside(36)));
    assert!(fits(&mut ten_blocks(), 32, true, beside(32)));
    assert!(fits(&mut ten_blocks(), 40, false, beside(40)));
    assert!(fits(&mut ten_blocks(), 40, true, tokens(40)));
}

#[test]
fn reserved_blocks_are_left_for_others() {
    let reserved = |reserved_blocks| AllocateArgs { reserved_blocks, ..tokens(24) };
    assert!(!fits(&mut ten_blocks(), 24, true, reserved(5)));
    assert!(fits(&mut ten_blocks(), 24, true, reserved(4)));
}

#[test]
fn the_full_sequence_must_fit() {
    let whole = || AllocateArgs { full_sequence_must_fit: true, ..tokens(4) };
    assert!(fits(&mut ten_blocks(), 40, true, whole()));
    assert!(!fits(&mut ten_blocks(), 41, true, whole()));
    let beside = || AllocateArgs { has_scheduled_reqs: true, ..whole() };
    assert!(fits(&mut ten_blocks(), 32, true, beside()));
    assert!(!fits(&mut ten_blocks(), 33, true, beside()));
}

#[test]
fn a_window_is_admitted_by_the_blocks_that_it_holds_at_once() {
    // The 7 tokens of the window and 8 tokens in flight take 4 blocks, and 5 if they start inside a
    // block.
    for (num_blocks, is_admitted) in [(6, true), (5, false)] {
        let groups = [GroupSpec::sliding_window(4, 8)];
        let config = ManagerConfig { max_in_flight_tokens: Some(8), ..config(num_blocks, &groups) };
        let whole = AllocateArgs { full_sequence_must_fit: true, ..tokens(8) };
        assert_eq!(fits(&mut made(config), 100, true, whole), is_admitted);
    }
}

#[test]
fn free_blocks_of_a_hit_are_not_free_for_the_rest() {
    let mut manager = ten_blocks();
    serve(&mut manager, 1, 0..20);
    let mut other = Request::new(&manager, 2, 100..120);
    admit(&mut manager, &mut other);
    let hit = look_up(&mut manager, 0..21);
    assert_eq!(hit.length, 20);
    let args = AllocateArgs {
        num_new_tokens: 1,
        num_new_computed_tokens: 20,
        new_computed_blocks: &hit.blocks,
        ..AllocateArgs::default()
    };
    // Five blocks are free, all of them in the hit. A sixth is needed.
    assert!(!fits(&mut manager, 21, true, args));
}

#[test]
fn no_slots_beyond_the_model_length() {
    let groups = [GroupSpec::full(4)];
    let mut manager = made(ManagerConfig::new(41, groups.to_vec(), 16));
    let mut request = Request::new(&manager, 1, 0..14);
    let args = AllocateArgs { num_lookahead_tokens: 10, ..tokens(14) };
    assert_eq!(allocate(&mut manager, &mut request, &args), [[1, 2, 3, 4]]);
}

#[test]
fn encoder_tokens_of_any_number_fit_or_do_not() {
    let groups = [GroupSpec::full(4), GroupSpec::new("cross_attention", 1)];
    let config = ManagerConfig { enable_caching: false, ..config(11, &groups) };
    for (num_encoder_tokens, is_admitted) in [(9, true), (10, false), (usize::MAX, false)] {
        let args = AllocateArgs { num_encoder_tokens, ..tokens(4) };
        assert_eq!(fits(&mut made(config.clone()), 4, true, args), is_admitted);
    }
}

#[test]
fn a_hit_beyond_the_model_length_is_attached_up_to_it() {
    let beyond = |group: GroupSpec, num_blocks, num_hit| {
        let mut manager = made(ManagerConfig { max_model_len: 32, ..config(num_blocks, &[group]) });
        let request = Request::new(&manager, 1, 0..20);
        let hit = manager.no_blocks();
        let args = AllocateArgs {
            num_new_computed_tokens: num_hit,
            new_computed_blocks: &hit,
            ..tokens(1)
        };
        let new = manager.allocate_slots(&request.view(), &args);
        new.map(|new| new.map(|new| (held(&manager, 1)[0].len(), new[0].len())))
    };
    let window = || GroupSpec::sliding_window(4, 8);
    // The model has 8 blocks. The window starts in the 6th of them, then after all of them, and at
    // 65 nowhere.
    assert_eq!(beyond(window(), 4, 31), Ok(Some((8, 2))));
    assert_eq!(beyond(window(), 4, 48), Ok(Some((10, 0))));
    assert_eq!(beyond(window(), 4, 64), Ok(Some((14, 0))));
    assert!(matches!(beyond(window(), 4, 65), Err(Error::Request(_))));
    assert!(matches!(beyond(window(), 4, usize::MAX), Err(Error::Request(_))));
    // Full attention reads the whole hit, up to the last slot.
    assert_eq!(beyond(GroupSpec::full(4), 9, usize::MAX), Ok(Some((8, 8))));
    assert_eq!(beyond(GroupSpec::full(4), 8, usize::MAX), Ok(None));
}

#[test]
fn draft_tokens_are_not_cached() {
    let mut manager = manager(&[GroupSpec::full(4)]);
    let mut request = Request::new(&manager, 1, 0..6);
    step(&mut manager, &mut request, 6);
    step(&mut manager, &mut request, 5); // none of them verified
    assert_eq!(held(&manager, 1), [[1, 2, 3]]);
    assert_eq!(manager.pool().index().num_cached(), 1);
}

#[test]
fn external_tokens_get_blocks_unless_they_lie_behind_the_window() {
    for (group, blocks) in [
        (GroupSpec::full(4), vec![1, 2, 3, 4, 5, 6, 7, 8, 9]),
        // Token 32 attends to 25 and later.
        (GroupSpec::sliding_window(4, 8), vec![0, 0, 0, 0, 0, 0, 1, 2, 3]),
    ] {
        let mut manager = manager(&[group]);
        let mut request = Request::new(&manager, 1, 0..34);
        let args = AllocateArgs { num_external_computed_tokens: 32, ..tokens(2) };
        allocate(&mut manager, &mut request, &args);
        assert_eq!(held(&manager, 1), [blocks]);
    }
}

#[test]
fn delayed_blocks_are_cached_by_a_later_call() {
    let mut manager = manager(&[GroupSpec::full(4)]);
    let mut request = Request::new(&manager, 1, 0..10);
    let args = AllocateArgs {
        num_external_computed_tokens: 8,
        delay_cache_blocks: true,
        ..AllocateArgs::default()
    };
    allocate(&mut manager, &mut request, &args);
    assert_eq!(look_up(&mut manager, 0..10).length, 0);
    manager.cache_blocks(&request.view(), 8).expect("blocks that are there");
    assert_eq!(look_up(&mut manager, 0..10).length, 8);
}

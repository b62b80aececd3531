//! Events for observers that mirror the cache.

use kvoxide_core::{Event, GroupSpec, Manager, ManagerConfig, StoredEvent};

use crate::small::{Request, admit, config, decode, made, serve};

fn reporting(num_blocks: usize, groups: &[GroupSpec]) -> Manager {
    made(ManagerConfig { enable_events: true, ..config(num_blocks, groups) })
}

/// Returns the event for blocks of 4 tokens of request 1 in group 0.
fn stored(request: &Request, positions: std::ops::Range<usize>) -> Event {
    Event::Stored(StoredEvent {
        request: request.id,
        group: 0,
        block_hashes: request.hashes[positions.clone()].to_vec(),
        block_starts: positions.clone().map(|i| i * 4).collect(),
        parent: positions.start.checked_sub(1).map(|i| request.hashes[i]),
        start_token: positions.start * 4,
        end_token: positions.end * 4,
        block_size: 4,
        is_partial: false,
    })
}

#[test]
fn blocks_that_enter_the_cache_name_their_parent() {
    let mut manager = reporting(41, &[GroupSpec::full(4)]);
    let mut request = Request::new(&manager, 1, 0..10);
    admit(&mut manager, &mut request);
    assert_eq!(manager.take_events(), [stored(&request, 0..2)]);
    decode(&mut manager, &mut request, [100, 101]);
    assert_eq!(manager.take_events(), [stored(&request, 2..3)]);
    assert_eq!(manager.take_events(), []);
}

#[test]
fn a_hit_is_reported_only_on_request() {
    let mut manager = reporting(41, &[GroupSpec::full(4)]);
    serve(&mut manager, 2, 0..10);
    manager.take_events();
    let request = Request::new(&manager, 1, 0..10);
    let hit = manager.get_computed_blocks(1, &request.view().hashes, 9).expect("a look-up");
    assert_eq!(manager.take_events(), []);
    manager.report_hit(&request.view(), &hit).expect("enough hashes");
    assert_eq!(manager.take_events(), [stored(&request, 0..2)]);
}

#[test]
fn an_event_leaves_out_masked_blocks_but_not_their_tokens() {
    let mut manager = reporting(61, &[GroupSpec::full(32), GroupSpec::sliding_window(8, 8)]);
    let mut request = Request::new(&manager, 1, 0..65);
    admit(&mut manager, &mut request);
    let hashes = vec![request.hashes[3], request.hashes[7]];
    let event = |group, block_starts, block_size| {
        Event::Stored(StoredEvent {
            request: 1,
            group,
            block_hashes: hashes.clone(),
            block_starts,
            parent: None,
            start_token: 0,
            end_token: 64,
            block_size,
            is_partial: false,
        })
    };
    assert_eq!(manager.take_events(), [event(0, vec![0, 32], 32), event(1, vec![24, 56], 8)]);
}

#[test]
fn the_end_of_a_prompt_inside_a_block_is_reported() {
    let mut manager = reporting(61, &[GroupSpec::full(32), GroupSpec::sliding_window(8, 8)]);
    let mut request = Request::new(&manager, 1, 0..44);
    admit(&mut manager, &mut request);
    manager.take_events();
    decode(&mut manager, &mut request, 100..120);
    let tail = Event::Stored(StoredEvent {
        request: 1,
        group: 0,
        block_hashes: vec![request.hashes[4]],
        block_starts: vec![32],
        parent: Some(request.hashes[3]),
        start_token: 32,
        end_token: 40,
        block_size: 8,
        is_partial: true,
    });
    assert!(manager.take_events().contains(&tail));
}

#[test]
fn blocks_that_leave_the_cache_are_reported() {
    let mut manager = reporting(4, &[GroupSpec::full(4)]);
    let first = serve(&mut manager, 1, 0..10);
    manager.take_events();
    let mut request = Request::new(&manager, 2, 50..57);
    admit(&mut manager, &mut request);
    let removed = Event::Removed { hash: first.hashes[1], group: 0 };
    assert_eq!(manager.take_events()[0], removed);
    manager.free(2).expect("a request that runs");
    assert!(manager.reset_prefix_cache());
    assert_eq!(manager.take_events(), [Event::Cleared]);
}

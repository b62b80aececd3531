//! Hits: the longest prefix from which every group can continue.

use kvoxide_core::{GroupSpec, ManagerConfig};

use crate::small::{Request, config, ids, look_up, made, manager, serve, step};

#[test]
fn the_shortest_group_decides() {
    let mut manager = manager(&[GroupSpec::full(4), GroupSpec::sliding_window(4, 8)]);
    serve(&mut manager, 1, 0..32);
    manager.evict_blocks(&[16]).expect("a block of the pool"); // the window group's block 7
    let hit = look_up(&mut manager, 0..33);
    // Full attention alone would hit 32.
    assert_eq!((hit.length, hit.shared_prefix_boundary), (28, 32));
    assert_eq!(ids(&hit.blocks), [[1, 2, 3, 4, 5, 6, 7], [0, 0, 0, 0, 0, 14, 15]]);
}

#[test]
fn three_groups_settle_on_one_length() {
    let mut manager = manager(&[
        GroupSpec::full(4),
        GroupSpec::sliding_window(4, 8),
        GroupSpec::sliding_window(4, 16),
    ]);
    serve(&mut manager, 1, 0..40);
    // Blocks 9 of the short window and 6 of the long one.
    manager.evict_blocks(&[20, 27]).expect("blocks of the pool");
    let hit = look_up(&mut manager, 0..41);
    // The short window allows hits of up to 36 tokens. For these, the long window needs blocks
    // below 6.
    assert_eq!((hit.length, hit.shared_prefix_boundary), (24, 40));
    assert_eq!(
        ids(&hit.blocks),
        [[1, 2, 3, 4, 5, 6], [0, 0, 0, 0, 15, 16], [0, 0, 23, 24, 25, 26]]
    );
}

#[test]
fn each_group_has_a_hit_of_its_own() {
    let mut manager = manager(&[GroupSpec::full(4), GroupSpec::sliding_window(4, 8)]);
    let request = serve(&mut manager, 1, 0..32);
    manager.evict_blocks(&[16]).expect("a block of the pool");
    let (blocks, lengths) =
        manager.find_longest_hit_per_group(&request.view().hashes, 32).expect("a look-up");
    assert_eq!(lengths, [32, 28]);
    assert_eq!(blocks.iter().map(|group| group.len()).collect::<Vec<_>>(), [8, 7]);
}

#[test]
fn hits_are_aligned_to_the_least_common_multiple() {
    for other in [GroupSpec::full(12), GroupSpec::sliding_window(12, 24)] {
        let mut manager = manager(&[GroupSpec::full(8), other]);
        serve(&mut manager, 1, 0..64);
        assert_eq!(look_up(&mut manager, 0..64).length, 48);
        assert_eq!(look_up(&mut manager, 0..48).length, 24);
    }
}

#[test]
fn groups_with_equal_specs_hit_together() {
    let mut manager = manager(&[GroupSpec::full(4), GroupSpec::full(4)]);
    serve(&mut manager, 1, 0..12);
    manager.evict_blocks(&[6]).expect("a block of the pool"); // the second group's block 2
    let hit = look_up(&mut manager, 0..13);
    assert_eq!(hit.length, 8);
    assert_eq!(ids(&hit.blocks), [[1, 2], [4, 5]]);
}

#[test]
fn eagle_drops_the_last_block_of_a_hit() {
    for (use_eagle, length) in [(false, 12), (true, 8)] {
        let config = ManagerConfig { use_eagle, ..config(41, &[GroupSpec::full(4)]) };
        let mut manager = made(config);
        serve(&mut manager, 1, 0..14);
        assert_eq!(look_up(&mut manager, 0..14).length, length);
    }
}

#[test]
fn a_drop_in_one_group_shortens_the_hit_of_all() {
    for (is_eagle_group, use_eagle, length) in
        [(false, false, 16), (false, true, 12), (true, true, 12), (true, false, 16)]
    {
        let window = GroupSpec { is_eagle_group, ..GroupSpec::sliding_window(4, 8) };
        let config = ManagerConfig { use_eagle, ..config(41, &[GroupSpec::full(4), window]) };
        let mut manager = made(config);
        serve(&mut manager, 1, 0..17);
        assert_eq!(look_up(&mut manager, 0..17).length, length);
    }
}

#[test]
fn eagle_matches_a_block_beyond_the_maximum_length() {
    let groups = [GroupSpec::full(4), GroupSpec::sliding_window(4, 8)];
    let mut manager = made(ManagerConfig { use_eagle: true, ..config(41, &groups) });
    serve(&mut manager, 1, 0..24);
    // At most 23 tokens can be hit. The block up to 24 is still matched, and then dropped.
    let hit = look_up(&mut manager, 0..24);
    assert_eq!(hit.length, 20);
    assert_eq!(ids(&hit.blocks), [[1, 2, 3, 4, 5], [0, 0, 0, 10, 11]]);
}

#[test]
fn a_chunk_needs_only_its_own_blocks() {
    let mut manager = manager(&[GroupSpec::chunked_local(4, 8)]);
    let mut request = Request::new(&manager, 1, 0..20);
    step(&mut manager, &mut request, 20);
    // Token 15 attends to token 8 and later ones. Token 16 starts a chunk.
    for (num_tokens, expected) in
        [(16, &[0, 0, 3][..]), (17, &[0, 0, 0, 0]), (21, &[0, 0, 0, 0, 5])]
    {
        let hit = look_up(&mut manager, 0..num_tokens);
        assert_eq!(ids(&hit.blocks), [expected]);
        assert_eq!(hit.length, 4 * expected.len());
    }
}

#[test]
fn tokens_that_are_prefilled_again_are_not_cached() {
    let groups = [GroupSpec::full(4)];
    let mut manager = made(ManagerConfig { num_prefill_lookahead: 3, ..config(41, &groups) });
    serve(&mut manager, 1, 0..13); // the last two tokens can still change
    assert_eq!(look_up(&mut manager, 0..13).length, 8);
}

#[test]
fn groups_that_differ_only_in_being_eagle_groups_drop_together() {
    let marked = GroupSpec { is_eagle_group: true, ..GroupSpec::full(4) };
    let groups = [GroupSpec::full(4), marked, GroupSpec::sliding_window(8, 8)];
    let mut manager = made(ManagerConfig { use_eagle: true, ..config(41, &groups) });
    let mut request = Request::new(&manager, 1, 0..13);
    step(&mut manager, &mut request, 13);
    // Blocks up to the aligned boundary at 8 are cached. Groups that drop a block cache one more.
    let held = manager.blocks_of(1).expect("a request that runs");
    let cached: Vec<_> = held.groups.iter().map(|group| group.num_cached_blocks).collect();
    assert_eq!(cached, [Some(3), Some(3), Some(1)]);
}

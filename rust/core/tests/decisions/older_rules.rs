//! Rules of older releases of vLLM: what each changes, and how many blocks all requests share.

use kvoxide_core::group::Checkpoint;
use kvoxide_core::{
    AllocateArgs, GroupSpec, Manager, ManagerConfig, OlderRules, Policy, RequestView, Size,
};

use crate::small::{Request, admit, config, held, look_up, made, manager, serve, step};

fn exporting(num_drafts: usize) -> GroupSpec {
    GroupSpec::new("mamba", 4)
        .with(Size::NumSpeculativeBlocks, num_drafts)
        .with(Size::NumPrefillCheckpointBlocks, 1)
        .with(Size::PrefillCheckpointAlignment, 4)
}

/// Returns a manager without the rule of a name, and one with it.
fn without_and_with(name: &str, config: &ManagerConfig) -> [Manager; 2] {
    let rules = OlderRules::named([name]).expect("a rule");
    assert_ne!(rules, OlderRules::default());
    [OlderRules::default(), rules]
        .map(|older_rules| made(ManagerConfig { older_rules, ..config.clone() }))
}

#[test]
fn states_may_be_cached_up_to_the_last_token_of_a_prompt() {
    let groups = [GroupSpec::full(8), GroupSpec::new("mamba", 8)];
    let hashed = ManagerConfig { hash_block_size: Some(4), ..config(61, &groups) };
    let managers = without_and_with("caches_unreachable_ends", &hashed);
    for (mut manager, length) in managers.into_iter().zip([0, 12]) {
        let mut request = Request::new(&manager, 1, 0..12);
        step(&mut manager, &mut request, 12);
        manager.new_step_starts();
        assert_eq!(look_up(&mut manager, 0..60).length, length);
    }
}

#[test]
fn a_state_inside_a_chunk_may_be_at_the_last_hash() {
    let groups = [exporting(0), GroupSpec::sliding_window(8, 8)];
    let hashed = ManagerConfig { hash_block_size: Some(4), ..config(61, &groups) };
    let managers = without_and_with("places_checkpoints_by_hash", &hashed);
    for (mut manager, num_tokens) in managers.into_iter().zip([16, 20]) {
        assert!(!manager.has_partial_hits(), "hits end where the window's blocks do");
        let mut request = Request::new(&manager, 1, 0..23);
        step(&mut manager, &mut request, 23);
        let exported = manager.groups()[0].checkpoint(1);
        assert_eq!(exported, Some(Checkpoint { num_tokens, position: 4 }));
    }
}

#[test]
fn with_eagle_a_state_inside_a_chunk_may_leave_a_token_too() {
    let eagle = ManagerConfig { use_eagle: true, ..config(61, &[exporting(0)]) };
    let managers = without_and_with("places_checkpoints_by_hash", &eagle);
    for (mut manager, num_tokens) in managers.into_iter().zip([16, 12]) {
        let mut request = Request::new(&manager, 1, 0..20);
        step(&mut manager, &mut request, 20);
        let exported = manager.groups()[0].checkpoint(1).map(|state| state.num_tokens);
        assert_eq!(exported, Some(num_tokens));
    }
}

#[test]
fn states_inside_chunks_may_be_kept_off_the_retention_interval() {
    for (interval, num_new_tokens, kept) in
        [(Some(8), 15, [0, 12]), (Some(8), 10, [8, 8]), (Some(0), 15, [0, 0])]
    {
        let policy = Policy { retention_interval: interval, ..Policy::every_tail() };
        let retaining = ManagerConfig { policy, ..config(61, &[exporting(0)]) };
        let managers = without_and_with("caches_all_checkpoints", &retaining);
        for (mut manager, length) in managers.into_iter().zip(kept) {
            let request = Request::new(&manager, 1, 0..40);
            let args = AllocateArgs { num_new_tokens, ..AllocateArgs::default() };
            assert!(manager.allocate_slots(&request.view(), &args).is_ok_and(|new| new.is_some()));
            assert_eq!(look_up(&mut manager, 0..40).length, length, "{interval:?}");
        }
    }
}

#[test]
fn blocks_for_drafts_may_stay_when_a_chunk_has_a_state_inside() {
    let managers = without_and_with("renews_drafts_at_checkpoints", &config(61, &[exporting(2)]));
    let rows = [vec![1, 0, 3, 2, 4, 5], vec![1, 2, 3, 4, 5, 6]];
    for (mut manager, row) in managers.into_iter().zip(rows) {
        let mut request = Request::new(&manager, 1, 0..40);
        step(&mut manager, &mut request, 4);
        assert_eq!(held(&manager, 1), [vec![1, 2, 3]]);
        step(&mut manager, &mut request, 11);
        assert_eq!(held(&manager, 1), [row]);
    }
}

#[test]
fn the_end_of_a_prompt_may_be_cached_as_such_only_inside_a_block() {
    let groups = [GroupSpec::full(8), GroupSpec::new("mamba", 8)];
    let policy = Policy { retention_interval: Some(16), ..Policy::every_tail() };
    let sparse = ManagerConfig { hash_block_size: Some(4), policy, ..config(61, &groups) };
    let managers = without_and_with("caches_state_ends_inside_blocks", &sparse);
    for (mut manager, length) in managers.into_iter().zip([8, 8]) {
        let mut request = Request::new(&manager, 1, 0..9);
        step(&mut manager, &mut request, 8);
        manager.new_step_starts();
        assert_eq!(look_up(&mut manager, 0..60).length, length);
    }
}

#[test]
fn a_drop_may_look_at_no_block_beyond_the_longest_hit() {
    let groups = [GroupSpec::full(4), GroupSpec::sliding_window(4, 8)];
    let eagle = ManagerConfig { use_eagle: true, ..config(41, &groups) };
    let managers = without_and_with("bounds_proofs_by_hit", &eagle);
    for (mut manager, length) in managers.into_iter().zip([20, 16]) {
        serve(&mut manager, 1, 0..24);
        assert_eq!(look_up(&mut manager, 0..24).length, length);
        let request = Request::new(&manager, 2, 0..24);
        let hashes = RequestView { ..request.view() }.hashes;
        let (_, lengths) = manager.find_longest_hit_per_group(&hashes, 23).expect("a look-up");
        assert_eq!(lengths, [length, length]);
    }
}

#[test]
fn blocks_are_common_while_every_request_holds_them() {
    let mut manager = manager(&[GroupSpec::full(4), GroupSpec::sliding_window(4, 8)]);
    assert_eq!(manager.num_common_prefix_blocks(1), [0, 0], "it holds nothing");
    let mut first = Request::new(&manager, 1, 0..12);
    admit(&mut manager, &mut first);
    assert_eq!(manager.num_common_prefix_blocks(1), [3, 0]);
    let mut second = Request::new(&manager, 2, (0..8).chain(50..58));
    assert_eq!(admit(&mut manager, &mut second), 8);
    assert_eq!(manager.num_common_prefix_blocks(1), [2, 0]);
    assert_eq!(manager.num_common_prefix_blocks(2), [2, 0]);
    let mut third = Request::new(&manager, 3, 70..75);
    admit(&mut manager, &mut third);
    assert_eq!(manager.num_common_prefix_blocks(1), [0, 0]);
    manager.free(3).expect("a request that runs");
    manager.free(2).expect("a request that runs");
    assert_eq!(manager.num_common_prefix_blocks(1), [3, 0]);
    let uncached = ManagerConfig { enable_caching: false, ..config(41, &[GroupSpec::full(4)]) };
    let mut manager = made(uncached);
    let mut alone = Request::new(&manager, 1, 0..12);
    admit(&mut manager, &mut alone);
    assert_eq!(manager.num_common_prefix_blocks(1), [0]);
}

//! States inside a chunk of a prompt: where one is exported, whether it is cached, and which blocks
//! it takes.

use kvoxide_core::group::Checkpoint;
use kvoxide_core::{
    AllocateArgs, GroupSpec, Manager, ManagerConfig, Policy, RequestView, Size, SlotDemand, digest,
};

use crate::small::{Request, config, held, look_up, made, manager, step};

fn exporting(num_drafts: usize) -> GroupSpec {
    GroupSpec::new("mamba", 4)
        .with(Size::NumSpeculativeBlocks, num_drafts)
        .with(Size::NumPrefillCheckpointBlocks, 1)
        .with(Size::PrefillCheckpointAlignment, 4)
}

fn exported(manager: &Manager) -> Option<Checkpoint> {
    manager.groups()[0].checkpoint(1)
}

fn retaining(retention_interval: Option<usize>) -> ManagerConfig {
    let policy = Policy { retention_interval, ..Policy::every_tail() };
    ManagerConfig { policy, ..config(61, &[exporting(0)]) }
}

#[test]
fn a_block_for_drafts_may_take_the_state_inside_the_chunk() {
    for (num_new_tokens, at, row) in [
        (8, Checkpoint { num_tokens: 8, position: 1 }, vec![1, 2, 3, 4, 5]),
        // The block before the draft block moves to the end.
        (11, Checkpoint { num_tokens: 12, position: 2 }, vec![1, 0, 3, 2, 4, 5]),
    ] {
        let mut manager = manager(&[exporting(2)]);
        let mut request = Request::new(&manager, 1, 0..40);
        step(&mut manager, &mut request, 4);
        assert_eq!((exported(&manager), held(&manager, 1)), (None, vec![vec![1, 2, 3]]));
        step(&mut manager, &mut request, num_new_tokens);
        assert_eq!((exported(&manager), held(&manager, 1)), (Some(at), vec![row]));
    }
}

/// The scheduler counts only four of twelve tokens as computed.
#[test]
fn no_state_is_exported_at_a_position_that_has_one() {
    let mut manager = manager(&[exporting(0)]);
    let mut request = Request::new(&manager, 1, 0..40);
    step(&mut manager, &mut request, 12);
    assert_eq!(exported(&manager), Some(Checkpoint { num_tokens: 8, position: 1 }));
    request.num_computed_tokens = 4;
    step(&mut manager, &mut request, 8);
    assert_eq!((exported(&manager), held(&manager, 1)), (None, vec![vec![0, 1, 2]]));
}

#[test]
fn a_state_off_the_retention_interval_is_kept_at_a_shared_prefix_boundary() {
    const PROMPT: usize = 40;
    for (interval, num_new_tokens, num_prompt_tokens, junction, kept) in [
        (None, 15, PROMPT, 0, 12),
        (Some(8), 15, PROMPT, 0, 0),
        (Some(8), 15, PROMPT, 12, 12),
        (Some(8), 15, PROMPT, 8, 0),
        (Some(8), 15, 15, 0, 12),
        (Some(8), 10, PROMPT, 0, 8),
        (Some(12), 15, PROMPT, 0, 12),
        (Some(0), 15, PROMPT, 12, 0),
        (Some(0), 15, 15, 0, 12),
    ] {
        let mut manager = made(retaining(interval));
        let request = Request::new(&manager, 1, 0..num_prompt_tokens as u64);
        let args = AllocateArgs { num_new_tokens, ..AllocateArgs::default() };
        let view = RequestView { shared_prefix_boundary: junction, ..request.view() };
        assert!(manager.allocate_slots(&view, &args).is_ok_and(|new| new.is_some()));
        let what = (interval, num_new_tokens, num_prompt_tokens, junction);
        assert_eq!(look_up(&mut manager, 0..40).length, kept, "{what:?}");
    }
}

#[test]
fn without_the_mask_every_state_inside_a_chunk_is_kept() {
    let mut config = retaining(Some(8));
    config.policy.reachable_block_mask = false;
    let mut manager = made(config);
    let mut request = Request::new(&manager, 1, 0..40);
    step(&mut manager, &mut request, 15);
    assert_eq!(look_up(&mut manager, 0..40).length, 12);
}

#[test]
fn a_state_that_is_kept_needs_the_hash_of_its_tokens() {
    for (interval, num_new_tokens, num_hashes, is_served) in [
        (None, 15, 2, false),
        (None, 15, 3, true),
        (Some(8), 15, 2, true),
        (Some(8), 10, 1, false),
        (Some(8), 10, 2, true),
    ] {
        let mut manager = made(retaining(interval));
        let request = Request::new(&manager, 1, 0..40);
        let hashes = &request.hashes[..num_hashes];
        let view = RequestView { hashes: hashes.into(), ..request.view() };
        let args = AllocateArgs { num_new_tokens, ..AllocateArgs::default() };
        let before = digest(&manager);
        match manager.allocate_slots(&view, &args) {
            Ok(new) => assert_eq!((new.is_some(), is_served), (true, true)),
            Err(refusal) => {
                assert!(refusal.to_string().contains("these tokens have no hash yet"), "{refusal}");
                assert_eq!((digest(&manager), is_served), (before, false));
            }
        }
    }
}

#[test]
fn a_state_is_cached_as_soon_as_it_has_a_block() {
    let mut manager = made(ManagerConfig { enable_events: true, ..retaining(None) });
    let mut request = Request::new(&manager, 1, 0..40);
    step(&mut manager, &mut request, 4);
    let demand = SlotDemand {
        num_tokens: 15,
        num_tokens_main_model: 15,
        total_computed_tokens: 4,
        ..SlotDemand::default()
    };
    // The states need two blocks. A question about the whole request changes nothing.
    let before = digest(&manager);
    let whole = SlotDemand { apply_admission_cap: true, ..demand };
    assert_eq!(manager.get_num_blocks_to_allocate(1, &whole), Ok(2));
    assert_eq!(digest(&manager), before);
    assert_eq!(manager.get_num_blocks_to_allocate(1, &demand), Ok(2));
    let refusal = manager.cache_blocks(&request.view(), 4).expect_err("a refusal").to_string();
    assert!(refusal.contains("at position 2, has no block"), "{refusal}");
    step(&mut manager, &mut request, 11);
    manager.take_events();
    assert_eq!(manager.cache_blocks(&request.view(), 15), Ok(()));
    assert_eq!(manager.take_events(), [], "it is cached already");
    assert_eq!(look_up(&mut manager, 0..40).length, 12);
}

/// A negative reserve admits a request without enough free blocks.
#[test]
fn a_refused_step_leaves_no_state_behind() {
    let mut manager = made(config(5, &[exporting(0)]));
    let mut request = Request::new(&manager, 1, 0..40);
    step(&mut manager, &mut request, 4);
    manager.pool_mut().allocate(2, &mut Vec::new());
    let args = AllocateArgs { num_new_tokens: 11, reserved_blocks: -1, ..AllocateArgs::default() };
    let before = digest(&manager);
    assert!(manager.allocate_slots(&request.view(), &args).is_err());
    assert_eq!(digest(&manager), before);
}

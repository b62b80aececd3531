//! States at the end of the prefix that a prompt shares with others.

use kvoxide_core::{AllocateArgs, GroupSpec, ManagerConfig, RequestView};

use crate::small::{Request, config, look_up, made, step};

/// Returns the configuration of a model with draft layers. States are in blocks of four hash
/// blocks.
fn config_with(enable_mamba_shared_prefix_checkpoint: bool) -> ManagerConfig {
    let full = GroupSpec { is_eagle_group: true, ..GroupSpec::full(4) };
    let groups = [full, GroupSpec::new("mamba", 16)];
    ManagerConfig { enable_mamba_shared_prefix_checkpoint, ..config(61, &groups) }
}

/// Computes 20 tokens of a prompt that shares its first `boundary` tokens. Returns the length of
/// later requests' hits.
fn hit_at_20(keeps: bool, num_prompt_tokens: usize, boundary: usize) -> usize {
    let mut manager = made(config_with(keeps));
    let request = Request::new(&manager, 1, 0..60);
    let view =
        RequestView { num_prompt_tokens, shared_prefix_boundary: boundary, ..request.view() };
    let args = AllocateArgs { num_new_tokens: 20, ..AllocateArgs::default() };
    assert!(manager.allocate_slots(&view, &args).is_ok_and(|new| new.is_some()));
    manager.new_step_starts();
    look_up(&mut manager, 0..60).length
}

#[test]
fn the_state_at_a_boundary_inside_a_block_is_kept_if_configured() {
    assert_eq!(hit_at_20(true, 60, 20), 20);
    assert_eq!(hit_at_20(false, 60, 20), 0);
    assert_eq!(hit_at_20(true, 60, 16), 0, "the step ended elsewhere");
    assert_eq!(hit_at_20(true, 60, 0), 0, "nothing is shared");
}

#[test]
fn a_boundary_behind_the_prompt_keeps_no_state() {
    assert_eq!(hit_at_20(true, 20, 20), 20);
    assert_eq!(hit_at_20(true, 18, 20), 0);
    // The state at the last aligned boundary of the prompt is kept.
    assert_eq!(hit_at_20(true, 21, 0), 20);
    assert_eq!(hit_at_20(false, 24, 0), 20);
    assert_eq!(hit_at_20(false, 25, 0), 0);
}

/// A block that is cached later, when its tokens count as computed, has no state of a running
/// chunk.
#[test]
fn the_state_at_a_boundary_is_kept_in_the_step_that_reaches_it() {
    for (num_computed_tokens, hit) in [(20, 0), (19, 20), (40, 0)] {
        let mut manager = made(config_with(true));
        let request = Request::new(&manager, 1, 0..60);
        let view = RequestView { shared_prefix_boundary: 20, ..request.view() };
        let args = AllocateArgs {
            num_new_tokens: 20,
            delay_cache_blocks: true,
            ..AllocateArgs::default()
        };
        assert!(manager.allocate_slots(&view, &args).is_ok_and(|new| new.is_some()));
        let later = RequestView { num_computed_tokens, ..view };
        assert_eq!(manager.cache_blocks(&later, 20), Ok(()));
        manager.new_step_starts();
        assert_eq!(look_up(&mut manager, 0..60).length, hit);
    }
}

/// With EAGLE, the hit of attention drops a block. So later requests resume one hash block before
/// the last boundary of a prompt.
#[test]
fn with_a_dropped_block_the_state_is_kept_below_the_last_boundary() {
    for (num_prompt_tokens, first, hit) in [(30, 24, 24), (30, 20, 0), (28, 24, 24), (27, 20, 20)] {
        let mut manager = made(ManagerConfig { use_eagle: true, ..config_with(false) });
        let mut request = Request::new(&manager, 1, 0..num_prompt_tokens);
        step(&mut manager, &mut request, first);
        manager.new_step_starts();
        step(&mut manager, &mut request, num_prompt_tokens as usize - first);
        manager.new_step_starts();
        assert_eq!(look_up(&mut manager, 0..60).length, hit);
    }
}

#[test]
fn a_prompt_without_a_boundary_has_no_state_to_keep() {
    let mut manager = made(config_with(true));
    let request = Request::new(&manager, 1, 0..4);
    let args = AllocateArgs { num_new_tokens: 4, ..AllocateArgs::default() };
    assert!(manager.allocate_slots(&request.view(), &args).is_ok_and(|new| new.is_some()));
    assert_eq!(manager.cache_blocks(&request.view(), 0), Ok(()));
    assert_eq!(manager.pool().index().num_cached(), 1, "that of attention");
}

//! Steps that groups of states refuse, and similar steps that they accept.

use kvoxide_core::{
    AllocateArgs, BlockHash, CacheKey, GroupBlocks, GroupSpec, Manager, ManagerConfig, RequestView,
    Size, SlotDemand, digest,
};

use crate::small::{Request, allocate, config, held, look_up, made, manager, serve, step};

fn mamba(block_size: usize, drafts: usize) -> GroupSpec {
    GroupSpec::new("mamba", block_size).with(Size::NumSpeculativeBlocks, drafts)
}

/// Returns a manager with blocks of two hash blocks. Its request has computed 12 tokens of a prompt
/// of 14. The next step copies their state out of block 3.
fn before_a_copy(drafts: usize) -> (Manager, Request) {
    let groups = [GroupSpec::full(8), mamba(8, drafts)];
    let mut manager = made(ManagerConfig { hash_block_size: Some(4), ..config(61, &groups) });
    let mut first = Request::new(&manager, 1, 0..40);
    let args = AllocateArgs { num_new_tokens: 12, ..AllocateArgs::default() };
    let view = RequestView { num_prompt_tokens: 14, ..first.view() };
    assert!(manager.allocate_slots(&view, &args).is_ok_and(|new| new.is_some()));
    first.num_computed_tokens = 12;
    (manager, first)
}

fn with_prompt_of_14(request: &Request) -> RequestView<'_> {
    RequestView { num_prompt_tokens: 14, ..request.view() }
}

fn tokens(num_new_tokens: usize) -> AllocateArgs<'static> {
    AllocateArgs { num_new_tokens, ..AllocateArgs::default() }
}

/// Caches a block under a foreign key, as the state after `num_tokens` tokens.
fn cache(manager: &mut Manager, block: u32, num_tokens: usize) {
    let key = CacheKey { hash: BlockHash([7; 4]), group: 1 };
    manager.pool_mut().insert_foreign_key(block, key, num_tokens).expect("a block of the pool");
}

#[track_caller]
fn assert_refused(manager: &mut Manager, view: &RequestView<'_>, num_new: usize, says: &str) {
    let before = digest(manager);
    let refusal = manager.allocate_slots(view, &tokens(num_new)).expect_err("a refusal");
    assert!(refusal.to_string().contains(says), "{refusal}");
    assert_eq!(digest(manager), before);
}

#[test]
fn a_state_is_not_released_before_its_copy() {
    let (mut manager, mut first) = before_a_copy(0);
    // The state would be released first if tokens after its block counted as computed.
    first.num_computed_tokens = 20;
    let says = "the block to copy was released";
    assert_refused(&mut manager, &with_prompt_of_14(&first), 2, says);
    first.num_computed_tokens = 16;
    let served = manager.allocate_slots(&with_prompt_of_14(&first), &tokens(2));
    assert!(served.is_ok_and(|new| new.is_some()));
}

#[test]
fn a_block_for_drafts_that_is_cached_cannot_become_a_state() {
    let (mut manager, first) = before_a_copy(2);
    assert_eq!(held(&manager, 1)[1], [0, 3, 4, 5]);
    cache(&mut manager, 4, 24);
    let says = "group 1: the state at position 2 is already cached";
    assert_refused(&mut manager, &with_prompt_of_14(&first), 12, says);
    // A block that is cached for fewer tokens becomes the state of more tokens.
    let (mut manager, first) = before_a_copy(2);
    cache(&mut manager, 4, 20);
    let served = manager.allocate_slots(&with_prompt_of_14(&first), &tokens(12));
    assert!(served.is_ok_and(|new| new.is_some()));
}

#[test]
fn a_block_for_drafts_that_is_cached_cannot_move() {
    for (block, num_new_tokens) in [(4, 20), (5, 28)] {
        let (mut manager, first) = before_a_copy(2);
        cache(&mut manager, block, 12);
        let view = with_prompt_of_14(&first);
        assert_refused(
            &mut manager,
            &view,
            num_new_tokens,
            "cannot move, because it is shared, cached or released",
        );
    }
    let (mut manager, first) = before_a_copy(2);
    cache(&mut manager, 5, 12);
    let served = manager.allocate_slots(&with_prompt_of_14(&first), &tokens(20));
    assert!(served.is_ok_and(|new| new.is_some()));
    assert_eq!(held(&manager, 1)[1], [0, 3, 0, 5, 4, 9], "it stays where it is");
}

/// The copy takes over the keys of the state, so that the state's block can be cached again.
#[test]
fn a_state_that_is_copied_is_cached_anew() {
    let (mut manager, first) = before_a_copy(0);
    manager.evict_blocks(&[3]).expect("a block of the pool");
    cache(&mut manager, 3, 16);
    let served = manager.allocate_slots(&with_prompt_of_14(&first), &tokens(4));
    assert!(served.is_ok_and(|new| new.is_some()));
    assert_eq!(manager.take_block_copies(), [(3, 4)]);
    assert_eq!(manager.pool().blocks().hash_num_tokens(4), Some(16));
}

#[test]
fn a_state_can_be_cached_for_more_tokens_but_not_for_the_same() {
    let (mut manager, first) = before_a_copy(0);
    assert_eq!(manager.pool().blocks().hash_num_tokens(3), Some(12));
    assert_eq!(manager.cache_blocks(&with_prompt_of_14(&first), 16), Ok(()));
    assert_eq!(manager.pool().blocks().hash_num_tokens(3), Some(16));
    let (mut manager, first) = before_a_copy(0);
    manager.evict_blocks(&[3]).expect("a block of the pool");
    cache(&mut manager, 3, 16);
    let before = digest(&manager);
    let refusal = manager.cache_blocks(&with_prompt_of_14(&first), 16).expect_err("a refusal");
    assert!(refusal.to_string().contains("position 1 is already cached"), "{refusal}");
    assert_eq!(digest(&manager), before);
}

#[test]
fn a_final_state_is_offered_only_for_all_tokens_of_its_request() {
    for (computed, in_flight, block) in [(12, 0, Some(3)), (13, 0, None), (12, 1, None)] {
        let (mut manager, first) = before_a_copy(0);
        let view = RequestView {
            num_computed_tokens: computed,
            num_in_flight_tokens: in_flight,
            ..first.view()
        };
        let tails = manager.finalize_partial_tails(&view);
        assert_eq!(tails.iter().map(|tail| tail.block).next(), block);
    }
}

/// A step resumes from a state that was released elsewhere. The step is refused only if enough
/// blocks are free. Blocks that the step releases first count as free.
#[test]
fn blocks_that_each_kind_releases_first_count_as_free() {
    let rswa = GroupSpec::new("rswa", 4).with(Size::RswaWindow, 5);
    // 48 tokens are computed, 16 of them prompt. The step has 16 more tokens and demands a state
    // each time.
    for (group, num_new, num_given_back) in [
        (GroupSpec::full(4), 4, 0),
        (GroupSpec::sliding_window(4, 4), 4, 11),
        (GroupSpec::chunked_local(4, 32), 4, 8),
        (rswa, 4, 6),
        (GroupSpec::new("circular_buffer", 4), 0, 0),
        (GroupSpec::new("cross_attention", 4), 0, 0),
        (mamba(16, 0), 1, 2),
    ] {
        let mut manager =
            made(ManagerConfig { enable_caching: false, ..config(61, &[group, mamba(16, 0)]) });
        let mut first = Request::new(&manager, 1, 0..80);
        first.num_in_flight_tokens = 48;
        for num_new_tokens in [16; 3] {
            let args = AllocateArgs { num_encoder_tokens: 12, ..tokens(num_new_tokens) };
            allocate(&mut manager, &mut first, &args);
        }
        first.num_in_flight_tokens = 0;
        let view = RequestView { num_prompt_tokens: 16, ..first.view() };
        let state = *held(&manager, 1)[1].last().expect("a state");
        manager.release_blocks(&[state]).expect("a block with a reference");
        let room = manager.pool().num_free_blocks() + num_given_back + 2 - num_new - 1;
        let args = |reserved_blocks| AllocateArgs { reserved_blocks, ..tokens(16) };
        let before = digest(&manager);
        assert!(manager.allocate_slots(&view, &args(room)).is_err());
        assert_eq!(digest(&manager), before);
        assert_eq!(manager.allocate_slots(&view, &args(room + 1)), Ok(None));
    }
}

#[test]
fn computed_tokens_without_blocks_need_states_and_encoder_blocks_too() {
    let encoder = GroupSpec::new("cross_attention", 4);
    for (group, least) in [(mamba(4, 0), 27), (encoder, 28)] {
        for (num_free, is_served) in [(least - 1, false), (least, true)] {
            let groups = [GroupSpec::sliding_window(4, 8), group.clone()];
            let config = config(num_free + 1, &groups);
            let mut manager = made(ManagerConfig { enable_caching: false, ..config });
            let mut request = Request::new(&manager, 1, 0..120);
            request.num_computed_tokens = 100;
            let args = AllocateArgs { num_encoder_tokens: 8, ..tokens(4) };
            let new = manager.allocate_slots(&request.view(), &args);
            assert_eq!(new.is_ok_and(|new| new.is_some()), is_served);
        }
    }
}

/// The request holds a window and a state. It counts more tokens as computed than its blocks can
/// hold.
#[test]
fn a_refusal_for_lack_of_blocks_leaves_no_state_behind() {
    let exporting = mamba(4, 0)
        .with(Size::NumPrefillCheckpointBlocks, 1)
        .with(Size::PrefillCheckpointAlignment, 4);
    let mut manager = made(config(8, &[GroupSpec::sliding_window(4, 4), exporting]));
    let mut request = Request::new(&manager, 1, 0..80);
    allocate(&mut manager, &mut request, &AllocateArgs { delay_cache_blocks: true, ..tokens(4) });
    request.num_computed_tokens = 40;
    let before = digest(&manager);
    let refusal = manager.allocate_slots(&request.view(), &tokens(15));
    assert!(matches!(refusal, Err(kvoxide_core::Error::Block(_))), "{refusal:?}");
    assert_eq!(digest(&manager), before);
}

#[test]
fn a_running_request_with_states_can_be_asked_about_a_hit() {
    let mut manager = manager(&[mamba(4, 0)]);
    serve(&mut manager, 1, 0..8);
    manager.new_step_starts();
    let hit = look_up(&mut manager, 0..9).blocks;
    let mut running = Request::new(&manager, 2, 50..70);
    step(&mut manager, &mut running, 4);
    let demand = SlotDemand {
        num_tokens_main_model: 16,
        num_local_computed_tokens: 8,
        new_computed_blocks: &hit,
        ..SlotDemand::default()
    };
    // The running state needs a block, and the block of the hit is free.
    assert_eq!(manager.get_num_blocks_to_allocate(2, &demand), Ok(2));
    let args = AllocateArgs { new_computed_blocks: &hit, ..tokens(4) };
    assert!(manager.allocate_slots(&running.view(), &args).is_err());
    let none = [GroupBlocks::default()];
    let args = AllocateArgs { new_computed_blocks: &none, ..tokens(4) };
    assert!(manager.allocate_slots(&running.view(), &args).is_ok_and(|new| new.is_some()));
}

#[test]
fn a_state_of_this_step_counts_as_more_blocks_than_the_pool_has() {
    let mut manager = manager(&[mamba(4, 0)]);
    serve(&mut manager, 1, 0..8);
    let hit = look_up(&mut manager, 0..9).blocks;
    let demand = SlotDemand {
        num_tokens_main_model: 12,
        num_local_computed_tokens: 8,
        new_computed_blocks: &hit,
        ..SlotDemand::default()
    };
    assert_eq!(manager.get_num_blocks_to_allocate(2, &demand), Ok(62));
    manager.new_step_starts();
    assert_eq!(manager.get_num_blocks_to_allocate(2, &demand), Ok(2));
}

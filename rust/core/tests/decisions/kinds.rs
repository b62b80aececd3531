//! Kinds of groups whose tables are not the usual ones.

use kvoxide_core::{
    AllocateArgs, GroupSpec, ManagerConfig, NULL_BLOCK, Size, SlotDemand, check, digest,
};

use crate::small::{
    Request, admit, allocate, config, decode, free_ids, held, look_up, made, manager, serve, step,
};

fn rswa(block_size: usize, window: usize) -> GroupSpec {
    GroupSpec::new("rswa", block_size).with(Size::RswaWindow, window)
}

fn circular(size: usize) -> GroupSpec {
    GroupSpec::new("circular_buffer", size)
}

/// Serves a prompt of 6 tokens in blocks of 4. All other tokens are generated.
#[test]
fn blocks_between_the_prompt_and_the_window_are_released() {
    let mut manager = manager(&[rswa(4, 5)]);
    let mut request = Request::new(&manager, 1, 0..6);
    step(&mut manager, &mut request, 6);
    decode(&mut manager, &mut request, 100..116);
    // Before the last step, 21 tokens are computed. The window of 5 starts at token 16.
    assert_eq!(held(&manager, 1), [[1, 2, NULL_BLOCK, NULL_BLOCK, 5, 6]]);
    assert_eq!(check(&manager), Ok(()));
    let before = digest(&manager);
    assert_eq!(manager.remove_skipped_blocks(1, 26, None), Ok(()));
    assert_eq!(digest(&manager), before, "without the length of the prompt nothing is given back");
    assert_eq!(manager.remove_skipped_blocks(1, 26, Some(6)), Ok(()));
    assert_eq!(held(&manager, 1), [[1, 2, NULL_BLOCK, NULL_BLOCK, NULL_BLOCK, 6]]);
    assert_eq!(manager.free(1), Ok(()));
    assert_eq!(manager.pool().num_free_blocks(), 60);
}

#[test]
fn a_prompt_is_hit_as_in_full_attention() {
    let mut manager = manager(&[rswa(4, 5)]);
    serve(&mut manager, 1, 0..30);
    assert_eq!(look_up(&mut manager, 0..30).length, 28);
    let mut request = Request::new(&manager, 2, 0..30);
    assert_eq!(admit(&mut manager, &mut request), 28);
    assert_eq!(held(&manager, 2), [[1, 2, 3, 4, 5, 6, 7, 8]]);
}

/// Checks that a connector continues where R-SWA ends, as with full attention.
#[test]
fn a_prompt_is_hit_beyond_its_cached_states() {
    for first in [rswa(4, 5), GroupSpec::full(4)] {
        let mut manager = manager(&[first, GroupSpec::new("mamba", 4)]);
        serve(&mut manager, 1, 0..12);
        assert_eq!(manager.evict_blocks(&[4]), Ok(()));
        let request = Request::new(&manager, 2, 0..13);
        let found = manager.find_deepest_hit(&request.view().hashes, 12).expect("a look-up");
        assert_eq!(found.map(|found| (found.length, found.is_diverged)), Some((12, true)));
    }
}

#[test]
fn a_circular_buffer_is_one_block_for_the_whole_request() {
    let mut manager = manager(&[GroupSpec::full(4), circular(8)]);
    let mut request = Request::new(&manager, 1, 0..20);
    step(&mut manager, &mut request, 8);
    assert_eq!(held(&manager, 1), [vec![1, 2], vec![3]]);
    step(&mut manager, &mut request, 12);
    decode(&mut manager, &mut request, 100..104);
    assert_eq!(held(&manager, 1), [vec![1, 2, 4, 5, 6, 7], vec![3]]);
    assert_eq!(check(&manager), Ok(()));
    assert_eq!(manager.free(1), Ok(()));
    assert_eq!(free_ids(&manager)[0], 3, "a block that nobody else can use is recycled first");
    // The other group decides the hit, at multiples of 8. The buffer is a new block.
    let mut again = Request::new(&manager, 2, 0..20);
    assert_eq!(admit(&mut manager, &mut again), 16);
    assert_eq!(held(&manager, 2), [vec![1, 2, 4, 5, 3], vec![8]]);
}

#[test]
fn a_circular_buffer_is_counted_once() {
    let mut manager = manager(&[GroupSpec::full(4), circular(8)]);
    let demand = SlotDemand { num_tokens: 17, ..SlotDemand::default() };
    assert_eq!(manager.get_num_blocks_to_allocate(1, &demand), Ok(6));
    let mut request = Request::new(&manager, 1, 0..17);
    step(&mut manager, &mut request, 17);
    assert_eq!(manager.get_num_blocks_to_allocate(1, &demand), Ok(0));
}

#[test]
fn external_tokens_take_the_buffer_which_is_never_zeroed() {
    let groups = [GroupSpec::full(4), circular(8)];
    let mut manager = made(ManagerConfig { needs_zeroing: true, ..config(61, &groups) });
    let mut request = Request::new(&manager, 1, 0..20);
    let args = AllocateArgs {
        num_new_tokens: 4,
        num_external_computed_tokens: 16,
        ..AllocateArgs::default()
    };
    let new = allocate(&mut manager, &mut request, &args);
    assert_eq!(held(&manager, 1), [vec![1, 2, 3, 4, 6], vec![5]]);
    assert_eq!(new, [vec![6], vec![]]);
    assert_eq!(manager.take_new_block_ids(), [1, 2, 3, 4, 6]);
    assert_eq!(manager.record_blocks_for_zeroing(1, 12), Ok(()));
    assert_eq!(manager.take_new_block_ids(), [4, 6]);
}

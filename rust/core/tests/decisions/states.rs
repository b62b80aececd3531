//! Groups of recurrent states (Mamba): their tables, hits and copies.

use kvoxide_core::{
    AllocateArgs, GroupSpec, Manager, ManagerConfig, NULL_BLOCK, Offload, Size, SlotDemand, check,
};

use crate::small::{
    Request, admit, allocate, config, free_ids, held, ids, look_up, made, manager, serve, step,
};

const NO: u32 = NULL_BLOCK;

fn mamba(block_size: usize, drafts: usize) -> GroupSpec {
    GroupSpec::new("mamba", block_size).with(Size::NumSpeculativeBlocks, drafts)
}

/// Returns a manager with full attention and states in blocks of two hash blocks. Hits can end in
/// the middle of a block.
fn halves() -> Manager {
    let groups = [GroupSpec::full(8), mamba(8, 0)];
    made(ManagerConfig { hash_block_size: Some(4), ..config(61, &groups) })
}

#[test]
fn without_caching_there_is_the_running_state_and_a_block_for_each_draft() {
    let group = GroupSpec::new("mamba_none", 1024).with(Size::NumSpeculativeBlocks, 2);
    let mut manager = made(ManagerConfig { enable_caching: false, ..config(61, &[group]) });
    let mut request = Request::new(&manager, 1, 0..20);
    step(&mut manager, &mut request, 8);
    step(&mut manager, &mut request, 12);
    assert_eq!(held(&manager, 1), [[1, 2, 3]]);
}

#[test]
fn a_table_keeps_the_running_state_and_the_one_before() {
    let mut manager = manager(&[mamba(4, 0)]);
    let mut request = Request::new(&manager, 1, 0..11);
    step(&mut manager, &mut request, 4);
    step(&mut manager, &mut request, 4);
    assert_eq!(held(&manager, 1), [[1, 2]]);
    step(&mut manager, &mut request, 3);
    assert_eq!(held(&manager, 1), [[NO, 2, 3]]);
    assert_eq!(free_ids(&manager).last(), Some(&1), "a cached state is evicted last");
    assert_eq!(check(&manager), Ok(()));
}

#[test]
fn a_chunk_of_several_blocks_has_one_state() {
    let mut manager = manager(&[mamba(4, 0)]);
    let mut request = Request::new(&manager, 1, 0..24);
    let chunk = AllocateArgs { num_new_tokens: 12, ..AllocateArgs::default() };
    assert_eq!(allocate(&mut manager, &mut request, &chunk), [[NO, NO, 1]]);
    assert_eq!(allocate(&mut manager, &mut request, &chunk), [[NO, NO, 2]]);
    assert_eq!(held(&manager, 1), [[NO, NO, 1, NO, NO, 2]]);
    // The release skips the gap between the two.
    assert_eq!(manager.remove_skipped_blocks(1, 24, None), Ok(()));
    assert_eq!(held(&manager, 1), [[NO, NO, NO, NO, NO, 2]]);
    assert_eq!(manager.free(1), Ok(()));
    assert_eq!(manager.pool().num_free_blocks(), 60);
}

#[test]
fn a_hit_is_the_last_state_that_is_cached() {
    let mut manager = manager(&[mamba(4, 0)]);
    serve(&mut manager, 1, 0..12);
    assert_eq!(look_up(&mut manager, 0..12).length, 0, "the last token is computed again");
    let hit = look_up(&mut manager, 0..16);
    assert_eq!((hit.length, ids(&hit.blocks)), (12, vec![vec![NO, NO, 1]]));
}

#[test]
fn more_blocks_than_needed_are_a_negative_demand() {
    let mut manager = manager(&[mamba(4, 0)]);
    let mut request = Request::new(&manager, 1, 0..12);
    step(&mut manager, &mut request, 12);
    let demand = SlotDemand { num_tokens_main_model: 4, ..SlotDemand::default() };
    assert_eq!(manager.get_num_blocks_to_allocate(1, &demand), Ok(-2));
}

#[test]
fn requests_that_hit_inside_a_block_get_copies() {
    let mut manager = halves();
    assert!(manager.has_partial_hits());
    let mut first = Request::new(&manager, 1, 0..14);
    step(&mut manager, &mut first, 12);
    assert_eq!(held(&manager, 1), [vec![1, 2], vec![NO, 3]]);
    manager.new_step_starts();
    // The request continues to write to block 3, so the state after 12 tokens moves to block 4.
    step(&mut manager, &mut first, 2);
    assert_eq!(held(&manager, 1), [vec![1, 2], vec![NO, 3]]);
    assert_eq!(manager.take_block_copies(), [(3, 4)]);
    assert_eq!(manager.take_block_copies(), [], "each copy is handed out once");
    assert_eq!([3, 4].map(|block| manager.pool().ref_count(block)), [2, 1]);
    let offer = Offload { request: 1, group: 1, block: 4, num_tokens: 12 };
    assert_eq!(manager.take_offloads(), [offer]);
    manager.new_step_starts();
    let mut second = Request::new(&manager, 2, 0..14);
    assert_eq!(admit(&mut manager, &mut second), 12);
    // The request gets a copy of both blocks in which the hit ends.
    assert_eq!(held(&manager, 2), [vec![1, 5], vec![NO, 6]]);
    assert_eq!(manager.take_block_copies(), [(2, 5), (4, 6)]);
    assert_eq!([2, 5].map(|block| manager.pool().ref_count(block)), [2, 2]);
    assert_eq!(check(&manager), Ok(()));
    for block in [3, 4, 2, 5, 4, 6] {
        assert_eq!(manager.release_blocks(&[block]), Ok(()));
    }
    assert_eq!((manager.free(1), manager.free(2)), (Ok(()), Ok(())));
    assert_eq!(manager.pool().num_free_blocks(), 60);
}

#[test]
fn a_copy_is_zeroed_where_its_group_is() {
    let mut manager = halves();
    let mut first = Request::new(&manager, 1, 0..14);
    step(&mut manager, &mut first, 12);
    step(&mut manager, &mut first, 2);
    manager.new_step_starts();
    let mut second = Request::new(&manager, 2, 0..14);
    admit(&mut manager, &mut second);
    assert_eq!(manager.take_new_block_ids(), [5], "only that of full attention");
}

#[test]
fn the_state_at_the_end_of_a_request_is_handed_out_once() {
    let mut manager = halves();
    let mut request = Request::new(&manager, 1, 0..14);
    step(&mut manager, &mut request, 12);
    let tail = Offload { request: 1, group: 1, block: 3, num_tokens: 12 };
    assert_eq!(manager.finalize_partial_tails(&request.view()), [tail]);
    assert_eq!(manager.finalize_partial_tails(&request.view()), []);
    assert_eq!(manager.free(1), Ok(()));
    assert_eq!(manager.take_offloads(), [], "offers of a request end with it");
}

#[test]
fn a_hit_may_be_cut_below_the_state_that_a_connector_brings() {
    let mut manager = manager(&[GroupSpec::full(4), mamba(4, 0)]);
    serve(&mut manager, 1, 0..12);
    let hit = look_up(&mut manager, 0..13).blocks;
    assert_eq!(ids(&hit), [vec![1, 2, 3], vec![NO, NO, 4]]);
    let cut = manager.truncated(&hit, 8).expect("a multiple of every block size");
    assert_eq!(ids(&cut), [vec![1, 2], vec![NO, NO]]);
    let short = [hit[0].clone(), kvoxide_core::GroupBlocks::default()];
    assert_eq!(
        ids(&manager.truncated(&short, 8).expect("a state is missing")),
        [vec![1, 2], vec![]]
    );
}

#[test]
fn a_connector_continues_from_the_hit_of_full_attention() {
    let mut manager = manager(&[GroupSpec::full(4), mamba(4, 0)]);
    serve(&mut manager, 1, 0..12);
    assert_eq!(manager.evict_blocks(&[4]), Ok(()));
    let request = Request::new(&manager, 2, 0..13);
    let found = manager.find_deepest_hit(&request.view().hashes, 12).expect("a look-up");
    let found = found.expect("a hit of full attention");
    assert_eq!((found.length, found.is_diverged), (12, true));
    assert_eq!(look_up(&mut manager, 0..13).length, 0);
}

#[test]
fn ranks_divide_blocks_of_attention_but_not_states() {
    let groups = [GroupSpec::full(4), mamba(8, 0)];
    let mut manager =
        made(ManagerConfig { dcp_world_size: 2, hash_block_size: Some(8), ..config(61, &groups) });
    let mut request = Request::new(&manager, 1, 0..20);
    step(&mut manager, &mut request, 16);
    assert_eq!(held(&manager, 1), [vec![1, 2], vec![NO, 3]]);
    manager.new_step_starts();
    assert_eq!(look_up(&mut manager, 0..20).length, 16);
}

#[test]
fn encoder_tokens_have_their_own_blocks_from_admission_on() {
    let groups = [GroupSpec::full(4), GroupSpec::new("cross_attention", 4)];
    let mut manager = made(ManagerConfig { enable_caching: false, ..config(61, &groups) });
    let mut request = Request::new(&manager, 1, 0..6);
    let args =
        AllocateArgs { num_new_tokens: 6, num_encoder_tokens: 10, ..AllocateArgs::default() };
    assert_eq!(allocate(&mut manager, &mut request, &args), [vec![1, 2], vec![3, 4, 5]]);
    step(&mut manager, &mut request, 3);
    assert_eq!(held(&manager, 1), [vec![1, 2, 6], vec![3, 4, 5]]);
}

#[test]
fn groups_that_cannot_be_cached_or_divided_are_refused() {
    let error = |config| Manager::new(config).expect_err("a refusal").to_string();
    for kind in ["mamba_none", "cross_attention"] {
        let refusal = error(config(61, &[GroupSpec::new(kind, 4)]));
        assert!(refusal.contains("cannot be cached"), "{refusal}");
    }
    let window = [GroupSpec::sliding_window(4, 8)];
    let refusal = error(ManagerConfig { dcp_world_size: 2, ..config(61, &window) });
    assert!(refusal.contains("dcp_sharded=False"), "{refusal}");
    let replica = GroupSpec { dcp_sharded: Some(false), ..window[0].clone() };
    assert!(Manager::new(ManagerConfig { dcp_world_size: 2, ..config(61, &[replica]) }).is_ok());
    let zero = mamba(4, 0).with(Size::PrefillCheckpointAlignment, 0);
    assert!(error(config(61, &[zero])).contains("prefill_checkpoint_alignment is 0"));
}

#[test]
fn a_step_is_refused_if_its_state_was_released() {
    let mut manager = halves();
    let mut request = Request::new(&manager, 1, 0..14);
    step(&mut manager, &mut request, 12);
    // The manager releases the state because more tokens count as processed than were computed.
    assert_eq!(manager.remove_skipped_blocks(1, 20, None), Ok(()));
    let before = kvoxide_core::digest(&manager);
    let args = AllocateArgs { num_new_tokens: 2, ..AllocateArgs::default() };
    let refusal = manager.allocate_slots(&request.view(), &args).expect_err("a refusal");
    assert!(refusal.to_string().contains("was released"), "{refusal}");
    assert_eq!(kvoxide_core::digest(&manager), before);
}

//! Hits that end inside a block, with and without external tokens.

use kvoxide_core::{AllocateArgs, Error, GroupBlocks, GroupSpec, Manager, ManagerConfig, digest};

use crate::small::{Request, config, decode, held, ids, look_up, made, step};

/// Returns a manager and a hit of 12 tokens. The manager has attention and states, in blocks of two
/// hash blocks.
fn after_12_tokens() -> (Manager, Vec<GroupBlocks>) {
    let groups = [GroupSpec::full(8), GroupSpec::new("mamba", 8)];
    let mut manager = made(ManagerConfig { hash_block_size: Some(4), ..config(61, &groups) });
    let mut first = Request::new(&manager, 1, 0..14);
    step(&mut manager, &mut first, 12);
    manager.new_step_starts();
    let hit = look_up(&mut manager, 0..60);
    assert_eq!((hit.length, ids(&hit.blocks)), (12, vec![vec![1, 2], vec![0, 3]]));
    (manager, hit.blocks.to_vec())
}

fn args(
    blocks: &[GroupBlocks],
    num_new_computed_tokens: usize,
    external: usize,
) -> AllocateArgs<'_> {
    AllocateArgs {
        num_new_tokens: 2,
        num_new_computed_tokens,
        new_computed_blocks: blocks,
        num_external_computed_tokens: external,
        ..AllocateArgs::default()
    }
}

#[test]
fn a_hit_has_the_block_in_which_it_ends() {
    let (mut manager, hit) = after_12_tokens();
    let request = Request::new(&manager, 2, 0..60);
    let one = |ids: &[u32]| GroupBlocks::new(0, ids.to_vec());
    for blocks in [
        [one(&[1]), hit[1].clone()],
        [one(&[1, 2, 2]), hit[1].clone()],
        [one(&[1, 0]), hit[1].clone()],
        [hit[0].clone(), GroupBlocks::new(1, vec![])],
        [hit[0].clone(), GroupBlocks::new(2, vec![])],
        [hit[0].clone(), GroupBlocks::new(2, vec![3])],
    ] {
        let before = digest(&manager);
        let refused = manager.allocate_slots(&request.view(), &args(&blocks, 12, 0));
        assert!(matches!(refused, Err(Error::Precondition(_))), "{blocks:?}: {refused:?}");
        assert_eq!(digest(&manager), before);
    }
    // A hit that ends with a block needs no additional block.
    let whole = [one(&[1]), GroupBlocks::default()];
    for (blocks, num_tokens) in [(&whole[..], 8), (&hit, 12)] {
        let served = manager.allocate_slots(&request.view(), &args(blocks, num_tokens, 0));
        assert!(served.is_ok_and(|new| new.is_some()));
        assert_eq!(manager.free(2), Ok(()));
    }
}

#[test]
fn a_state_before_external_tokens_is_not_copied() {
    for (external, copies, row) in [
        (4, vec![(2, 4), (3, 6)], vec![0, 6, 7]),
        (5, vec![(2, 6)], vec![0, 0, 5]),
        (12, vec![(2, 6)], vec![0, 0, 5, 8]),
    ] {
        let (mut manager, hit) = after_12_tokens();
        let request = Request::new(&manager, 2, 0..60);
        let served = manager.allocate_slots(&request.view(), &args(&hit, 12, external));
        assert!(served.is_ok_and(|new| new.is_some()));
        assert_eq!((manager.take_block_copies(), &held(&manager, 2)[1]), (copies, &row));
    }
}

/// R-SWA keeps and copies the prompt in the same way as full attention.
#[test]
fn r_swa_is_hit_inside_a_block_too() {
    let rswa = GroupSpec::new("rswa", 8).with(kvoxide_core::Size::RswaWindow, 4);
    let groups = [rswa, GroupSpec::new("mamba", 8)];
    let mut manager = made(ManagerConfig { hash_block_size: Some(4), ..config(61, &groups) });
    assert!(manager.has_partial_hits());
    let mut first = Request::new(&manager, 1, 0..14);
    step(&mut manager, &mut first, 12);
    manager.new_step_starts();
    let mut second = Request::new(&manager, 2, 0..14);
    assert_eq!(crate::small::admit(&mut manager, &mut second), 12);
    assert_eq!(manager.take_block_copies(), [(2, 4), (3, 5)]);
    decode(&mut manager, &mut second, 100..117);
    assert_eq!(held(&manager, 2)[0], [1, 4, 0, 8]);
}

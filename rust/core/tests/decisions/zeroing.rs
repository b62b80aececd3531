//! Blocks that the manager lists for zeroing.

use kvoxide_core::{AllocateArgs, Error, GroupSpec, Manager, ManagerConfig};

use crate::small::{Request, admit, allocate, config, decode, made, serve};

fn zeroing(groups: &[GroupSpec]) -> Manager {
    made(ManagerConfig { needs_zeroing: true, ..config(41, groups) })
}

#[test]
fn new_blocks_are_listed_once() {
    let mut manager = zeroing(&[GroupSpec::full(4), GroupSpec::sliding_window(4, 8)]);
    let mut request = Request::new(&manager, 1, 0..10);
    admit(&mut manager, &mut request);
    assert_eq!(manager.take_new_block_ids(), [1, 2, 3, 4, 5, 6]);
    assert_eq!(manager.take_new_block_ids(), [0; 0]);
    decode(&mut manager, &mut request, 100..103);
    assert_eq!(manager.take_new_block_ids(), [7, 8]);
}

#[test]
fn blocks_of_a_hit_are_not_listed() {
    let mut manager = zeroing(&[GroupSpec::full(4)]);
    serve(&mut manager, 1, 0..8);
    manager.take_new_block_ids();
    let mut request = Request::new(&manager, 2, 0..10);
    admit(&mut manager, &mut request);
    assert_eq!(manager.take_new_block_ids(), [3]);
}

#[test]
fn blocks_that_a_load_writes_are_not_listed() {
    for (skipped, expected) in
        [(&[][..], &[1, 2, 5, 3, 4, 6][..]), (&[0], &[5, 3, 4, 6]), (&[0, 1], &[5, 6])]
    {
        let mut manager = zeroing(&[GroupSpec::full(4), GroupSpec::full(4)]);
        let mut request = Request::new(&manager, 1, 0..10);
        let args = AllocateArgs {
            num_new_tokens: 2,
            num_external_computed_tokens: 8,
            skip_zeroing_group_ids: skipped,
            ..AllocateArgs::default()
        };
        allocate(&mut manager, &mut request, &args);
        assert_eq!(manager.take_new_block_ids(), expected);
    }
}

#[test]
fn blocks_can_be_listed_again_from_the_beginning_of_one() {
    let mut manager = zeroing(&[GroupSpec::full(4)]);
    let mut request = Request::new(&manager, 1, 0..14);
    admit(&mut manager, &mut request);
    manager.take_new_block_ids();
    manager.record_blocks_for_zeroing(1, 8).expect("the beginning of a block");
    assert_eq!(manager.take_new_block_ids(), [3, 4]);
    let inside = manager.record_blocks_for_zeroing(1, 9);
    assert!(matches!(inside, Err(Error::Precondition(_))), "{inside:?}");
}

#[test]
fn states_are_not_listed_and_may_be_larger() {
    let mut manager = zeroing(&[GroupSpec::full(4), GroupSpec::new("mamba", 8)]);
    let mut request = Request::new(&manager, 1, 0..14);
    admit(&mut manager, &mut request);
    assert_eq!(manager.take_new_block_ids(), [1, 2, 3, 4]);
    manager.record_blocks_for_zeroing(1, 4).expect("the beginning of a block of attention");
    assert_eq!(manager.take_new_block_ids(), [2, 3, 4]);
}

#[test]
fn without_zeroing_nothing_is_listed() {
    let mut manager = made(config(41, &[GroupSpec::full(4)]));
    let mut request = Request::new(&manager, 1, 0..10);
    admit(&mut manager, &mut request);
    manager.record_blocks_for_zeroing(1, 0).expect("nothing to do");
    assert_eq!(manager.take_new_block_ids(), [0; 0]);
}

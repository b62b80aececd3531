//! Direct writes to block tables.

use kvoxide_core::pool::QueueEnd;
use kvoxide_core::{
    AllocateArgs, BlockHash, Error, GroupSpec, Manager, ManagerConfig, RequestView, check,
    check_direct_writes,
};

const A: u64 = 1;
const B: u64 = 2;

/// Returns a manager with two requests. Each has two full blocks and one block to which it still
/// writes: `A` has blocks 1 to 3, `B` has blocks 4 to 6.
fn manager() -> Manager {
    let config = ManagerConfig::new(11, vec![GroupSpec::full(4)], 40);
    let mut manager = Manager::new(config).expect("a configuration that can work");
    for id in [A, B] {
        allocate(&mut manager, id, 0, 10);
    }
    manager
}

fn allocate(manager: &mut Manager, id: u64, num_computed: usize, n: usize) -> Vec<u32> {
    let hashes = [BlockHash([id, 0, 0, 0]), BlockHash([id, 1, 0, 0])];
    let request =
        RequestView { num_computed_tokens: num_computed, ..RequestView::new(id, &hashes[..], 10) };
    let args = AllocateArgs { num_new_tokens: n, ..AllocateArgs::default() };
    let new = manager.allocate_slots(&request, &args).expect("slots").expect("room");
    new.into_iter().flatten().collect()
}

fn table(manager: &Manager, id: u64) -> Vec<u32> {
    manager.blocks_of(id).map_or(Vec::new(), |held| held.groups[0].blocks.iter().collect())
}

#[test]
fn the_next_step_fills_a_table_that_was_cut() {
    let mut manager = manager();
    manager.write_table(A, 0, vec![1]).expect("its own block");
    assert!(manager.has_unchecked_writes(A) && !manager.has_unchecked_writes(B));
    manager.release_blocks(&[3, 2]).expect("blocks that it had");
    assert_eq!(check_direct_writes(&mut manager, A), Ok(()));
    assert!(!manager.has_unchecked_writes(A));
    assert_eq!(manager.blocks_of(A).expect("known").groups[0].num_cached_blocks, Some(2));
    assert_eq!(allocate(&mut manager, A, 8, 2), [3, 7]);
    assert_eq!((table(&manager, A), check(&manager)), (vec![1, 3, 7], Ok(())));
}

#[test]
fn writes_that_break_a_table_are_refused_and_change_nothing() {
    let mut manager = manager();
    let refused = [
        (
            vec![1, 2, 3, 2],
            "block 2 cannot be in the table: it has 1 references for 2 places in tables",
        ),
        (vec![1, 2, 3, 9], "block 9 cannot be in the table: it has no reference"),
        (vec![1, 2, 3, 6], "block 6 cannot be in the table: it has 1 references for 2 places"),
    ];
    for (blocks, why) in refused {
        let error = manager.write_table(A, 0, blocks).expect_err(why).to_string();
        assert!(error.starts_with(why) && error.ends_with("(invariant 6)"), "{error}");
        assert_eq!((table(&manager, A), manager.has_unchecked_writes(A)), (vec![1, 2, 3], false));
    }
    assert!(matches!(manager.write_table(A, 0, vec![11]), Err(Error::Block(_))));
    assert!(matches!(manager.write_table(A, 1, vec![]), Err(Error::OutOfRange(_))));
    assert!(matches!(manager.write_num_cached(A, 0, Some(12)), Err(Error::Request(_))));
    manager.pool_mut().set_ref_count(3, 0).expect("a count that fits");
    let held = manager.enqueue(&[3], QueueEnd::Back).expect_err("in a table").to_string();
    assert_eq!(held, "block 3 cannot be put into the free queue: request 1 holds it (invariant 6)");
    assert!(manager.check_none_by_hand(A).is_err() && manager.check_none_by_hand(B).is_ok());
}

#[test]
fn a_request_is_refused_that_would_write_to_a_cached_block() {
    let mut manager = manager();
    manager.write_num_cached(A, 0, Some(1)).expect("a number that can be");
    let broken = check_direct_writes(&mut manager, A).expect_err("block 2 is cached");
    assert!(broken.contains("request 1 writes to block 2, which is shared or cached"), "{broken}");
    assert!(manager.has_unchecked_writes(A));
    manager.write_num_cached(A, 0, Some(2)).expect("a number that can be");
    assert_eq!(check_direct_writes(&mut manager, A), Ok(()));
}

#[test]
fn a_half_written_table_does_not_fail_the_check_of_other_requests() {
    let mut manager = manager();
    manager.write_num_cached(A, 0, Some(1)).expect("a number that can be");
    assert_eq!(check(&manager), Ok(()));
    allocate(&mut manager, B, 8, 2);
    assert_eq!(check(&manager), Ok(()));
    assert!(check_direct_writes(&mut manager, A).is_err());
    manager.write_num_cached(A, 0, Some(2)).expect("a number that can be");
    assert_eq!((check_direct_writes(&mut manager, A), check(&manager)), (Ok(()), Ok(())));
}

#[test]
fn writes_can_share_blocks_and_make_and_empty_requests() {
    let mut manager = manager();
    manager.pool_mut().touch(&[1]);
    manager.write_table(9, 0, vec![1]).expect("a block with a reference to spare");
    manager.write_num_cached(9, 0, Some(1)).expect("a number that can be");
    assert_eq!((check_direct_writes(&mut manager, 9), check(&manager)), (Ok(()), Ok(())));
    assert!(!manager.forget_if_empty(9));
    manager.write_table(9, 0, vec![]).expect("no block");
    manager.write_num_cached(9, 0, None).expect("no number");
    assert!(manager.forget_if_empty(9) && !manager.knows(9));
    manager.release_blocks(&[1]).expect("the reference that is left");
    assert_eq!(check(&manager), Ok(()));
}

#[test]
fn a_table_may_have_a_block_more_than_once_until_the_next_call_about_its_request() {
    let mut manager = manager();
    manager.pool_mut().touch(&[3, 3]);
    manager.write_table(9, 0, vec![0, 3, 3]).expect("two references to spare");
    assert!(manager.write_table(9, 0, vec![3, 3, 3]).is_err(), "the third is the owner's");
    assert_eq!((table(&manager, 9), check(&manager)), (vec![0, 3, 3], Ok(())));
    let broken = check_direct_writes(&mut manager, 9).expect_err("block 3 is there twice");
    assert!(broken.contains("block 3"), "{broken}");
    manager.free(9).expect("a request with blocks");
    assert_eq!((manager.pool().ref_count(3), check(&manager)), (1, Ok(())));
}

#[test]
fn a_state_in_a_table_twice_is_refused_by_the_next_call_about_its_request() {
    let states = GroupSpec::new("mamba", 4);
    let config =
        ManagerConfig { enable_caching: false, ..ManagerConfig::new(11, vec![states], 40) };
    let mut manager = Manager::new(config).expect("a configuration that can work");
    allocate(&mut manager, A, 0, 4);
    manager.pool_mut().touch(&[1]);
    manager.write_table(A, 0, vec![1, 1]).expect("a reference to spare");
    let broken = check_direct_writes(&mut manager, A).expect_err("a state twice");
    assert!(broken.contains("request 1 has block 1 twice in a table"), "{broken}");
    manager.write_table(A, 0, vec![1]).expect("its own block");
    assert_eq!(check_direct_writes(&mut manager, A), Ok(()));
}

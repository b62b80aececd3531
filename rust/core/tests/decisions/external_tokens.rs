//! Capacity for external tokens. Tables take more or fewer blocks for them than the demand counts.

use kvoxide_core::{AllocateArgs, Error, GroupSpec, Manager, NULL_BLOCK, Size, digest};

use crate::small::{Request, look_up, manager, serve, step};

fn states(block_size: usize, num_drafts: usize) -> GroupSpec {
    GroupSpec::new("mamba", block_size).with(Size::NumSpeculativeBlocks, num_drafts)
}

fn exporting(block_size: usize) -> GroupSpec {
    let group = states(block_size, 0).with(Size::NumPrefillCheckpointBlocks, 1);
    group.with(Size::PrefillCheckpointAlignment, 4)
}

#[derive(Debug, PartialEq)]
enum Outcome {
    /// The request is served. The flags say which positions of the last group's table have blocks.
    Held(Vec<bool>),
    /// Too few blocks are free for the demand.
    Waits,
    /// Enough blocks are free for the demand, but not for all blocks that are taken.
    Lacks,
}

fn row<const N: usize>(held: [u8; N]) -> Outcome {
    Outcome::Held(held.iter().map(|&held| held == 1).collect())
}

/// Returns the outcome for a request with a hit, then external tokens, then new tokens. Only
/// `num_free` blocks are free.
fn answer(manager: &mut Manager, num_free: usize, [hit, external, new]: [usize; 3]) -> Outcome {
    let found = look_up(manager, 0..hit as u64 + 1);
    assert_eq!(found.length, hit);
    let num_taken = manager.pool().num_free_blocks() as usize - num_free;
    let mut taken = Vec::new();
    manager.pool_mut().allocate(num_taken, &mut taken);
    let request = Request::new(manager, 9, 0..100);
    let args = AllocateArgs {
        num_new_tokens: new,
        num_new_computed_tokens: hit,
        new_computed_blocks: if hit > 0 { &found.blocks } else { &[] },
        num_external_computed_tokens: external,
        ..AllocateArgs::default()
    };
    let before = digest(manager);
    let served = manager.allocate_slots(&request.view(), &args);
    if let Ok(Some(_)) = served {
        let held = manager.blocks_of(9).expect("a request that runs");
        let table = held.groups.last().expect("a group");
        return Outcome::Held(table.blocks.iter().map(|block| block != NULL_BLOCK).collect());
    }
    assert_eq!(digest(manager), before);
    match served {
        Ok(_) => Outcome::Waits,
        Err(Error::Block(_)) => Outcome::Lacks,
        Err(other) => panic!("{other}"),
    }
}

/// Returns the outcomes of two new managers: with one block too few, and with just enough.
fn at_the_bound(
    groups: &[GroupSpec],
    least: usize,
    tokens: [usize; 3],
    prepare: impl Fn(&mut Manager),
) -> [Outcome; 2] {
    [least - 1, least].map(|num_free| {
        let mut manager = manager(groups);
        prepare(&mut manager);
        answer(&mut manager, num_free, tokens)
    })
}

fn nothing(_: &mut Manager) {}

#[test]
fn an_external_state_and_the_running_one_count_as_one_block() {
    let both = [Outcome::Lacks, row([0, 1, 1])];
    assert_eq!(at_the_bound(&[states(4, 0)], 2, [0, 8, 4], nothing), both);
    // The running state continues in the block of the external state.
    let one = [Outcome::Waits, row([0, 1])];
    assert_eq!(at_the_bound(&[states(4, 0)], 1, [0, 6, 2], nothing), one);
    // Positions between the two have no state.
    let gap = [Outcome::Lacks, row([0, 1, 0, 0, 1])];
    assert_eq!(at_the_bound(&[states(4, 0)], 2, [0, 8, 12], nothing), gap);
}

#[test]
fn draft_blocks_and_a_state_inside_the_chunk_are_counted_with_an_external_state() {
    let drafts = [Outcome::Lacks, row([0, 1, 1, 1, 1])];
    assert_eq!(at_the_bound(&[states(4, 2)], 4, [0, 8, 4], nothing), drafts);
    let drafts = [Outcome::Waits, row([0, 1, 1, 1])];
    assert_eq!(at_the_bound(&[states(4, 2)], 3, [0, 6, 2], nothing), drafts);
    let inside = [Outcome::Lacks, row([0, 1, 0, 1, 1])];
    assert_eq!(at_the_bound(&[exporting(4)], 3, [0, 8, 11], nothing), inside);
}

/// Checks a demand that counts the block of a free state. The block stays free.
#[test]
fn a_free_state_before_external_tokens_is_skipped() {
    let served = |manager: &mut Manager| {
        serve(manager, 1, 0..8);
        manager.new_step_starts();
    };
    let both = [Outcome::Waits, row([0, 0, 0, 1, 1])];
    assert_eq!(at_the_bound(&[states(4, 0)], 2, [8, 8, 4], served), both);
}

#[test]
fn a_state_in_use_before_external_tokens_frees_no_block() {
    let running = |manager: &mut Manager| {
        let mut first = Request::new(manager, 1, 0..8);
        step(manager, &mut first, 8);
        manager.new_step_starts();
    };
    let both = [Outcome::Lacks, row([0, 0, 0, 1, 1])];
    assert_eq!(at_the_bound(&[states(4, 0)], 2, [8, 8, 4], running), both);
}

/// In blocks of 8, the hit of 12 tokens ends inside the second block, which also has the end of the
/// step. In blocks of 2, the external tokens have their own state.
#[test]
fn a_negative_demand_of_one_group_does_not_cover_another_group() {
    let groups = [GroupSpec::full(2), states(8, 0), states(2, 0)];
    let running = |manager: &mut Manager| {
        let mut first = Request::new(manager, 1, 0..14);
        step(manager, &mut first, 12);
        manager.new_step_starts();
    };
    let both = [Outcome::Lacks, row([0, 0, 0, 0, 0, 0, 1, 1])];
    assert_eq!(at_the_bound(&groups, 5, [12, 2, 2], running), both);
}

#[test]
fn external_tokens_that_a_window_skips_take_no_block() {
    let both = [Outcome::Waits, row([0, 0, 0, 0, 0, 0, 1, 1, 1])];
    assert_eq!(at_the_bound(&[GroupSpec::sliding_window(4, 8)], 3, [0, 32, 2], nothing), both);
}

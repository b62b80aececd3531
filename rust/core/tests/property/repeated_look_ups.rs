//! A repeated look-up finds the same hit as a first one, whatever was cached and evicted between
//! the two.

use std::ops::Range;

use kvoxide_core::{
    AllocateArgs, BlockHash, GroupSpec, HashWindow, Manager, ManagerConfig, RequestId, RequestView,
    check,
};
use proptest::prelude::*;

const BLOCK_SIZE: usize = 2;
const NUM_BLOCKS: usize = 400;
const WAITING: [RequestId; 2] = [1, 2];

#[derive(Clone, Debug)]
enum Change {
    /// Computes a prefix of chain 0 or 1 and frees it. The two chains diverge at block 90.
    Compute {
        chain: usize,
        blocks: usize,
    },
    /// Evicts a range of blocks.
    Evict(Range<u32>),
    Reset,
    /// Looks up a prefix of a chain, up to a limit in tokens.
    LookUp {
        waiting: usize,
        chain: usize,
        hashes: usize,
        tokens: usize,
    },
}

fn change() -> impl Strategy<Value = Change> {
    let block = 1..NUM_BLOCKS as u32;
    prop_oneof![
        4 => (0..2_usize, 1..140_usize).prop_map(|(chain, blocks)| Change::Compute { chain, blocks }),
        3 => (block, 1..20_u32).prop_map(|(first, n)| {
            Change::Evict(first..(first + n).min(NUM_BLOCKS as u32))
        }),
        1 => Just(Change::Reset),
        8 => (0..2_usize, 0..2_usize, 64..140_usize, 0..280_usize).prop_map(
            |(waiting, chain, hashes, tokens)| Change::LookUp { waiting, chain, hashes, tokens }
        ),
    ]
}

fn chain(number: usize) -> Vec<BlockHash> {
    let word = |i: u64| if i < 90 { i + 1 } else { i + 1000 * (number as u64 + 1) };
    (0..140).map(|i| BlockHash([word(i), 0, 0, 0])).collect()
}

fn compute(manager: &mut Manager, id: RequestId, hashes: &[BlockHash]) {
    let num_tokens = hashes.len() * BLOCK_SIZE;
    let view = RequestView::new(id, hashes, num_tokens);
    let args = AllocateArgs { num_new_tokens: num_tokens, ..AllocateArgs::default() };
    if manager.allocate_slots(&view, &args).expect("a valid call").is_some() {
        manager.free(id).expect("a known request");
    }
}

#[test]
fn removals_are_logged_only_while_a_request_waits() {
    let config = ManagerConfig::new(NUM_BLOCKS, vec![GroupSpec::full(BLOCK_SIZE)], 1000);
    let mut manager = Manager::new(config).expect("a valid configuration");
    for waiting in WAITING {
        let chain = chain(0);
        let look_up = manager.get_computed_blocks(waiting, &HashWindow::from(&chain[..]), 100);
        assert_eq!(look_up.expect("a look-up").length, 0);
    }
    for (waiting, is_kept) in WAITING.into_iter().zip([true, false]) {
        manager.forget_lookup(waiting);
        assert_eq!(manager.pool().index().removals().is_kept(), is_kept);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn a_repeated_look_up_finds_what_a_first_one_would(
        changes in prop::collection::vec(change(), 1..40),
        with_window in prop::bool::ANY,
        use_eagle in prop::bool::ANY,
    ) {
        let mut groups = vec![GroupSpec::full(BLOCK_SIZE); 2];
        groups.truncate(if with_window { 2 } else { 1 });
        groups.extend(with_window.then(|| GroupSpec::sliding_window(BLOCK_SIZE, 9)));
        let config = ManagerConfig { use_eagle, ..ManagerConfig::new(NUM_BLOCKS, groups, 1000) };
        let mut manager = Manager::new(config).expect("a valid configuration");
        for (i, change) in changes.into_iter().enumerate() {
            match change {
                Change::Compute { chain: number, blocks } => {
                    compute(&mut manager, 100 + i as RequestId, &chain(number)[..blocks]);
                }
                Change::Evict(blocks) => {
                    manager.evict_blocks(&blocks.collect::<Vec<_>>()).expect("blocks of the pool");
                }
                Change::Reset => prop_assert!(manager.reset_prefix_cache()),
                Change::LookUp { waiting, chain: number, hashes, tokens } => {
                    let chain = &chain(number)[..hashes];
                    let tokens = tokens.min(hashes * BLOCK_SIZE);
                    let source = HashWindow::from(chain);
                    let first = manager.find_longest_hit(&source, tokens).expect("a look-up");
                    let again = manager
                        .get_computed_blocks(WAITING[waiting], &source, tokens)
                        .expect("a look-up");
                    prop_assert_eq!(again.length, first.length);
                    prop_assert_eq!(&again.blocks, &first.blocks);
                }
            }
            prop_assert_eq!(check(&manager), Ok(()));
        }
    }
}

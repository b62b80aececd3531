//! Look-ups through the prefix trie read few hashes. They find the same prefix as look-ups that
//! read all hashes.

use std::cell::Cell;
use std::ops::Range;

use kvoxide_core::{
    AllocateArgs, BlockHash, GroupSpec, HashSource, HashWindow, Manager, ManagerConfig, Policy,
    RequestId, RequestView, Result, check,
};
use proptest::prelude::*;

const BLOCK_SIZE: usize = 2;
const NUM_BLOCKS: usize = 700;
const WAITING: RequestId = 1;
const LEN: u64 = 300;

/// Positions where each chain diverges from the previous one. The last chain shares nothing.
const PARTINGS: [u64; 5] = [LEN, 100, 150, 40, 0];

fn chain(number: usize) -> Vec<BlockHash> {
    let word = |i: u64| {
        let own = (0..=number).rev().find(|&n| i >= PARTINGS[n]).map_or(0, |n| n + 1);
        let shared_with_none = if number == 4 { 9 } else { own };
        (shared_with_none as u64) << 32 | (i + 1)
    };
    (0..LEN).map(|i| BlockHash([word(i), 0, 0, 0])).collect()
}

fn manager(groups: Vec<GroupSpec>, policy: Policy) -> Manager {
    let config = ManagerConfig { policy, ..ManagerConfig::new(NUM_BLOCKS, groups, 1000) };
    Manager::new(config).expect("a valid configuration")
}

/// Computes blocks of a chain without a look-up, so that cached ones get duplicates.
fn start(manager: &mut Manager, id: RequestId, hashes: &[BlockHash], is_chain: bool) -> bool {
    let num_tokens = hashes.len() * BLOCK_SIZE;
    let view = RequestView::new(id, HashWindow::from(hashes).chained(is_chain), num_tokens);
    let args = AllocateArgs { num_new_tokens: num_tokens, ..AllocateArgs::default() };
    manager.allocate_slots(&view, &args).expect("a valid call").is_some()
}

/// Looks up a request and computes its other blocks.
fn serve(manager: &mut Manager, id: RequestId, hashes: &[BlockHash]) -> bool {
    let num_tokens = hashes.len() * BLOCK_SIZE;
    let window = HashWindow::from(hashes).chained(true);
    let hit = manager.get_computed_blocks(id, &window, num_tokens - 1).expect("a look-up");
    let args = AllocateArgs {
        num_new_tokens: num_tokens - hit.length,
        num_new_computed_tokens: hit.length,
        new_computed_blocks: &hit.blocks,
        ..AllocateArgs::default()
    };
    let view = RequestView::new(id, window, num_tokens);
    let is_served = manager.allocate_slots(&view, &args).expect("a valid call").is_some();
    if !is_served {
        manager.forget_lookup(id);
    }
    is_served
}

/// A chain that counts the reads of its hashes.
struct Counted<'a> {
    hashes: &'a [BlockHash],
    is_chain: bool,
    reads: Cell<usize>,
}

impl HashSource for Counted<'_> {
    fn len(&self) -> usize {
        self.hashes.len()
    }

    fn get(&self, index: usize) -> Result<BlockHash> {
        self.reads.set(self.reads.get() + 1);
        Ok(self.hashes[index])
    }

    fn is_chain(&self) -> bool {
        self.is_chain
    }
}

/// Returns the length of a hit in blocks and the number of hashes that were read for it.
fn look_up(manager: &Manager, hashes: &[BlockHash], is_chain: bool) -> (usize, usize) {
    let source = Counted { hashes, is_chain, reads: Cell::new(0) };
    let max_length = hashes.len() * BLOCK_SIZE;
    let hit = manager.find_longest_hit(&source, max_length).expect("a look-up");
    (hit.length / BLOCK_SIZE, source.reads.get())
}

#[test]
fn a_prefix_in_the_trie_is_found_by_few_of_its_hashes() {
    let mut manager = manager(vec![GroupSpec::full(BLOCK_SIZE)], Policy::every_tail());
    let hashes = chain(0);
    assert!(start(&mut manager, 7, &hashes[..200], true));
    assert_eq!(look_up(&manager, &hashes[..200], true), (200, 1));
    assert_eq!(look_up(&manager, &hashes[..200], false), (200, 200));
    let (len, reads) = look_up(&manager, &hashes, true);
    assert!(len == 200 && reads < 24, "{reads}");
    let (len, reads) = look_up(&manager, &chain(1), true);
    assert!(len == 100 && reads < 24, "{reads}");
    assert!(look_up(&manager, &chain(4), true).1 < 8);
}

#[test]
fn hashes_that_are_no_known_chain_are_all_read_and_enter_no_trie() {
    let mut manager = manager(vec![GroupSpec::full(BLOCK_SIZE)], Policy::every_tail());
    let hashes = chain(0);
    assert!(start(&mut manager, 7, &hashes[..200], false));
    assert!(look_up(&manager, &hashes[..200], true).1 >= 200);
    // The first look-up that finds all blocks adds them to the trie.
    let window = HashWindow::from(&hashes[..200]).chained(true);
    manager.get_computed_blocks(WAITING, &window, 400).expect("a look-up");
    assert_eq!(look_up(&manager, &hashes[..200], true), (200, 1));
    assert_eq!(check(&manager), Ok(()));
}

#[test]
fn a_chain_that_lost_a_block_is_found_up_to_it_until_it_is_cached_again() {
    let mut manager = manager(vec![GroupSpec::full(BLOCK_SIZE)], Policy::every_tail());
    let (hashes, other) = (chain(0), chain(1));
    assert!(start(&mut manager, 7, &hashes[..200], true));
    assert!(serve(&mut manager, 8, &other[..200]));
    manager.evict_blocks(&[61]).expect("a block of the pool");
    for hashes in [&hashes, &other] {
        let (len, reads) = look_up(&manager, &hashes[..200], true);
        assert!(len == 60 && reads < 24, "{len}, {reads}");
    }
    manager.free(7).expect("a known request");
    manager.free(8).expect("a known request");
    // The block is computed again. The blocks after it are still cached.
    assert!(serve(&mut manager, 9, &hashes[..61]));
    for hashes in [&hashes, &other] {
        let window = HashWindow::from(&hashes[..200]).chained(true);
        let hit = manager.get_computed_blocks(WAITING, &window, 400).expect("a look-up");
        assert_eq!(hit.length, 400);
        assert_eq!(look_up(&manager, &hashes[..200], true), (200, 1));
    }
    assert_eq!(check(&manager), Ok(()));
}

#[test]
fn a_branch_behind_a_lost_block_is_not_found_through_another_chain() {
    let mut manager = manager(vec![GroupSpec::full(BLOCK_SIZE)], Policy::every_tail());
    // The second chain diverges from the first at block 150, the third at block 100.
    let [first, second, third] = [1, 2, 0].map(chain);
    assert!(serve(&mut manager, 7, &first[..200]));
    assert!(serve(&mut manager, 8, &second[..200]));
    manager.evict_blocks(&[101]).expect("a block of the pool");
    assert!(serve(&mut manager, 9, &third[..200]));
    for (hashes, expected) in [(&first, 100), (&second, 100), (&third, 200)] {
        for is_chain in [false, true] {
            assert_eq!(look_up(&manager, &hashes[..200], is_chain).0, expected);
        }
    }
    assert_eq!(check(&manager), Ok(()));
}

#[derive(Clone, Debug)]
enum Change {
    Start {
        chain: usize,
        blocks: usize,
        is_chain: bool,
    },
    Serve {
        chain: usize,
        blocks: usize,
    },
    /// Frees one of the running requests.
    End(usize),
    Evict(Range<u32>),
    /// Frees all running requests.
    Reset,
    LookUp {
        chain: usize,
        hashes: usize,
        tokens: usize,
    },
}

fn change() -> impl Strategy<Value = Change> {
    let number = 0..PARTINGS.len();
    let blocks = 1..LEN as usize;
    prop_oneof![
        3 => (number.clone(), blocks.clone(), prop::bool::weighted(0.8)).prop_map(
            |(chain, blocks, is_chain)| Change::Start { chain, blocks, is_chain }
        ),
        5 => (number.clone(), blocks.clone())
            .prop_map(|(chain, blocks)| Change::Serve { chain, blocks }),
        5 => (0..9_usize).prop_map(Change::End),
        3 => (1..NUM_BLOCKS as u32, 1..4_u32).prop_map(|(first, n)| {
            Change::Evict(first..(first + n).min(NUM_BLOCKS as u32))
        }),
        1 => Just(Change::Reset),
        6 => (number, blocks, 0..2 * LEN as usize).prop_map(
            |(chain, hashes, tokens)| Change::LookUp { chain, hashes, tokens }
        ),
    ]
}

/// Makes a change to a manager and its running requests.
fn make(manager: &mut Manager, running: &mut Vec<RequestId>, id: RequestId, change: &Change) {
    let is_started = match *change {
        Change::Start { chain: number, blocks, is_chain } => {
            start(manager, id, &chain(number)[..blocks], is_chain)
        }
        Change::Serve { chain: number, blocks } => serve(manager, id, &chain(number)[..blocks]),
        _ => false,
    };
    running.extend(is_started.then_some(id));
    match change {
        Change::End(which) if !running.is_empty() => {
            let ended = running.remove(which % running.len());
            manager.free(ended).expect("a known request");
        }
        Change::Evict(blocks) => {
            manager.evict_blocks(&blocks.clone().collect::<Vec<_>>()).expect("blocks of the pool");
        }
        Change::Reset => {
            running.drain(..).for_each(|id| manager.free(id).expect("a known request"));
            assert!(manager.reset_prefix_cache());
        }
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn the_trie_finds_what_hashes_find(
        changes in prop::collection::vec(change(), 1..60),
        layout in 0..3_usize,
        is_adaptive in prop::bool::ANY,
    ) {
        let mut groups = vec![GroupSpec::full(BLOCK_SIZE); 1 + layout % 2];
        groups.extend((layout > 0).then(|| GroupSpec::sliding_window(BLOCK_SIZE, 9)));
        let policy = if is_adaptive { Policy::adaptive() } else { Policy::every_tail() };
        let mut manager = manager(groups, policy);
        let mut running = Vec::new();
        for (id, change) in (100..).zip(&changes) {
            make(&mut manager, &mut running, id, change);
            if let Change::LookUp { chain: number, hashes, tokens } = *change {
                let chain = &chain(number)[..hashes];
                let tokens = tokens.min(hashes * BLOCK_SIZE);
                let read = HashWindow::from(chain);
                let linked = read.chained(true);
                let expected = manager.find_longest_hit(&read, tokens).expect("a look-up");
                let found = manager.find_longest_hit(&linked, tokens).expect("a look-up");
                prop_assert_eq!(&found.blocks, &expected.blocks);
                for _ in 0..2 {
                    let found = manager.get_computed_blocks(WAITING, &linked, tokens);
                    prop_assert_eq!(&found.expect("a look-up").blocks, &expected.blocks);
                }
            }
            prop_assert_eq!(check(&manager), Ok(()));
        }
    }
}

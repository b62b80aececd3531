//! The sliding-window search, compared with a scan of every block from the right.

use kvoxide_core::group::{HitQuery, Kind};
use kvoxide_core::request::GroupHashes;
use kvoxide_core::{BlockHash, BlockId, BlockPool, CacheKey, GroupSpec, HashWindow, RecycleOrder};
use proptest::prelude::*;

#[derive(Debug)]
struct Case {
    block_size: usize,
    window: usize,
    alignment: usize,
    drops_eagle_block: bool,
    max_blocks: usize,
    cached: Vec<bool>,
}

fn case() -> impl Strategy<Value = Case> {
    let sizes = (1..5_usize, 1..40_usize, 1..5_usize);
    let density = prop::sample::select(vec![0.3, 0.8, 0.97]);
    (sizes, prop::bool::ANY, 0..60_usize, density).prop_flat_map(
        |((block_size, window, per_alignment), drops_eagle_block, max_blocks, density)| {
            prop::collection::vec(prop::bool::weighted(density), max_blocks + 2).prop_map(
                move |cached| Case {
                    block_size,
                    window,
                    alignment: block_size * per_alignment,
                    drops_eagle_block,
                    max_blocks,
                    cached,
                },
            )
        },
    )
}

/// Returns the hit that a scan of every block finds, with 0 for a null block.
fn scan(case: &Case, ids: &[BlockId]) -> Vec<BlockId> {
    let is_aligned = |blocks: usize| (blocks * case.block_size).is_multiple_of(case.alignment);
    let need = (case.window - 1).div_ceil(case.block_size) + usize::from(case.drops_eagle_block);
    let mut hit = vec![0; case.max_blocks];
    let mut run = 0;
    let mut is_complete = false;
    for i in (0..case.max_blocks).rev() {
        if !case.cached[i] {
            run = 0;
            continue;
        }
        let end = if case.drops_eagle_block { i } else { i + 1 };
        if run == 0 && !is_aligned(end) {
            continue;
        }
        hit[i] = ids[i];
        run += 1;
        if run >= need {
            hit.truncate(i + run);
            is_complete = true;
            break;
        }
    }
    if !is_complete {
        hit.truncate(run);
        while !is_aligned(hit.len()) {
            hit.pop();
        }
    }
    if case.drops_eagle_block && hit.pop().is_some() {
        while !is_aligned(hit.len()) {
            hit.pop();
        }
    }
    hit
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn the_search_finds_what_a_scan_of_every_block_finds(case in case()) {
        let mut pool = BlockPool::new(100, 4, RecycleOrder::default(), false, None).expect("a small pool");
        let mut ids = Vec::new();
        pool.allocate(case.cached.len(), &mut ids);
        let hashes: Vec<_> = (1..=ids.len() as u64).map(|n| BlockHash([n, 0, 0, 0])).collect();
        for (i, &id) in ids.iter().enumerate().filter(|(i, _)| case.cached[*i]) {
            pool.insert_key(id, CacheKey { hash: hashes[i], group: 3 }, (i + 1) * case.block_size);
        }
        let spec = GroupSpec::sliding_window(case.block_size, case.window);
        let chain = HashWindow::from(&hashes[..]);
        let kind = Kind::new(&spec).expect("a sliding window");
        let hit = kind.longest_hit(&HitQuery {
            pool: &pool,
            groups: &[3],
            hashes: GroupHashes::new(&chain, case.block_size, case.block_size),
            hash_block_hashes: GroupHashes::new(&chain, case.block_size, case.block_size),
            block_size: case.block_size,
            max_length: case.max_blocks * case.block_size,
            drops_eagle_block: case.drops_eagle_block,
            alignment: case.alignment,
            known_prefix: None,
        }).expect("enough hashes");
        let expected = scan(&case, &ids);
        prop_assert_eq!(hit.length, expected.len() * case.block_size);
        prop_assert_eq!(hit.blocks[0].iter().collect::<Vec<_>>(), expected);
    }
}

//! The retention mask, compared with its definition for one block.

use kvoxide_core::retention::MaskQuery;
use proptest::prelude::*;

/// Returns whether a block is cached, by the definition of vLLM PR 42258 and PR 43447.
fn is_reachable(reach: &MaskQuery<'_>, block_size: usize, need: usize, block: usize) -> bool {
    let shift = usize::from(reach.drops_eagle_block);
    let segment = match reach.retention_interval {
        None => Some(reach.alignment / block_size),
        Some(0) => None,
        Some(interval) => Some(interval / block_size),
    };
    if let Some(segment) = segment {
        let is_in_tail = |block: usize| block % segment >= segment.saturating_sub(need);
        if need >= segment || block.checked_sub(shift).is_some_and(|b| need > 0 && is_in_tail(b)) {
            return true;
        }
    }
    reach.retention_interval.is_some()
        && reach.replays.iter().chain(reach.shared).any(|boundary| {
            let end = boundary / reach.alignment * reach.alignment / block_size + shift;
            block < end && block + need >= end
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5_000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn runs_hold_exactly_the_reachable_blocks(
        block_size in 1..6_usize,
        per_alignment in 1..8_usize,
        need in 0..12_usize,
        use_eagle in prop::bool::ANY,
        segments in prop::option::of(0..5_usize),
        start in 0..60_usize,
        len in 0..60_usize,
        boundaries in prop::collection::vec(0..400_usize, 0..3),
    ) {
        let alignment = block_size * per_alignment;
        let end = start + len;
        let reach = MaskQuery {
            range: (start, end),
            alignment,
            drops_eagle_block: use_eagle,
            retention_interval: segments.map(|n| n * alignment),
            replays: &boundaries[..boundaries.len() / 2],
            shared: &boundaries[boundaries.len() / 2..],
            num_prompt_tokens: 0,
            value_model: None,
            has_room: false,
        };
        let runs = reach.tails(block_size, need).runs(start, end);
        prop_assert!(runs.windows(2).all(|pair| pair[0].end < pair[1].start));
        let found: Vec<_> = runs.into_iter().flatten().collect();
        let expected: Vec<_> =
            (start..end).filter(|&b| is_reachable(&reach, block_size, need, b)).collect();
        prop_assert_eq!(found, expected);
    }
}

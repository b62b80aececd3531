//! Random calls of a scheduler, for realistic configurations.

use kvoxide_core::{GroupSpec, ManagerConfig, Policy, RecycleOrder, Retention, Size};
use kvoxide_fuzzed::manager::{Allocation, Amount, Call};
use proptest::prelude::*;

/// Generates calls of a scheduler.
pub fn call() -> impl Strategy<Value = Call> {
    let (which, tokens, lookahead) = (0..6_u8, 1..90_u8, 0..4_u8);
    let coin = prop::bool::weighted(0.15);
    let step =
        (which.clone(), tokens, lookahead, coin).prop_map(|(which, tokens, lookahead, delay)| {
            Call::Step { which, tokens, lookahead, delay }
        });
    prop_oneof![
        4 => (which.clone(), 0..4_u8, 1..200_u16).prop_map(|(which, family, len)| Call::Replace {
            which,
            family,
            len,
            shared: len * 3 / 4,
            num_prompt_tokens: Amount::Fitting,
        }),
        3 => allocation(),
        11 => step,
        3 => (which.clone(), 1..8_u8).prop_map(|(which, tokens)| Call::Append { which, tokens }),
        1 => which.clone().prop_map(|which| Call::CacheBlocks { which, computed: Amount::Fitting }),
        4 => which.clone().prop_map(|which| Call::Free { which }),
        1 => which.clone().prop_map(|which| Call::Pop { which }),
        1 => prop::bool::ANY.prop_map(|to_back| Call::Release { blocks: u8::MAX, to_back }),
        1 => which.prop_map(|which| Call::Skip { which, computed: Amount::Fitting }),
        1 => prop::collection::vec(0..160_u16, 0..8).prop_map(|blocks| Call::Evict { blocks }),
        1 => Just(Call::Reset),
        1 => demand(),
        1 => (0..6_u8, 0..40_u8, 0..90_u8).prop_map(|(which, in_flight, boundary)| Call::Count {
            which,
            computed: Amount::Fitting,
            in_flight: Amount::Small(in_flight),
            boundary: if boundary < 60 { Amount::Fitting } else { Amount::Small(boundary) },
        }),
        3 => Just(Call::StartStep),
        2 => Just(Call::TakeCopies),
        1 => (0..6_u8).prop_map(|which| Call::TakeOffloads { which }),
    ]
}

/// Generates queries for the number of blocks that a request needs.
fn demand() -> impl Strategy<Value = Call> {
    let coin = prop::bool::ANY;
    (0..6_u8, 1..200_u8, coin, coin).prop_map(|(which, tokens, cap, with_hit)| Call::Demand {
        which,
        tokens: Amount::Small(tokens),
        computed: Amount::Fitting,
        cap,
        with_hit,
    })
}

/// Generates admissions with external tokens.
fn allocation() -> impl Strategy<Value = Call> {
    let coin = || prop::bool::weighted(0.15);
    (0..6_u8, 0..9_u8, 0..4_u8, coin(), prop::bool::ANY).prop_map(
        |(which, external, lookahead, delay, must_fit)| {
            Call::Allocate(Allocation {
                which,
                with_hit: true,
                new: Amount::Fitting,
                hit: Amount::Fitting,
                lookahead: Amount::Small(lookahead),
                external: Amount::Small(if external < 6 {
                    external / 2 * 32
                } else {
                    external * 5
                }),
                reserved: Amount::Fitting,
                switches: [delay, must_fit, true, true],
                skip_zeroing: Some(0),
            })
        },
    )
}

fn groups() -> impl Strategy<Value = Vec<GroupSpec>> {
    let rswa =
        |block_size, window| GroupSpec::new("rswa", block_size).with(Size::RswaWindow, window);
    let circular = |size| GroupSpec::new("circular_buffer", size);
    let mamba = |block_size, drafts| {
        GroupSpec::new("mamba", block_size).with(Size::NumSpeculativeBlocks, drafts)
    };
    let exporting = |block_size| {
        let group = mamba(block_size, 0).with(Size::NumPrefillCheckpointBlocks, 1);
        group.with(Size::PrefillCheckpointAlignment, 4)
    };
    let hidden = |block_size| GroupSpec::new("hidden_states", block_size);
    let mla = |block_size| GroupSpec::new("mla_attention", block_size);
    let swa_mla = |block_size, window| {
        GroupSpec::new("sliding_window_mla", block_size).with(Size::SlidingWindow, window)
    };
    let none = |block_size, drafts| {
        GroupSpec::new("mamba_none", block_size).with(Size::NumSpeculativeBlocks, drafts)
    };
    prop::sample::select(vec![
        vec![GroupSpec::full(16), GroupSpec::new("cross_attention", 16)],
        vec![GroupSpec::full(16), none(400, 1), none(400, 1)],
        vec![mla(16), swa_mla(8, 20), hidden(16)],
        vec![mla(8), exporting(32), mamba(32, 1)],
        vec![mamba(16, 0)],
        vec![exporting(16)],
        vec![GroupSpec::full(16), mamba(16, 2), mamba(16, 2)],
        vec![GroupSpec::full(8), mamba(32, 1)],
        vec![GroupSpec::full(16), exporting(32), GroupSpec::full(8)],
        vec![GroupSpec::sliding_window(8, 20), GroupSpec::full(16), mamba(16, 0)],
        vec![GroupSpec::full(16)],
        vec![GroupSpec::sliding_window(8, 20)],
        vec![GroupSpec::chunked_local(8, 32)],
        vec![rswa(8, 20)],
        vec![GroupSpec::full(16), GroupSpec::sliding_window(16, 40)],
        vec![GroupSpec::full(32), GroupSpec::sliding_window(8, 8)],
        vec![GroupSpec::full(16), circular(64)],
        vec![rswa(16, 30), GroupSpec::sliding_window(8, 30), circular(8)],
        vec![
            GroupSpec::full(32),
            GroupSpec::sliding_window(8, 30),
            GroupSpec::sliding_window(8, 30),
            GroupSpec::sliding_window(4, 3),
        ],
        vec![GroupSpec::full(16), GroupSpec::chunked_local(16, 48), GroupSpec::full(16)],
        vec![GroupSpec::sliding_window(8, 1), GroupSpec::sliding_window(16, 100)],
    ])
}

/// Generates configurations of managers.
pub fn config() -> impl Strategy<Value = ManagerConfig> {
    let policy = (
        prop::bool::ANY,
        prop::bool::weighted(0.8),
        prop::sample::select(vec![None, Some(0), Some(64), Some(192)]),
        prop::sample::select(vec![None, Some(1), Some(3)]),
    );
    let more = (prop::bool::ANY, prop::bool::ANY, 0..3_usize);
    (groups(), 8..160_usize, prop::bool::weighted(0.3), prop::bool::weighted(0.8), policy, more)
        .prop_map(
            |(
                groups,
                num_blocks,
                use_eagle,
                enable_caching,
                policy,
                (junction, recaches, lookahead),
            )| {
                let (fifo, mask, interval, pin) = policy;
                let has = |size| groups.iter().any(|group| group.size(size).is_some());
                let is_there = |kind: &str| groups.iter().any(|group| group.kind == kind);
                let has_states = is_there("mamba");
                let can_cache = !is_there("cross_attention") && !is_there("mamba_none");
                let (has_chunks, has_window) =
                    (has(Size::AttentionChunkSize), has(Size::SlidingWindow) || has_states);
                ManagerConfig {
                    use_eagle: use_eagle && !has_chunks,
                    enable_caching: enable_caching && can_cache,
                    enable_events: true,
                    needs_zeroing: true,
                    enable_mamba_shared_prefix_checkpoint: junction,
                    recaches_known_tail: recaches,
                    max_in_flight_tokens: (lookahead == 2).then_some(64),
                    num_prefill_lookahead: lookahead,
                    watermark: 0.05,
                    policy: Policy {
                        retention: Retention::Standard,
                        recycle_order: if fifo {
                            RecycleOrder::Fifo
                        } else {
                            RecycleOrder::default()
                        },
                        reachable_block_mask: mask,
                        retention_interval: interval.filter(|_| has_window),
                        pin_min_drop_size: pin,
                        ..Policy::every_tail()
                    },
                    ..ManagerConfig::new(num_blocks, groups, 400)
                }
            },
        )
}

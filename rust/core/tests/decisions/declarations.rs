//! Declarations of group kinds: their names, sizes and abilities.

use kvoxide_core::group::{HitQuery, Kind, kinds};
use kvoxide_core::{GroupSpec, ManagerConfig, Policy, Size};

use crate::small::{config, made, manager};

fn states(kind: &str, num_drafts: usize) -> GroupSpec {
    GroupSpec::new(kind, 4).with(Size::NumSpeculativeBlocks, num_drafts)
}

/// Returns the configuration of a model without caching.
fn uncached(group: GroupSpec) -> ManagerConfig {
    ManagerConfig { enable_caching: false, ..config(41, &[group]) }
}

#[test]
fn every_kind_has_its_own_names_and_those_of_vllm() {
    let declared: Vec<_> = kinds()
        .iter()
        .map(|kind| (kind.name, kind.short_name, kind.event_name, kind.vllm_classes))
        .collect();
    let full = "FullAttentionManager";
    let window = "SlidingWindowManager";
    assert_eq!(
        declared,
        [
            ("full_attention", "full", "full_attention", ("FullAttentionSpec", full)),
            ("mla_attention", "mla", "mla_attention", ("MLAAttentionSpec", full)),
            ("hidden_states", "hidden", "mla_attention", ("HiddenStateCacheSpec", full)),
            ("sliding_window", "swa", "sliding_window", ("SlidingWindowSpec", window)),
            (
                "sliding_window_mla",
                "swa-mla",
                "sliding_window_mla",
                ("SlidingWindowMLASpec", window)
            ),
            (
                "chunked_local_attention",
                "chunked",
                "chunked_local_attention",
                ("ChunkedLocalAttentionSpec", "ChunkedLocalAttentionManager")
            ),
            ("rswa", "rswa", "full_attention", ("RSWASpec", "RSWAManager")),
            (
                "circular_buffer",
                "circular",
                "unknown",
                ("CircularBufferSpec", "CircularBufferManager")
            ),
            ("mamba", "mamba", "mamba", ("MambaSpec", "MambaManager")),
            ("mamba_none", "mamba-none", "mamba", ("MambaSpec", "MambaManager")),
            (
                "cross_attention",
                "cross",
                "cross_attention",
                ("CrossAttentionSpec", "CrossAttentionManager")
            ),
        ]
    );
}

#[test]
fn blocks_that_a_request_holds_at_its_end() {
    let blocks = |group: GroupSpec, num_tokens| {
        let kind = Kind::new(&group).expect("a kind that is known");
        kind.num_blocks_at_end(group.block_size, num_tokens)
    };
    assert_eq!([0, 3, 400].map(|n| blocks(states("mamba", 2), n)), [2, 3, 3]);
    assert_eq!([0, 3, 400].map(|n| blocks(states("mamba", 0), n)), [0, 1, 1]);
    assert_eq!([0, 400].map(|n| blocks(states("mamba_none", 2), n)), [3, 3]);
    assert_eq!([0, 400].map(|n| blocks(GroupSpec::new("circular_buffer", 4), n)), [1, 1]);
}

#[test]
fn groups_without_caching_have_no_hits() {
    let manager = manager(&[GroupSpec::full(4)]);
    let hashes = kvoxide_core::HashWindow::new(0, &[]);
    let hashes = kvoxide_core::request::GroupHashes::new(&hashes, 4, 4);
    for kind in ["circular_buffer", "cross_attention", "mamba_none"] {
        let query = HitQuery {
            pool: manager.pool(),
            groups: &[0, 1],
            hashes,
            hash_block_hashes: hashes,
            block_size: 4,
            max_length: 0,
            drops_eagle_block: false,
            alignment: 4,
            known_prefix: None,
        };
        let kind = Kind::new(&GroupSpec::new(kind, 4)).expect("a kind that is known");
        let hit = kind.longest_hit(&query).expect("a look-up");
        assert_eq!((hit.length, hit.blocks), (0, vec![Default::default(); 2]));
    }
}

#[test]
fn states_take_a_retention_interval_with_and_without_caching() {
    let policy = Policy { retention_interval: Some(8), ..Policy::every_tail() };
    for kind in ["mamba", "mamba_none"] {
        made(ManagerConfig { policy: policy.clone(), ..uncached(states(kind, 0)) });
    }
}

#[test]
fn an_empty_hit_can_be_cut_for_states_but_not_for_an_encoder() {
    let none = made(uncached(states("mamba_none", 0)));
    assert_eq!(none.truncated(&none.no_blocks(), 8), Ok(none.no_blocks()));
    assert!(none.truncated(&none.no_blocks(), 6).is_err(), "inside a block");
    let cross = made(uncached(GroupSpec::new("cross_attention", 4)));
    assert!(cross.truncated(&cross.no_blocks(), 8).is_err(), "blocks that are not there");
    assert_eq!(cross.truncated(&cross.no_blocks(), 0), Ok(cross.no_blocks()));
    let circular = made(uncached(GroupSpec::new("circular_buffer", 4)));
    assert_eq!(circular.truncated(&circular.no_blocks(), 6), Ok(circular.no_blocks()));
}

/// A backend exports states only if it declares blocks for them.
#[test]
fn an_alignment_alone_exports_no_state() {
    for (num_blocks, exported) in [(0, false), (1, true)] {
        let group = states("mamba", 0)
            .with(Size::NumPrefillCheckpointBlocks, num_blocks)
            .with(Size::PrefillCheckpointAlignment, 4);
        let mut manager = manager(&[group]);
        let mut request = crate::small::Request::new(&manager, 1, 0..15);
        crate::small::step(&mut manager, &mut request, 15);
        assert_eq!(manager.groups()[0].checkpoint(1).is_some(), exported);
    }
}

//! Refused arguments, and similar values that are accepted.

use kvoxide_core::GroupBlocks;
use kvoxide_core::Size::{AttentionChunkSize, ExtraRetainedTokens, RswaWindow, SlidingWindow};
use kvoxide_core::group::supported_kinds;
use kvoxide_core::{AllocateArgs, Error, GroupSpec, Manager, ManagerConfig, Policy, SlotDemand};

use crate::small::{Request, admit, config, look_up, made, manager, serve, step};

fn error_of(config: ManagerConfig) -> Option<Error> {
    Manager::new(config).err()
}

#[track_caller]
fn assert_config_error(config: ManagerConfig, says: &str) {
    match error_of(config) {
        Some(Error::Config(message)) => assert!(message.contains(says), "{message}"),
        other => panic!("{other:?} instead of: {says}"),
    }
}

/// Returns a group without prefix caching.
fn uncacheable(block_size: usize) -> GroupSpec {
    let group = GroupSpec::new("sliding_window_mla", block_size).with(SlidingWindow, 8);
    GroupSpec { prefix_cacheable: Some(false), ..group }
}

#[test]
fn invalid_groups_are_refused() {
    let full = GroupSpec::full(4);
    let window = GroupSpec::sliding_window(4, 8);
    let chunked = GroupSpec::chunked_local(4, 8);
    let rswa = GroupSpec::new("rswa", 4).with(RswaWindow, 8);
    let circular = GroupSpec::new("circular_buffer", 4);
    let opts = |group: &GroupSpec, cacheable| GroupSpec {
        prefix_cacheable: Some(cacheable),
        ..group.clone()
    };
    for (group, says) in [
        (full.clone().with(SlidingWindow, 8), "takes no sliding_window"),
        (full.clone().with(AttentionChunkSize, 8), "takes no attention_chunk_size"),
        (full.clone().with(ExtraRetainedTokens, 1), "takes no extra_retained_tokens"),
        (full.clone().with(RswaWindow, 8), "takes no rswa_window"),
        (opts(&full, false), "takes no prefix_cacheable=False"),
        (GroupSpec { block_size: 0, ..full.clone() }, "block_size is 0"),
        (GroupSpec { block_size: GroupSpec::MAX_TOKENS + 1, ..full }, "block_size is"),
        (window.clone().with(AttentionChunkSize, 8), "takes no attention_chunk_size"),
        (opts(&window, false), "takes no prefix_cacheable=False"),
        (GroupSpec::new("sliding_window", 4), "needs sliding_window"),
        (window.with(SlidingWindow, 0), "sliding_window is 0"),
        (chunked.clone().with(SlidingWindow, 8), "takes no sliding_window"),
        (chunked.clone().with(ExtraRetainedTokens, 1), "takes no extra_retained_tokens"),
        (opts(&chunked, false), "takes no prefix_cacheable=False"),
        (GroupSpec::new("chunked_local_attention", 4), "needs attention_chunk_size"),
        (GroupSpec::new("rswa", 4), "needs rswa_window"),
        (rswa.clone().with(RswaWindow, 0), "rswa_window is 0"),
        (rswa.clone().with(SlidingWindow, 8), "takes no sliding_window"),
        (opts(&rswa, false), "takes no prefix_cacheable=False"),
        (circular.clone().with(RswaWindow, 8), "takes no rswa_window"),
        (opts(&circular, true), "takes no prefix_cacheable=True"),
    ] {
        assert_config_error(config(41, &[group]), says);
    }
    let unknown = error_of(config(41, &[GroupSpec::new("hisparse", 4)])).expect("no such kind");
    assert!(matches!(unknown, Error::UnsupportedGroup { .. }));
    for kind in supported_kinds() {
        assert!(unknown.to_string().contains(kind), "{unknown}");
    }
    assert_eq!(supported_kinds().len(), 11);
}

#[test]
fn a_window_of_a_latent_may_stay_out_of_the_cache() {
    let group = uncacheable(4);
    assert_eq!(error_of(config(41, &[GroupSpec::full(4), group])), None);
}

#[test]
fn invalid_combinations_of_groups_are_refused() {
    let chunked = GroupSpec::chunked_local(4, 8);
    assert_config_error(config(41, &[GroupSpec::full(8), chunked.clone()]), "cannot be mixed");
    let eagle = ManagerConfig { use_eagle: true, ..config(41, std::slice::from_ref(&chunked)) };
    assert_config_error(eagle, "EAGLE");
    assert_eq!(error_of(config(41, &[GroupSpec::full(4), chunked])), None);
    let group = uncacheable(4);
    let without = config(41, &[group.clone(), group]);
    assert_config_error(without.clone(), "at least one cacheable");
    assert_eq!(error_of(ManagerConfig { enable_caching: false, ..without }), None);
    assert_config_error(config(41, &vec![GroupSpec::full(1); 1 << 16]), "at most 65535");
}

#[test]
fn inconsistent_sizes_are_refused() {
    let two = || config(41, &[GroupSpec::full(4), GroupSpec::sliding_window(6, 8)]);
    assert_eq!(made(two()).scheduler_block_size(), 12);
    assert_eq!(made(two()).hash_block_size(), 2);
    assert_eq!(made(config(41, &[GroupSpec::full(4), uncacheable(2)])).hash_block_size(), 4);
    let scheduled = |size| ManagerConfig { scheduler_block_size: Some(size), ..two() };
    assert_config_error(scheduled(0), "scheduler_block_size is 0");
    assert_config_error(scheduled(8), "Use a multiple of 12");
    assert_eq!(made(scheduled(24)).scheduler_block_size(), 24);
    let hashed = |size| ManagerConfig { hash_block_size: Some(size), ..two() };
    assert_config_error(hashed(0), "hash_block_size is 0");
    assert_config_error(hashed(5), "divide the scheduler block size 12");
    assert_config_error(hashed(4), "divide the block size 6");
    assert_eq!(made(hashed(1)).hash_block_size(), 1);
    let uncached = ManagerConfig { enable_caching: false, ..hashed(4) };
    assert_eq!(made(uncached).hash_block_size(), 4);
    let one = ManagerConfig { hash_block_size: Some(2), ..config(41, &[GroupSpec::full(4)]) };
    assert_config_error(one, "hashes by its block size 4");
    let zero = ManagerConfig { max_model_len: 0, ..two() };
    assert_config_error(zero, "max_model_len is 0");
}

#[test]
fn numbers_out_of_range_are_refused() {
    let full = || config(41, &[GroupSpec::full(4)]);
    for watermark in [-0.1, 1.0, f64::NAN] {
        assert_config_error(ManagerConfig { watermark, ..full() }, "watermark is");
    }
    let reprefill = |num_prefill_lookahead, use_eagle| ManagerConfig {
        num_prefill_lookahead,
        use_eagle,
        ..full()
    };
    assert_config_error(reprefill(5, true), "num_prefill_lookahead is 5");
    assert_eq!(error_of(reprefill(4, true)), None);
    assert_eq!(error_of(reprefill(5, false)), None);
    let marked = GroupSpec { is_eagle_group: true, ..GroupSpec::full(4) };
    let marked = ManagerConfig { num_prefill_lookahead: 5, ..config(41, &[marked]) };
    assert_config_error(marked, "num_prefill_lookahead is 5");
    assert_config_error(config(0, &[GroupSpec::full(4)]), "num_blocks is 0");
    let two = [GroupSpec::full(4), GroupSpec::full(4)];
    assert!(config(2, &two).check_holds_a_request().is_err());
    assert_eq!(config(3, &two).check_holds_a_request(), Ok(()));
}

#[test]
fn policies_without_effect_or_off_block_boundaries_are_refused() {
    let groups = [GroupSpec::full(8), GroupSpec::sliding_window(4, 8)];
    let with = |policy| ManagerConfig { policy, ..config(41, &groups) };
    let pinning = |n| Policy { pin_min_drop_size: Some(n), ..Policy::every_tail() };
    assert_config_error(with(pinning(0)), "pin_min_drop_size is 0");
    assert_eq!(error_of(with(pinning(1))), None);
    let interval = |n| Policy { retention_interval: Some(n), ..Policy::every_tail() };
    assert_config_error(with(interval(12)), "multiple of the scheduler block size 8");
    assert_eq!(error_of(with(interval(16))), None);
    assert_eq!(error_of(with(interval(0))), None);
    let full = |policy| ManagerConfig { policy, ..config(41, &[GroupSpec::full(8)]) };
    assert_config_error(full(interval(16)), "no KV cache group has a sliding window");
    assert_eq!(error_of(full(interval(0))), None);
}

/// Returns the error of an allocation for a new request of 20 tokens.
fn allocation(manager: &mut Manager, args: &AllocateArgs<'_>) -> Option<Error> {
    let request = Request::new(manager, 9, 0..20);
    manager.allocate_slots(&request.view(), args).err()
}

#[test]
fn invalid_allocations_are_refused() {
    let mut manager =
        made(ManagerConfig { max_model_len: 32, ..config(41, &[GroupSpec::full(4)]) });
    let nothing = AllocateArgs::default();
    assert!(matches!(allocation(&mut manager, &nothing), Some(Error::Request(_))));
    let external = |n| AllocateArgs { num_external_computed_tokens: n, ..AllocateArgs::default() };
    assert!(matches!(allocation(&mut manager, &external(33)), Some(Error::Request(_))));
    serve(&mut manager, 1, 0..8);
    let hit = look_up(&mut manager, 0..9).blocks;
    let with = |blocks, num_new_computed_tokens| AllocateArgs {
        num_new_tokens: 4,
        num_new_computed_tokens,
        new_computed_blocks: blocks,
        ..AllocateArgs::default()
    };
    let twice = [hit[0].clone(), hit[0].clone()];
    assert!(matches!(allocation(&mut manager, &with(&twice, 8)), Some(Error::Request(_))));
    assert!(matches!(allocation(&mut manager, &with(&hit, 7)), Some(Error::Request(_))));
    let outside = [GroupBlocks::new(0, vec![1, 41])];
    assert!(matches!(allocation(&mut manager, &with(&outside, 8)), Some(Error::Block(_))));
    assert!(!manager.knows(9));
    assert_eq!(allocation(&mut manager, &with(&hit, 8)), None);
    manager.free(9).expect("a request that runs");
    assert_eq!(allocation(&mut manager, &external(32)), None);
}

#[test]
fn computed_tokens_without_blocks_need_a_block_for_each_position() {
    for (num_blocks, is_refused) in [(26, true), (27, false)] {
        let mut manager = made(config(num_blocks, &[GroupSpec::sliding_window(4, 8)]));
        let mut request = Request::new(&manager, 1, 0..120);
        request.num_computed_tokens = 100;
        let args = AllocateArgs { num_new_tokens: 4, ..AllocateArgs::default() };
        // The window skips 23 of the 26 blocks, but the table starts with the first block.
        let allocated = manager.allocate_slots(&request.view(), &args);
        assert_eq!(matches!(allocated, Err(Error::Block(_))), is_refused, "{allocated:?}");
        assert_eq!(manager.knows(1), !is_refused);
    }
}

#[test]
fn computed_tokens_beyond_the_model_length_need_all_its_blocks() {
    for (num_blocks, is_refused) in [(8, true), (9, false)] {
        let groups = [GroupSpec::sliding_window(4, 40)];
        let mut manager = made(ManagerConfig { max_model_len: 32, ..config(num_blocks, &groups) });
        let mut request = Request::new(&manager, 1, 0..32);
        request.num_computed_tokens = 100;
        let args = AllocateArgs { num_new_tokens: 1, ..AllocateArgs::default() };
        // A window that ends at 100 skips all 8 blocks of the model. They are still allocated.
        let allocated = manager.allocate_slots(&request.view(), &args);
        assert_eq!(matches!(allocated, Err(Error::Block(_))), is_refused, "{allocated:?}");
    }
}

#[test]
fn a_request_that_runs_takes_no_hit() {
    let mut manager = manager(&[GroupSpec::full(4)]);
    serve(&mut manager, 1, 0..8);
    let hit = look_up(&mut manager, 0..9).blocks;
    let mut running = Request::new(&manager, 2, 50..58);
    admit(&mut manager, &mut running);
    let args = AllocateArgs {
        num_new_tokens: 4,
        num_new_computed_tokens: 8,
        new_computed_blocks: &hit,
        ..AllocateArgs::default()
    };
    let refused = manager.allocate_slots(&running.view(), &args);
    assert!(matches!(refused, Err(Error::Precondition(_))), "{refused:?}");
    let demand = SlotDemand { num_tokens: 12, new_computed_blocks: &hit, ..Default::default() };
    let refused = manager.get_num_blocks_to_allocate(2, &demand);
    assert!(matches!(refused, Err(Error::Precondition(_))), "{refused:?}");
    // A request that has blocks, but no hit and no cached blocks, cannot attach a hit either.
    let mut short = Request::new(&manager, 3, 70..72);
    step(&mut manager, &mut short, 2);
    let refused = manager.allocate_slots(&short.view(), &args);
    assert!(matches!(refused, Err(Error::Precondition(_))), "{refused:?}");
}

#[test]
fn a_hit_without_caching_is_refused() {
    let mut cached = manager(&[GroupSpec::full(4)]);
    serve(&mut cached, 1, 0..8);
    let hit = look_up(&mut cached, 0..9).blocks;
    let config = ManagerConfig { enable_caching: false, ..config(41, &[GroupSpec::full(4)]) };
    let mut manager = made(config);
    assert_eq!(look_up(&mut manager, 0..9).length, 0);
    let args = AllocateArgs {
        num_new_tokens: 1,
        num_new_computed_tokens: 8,
        new_computed_blocks: &hit,
        ..AllocateArgs::default()
    };
    assert!(matches!(allocation(&mut manager, &args), Some(Error::Precondition(_))));
}

#[test]
fn a_block_is_released_at_most_as_often_as_it_is_referenced() {
    let mut manager = manager(&[GroupSpec::full(4)]);
    let mut request = Request::new(&manager, 1, 0..10);
    admit(&mut manager, &mut request);
    let blocks = manager.pop_blocks_for_free(1).expect("a request that runs");
    for wrong in [vec![1, 1], vec![4], vec![1, 61]] {
        assert!(matches!(manager.release_blocks(&wrong), Err(Error::Block(_))), "{wrong:?}");
        assert!(matches!(manager.release_blocks_to_back(&wrong), Err(Error::Block(_))));
    }
    assert!(matches!(manager.evict_blocks(&[61]), Err(Error::Block(_))));
    assert_eq!(manager.pool().num_free_blocks(), 57);
    assert_eq!(manager.release_blocks(&[0, 0]), Ok(()));
    assert_eq!(manager.release_blocks(&blocks), Ok(()));
}

#[test]
fn unknown_requests_are_refused() {
    let mut manager = manager(&[GroupSpec::full(4)]);
    let unknown = Error::UnknownRequest("5".into());
    assert_eq!(manager.free(5), Err(unknown.clone()));
    assert_eq!(manager.pop_blocks_for_free(5), Err(unknown.clone()));
    assert_eq!(manager.remove_skipped_blocks(5, 8, None), Err(unknown.clone()));
    assert_eq!(manager.estimate_cached_tokens(5), Err(unknown));
}

#[test]
fn blocks_that_are_not_allocated_cannot_be_cached() {
    let mut manager = manager(&[GroupSpec::full(4)]);
    let mut request = Request::new(&manager, 1, 0..20);
    step(&mut manager, &mut request, 8);
    assert_eq!(manager.cache_blocks(&request.view(), 8), Ok(()));
    let refused = manager.cache_blocks(&request.view(), 12);
    assert!(matches!(refused, Err(Error::OutOfRange(_))), "{refused:?}");
}

#[test]
fn missing_blocks_are_a_precondition_error_under_a_retention_mask() {
    let mut manager = manager(&[GroupSpec::sliding_window(8, 8), GroupSpec::full(32)]);
    let mut request = Request::new(&manager, 1, 0..65);
    step(&mut manager, &mut request, 32);
    assert_eq!(manager.cache_blocks(&request.view(), 63), Ok(()));
    let refused = manager.cache_blocks(&request.view(), 64);
    assert!(matches!(refused, Err(Error::Precondition(_))), "{refused:?}");
}

#[test]
fn a_hit_is_cut_at_a_block_within_it() {
    let mut manager = manager(&[GroupSpec::full(4), GroupSpec::sliding_window(4, 8)]);
    serve(&mut manager, 1, 0..32);
    let hit = look_up(&mut manager, 0..33).blocks;
    let cut = manager.truncated(&hit, 28).expect("a multiple of the block size");
    assert_eq!(cut.iter().map(|group| group.len()).collect::<Vec<_>>(), [7, 7]);
    assert_eq!(manager.truncated(&hit, 32).as_ref(), Ok(&*hit));
    for tokens in [30, 36] {
        let refused = manager.truncated(&hit, tokens);
        assert!(matches!(refused, Err(Error::Precondition(_))), "{refused:?}");
    }
    assert!(matches!(manager.truncated(&hit[..1], 28), Err(Error::Request(_))));
}

#[test]
fn a_look_up_without_its_hashes_is_refused() {
    let mut manager = manager(&[GroupSpec::sliding_window(4, 8)]);
    let request = serve(&mut manager, 1, 0..32);
    let hashes = request.view().hashes;
    assert_eq!(manager.find_longest_hit(&hashes, 32).map(|hit| hit.length), Ok(32));
    let refused = manager.find_longest_hit(&hashes, 36).map(|hit| hit.length);
    assert!(matches!(refused, Err(Error::BlockHash(_))), "{refused:?}");
}

//! The end of a prompt inside a block that is larger than a hash block.

use kvoxide_core::group::CacheTarget;
use kvoxide_core::{BlockId, GroupSpec, Manager, ManagerConfig, OlderRules};

use crate::small::{Request, admit, config, decode, held, made};

fn hashed_by_8(use_eagle: bool) -> Manager {
    with_rules(use_eagle, OlderRules::default())
}

fn with_rules(use_eagle: bool, older_rules: OlderRules) -> Manager {
    let groups = [GroupSpec::full(32), GroupSpec::sliding_window(8, 8)];
    made(ManagerConfig { use_eagle, older_rules, ..config(61, &groups) })
}

/// Returns the indices of a request's hashes that find a block. The block's own hash comes first.
fn hashes_of(manager: &Manager, request: &Request, block: BlockId) -> Vec<usize> {
    let position = |hash| request.hashes.iter().position(|&known| known == hash);
    let keys = manager.pool().keys_of(block);
    keys.map(|key| position(key.hash).expect("a hash of the request")).collect()
}

#[test]
fn the_end_of_a_prompt_is_cached_beside_its_block() {
    // Without EAGLE, all tokens but the last one can be hit again.
    for (num_tokens, use_eagle, end) in [(44, false, 4), (48, false, 4), (48, true, 5)] {
        let mut manager = hashed_by_8(use_eagle);
        let mut request = Request::new(&manager, 1, 0..num_tokens);
        admit(&mut manager, &mut request);
        decode(&mut manager, &mut request, 100..164 - num_tokens);
        let second = held(&manager, 1)[0][1];
        assert_eq!(hashes_of(&manager, &request, second), [7, end], "{num_tokens} tokens");
    }
}

#[test]
fn the_end_of_a_prompt_is_cached_up_to_its_last_token_by_an_older_rule() {
    let rules = OlderRules { caches_unreachable_ends: true, ..OlderRules::default() };
    for (num_tokens, use_eagle, end) in [(44, false, 4), (48, false, 5), (48, true, 5)] {
        let mut manager = with_rules(use_eagle, rules);
        let mut request = Request::new(&manager, 1, 0..num_tokens);
        admit(&mut manager, &mut request);
        decode(&mut manager, &mut request, 100..164 - num_tokens);
        let second = held(&manager, 1)[0][1];
        assert_eq!(hashes_of(&manager, &request, second), [7, end], "{num_tokens} tokens");
    }
}

#[test]
fn with_eagle_the_end_of_a_prompt_is_cached_as_soon_as_it_is_computed() {
    let mut manager = hashed_by_8(true);
    let mut request = Request::new(&manager, 1, 0..40);
    admit(&mut manager, &mut request);
    let second = held(&manager, 1)[0][1];
    assert_eq!(hashes_of(&manager, &request, second), [4]);
    assert_eq!(manager.pool().blocks().hash_num_tokens(second), Some(40));
}

#[test]
fn a_block_keeps_longer_ends_and_loses_shorter_ones() {
    let mut manager = hashed_by_8(false);
    let mut request = Request::new(&manager, 1, 0..20);
    admit(&mut manager, &mut request);
    let first = held(&manager, 1)[0][0];
    let view = request.view();
    let blocks = manager.blocks_of(1).expect("a request that runs").groups[0].blocks.clone();
    let (group, block_size, hash_block_size) = (0, 32, 8);
    let target = CacheTarget {
        request: &view,
        group,
        block_size,
        hash_block_size,
        blocks: &blocks,
        is_in_trie: false,
        without_tail: kvoxide_core::pool::WithoutTail::default(),
    };
    for (num_tokens, expected) in [(8, &[0][..]), (16, &[1]), (8, &[1, 0]), (8, &[1, 0])] {
        target.cache_partial_block(manager.pool_mut(), first, num_tokens);
        assert_eq!(hashes_of(&manager, &request, first), expected);
    }
    // An end of the same length under another hash does not count as longer.
    let other = Request::new(&manager, 2, 50..70);
    let target = CacheTarget { request: &other.view(), ..target };
    target.cache_partial_block(manager.pool_mut(), first, 16);
    assert_eq!(manager.pool().keys_of(first).count(), 3);
}

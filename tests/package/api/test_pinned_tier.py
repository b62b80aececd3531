"""The pinned tier: anchors of later hits are recycled last (vLLM PR 40676)."""

from kvoxide import DEFAULT_PIN_MIN_DROP_SIZE, BlockRemoved, KVCacheManager, Policy, Request

from tests.testing.small import (
    admit,
    allocate,
    cached_positions,
    decode,
    free_ids,
    full,
    make_manager,
    make_request,
    num_hit_tokens,
    pinned_ids,
    serve,
    window,
)


def prefilled(min_drop_size: int) -> tuple[KVCacheManager, Request]:
    """64 tokens in two chunks of 32: at the second, blocks 0 to 5 have left the window."""
    manager = make_manager(window(4, 8), policy=Policy(pin_min_drop_size=min_drop_size))
    request = make_request(manager, "a", range(64))
    admit(manager, request, chunk=32)
    assert manager.get_block_ids("a") == ([0] * 6 + list(range(7, 17)),)
    return manager, request


def pinned_positions(manager: KVCacheManager) -> list[int]:
    blocks = manager.get_blocks("a").blocks[0]
    return [i for i, block in enumerate(blocks) if block.is_pinned]


def test_the_tier_is_off_by_default() -> None:
    manager = make_manager(window(4, 8), num_blocks=100)
    request = make_request(manager, "a", range(256))
    admit(manager, request, chunk=128)
    manager.free(request)
    assert manager.block_pool.get_num_pinned_blocks() == 0


def test_drops_while_decoding_flag_nothing() -> None:
    manager, request = prefilled(min_drop_size=7)
    decode(manager, request, [100])  # drops eight blocks, positions 6 to 13
    assert pinned_positions(manager) == [14, 15]
    decode(manager, request, range(101, 113))  # drops one block at a time
    assert cached_positions(manager, request) == [17, 18]
    assert pinned_positions(manager) == []
    assert pinned_ids(manager) == [15, 16]


def test_the_source_default_is_sixteen_blocks() -> None:
    for num_tokens, flagged in [(4 * 17, []), (4 * 18, [16, 17])]:
        policy = Policy(pin_min_drop_size=DEFAULT_PIN_MIN_DROP_SIZE)
        manager = make_manager(window(4, 8), policy=policy)
        request = make_request(manager, "a", range(num_tokens + 4))
        allocate(manager, request, num_tokens)
        allocate(manager, request, 4)
        assert pinned_positions(manager) == flagged


def test_the_end_of_a_request_flags_what_it_still_holds() -> None:
    manager, request = prefilled(min_drop_size=3)
    decode(manager, request, [100])
    manager.free(request)
    assert pinned_ids(manager) == [8, 7, 16, 15]
    assert free_ids(manager)[0] == 17  # not cached, so not pinned
    manager.check_invariants()


def test_full_attention_is_flagged_at_the_end() -> None:
    manager = make_manager(full(4), num_blocks=11, policy=Policy(pin_min_drop_size=16))
    request = make_request(manager, "a", range(10))
    admit(manager, request)
    assert pinned_positions(manager) == []
    manager.free(request)
    assert pinned_ids(manager) == [2, 1]
    assert free_ids(manager) == [3, 4, 5, 6, 7, 8, 9, 10]


def test_popped_blocks_are_flagged_too() -> None:
    manager = make_manager(full(4), num_blocks=11, policy=Policy(pin_min_drop_size=16))
    request = make_request(manager, "a", range(10))
    admit(manager, request)
    manager.block_pool.free_blocks(reversed(manager.pop_blocks_for_free(request)))
    assert pinned_ids(manager) == [2, 1]


def test_the_recycle_order_holds_for_the_rest() -> None:
    policy = Policy(pin_min_drop_size=16, recycle_order="fifo")
    manager = make_manager(full(4), num_blocks=7, policy=policy)
    serve(manager, "a", range(10))
    assert pinned_ids(manager) == [2, 1]
    assert free_ids(manager) == [4, 5, 6, 3]


def test_pinned_blocks_count_as_free() -> None:
    manager = make_manager(full(4), num_blocks=5, policy=Policy(pin_min_drop_size=16))
    serve(manager, "a", range(12))
    pool = manager.block_pool
    assert (pool.get_num_free_blocks(), pool.get_num_pinned_blocks()) == (4, 3)
    assert (pool.get_num_cached_blocks(), manager.usage) == (3, 0.0)

    request = make_request(manager, "b", range(50, 66))
    assert manager.allocate_slots(request, 16, full_sequence_must_fit=True) is not None


def test_a_demoted_block_leaves_the_cache_when_it_is_reused() -> None:
    manager = make_manager(
        full(4), num_blocks=7, policy=Policy(pin_min_drop_size=16), enable_kv_cache_events=True
    )
    prefix = serve(manager, "a", range(12))
    manager.take_events()
    manager.block_pool.get_new_blocks(4)  # three are free
    (removed,) = manager.take_events()
    assert isinstance(removed, BlockRemoved)
    assert removed.block_hashes == prefix.block_hashes[2:]
    assert pinned_ids(manager) == [2, 1]


def test_the_free_queue_is_used_up_before_the_tier() -> None:
    manager = make_manager(full(4), num_blocks=8, policy=Policy(pin_min_drop_size=16))
    serve(manager, "a", range(8))
    request = make_request(manager, "b", range(50, 70))
    admit(manager, request)
    assert manager.get_block_ids("b") == ([3, 4, 5, 6, 7],)
    assert pinned_ids(manager) == [2, 1]


def test_a_refused_allocation_demotes_nothing() -> None:
    manager = make_manager(full(4), num_blocks=5, policy=Policy(pin_min_drop_size=16))
    serve(manager, "a", range(12))
    request = make_request(manager, "b", range(50, 80))
    assert manager.allocate_slots(request, 30) is None
    assert pinned_ids(manager) == [3, 2, 1]
    assert num_hit_tokens(manager, range(13)) == 12


def test_a_block_evicted_while_in_use_is_not_pinned_at_the_end() -> None:
    manager = make_manager(full(4), num_blocks=11, policy=Policy(pin_min_drop_size=16))
    request = make_request(manager, "a", range(8))
    admit(manager, request)
    manager.evict_blocks([1])
    manager.free(request)
    assert pinned_ids(manager) == [2]
    manager.check_invariants()


def test_reset_empties_the_tier() -> None:
    manager = make_manager(full(4), num_blocks=11, policy=Policy(pin_min_drop_size=16))
    serve(manager, "a", range(8))
    assert manager.reset_prefix_cache()
    assert pinned_ids(manager) == []
    assert sorted(free_ids(manager)) == list(range(1, 11))
    manager.check_invariants()


def test_a_pinned_prefix_survives_traffic_that_fifo_forgets() -> None:
    hits = {}
    for name, min_drop_size in [("fifo", None), ("pinned", 4)]:
        policy = Policy(recycle_order="fifo", pin_min_drop_size=min_drop_size)
        manager = make_manager(window(4, 8), num_blocks=41, policy=policy)
        request = make_request(manager, "a", range(100))
        admit(manager, request, chunk=64)
        manager.free(request)
        for i in range(100):
            serve(manager, f"short {i}", [1000 + i])
        hits[name] = num_hit_tokens(manager, [*range(64), 9999])
    assert hits == {"fifo": 0, "pinned": 64}

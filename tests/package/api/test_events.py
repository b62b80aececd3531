"""Tests of the events about the cache, from which other code can mirror it."""

from typing import Any

from kvoxide import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    KVCacheManager,
    PrefixCacheStats,
)

from tests.testing.small import admit, decode, full, make_manager, make_request, serve, window


def fields_of(event: BlockStored) -> dict[str, Any]:
    names = (
        "block_hashes parent_block_hash token_ids block_size lora_id medium lora_name extra_keys "
        "group_idx kv_cache_spec_kind kv_cache_spec_sliding_window session_id lookahead_token_ids"
    )
    return {name: getattr(event, name) for name in names.split()}


def stored(manager: KVCacheManager) -> list[BlockStored]:
    events = manager.take_events()
    return [event for event in events if isinstance(event, BlockStored)]


def test_blocks_that_enter_the_cache() -> None:
    manager = make_manager(full(4), enable_kv_cache_events=True)
    request = make_request(manager, "a", range(10), session_id="chat")
    admit(manager, request)
    (event,) = manager.take_events()
    assert isinstance(event, BlockStored)
    assert fields_of(event) == {
        "block_hashes": request.block_hashes,
        "parent_block_hash": None,
        "token_ids": list(range(8)),
        "block_size": 4,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
        "extra_keys": [None, None],
        "group_idx": 0,
        "kv_cache_spec_kind": "full_attention",
        "kv_cache_spec_sliding_window": None,
        "session_id": "chat",
        "lookahead_token_ids": None,
    }
    assert manager.take_events() == []


def test_later_blocks_name_their_parent() -> None:
    manager = make_manager(full(4), enable_kv_cache_events=True)
    request = make_request(manager, "a", range(10))
    admit(manager, request)
    manager.take_events()
    decode(manager, request, [100, 101])
    (event,) = stored(manager)
    assert event.block_hashes == request.block_hashes[2:]
    assert event.parent_block_hash == request.block_hashes[1]
    assert event.token_ids == [8, 9, 100, 101]


def test_a_hit_is_not_reported_again() -> None:
    manager = make_manager(full(4), enable_kv_cache_events=True)
    serve(manager, "a", range(10))
    manager.take_events()
    serve(manager, "b", range(10))
    assert manager.take_events() == []


def test_in_full_report_mode_a_hit_is_reported() -> None:
    manager = make_manager(full(4), enable_kv_cache_events=True)
    serve(manager, "a", range(10))
    manager.take_events()
    request = make_request(manager, "b", range(13), session_id="s", kv_cache_report_mode="full")
    manager.get_computed_blocks(request)
    (event,) = stored(manager)
    assert event.block_hashes == request.block_hashes[:2]
    assert (event.parent_block_hash, event.token_ids) == (None, list(range(8)))
    assert (event.session_id, event.extra_keys) == ("s", [None, None])


def test_extra_keys_come_untagged() -> None:
    manager = make_manager(full(4), enable_kv_cache_events=True)
    serve(manager, "a", range(10), cache_salt="salt", lora=("sql", "adapters/sql"))
    (event,) = stored(manager)
    assert event.extra_keys == [("sql", "salt"), ("sql",)]
    assert event.lora_name == "sql"


def test_a_salt_is_a_key_of_the_first_block_alone() -> None:
    manager = make_manager(full(4), enable_kv_cache_events=True)
    serve(manager, "a", range(10), cache_salt="salt")
    assert stored(manager)[0].extra_keys == [("salt",), None]


def test_each_group_reports_for_itself() -> None:
    manager = make_manager(full(32), window(8, 8), enable_kv_cache_events=True)
    request = make_request(manager, "a", range(65))
    admit(manager, request)
    in_full, in_window = stored(manager)

    assert (in_full.group_idx, in_full.kv_cache_spec_kind) == (0, "full_attention")
    assert in_full.block_hashes == [request.block_hashes[3], request.block_hashes[7]]
    assert in_full.block_size == 32

    # Six of the eight blocks stay uncached. The tokens are the tokens of all eight.
    assert (in_window.group_idx, in_window.kv_cache_spec_kind) == (1, "sliding_window")
    assert in_window.kv_cache_spec_sliding_window == 8
    assert in_window.block_hashes == [request.block_hashes[3], request.block_hashes[7]]
    assert (in_window.block_size, in_window.extra_keys) == (8, [None, None])
    assert in_window.token_ids == list(range(64))


def test_tokens_beyond_a_block_that_its_hash_covers() -> None:
    manager = make_manager(full(4), enable_kv_cache_events=True, num_hash_lookahead_tokens=1)
    serve(manager, "a", range(10))
    assert stored(manager)[0].lookahead_token_ids == [[4], [8]]


def test_blocks_that_leave_the_cache_to_be_reused() -> None:
    manager = make_manager(full(4), num_blocks=4, enable_kv_cache_events=True)
    first = serve(manager, "a", range(10))
    manager.take_events()
    admit(manager, make_request(manager, "b", range(50, 62)))
    *removed, last = manager.take_events()
    assert isinstance(last, BlockStored)
    assert [
        (event.block_hashes, event.medium, event.group_idx)
        for event in removed
        if isinstance(event, BlockRemoved)
    ] == [([first.block_hashes[1]], "GPU", 0), ([first.block_hashes[0]], "GPU", 0)]


def test_blocks_that_are_evicted_by_id() -> None:
    manager = make_manager(full(4), window(4, 8), enable_kv_cache_events=True)
    request = make_request(manager, "a", range(8))
    admit(manager, request)
    manager.take_events()
    manager.evict_blocks([1, 4, 9])
    removed = [event for event in manager.take_events() if isinstance(event, BlockRemoved)]
    assert sorted((event.group_idx, event.block_hashes) for event in removed) == [
        (0, [request.block_hashes[0]]),
        (1, [request.block_hashes[1]]),
    ]


def test_a_reset_is_one_event() -> None:
    manager = make_manager(full(4), enable_kv_cache_events=True)
    serve(manager, "a", range(10))
    manager.take_events()
    assert manager.reset_prefix_cache()
    (event,) = manager.take_events()
    assert isinstance(event, AllBlocksCleared)


def test_without_events_nothing_is_reported() -> None:
    manager = make_manager(full(4))
    serve(manager, "a", range(10))
    manager.reset_prefix_cache()
    assert manager.take_events() == []


def counts(stats: PrefixCacheStats | None) -> list[int]:
    assert stats is not None
    return [
        stats.requests,
        stats.queries,
        stats.hits,
        stats.preempted_requests,
        stats.preempted_queries,
        stats.preempted_hits,
    ]


def test_prefix_cache_stats() -> None:
    manager = make_manager(full(4), log_stats=True)
    manager.record_prefix_cache_stats(make_request(manager, "a", range(10)), 8)
    manager.record_prefix_cache_stats(make_request(manager, "b", range(20)), 0)
    preempted = make_request(manager, "c", range(30))
    preempted.num_preemptions = 2
    manager.record_prefix_cache_stats(preempted, 28)
    unread = make_request(manager, "d", range(40), skip_reading_prefix_cache=True)
    manager.record_prefix_cache_stats(unread, 0)
    assert counts(manager.make_prefix_cache_stats()) == [2, 30, 8, 1, 30, 28]
    assert counts(manager.make_prefix_cache_stats()) == [0] * 6


def test_stats_tell_of_a_reset() -> None:
    manager = make_manager(full(4), log_stats=True)
    manager.reset_prefix_cache()
    for expected in (True, False):
        stats = manager.make_prefix_cache_stats()
        assert stats is not None
        assert stats.reset is expected


def test_stats_can_be_off() -> None:
    manager = make_manager(full(4))
    manager.record_prefix_cache_stats(make_request(manager, "a", range(10)), 8)
    assert manager.make_prefix_cache_stats() is None

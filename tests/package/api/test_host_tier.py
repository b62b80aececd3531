"""Tests of the host tier: which chunks keys get, which keys they evict, and what the tier
reports."""

from collections.abc import Callable, Iterable

import numpy as np
import pytest
from kvoxide import BlockHashError, HostRequest, HostTier, RequestError
from kvoxide._core_vllm import VllmBlockHasher, VllmChunkKeys, VllmRequestKeys

from tests.testing.vllm_releases import INSTALLED, NEWEST


def key(number: int, group: int = 0) -> bytes:
    return number.to_bytes(32, "big") + group.to_bytes(4, "big")


def keys(numbers: Iterable[int]) -> list[bytes]:
    return [key(number) for number in numbers]


def numbers(found: Iterable[bytes]) -> list[int]:
    return [int.from_bytes(one[:32], "big") for one in found]


def store(tier: HostTier, stored: Iterable[int], request: HostRequest | None = None) -> list[int]:
    """Store keys, and return the chunks that they get."""
    plan = tier.prepare_store(request or HostRequest(), keys(stored))
    assert plan is not None
    tier.complete_store(plan.keys)
    ids: list[int] = plan.chunk_ids.tolist()
    return ids


def evicted_by(tier: HostTier, stored: Iterable[int]) -> list[int]:
    plan = tier.prepare_store(HostRequest(), keys(stored))
    assert plan is not None
    return numbers(plan.evicted_keys)


def test_a_chunk_is_pending_then_ready_then_loaded() -> None:
    tier, request = HostTier(4), HostRequest()
    assert tier.lookup(key(1)) == "miss"
    plan = tier.prepare_store(request, keys([1, 2]))
    assert plan is not None
    assert (plan.keys, plan.evicted_keys) == (keys([1, 2]), [])
    assert plan.chunk_ids.dtype == np.int32
    assert plan.chunk_ids.tolist() == [0, 1]
    assert (tier.lookup(key(1)), tier.num_pending_chunks) == ("hit_pending", 2)
    tier.complete_store(keys([1, 2, 9]))
    assert (tier.lookup(key(1)), tier.num_evictable_chunks) == ("hit", 2)
    assert tier.prepare_load(request, keys([2, 1])).tolist() == [1, 0]
    assert tier.get_chunks() == {key(1): (0, 1), key(2): (1, 1)}
    tier.complete_load(keys([1]))
    assert (tier.num_evictable_chunks, tier.num_free_chunks, tier.num_chunks) == (1, 2, 4)
    assert tier.num_allocated_chunks == 2


def test_only_absent_keys_are_stored_as_the_objects_that_were_offered() -> None:
    tier = HostTier(4)
    store(tier, [1])
    offer = keys([1, 2])
    plan = tier.prepare_store(HostRequest(), offer)
    assert plan is not None
    assert plan.keys == offer[1:]
    assert plan.keys[0] is offer[1]


def test_stores_loads_and_chunks_without_a_load_are_counted() -> None:
    tier, request = HostTier(2), HostRequest()
    assert tier.num_transferred_chunks == (0, 0, 0)
    store(tier, [1, 2])
    tier.prepare_load(request, keys([1]))
    assert tier.num_transferred_chunks == (2, 0, 0)
    tier.complete_load(keys([1]))
    assert tier.num_transferred_chunks == (2, 1, 0)
    assert sorted(evicted_by(tier, [3, 4])) == [1, 2]
    assert tier.num_transferred_chunks == (2, 1, 1)
    tier.complete_store(keys([3]), success=False)
    tier.complete_store(keys([4]))
    assert tier.num_transferred_chunks == (3, 1, 1)
    assert evicted_by(tier, [1, 2]) == [4]  # key 1 is stored again, and was not loaded since
    tier.complete_store(keys([1, 2]))
    assert evicted_by(tier, [5]) == [1]
    assert tier.num_transferred_chunks == (5, 1, 3)
    tier.reset()
    assert tier.num_transferred_chunks == (5, 1, 3)


def test_a_read_keeps_chunks_and_is_neither_a_use_nor_counted() -> None:
    tier = HostTier(2, "arc")
    store(tier, [1, 2])
    assert list(tier.prepare_read(keys([1]))) == [0]
    assert evicted_by(tier, [3]) == [2]
    with pytest.raises(RequestError, match="has no ready chunk"):
        tier.prepare_read(keys([1, 3]))
    tier.complete_read(keys([1]))
    with pytest.raises(RequestError, match="has no load to complete"):
        tier.complete_read(keys([1]))
    assert tier.num_transferred_chunks == (2, 0, 1)
    tier.complete_store(keys([3]))
    lists = tier.get_arc_lists()
    assert lists is not None
    assert lists[1] == []
    assert evicted_by(tier, [4]) == [1]


def test_a_store_without_room_changes_no_chunk() -> None:
    tier, request = HostTier(2), HostRequest()
    store(tier, [1, 2])
    tier.prepare_load(request, keys([1]))
    assert tier.prepare_store(request, keys([3, 4])) is None
    assert sorted(numbers(tier.get_chunks())) == [1, 2]
    assert evicted_by(tier, [3]) == [2]


def test_a_failed_store_gives_its_chunk_back() -> None:
    tier = HostTier(2, enable_kv_cache_events=True)
    tier.prepare_store(HostRequest(), keys([1]))
    tier.complete_store(keys([1]), success=False)
    assert (tier.lookup(key(1)), tier.num_free_chunks) == ("miss", 2)
    assert [(event.kind, numbers(event.keys)) for event in tier.take_events()] == [("failed", [1])]


def test_positions_make_the_end_of_a_prompt_go_first() -> None:
    tier, request = HostTier(3), HostRequest()
    positions = {key(number): 16 * number for number in (1, 2, 3)}
    plan = tier.prepare_store(request, keys([1, 2, 3]), positions)
    assert plan is not None
    tier.complete_store(plan.keys)
    assert numbers(tier.get_lru_order() or []) == [3, 2, 1]
    assert tier.get_arc_lists() is None
    assert evicted_by(tier, [4]) == [3]


def test_a_request_that_ends_uses_its_keys_once_more() -> None:
    tier, request = HostTier(3), HostRequest()
    store(tier, [1], request)
    store(tier, [2, 3])
    tier.finish_request(request, {key(1): 16, key(7): 32})
    assert numbers(tier.get_lru_order() or []) == [2, 3, 1]
    tier.touch(keys([2, 8]))
    assert evicted_by(tier, [4, 5]) == [3, 1]


def test_releases_order_keys_of_a_running_request_in_their_ways() -> None:
    for release, order in ((NEWEST, [2, 1]), (INSTALLED, [1, 2])):
        tier = HostTier(2, vllm_release=release)  # type: ignore[arg-type]
        tier.prepare_store(HostRequest(), keys([1, 2]), {key(1): 16, key(2): 32})
        tier.complete_store(keys([1, 2]))
        assert numbers(tier.get_lru_order() or []) == order


def test_arc_keeps_what_was_used_again_and_remembers_what_it_evicted() -> None:
    tier = HostTier(3, "arc")
    store(tier, [1, 2, 3])
    request = HostRequest()
    tier.prepare_load(request, keys([1]))
    tier.complete_load(keys([1]))
    tier.finish_request(request)
    assert evicted_by(tier, [4]) == [2]
    t1, t2, b1, b2, target = tier.get_arc_lists() or ([], [], [], [], -1.0)
    assert [numbers(found) for found in (t1, t2, b1, b2)] == [[3, 4], [1], [2], []]
    assert (target, tier.policy, tier.get_lru_order()) == (0.0, "arc", None)
    tier.complete_store(keys([4]))
    assert evicted_by(tier, [2]) == [3]
    *_, target = tier.get_arc_lists() or [-1.0]
    assert target == 1.0


def test_keys_are_stored_when_they_were_offered_often_enough() -> None:
    tier = HostTier(4, store_threshold=2, max_tracker_size=2, log_stats=True)
    request = HostRequest()
    assert [tier.prepare_store(request, [one]) for one in keys([1, 2])] != [None, None]
    assert tier.get_tracked_offers() == {key(1): 1, key(2): 1}
    plan = tier.prepare_store(request, keys([2, 3]))
    assert plan is not None
    assert plan.keys == keys([2])
    assert list(tier.get_tracked_offers()) == keys([2, 3])
    assert (tier.take_num_skipped(), tier.take_store_sizes()) == (3, [1])
    assert (tier.take_num_skipped(), tier.take_store_sizes()) == (0, [])


def test_sizes_of_stores_are_kept_on_demand() -> None:
    tier = HostTier(4)
    store(tier, [1, 2])
    assert tier.take_store_sizes() == []


def test_events_come_in_order_and_once() -> None:
    tier = HostTier(2, enable_kv_cache_events=True)
    store(tier, [1, 2])
    store(tier, [3])
    told = [(event.kind, numbers(event.keys)) for event in tier.take_events()]
    assert told == [("stored", [1, 2]), ("removed", [1]), ("stored", [3])]
    assert tier.take_events() == []
    silent = HostTier(2)
    store(silent, [1])
    assert silent.take_events() == []


def test_a_reset_frees_all_and_requests_start_anew() -> None:
    tier, request = HostTier(2), HostRequest()
    store(tier, [1, 2], request)
    tier.finish_request(request)
    tier.reset()
    assert (tier.num_free_chunks, tier.get_chunks()) == (2, {})
    assert store(tier, [5], request) == [0]


def test_a_request_that_started_ends_once() -> None:
    tier, request, silent = HostTier(2), HostRequest(), HostRequest()
    tier.finish_request(silent)
    assert store(tier, [1], silent) == [0]
    tier.start_request(request)
    tier.finish_request(request)
    with pytest.raises(RequestError, match="the request has ended"):
        tier.prepare_store(request, keys([2]))


def test_groups_have_chunks_of_their_own() -> None:
    tier = HostTier(4)
    plan = tier.prepare_store(HostRequest(), [key(1, 0), key(1, 1)])
    assert plan is not None
    assert plan.chunk_ids.tolist() == [0, 1]
    assert plan.keys == [key(1, 0), key(1, 1)]


@pytest.mark.parametrize("collection", [list, tuple, set, dict.fromkeys, iter])
def test_any_iterable_of_keys_will_do(
    collection: Callable[[list[bytes]], Iterable[bytes]],
) -> None:
    tier = HostTier(4)
    tier.prepare_store(HostRequest(), collection(keys([1])))
    tier.complete_store(collection(keys([1])))
    assert tier.prepare_load(HostRequest(), collection(keys([1]))).tolist() == [0]
    tier.complete_load(collection(keys([1])))
    assert tier.num_evictable_chunks == 1


def test_short_hashes_come_back_as_they_were() -> None:
    tier = HostTier(1, enable_kv_cache_events=True)
    short = b"\x01\x00\x00\x00\x00\x00\x07"
    tier.prepare_store(HostRequest(), [short])
    assert list(tier.get_chunks()) == [short]
    assert tier.lookup(key(1)) == "miss"
    tier.complete_store([short, key(1)])
    assert [event.keys for event in tier.take_events()] == [[short]]


def test_many_keys_are_looked_up_at_once() -> None:
    tier = HostTier(8)
    store(tier, [1, 2, 3, 5, 6])
    assert tier.lookup_prefix(keys([1, 2, 3, 4, 5])) == 3
    assert tier.lookup_prefix(keys([4, 5])) == 0
    assert tier.lookup_window(keys([1, 2, 3, 4, 5, 6, 7]), 2, 2) == 6
    assert tier.lookup_window(keys([1, 2, 3, 4, 5, 6]), 2, 3) == 3
    assert tier.lookup_window(keys([6, 7, 8]), 2, 2) == 1
    tier.prepare_store(HostRequest(), keys([7]))
    assert tier.lookup_prefix(keys([5, 6, 7])) is None
    assert tier.lookup_window(keys([5, 6, 7]), 2, 2) is None
    assert tier.lookup_window(keys([5, 6, 7, 8]), 3, 3) is None
    assert tier.lookup_window(keys([2, 3, 4, 7, 8, 9]), 2, 2) == 2


def test_keys_that_are_being_loaded_are_noted_until_they_are_no_more() -> None:
    tier = HostTier(4)
    store(tier, [1, 2])
    tier.set_loading(keys([2, 9]), is_loading=True)
    assert (tier.num_loading_keys, tier.is_any_loading(keys([9, 1]))) == (1, False)
    assert tier.is_any_loading(keys([1, 2]))
    tier.set_loading(keys([2, 1]), is_loading=False)
    assert (tier.num_loading_keys, tier.is_any_loading(keys([1, 2]))) == (0, False)


def chunk_keys(hashes: list[bytes]) -> list[VllmChunkKeys]:
    """Return the keys of a request in two groups. The second group has two hashes per chunk."""
    request_keys = VllmRequestKeys([(0, 1, 16), (3, 2, 32)])
    request_keys.extend(hashes)
    return [group[:] for group in request_keys.groups()]


def test_keys_of_a_request_are_lists_of_bytes_that_grow() -> None:
    hashes = [key(number)[:32] for number in range(5)]
    request_keys = VllmRequestKeys([(0, 1, 16), (3, 2, 32)])
    first, second = request_keys.groups()
    request_keys.extend(hashes[:3])
    assert (list(first), list(second)) == (keys(range(3)), [key(1, 3)])
    second.extend(hashes)
    assert first == keys(range(5))
    assert [len(second), second[-1], list(second[1:])] == [2, key(3, 3), [key(3, 3)]]
    assert list(first[1:4][-2:]) == keys([2, 3])
    assert first[::2] == keys([0, 2, 4])
    assert [request_keys.position(one) for one in (key(2), key(3, 3), key(2, 3))] == [48, 64, None]
    both = VllmChunkKeys.joined([first[1:2], first[3:4], second[:]])
    assert list(both[1:]) == [key(3), key(1, 3), key(3, 3)]


def test_hashes_in_rust_are_those_of_the_list() -> None:
    hasher = VllmBlockHasher(4, "sha256")
    hashes, made = hasher.hash_prompt(bytes(32), list(range(90)), 22)
    assert made is not None
    assert hashes == hasher.hash_blocks(bytes(32), list(range(90)), 0, 22)
    grown = [*hashes, *hasher.hash_blocks(hashes[-1], list(range(4 * 7)), 0, 7)]
    groups = [(0, 1, 4), (1, 2, 8), (2, 5, 20), (3, 30, 120)]
    for end in [(22, hashes[-1], made), (21, hashes[-1], made), (22, bytes(32), made), "none"]:
        read, shared = VllmRequestKeys(groups), VllmRequestKeys(groups)
        for list_, attributes in ((hashes, {"_kvoxide_chain_end": end}), (grown, {})):
            read.extend(list_)
            shared.extend(list_, attributes)
            assert [list(group) for group in shared.groups()] == [
                list(group) for group in read.groups()
            ]
            assert shared.position(hashes[9] + bytes([0, 0, 0, 2])) == 40
    assert hasher.hash_prompt(bytes(32), list(range(60)), 15)[1] is None
    assert VllmBlockHasher(4, "xxhash").hash_prompt(bytes(16), list(range(90)), 22)[1] is None


def test_keys_of_a_request_are_read_as_they_are() -> None:
    tier, request = HostTier(8), HostRequest()
    first, second = chunk_keys([key(number)[:32] for number in range(4)])
    both = VllmChunkKeys.joined([first, second])
    assert tier.prepare_store(request, first[1:3]).chunk_ids.tolist() == [0, 1]  # type: ignore[union-attr]
    plan = tier.prepare_store(request, both)
    assert plan is not None
    assert type(plan.keys) is VllmChunkKeys
    assert list(plan.keys) == [key(0), key(3), key(1, 3), key(3, 3)]
    assert tier.lookup_prefix(both) is None
    tier.complete_store(both)
    assert (tier.lookup_prefix(both), tier.lookup_window(second, 2, 2)) == (6, 2)
    assert tier.prepare_load(request, second).tolist() == [4, 5]
    tier.complete_load(second)
    tier.finish_request(request)
    # The end of the prompt is evicted first. Of equal ends, the higher group comes first.
    assert tier.get_lru_order() == [key(3, 3), key(3), key(2), key(1, 3), key(1), key(0)]


def test_hashes_of_several_short_lengths_are_different_keys() -> None:
    tier, hashes = HostTier(4), [b"h", b"h\0", b"h1", bytes(31)]
    keys = [hash_ + bytes(4) for hash_ in hashes]
    plan = tier.prepare_store(HostRequest(), keys)
    assert plan is not None
    assert plan.keys == keys
    tier.complete_store(keys)
    assert set(tier.get_chunks()) == set(keys)
    assert tier.lookup_prefix(chunk_keys(hashes)[0]) == 4
    assert [tier.lookup(key) for key in (b"h2" + bytes(4), bytes(36))] == ["miss", "miss"]
    with pytest.raises(
        BlockHashError, match="has 32 bytes; the hashes in this tier have fewer than 32"
    ):
        tier.prepare_store(HostRequest(), [bytes(36)])
    assert chunk_keys(hashes)[0] + keys[:1] == [*keys, keys[0]]


def test_keys_of_a_request_with_hashes_of_another_length_are_refused() -> None:
    tier = HostTier(4)
    store(tier, [1])
    short, _ = chunk_keys([bytes(16)])
    with pytest.raises(
        BlockHashError, match="has fewer than 32 bytes; the hashes in this tier have 32"
    ):
        tier.prepare_store(HostRequest(), short)
    tier.complete_store(short)
    with pytest.raises(BlockHashError, match="a block hash has fewer than 32 bytes"):
        chunk_keys([bytes(32), bytes(16)])
    with pytest.raises(BlockHashError, match="a block hash has 33 bytes"):
        chunk_keys([bytes(33)])
    with pytest.raises(ValueError, match="different requests"):
        VllmChunkKeys.joined([*chunk_keys([bytes(32)]), *chunk_keys([bytes(32)])])

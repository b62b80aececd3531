"""The host tier: which chunks keys get, what they push out, and what it tells."""

from collections.abc import Callable, Iterable

import numpy as np
import pytest
from kvoxide import HostRequest, HostTier, RequestError


def key(number: int, group: int = 0) -> bytes:
    return number.to_bytes(32, "big") + group.to_bytes(4, "big")


def keys(numbers: Iterable[int]) -> list[bytes]:
    return [key(number) for number in numbers]


def numbers(found: Iterable[bytes]) -> list[int]:
    return [int.from_bytes(one[:32], "big") for one in found]


def store(tier: HostTier, stored: Iterable[int], request: HostRequest | None = None) -> list[int]:
    """Stores keys; the chunks that they get."""
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
    for release, order in (("0.33.0", [2, 1]), ("0.32.0", [1, 2])):
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
    with pytest.raises(RequestError, match="the request ended"):
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

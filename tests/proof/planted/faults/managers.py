"""Errors in the manager, including state that the scheduler relies on between calls."""

from typing import Any

from vllm.v1.core.kv_cache_manager import KVCacheManager

from ..fault import Faults, Plant

manager = Faults("manager")
scheduling = Faults("manager, for the scheduler")
AREAS = (manager, scheduling)


def with_argument(plant: Plant, name: str, value: Any) -> None:
    """Call ``allocate_slots`` always with this argument."""

    def allocate_slots(original: Any, *args: Any, **kwargs: Any) -> Any:
        return original(*args, **{**kwargs, name: value} if name in kwargs else kwargs)

    plant.around(KVCacheManager, "allocate_slots", allocate_slots)


@manager
def hits_one_block_less(plant: Plant) -> None:
    def get_computed_blocks(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        blocks, num_tokens, *rest = original(self, *args, **kwargs)
        shorter = num_tokens - self.coordinator.scheduler_block_size
        if shorter < 0:
            return (blocks, num_tokens, *rest)
        return (self.truncate_computed_blocks(blocks, shorter), shorter, *rest)

    plant.around(KVCacheManager, "get_computed_blocks", get_computed_blocks)


@manager
def leaves_two_tokens_to_compute(plant: Plant) -> None:
    def get_computed_blocks(original: Any, self: Any, request: Any, *args: Any) -> Any:
        longest = request.__dict__.get("num_tokens", request.num_tokens)
        blocks, num_tokens, *rest = original(self, request, *args)
        if num_tokens == longest - 1:
            return (self.empty_kv_cache_blocks, 0, *rest)
        return (blocks, num_tokens, *rest)

    plant.around(KVCacheManager, "get_computed_blocks", get_computed_blocks)


@manager
def no_boundary_of_a_shared_prefix(plant: Plant) -> None:
    def get_computed_blocks(original: Any, *args: Any) -> Any:
        blocks, num_tokens, _ = original(*args)
        return blocks, num_tokens, 0

    plant.around(KVCacheManager, "get_computed_blocks", get_computed_blocks)


@manager
def no_watermark(plant: Plant) -> None:
    plant.after_init(KVCacheManager, lambda self: setattr(self, "watermark_blocks", 0))


@manager
def nothing_reserved(plant: Plant) -> None:
    with_argument(plant, "reserved_blocks", 0)


@manager
def caches_before_a_load(plant: Plant) -> None:
    with_argument(plant, "delay_cache_blocks", False)


@manager
def zeroes_loaded_blocks(plant: Plant) -> None:
    with_argument(plant, "skip_zeroing_group_ids", ())


@manager
def admits_what_cannot_fit(plant: Plant) -> None:
    with_argument(plant, "full_sequence_must_fit", False)


@manager
def no_room_for_drafts(plant: Plant) -> None:
    with_argument(plant, "num_lookahead_tokens", 0)


@manager
def external_tokens_ignored(plant: Plant) -> None:
    with_argument(plant, "num_external_computed_tokens", 0)


@manager
def tokens_in_flight_count_as_done(plant: Plant) -> None:
    def allocate_slots(original: Any, self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        before, request.num_in_flight_tokens = request.num_in_flight_tokens, 0
        try:
            return original(self, request, *args, **kwargs)
        finally:
            request.num_in_flight_tokens = before

    plant.around(KVCacheManager, "allocate_slots", allocate_slots)


@manager
def nothing_instead_of_an_error(plant: Plant) -> None:
    def allocate_slots(original: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        except ValueError:
            return None

    plant.around(KVCacheManager, "allocate_slots", allocate_slots)


@manager
def frees_from_the_front(plant: Plant) -> None:
    def free(_: Any, self: Any, request: Any) -> None:
        self.block_pool.free_blocks(self.pop_blocks_for_free(request))

    plant.around(KVCacheManager, "free", free)


@manager
def caches_one_token_late(plant: Plant) -> None:
    def cache_blocks(original: Any, self: Any, request: Any, num_computed_tokens: int) -> None:
        original(self, request, max(num_computed_tokens - 1, 0))

    plant.around(KVCacheManager, "cache_blocks", cache_blocks)


@manager
def estimates_a_token_more(plant: Plant) -> None:
    def estimate_cached_tokens(original: Any, *args: Any) -> Any:
        return original(*args) + 1

    plant.around(KVCacheManager, "estimate_cached_tokens", estimate_cached_tokens)


@scheduling
def zeroes_in_reverse(plant: Plant) -> None:
    plant.around(
        KVCacheManager, "take_new_block_ids", lambda original, *args: original(*args)[::-1]
    )


@scheduling
def pops_in_reverse(plant: Plant) -> None:
    plant.around(
        KVCacheManager, "pop_blocks_for_free", lambda original, *args: original(*args)[::-1]
    )


@scheduling
def copies_backwards(plant: Plant) -> None:
    def take_copies(original: Any, self: Any) -> Any:
        copies, kept = original(self)
        return [type(c)(c.dst_block_id, c.src_block_id) for c in copies], kept

    plant.around(KVCacheManager, "take_kv_cache_block_copies", take_copies)


@scheduling
def copied_blocks_not_kept(plant: Plant) -> None:
    def take_copies(original: Any, self: Any) -> Any:
        copies, kept = original(self)
        self.block_pool.free_blocks(kept)
        return copies, []

    plant.around(KVCacheManager, "take_kv_cache_block_copies", take_copies)


@scheduling
def first_state_not_offered(plant: Plant) -> None:
    def take_offloads(original: Any, self: Any) -> Any:
        return {request_id: offers[1:] for request_id, offers in original(self).items()}

    plant.around(KVCacheManager, "take_boundary_state_offloads", take_offloads)


scheduling.lose(KVCacheManager, "new_step_starts", "steps_never_start")
scheduling.lose(KVCacheManager, "finalize_partial_tail_offloads", "tail_not_offered", [])
scheduling.lose(KVCacheManager, "remove_skipped_blocks", "keeps_what_is_skipped")
scheduling.lose(KVCacheManager, "record_blocks_for_zeroing", "failed_loads_not_zeroed")

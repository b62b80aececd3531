"""Errors in vLLM's host tier. Each omits something that is easily omitted. The comparison of
``tests/proof/sameness/host`` has to find all of them."""

from typing import Any

from kvoxide.vllm.offload import manager as native_module
from kvoxide.vllm.offload.switch import SwitchedManager
from vllm.v1.kv_offload.base import LookupResult, get_offload_group_idx
from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager, _RequestCacheAccess
from vllm.v1.kv_offload.cpu.policies import arc as arc_module
from vllm.v1.kv_offload.cpu.policies import lru as lru_module
from vllm.v1.kv_offload.cpu.policies.arc import ARCCachePolicy
from vllm.v1.kv_offload.cpu.policies.base import ChunkStatus
from vllm.v1.kv_offload.cpu.policies.lru import LRUCachePolicy

from .fault import Faults, Plant

manager = Faults("host tier")
lru = Faults("host tier, LRU")
arc = Faults("host tier, ARC")
switch = Faults("host tier, switch")


@manager
def freed_ids_before_fresh_ones(plant: Plant) -> None:
    def allocate(original: Any, self: Any, keys: Any) -> Any:
        num_freed = min(len(keys), len(self._free_list))
        freed = [ChunkStatus(self._free_list.pop()) for _ in range(num_freed)]
        return freed + original(self, keys[num_freed:])

    plant.around(CPUOffloadingManager, "_allocate_chunks", allocate)


@manager
def freed_ids_in_the_order_of_eviction(plant: Plant) -> None:
    def free(original: Any, self: Any, chunk: Any) -> None:
        self._free_list.insert(0, chunk.chunk_id)

    plant.around(CPUOffloadingManager, "_free_chunk", free)


@manager
def own_stores_are_reuses(plant: Plant) -> None:
    def record(
        original: Any, self: Any, keys: Any, context: Any, *args: Any, **kwargs: Any
    ) -> None:
        original(self, keys, context, *args, **kwargs)
        context.get_state(_RequestCacheAccess).reused_keys.update(kwargs.get("reused_keys", ()))

    plant.around(CPUOffloadingManager, "_record_request_cache_access", record)


@manager
def inserted_again_is_no_reuse(plant: Plant) -> None:
    def store(original: Any, self: Any, keys: Any, context: Any) -> Any:
        output = original(self, keys, context)
        if output is not None:
            state = self._get_request_cache_access(context)
            state.reused_keys.difference_update(output.keys_to_store)
        return output

    plant.around(CPUOffloadingManager, "prepare_store", store)


@manager
def loads_are_no_reuses(plant: Plant) -> None:
    def load(original: Any, self: Any, keys: Any, context: Any, *, record_access: bool) -> Any:
        return original(self, keys, context, record_access=False)

    plant.around(CPUOffloadingManager, "_prepare_load", load)


@manager
def offers_without_room_are_not_counted(plant: Plant) -> None:
    def store(original: Any, self: Any, keys: Any, context: Any) -> Any:
        before = None if self.counts is None else self.counts.copy()
        output = original(self, keys, context)
        if output is None and before is not None:
            self.counts = before
        return output

    plant.around(CPUOffloadingManager, "prepare_store", store)


@manager
def accesses_without_room_are_forgotten(plant: Plant) -> None:
    def store(original: Any, self: Any, keys: Any, context: Any) -> Any:
        state = self._get_request_cache_access(context)
        before = set(state.reused_keys)
        output = original(self, keys, context)
        if output is None:
            state.reused_keys = before
        return output

    plant.around(CPUOffloadingManager, "prepare_store", store)


@manager
def ghosts_adapt_at_every_offer(plant: Plant) -> None:
    def store(original: Any, self: Any, keys: Any, context: Any) -> Any:
        self._get_request_cache_access(context).store_miss_keys.clear()
        return original(self, keys, context)

    plant.around(CPUOffloadingManager, "prepare_store", store)


@manager
def reset_forgets_offers(plant: Plant) -> None:
    def reset(original: Any, self: Any) -> None:
        original(self)
        if self.counts is not None:
            self.counts.clear()

    plant.around(CPUOffloadingManager, "reset_cache", reset)


@manager
def requests_go_on_after_a_reset(plant: Plant) -> None:
    def reset(original: Any, self: Any) -> None:
        original(self)
        self._cache_generation -= 1

    plant.around(CPUOffloadingManager, "reset_cache", reset)


@manager
def reset_drops_events(plant: Plant) -> None:
    def reset(original: Any, self: Any) -> None:
        original(self)
        if self.events is not None:
            self.events = []

    plant.around(CPUOffloadingManager, "reset_cache", reset)


@manager
def present_keys_are_skipped_stores(plant: Plant) -> None:
    def store(original: Any, self: Any, keys: Any, context: Any) -> Any:
        self.stores_skipped_in_current_batch += sum(
            self._policy.get(key) is not None for key in keys
        )
        return original(self, keys, context)

    plant.around(CPUOffloadingManager, "prepare_store", store)


@manager
def tracked_offers_are_not_protected(plant: Plant) -> None:
    def record(original: Any, self: Any, keys: Any) -> None:
        for key in keys:
            original(self, [key])

    plant.around(CPUOffloadingManager, "_record_accesses", record)


@manager
def failures_are_told_of_keys_that_are_back(plant: Plant) -> None:
    def take(original: Any, self: Any) -> Any:
        events, self.events = self.events, None if self.events is None else []
        yield from events or ()

    plant.around(CPUOffloadingManager, "take_events", take)


@manager
def requests_end_more_than_once(plant: Plant) -> None:
    def finish(original: Any, self: Any, context: Any) -> None:
        original(self, context)
        state = context.get_state(_RequestCacheAccess)
        if state is not None:
            state.finished = False

    plant.around(CPUOffloadingManager, "on_request_finished", finish)


@manager
def pending_chunks_are_hits(plant: Plant) -> None:
    def lookup(original: Any, self: Any, key: Any, context: Any) -> Any:
        found = original(self, key, context)
        return LookupResult.HIT if found is LookupResult.HIT_PENDING else found

    plant.around(CPUOffloadingManager, "lookup", lookup)


@manager
def sizes_are_not_told_without_room(plant: Plant) -> None:
    def store(original: Any, self: Any, keys: Any, context: Any) -> Any:
        output = original(self, keys, context)
        if output is None:
            self.allocation_sizes_in_current_batch.pop()
        return output

    plant.around(CPUOffloadingManager, "prepare_store", store)


def evicts_what_is_offered(plant: Plant, policy: type) -> None:
    def evict(original: Any, self: Any, n: int, protected: Any) -> Any:
        return original(self, n, set(sorted(protected)[1:]))

    plant.around(policy, "evict", evict)


@lru
def lru_evicts_what_is_offered(plant: Plant) -> None:
    evicts_what_is_offered(plant, LRUCachePolicy)


@arc
def arc_evicts_what_is_offered(plant: Plant) -> None:
    evicts_what_is_offered(plant, ARCCachePolicy)


@lru
def groups_in_another_order_at_the_end(plant: Plant) -> None:
    def order(original: Any, groups: Any, context: Any) -> Any:
        return original(groups[::-1], context)

    plant.around(lru_module, "order_request_keys", order)


@lru
def positions_do_not_count_at_the_end(plant: Plant) -> None:
    plant.put(
        lru_module, "order_request_keys", lambda groups, _: [key for keys in groups for key in keys]
    )


@lru
def head_of_a_running_request_first(plant: Plant) -> None:
    def insert(original: Any, self: Any, key: Any, chunk: Any, context: Any) -> None:
        original(self, key, chunk, context)
        rank, position = self._ranks[key]
        self._ranks[key] = (rank, -position)

    plant.around(LRUCachePolicy, "insert", insert)


@lru
def higher_group_of_a_running_request_first(plant: Plant) -> None:
    def insert(original: Any, self: Any, key: Any, chunk: Any, context: Any) -> None:
        original(self, key, chunk, context)
        self._ranks[key] = (*self._ranks[key], -get_offload_group_idx(key))

    plant.around(LRUCachePolicy, "insert", insert)


@lru
def no_rank_for_keys_that_are_not_there(plant: Plant) -> None:
    def access(original: Any, self: Any, keys: Any, context: Any) -> None:
        if any(key in self.chunks for key in keys):
            original(self, keys, context)

    plant.around(LRUCachePolicy, "on_request_access", access)


@lru
def earlier_requests_take_keys_back(plant: Plant) -> None:
    def access(original: Any, self: Any, keys: Any, context: Any) -> None:
        rank = self._get_request_rank(context)
        original(self, keys, context)
        for key in keys:
            position = context.get_offload_key_position(key)
            if position is not None and key in self.chunks:
                self._ranks[key] = (rank, -position)

    plant.around(LRUCachePolicy, "on_request_access", access)


@lru
def touch_from_the_first_key_on(plant: Plant) -> None:
    def touch(original: Any, self: Any, keys: Any, context: Any) -> None:
        original(self, list(keys)[::-1], context)

    plant.around(LRUCachePolicy, "touch", touch)


@arc
def whole_targets(plant: Plant) -> None:
    def adapt(original: Any, self: Any, key: Any) -> Any:
        found = original(self, key)
        self.target_t1_size = float(int(self.target_t1_size))
        return found

    plant.around(ARCCachePolicy, "_adapt_to_ghost_hit", adapt)


@arc
def offers_adapt_from_their_first_key_on(plant: Plant) -> None:
    def miss(original: Any, self: Any, keys: Any, context: Any) -> None:
        original(self, list(keys)[::-1], context)

    plant.around(ARCCachePolicy, "on_store_miss", miss)


@arc
def ghosts_without_room_do_not_adapt(plant: Plant) -> None:
    def store(original: Any, self: Any, keys: Any, context: Any) -> Any:
        before = getattr(self._policy, "target_t1_size", None)
        output = original(self, keys, context)
        if output is None and before is not None:
            self._policy.target_t1_size = before
        return output

    plant.around(CPUOffloadingManager, "prepare_store", store)


@arc
def no_way_back_from_what_was_used_again(plant: Plant) -> None:
    def evict(original: Any, self: Any, n: int, protected: Any) -> Any:
        room = sum(not chunk.ref_cnt and key not in protected for key, chunk in self.t2.items())
        is_first_in_t2 = len(self.t1) < int(self.target_t1_size)
        return None if is_first_in_t2 and room < n else original(self, n, protected)

    plant.around(ARCCachePolicy, "evict", evict)


@arc
def ghosts_are_cut_too_late(plant: Plant) -> None:
    def evict(original: Any, self: Any, n: int, protected: Any) -> Any:
        self.cache_capacity += 1
        evicted = original(self, n, protected)
        self.cache_capacity -= 1
        return evicted

    plant.around(ARCCachePolicy, "evict", evict)


@arc
def failed_stores_leave_ghosts(plant: Plant) -> None:
    def remove(original: Any, self: Any, key: Any) -> None:
        original(self, key)
        self.b1[key] = None

    plant.around(ARCCachePolicy, "remove", remove)


@arc
def target_does_not_count(plant: Plant) -> None:
    def evict(original: Any, self: Any, n: int, protected: Any) -> Any:
        target, self.target_t1_size = self.target_t1_size, 0.0
        evicted = original(self, n, protected)
        self.target_t1_size = target
        return evicted

    plant.around(ARCCachePolicy, "evict", evict)


@arc
def what_was_used_again_goes_last(plant: Plant) -> None:
    def evict(original: Any, self: Any, n: int, protected: Any) -> Any:
        evicted = original(self, n, protected)
        if evicted and any(key in self.b2 for key, _ in evicted):
            return sorted(evicted, key=lambda pair: pair[0] in self.b2)
        return evicted

    plant.around(ARCCachePolicy, "evict", evict)


@arc
def merely_pending_keys_move_at_the_end(plant: Plant) -> None:
    def finish(
        original: Any, self: Any, groups: Any, inserted: Any, reused: Any, context: Any
    ) -> None:
        everything = {key for group in groups for key in group}
        original(self, groups, everything - reused, reused, context)

    plant.around(ARCCachePolicy, "on_request_finished", finish)


@arc
def inserted_keys_count_as_used_again(plant: Plant) -> None:
    def finish(
        original: Any, self: Any, groups: Any, inserted: Any, reused: Any, context: Any
    ) -> None:
        original(self, groups, set(), reused | inserted, context)

    plant.around(ARCCachePolicy, "on_request_finished", finish)


@arc
def arc_ends_from_the_head_on(plant: Plant) -> None:
    def order(original: Any, groups: Any, context: Any) -> Any:
        return original(groups, context)[::-1]

    plant.around(arc_module, "order_request_keys", order)


def _after_switch(plant: Plant, change: Any) -> None:
    """Change the manager after the switch to vLLM's. These faults are in kvoxide, because a fault
    of vLLM's manager would be on both sides then."""

    def switch_and_change(original: Any, manager: Any, *args: Any) -> None:
        original(manager, *args)
        change(manager)

    plant.around(native_module, "switch_to_vllm", switch_and_change)


@switch
def freed_ids_are_copied_backwards(plant: Plant) -> None:
    _after_switch(plant, lambda manager: manager._free_list.reverse())


@switch
def events_are_not_copied(plant: Plant) -> None:
    _after_switch(plant, lambda manager: list(manager.take_events()))


@switch
def ranks_begin_anew(plant: Plant) -> None:
    def change(manager: Any) -> None:
        manager._policy._next_rank = 0

    _after_switch(plant, change)


switch.lose(SwitchedManager, "_take_request", "requests_begin_anew")

FAULTS = {fault.name: fault for area in (manager, lru, arc, switch) for fault in area.all}

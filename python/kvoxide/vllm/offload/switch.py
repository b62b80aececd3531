"""Switches kvoxide's manager of the CPU offload cache to vLLM's own while it serves, because other
code changed one of its attributes."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

from vllm.v1.kv_offload.base import get_offload_group_idx
from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager as StockManager
from vllm.v1.kv_offload.cpu.policies import lru
from vllm.v1.kv_offload.cpu.policies.arc import ARCCachePolicy
from vllm.v1.kv_offload.cpu.policies.lru import LRUCachePolicy

from kvoxide import HostRequest
from kvoxide.vllm.environment import count_fallback, log_switched, recognise_host, settings
from kvoxide.vllm.offload.compatibility import own_arguments

# Attributes of both managers that are read and set alike.
_COPIED: Final = (
    "counts",
    "stores_skipped_in_current_batch",
    "allocation_sizes_in_current_batch",
    "_num_allocated_chunks",
    "_num_evictable_cache_chunks",
    "_num_write_pending_chunks",
)


class SwitchedManager(StockManager):  # type: ignore[misc]
    """vLLM's manager in the state of a tier. It takes each request's state on demand."""

    def _get_request_cache_access(self, req_context: Any) -> Any:
        self._take_request(req_context)
        return super()._get_request_cache_access(req_context)

    def on_request_finished(self, req_context: Any) -> None:
        self._take_request(req_context)
        super().on_request_finished(req_context)

    def _take_request(self, req_context: Any) -> None:
        request = req_context._state.pop(HostRequest, None)
        # A reset ends what requests saw before it.
        if request is None or self._cache_generation > 0:
            return
        found = self._tier._request_for_vllm(request)
        if found is None:
            return
        access = super()._get_request_cache_access(req_context)
        access.finished, rank, seen = found
        for key, (is_inserted, is_reused, is_store_miss) in seen:
            access.key_groups.setdefault(get_offload_group_idx(key), []).append(key)
            access.seen_keys.add(key)
            if is_inserted:
                access.inserted_keys.add(key)
            if is_reused:
                access.reused_keys.add(key)
            if is_store_miss:
                access.store_miss_keys.add(key)
        if rank is not None:
            policy = self._policy
            req_context.set_state(lru._RequestRank(policy, policy._cache_generation, rank))


def switch_to_vllm(manager: Any, policy: Any, why: str) -> None:
    """Make ``manager`` and its view ``policy`` vLLM's own objects, in the state of the tier."""
    arguments, capacity = manager.arguments, policy.cache_capacity
    freed, events, *ranks = manager.tier._state_for_vllm()
    state = {name: getattr(manager, name) for name in _COPIED}
    state |= {"_tier": manager.tier, "_policy": policy, "_free_list": freed}
    state["events"] = manager.pending_events(events) if manager.keeps_events else None
    if isinstance(policy, LRUCachePolicy):
        _replace_instance(policy, LRUCachePolicy, _lru_state(policy.chunks, *ranks), capacity)
    else:
        lists = {name: OrderedDict(getattr(policy, name)) for name in ("t1", "t2", "b1", "b2")}
        lists["target_t1_size"] = policy.target_t1_size
        _replace_instance(policy, ARCCachePolicy, lists, capacity)
    switched = manager.switched
    _replace_instance(manager, switched, state, **own_arguments(switched, arguments))
    count_fallback("poked")
    log_switched("the CPU offload cache", why, settings.HOST_VARIABLE)


def _lru_state(
    chunks: Mapping[bytes, Any], ranks: dict[bytes, tuple[int, int]], last_rank: int
) -> dict[str, Any]:
    are_shared = recognise_host().release.ranks_running_requests
    own_ranks = ranks if are_shared else {key: rank for key, (rank, _) in ranks.items()}
    evictable = {key for key, chunk in chunks.items() if chunk.shown_references == 0}
    return {
        "chunks": dict(chunks),
        "_ranks": own_ranks,
        "_evictable": evictable,
        "_heap": sorted((own_ranks[key], key) for key in evictable),
        "_next_rank": last_rank,
    }


def _replace_instance(
    thing: Any, cls: type, state: Mapping[str, Any], *args: Any, **kwargs: Any
) -> None:
    vars(thing).clear()
    object.__setattr__(thing, "__class__", cls)
    thing.__init__(*args, **kwargs)
    vars(thing).update(state)

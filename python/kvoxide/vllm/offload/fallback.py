"""Replacements of kvoxide's tier: vLLM's own manager, once other code changes its attributes, and
an empty tier, once it fails."""

from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from vllm.v1.kv_offload.base import get_offload_group_idx
from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager as StockManager
from vllm.v1.kv_offload.cpu.policies import lru
from vllm.v1.kv_offload.cpu.policies.arc import ARCCachePolicy
from vllm.v1.kv_offload.cpu.policies.base import ChunkStatus
from vllm.v1.kv_offload.cpu.policies.lru import LRUCachePolicy

from kvoxide import HostRequest, HostTier
from kvoxide._core import InternalError
from kvoxide.vllm.environment import log_switched, logger, recognise_host, settings

# Attributes of both managers that are read and set alike.
_COPIED: Final = (
    "counts",
    "stores_skipped_in_current_batch",
    "allocation_sizes_in_current_batch",
    "_num_allocated_chunks",
    "_num_evictable_cache_chunks",
    "_num_write_pending_chunks",
)


class FallbackManager(StockManager):  # type: ignore[misc]
    """vLLM's manager with the state of a tier, and of its requests once they are asked for."""

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
    _replace_instance(manager, FallbackManager, state, **arguments)
    log_switched("the CPU offload cache", why, settings.HOST_VARIABLE)


def _lru_state(
    chunks: Mapping[bytes, ChunkStatus], ranks: dict[bytes, tuple[int, int]], last_rank: int
) -> dict[str, Any]:
    are_shared = recognise_host().release.ranks_running_requests
    own_ranks = ranks if are_shared else {key: rank for key, (rank, _) in ranks.items()}
    evictable = {key for key, chunk in chunks.items() if chunk.ref_cnt == 0}
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


def chunks_of(tier: Any, shown: dict[bytes, ChunkStatus]) -> dict[bytes, ChunkStatus]:
    """Returns vLLM's objects for the chunks of all keys: of those in ``shown`` the same again."""
    chunks = {}
    for key, (chunk_id, num_loads) in tier.get_chunks().items():
        chunk = shown.get(key)
        if chunk is None or chunk.chunk_id != chunk_id:
            chunk = ChunkStatus(chunk_id)
        # vLLM counts a store as a reference less than none.
        chunk.ref_cnt = -1 if num_loads is None else num_loads
        chunks[key] = chunk
    return chunks


# A tier that failed has nothing, takes nothing, and forgets what ends.
_ANSWERS: Final = {
    "start_request": None,
    "lookup": "miss",
    "lookup_prefix": 0,
    "lookup_window": 0,
    "is_any_loading": False,
    "set_loading": None,
    "touch": None,
    "complete_load": None,
    "prepare_store": None,
    "complete_store": None,
    "finish_request": None,
    "reset": None,
    "take_events": (),
    "take_num_skipped": 0,
    "take_store_sizes": (),
}


class SafeTier:
    """A :class:`kvoxide.HostTier` that is out of use from its first fault on.

    The fault is logged. A load alone, for which there are no chunks then, still raises it.
    """

    def __init__(self, tier: HostTier) -> None:
        """Take the tier."""
        self.unguarded = tier
        self._has_failed = False
        self.num_chunks = tier.num_chunks
        for name, answer in _ANSWERS.items():
            setattr(self, name, self.guarded(getattr(tier, name), answer))

    def guarded(self, method: Any, answer: Any) -> Any:
        """Return a method of another object over this tier, which answers so once it failed."""
        return partial(self._call, method, answer)

    def __getattr__(self, name: str) -> Any:
        """Return what the tier has; if it failed, its numbers are an empty tier's."""
        try:
            return getattr(self.unguarded, name)
        except InternalError as error:
            self._fail(error)
            return self.num_chunks if name == "num_free_chunks" else 0

    def _call(self, method: Any, answer: Any, *args: Any) -> Any:
        if self._has_failed:
            return answer
        try:
            return method(*args)
        except InternalError as error:
            self._fail(error)
            return answer

    def _fail(self, error: InternalError) -> None:
        if not self._has_failed:
            self._has_failed = True
            logger.error(
                "kvoxide: the CPU offload cache failed and is disabled until restart. Cached "
                "prompts will be recomputed. Restart the server and report this error: %s",
                error,
            )


def unguarded(tier: Any) -> HostTier | None:
    """Return the tier itself."""
    return tier.unguarded if type(tier) is SafeTier else tier


def guarded(tier: Any, method: Any, answer: Any) -> Any:
    """Return a method of another object over ``tier``, which answers so once the tier failed."""
    return tier.guarded(method, answer) if type(tier) is SafeTier else method

"""Both managers, and their visible state."""

import struct
from typing import Any

from kvoxide.vllm.offload import native_class
from vllm.v1.kv_offload.base import ReqContext
from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager

from .scenario import Scenario

State = dict[str, Any]


class Side:
    """A manager with the contexts of its requests and the transfers in progress. ``primary`` is the
    manager of CPU memory."""

    def __init__(self, manager: Any, primary: Any = None) -> None:
        self.manager = manager
        self.primary = primary or manager
        self.contexts: dict[int, Any] = {}

    def add_request(self, request: int, req_id: str) -> None:
        self.contexts[request] = ReqContext(req_id)

    def state(self) -> State:
        raise NotImplementedError


class VllmSide(Side):
    def __init__(self, scenario: Scenario) -> None:
        super().__init__(CPUOffloadingManager(**scenario.arguments()))

    def state(self) -> State:
        return state_of_vllms(self.manager)


class KvoxideSide(Side):
    def __init__(self, scenario: Scenario) -> None:
        super().__init__(native_class()(**scenario.arguments()))

    def state(self) -> State:
        return state_of(self.manager)


def state_of(manager: Any) -> State:
    """Return the state of a manager of CPU memory. kvoxide's may have become vLLM's."""
    is_over_tier = isinstance(manager, native_class())
    return state_of_kvoxides(manager.tier) if is_over_tier else state_of_vllms(manager)


def state_of_vllms(manager: Any) -> State:
    policy = manager._policy
    seen: State = {
        "free": manager._get_num_free_chunks(),
        "allocated": manager._num_allocated_chunks,
        "evictable": manager._num_evictable_cache_chunks,
        "pending": manager._num_write_pending_chunks,
        "tracked": list((manager.counts or {}).items()),
    }
    if hasattr(policy, "chunks"):
        chunks = policy.chunks
        seen["order"] = sorted(policy._evictable, key=lambda key: (policy._ranks[key], key))
    else:
        chunks = {**policy.t1, **policy.t2}
        lists = (policy.t1, policy.t2, policy.b1, policy.b2)
        seen["lists"] = [list(keys) for keys in lists]
        seen["target"] = struct.pack(">d", policy.target_t1_size)
    seen["chunks"] = {key: (chunk.chunk_id, chunk.ref_cnt) for key, chunk in chunks.items()}
    return seen


def state_of_kvoxides(tier: Any) -> State:
    seen: State = {
        "free": tier.num_free_chunks,
        "allocated": tier.num_allocated_chunks,
        "evictable": tier.num_evictable_chunks,
        "pending": tier.num_pending_chunks,
        "tracked": list(tier.get_tracked_offers().items()),
    }
    if (order := tier.get_lru_order()) is not None:
        seen["order"] = order
    else:
        *seen["lists"], target = tier.get_arc_lists()
        seen["target"] = struct.pack(">d", target)
    seen["chunks"] = {
        key: (chunk, -1 if loads is None else loads)
        for key, (chunk, loads) in tier.get_chunks().items()
    }
    return seen

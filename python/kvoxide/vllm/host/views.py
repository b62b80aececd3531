"""What vLLM's classes keep inside, read from the tier: for those who look, not to be changed."""

from collections import OrderedDict
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NoReturn

from vllm.v1.kv_offload.cpu.policies.arc import ARCCachePolicy
from vllm.v1.kv_offload.cpu.policies.base import CachePolicy, ChunkStatus
from vllm.v1.kv_offload.cpu.policies.lru import LRUCachePolicy

from kvoxide import HostTier


class ViewedState:
    """The attributes of vLLM's manager whose values are in the tier."""

    tier: HostTier
    store_threshold: int

    def __init__(self) -> None:
        """Nothing was counted yet."""
        self._num_skipped = 0
        self._store_sizes: list[int] = []

    @property
    def counts(self) -> OrderedDict[bytes, int] | None:
        """How often each tracked key was offered."""
        if self.store_threshold < 2:
            return None
        return OrderedDict(self.tier.get_tracked_offers())

    @property
    def stores_skipped_in_current_batch(self) -> int:
        """Keys that were offered too seldom since the last ``get_stats()``."""
        self._num_skipped += self.tier.take_num_skipped()
        return self._num_skipped

    @property
    def allocation_sizes_in_current_batch(self) -> list[int]:
        """Chunks that each store asked for since the last ``get_stats()``."""
        self._store_sizes += self.tier.take_store_sizes()
        return self._store_sizes

    @property
    def _num_evictable_cache_chunks(self) -> int:
        return self.tier.num_evictable_chunks

    @property
    def _num_write_pending_chunks(self) -> int:
        return self.tier.num_pending_chunks

    @property
    def _num_allocated_chunks(self) -> int:
        return self.tier.num_allocated_chunks

    @property
    def _policy(self) -> CachePolicy:
        view = LruView if self.tier.policy == "lru" else ArcView
        return view(self.tier)

    def _get_num_free_chunks(self) -> int:
        return self.tier.num_free_chunks


class _PolicyView:
    """Attributes of one of vLLM's policies, as they are when they are asked for."""

    _tier: HostTier
    cache_capacity: int

    def __init__(self, tier: HostTier) -> None:
        vars(self).update(_tier=tier, cache_capacity=tier.num_chunks)

    def __setattr__(self, name: str, value: object) -> None:
        raise _not_here(f"{name} is set in")

    def get(self, key: bytes) -> ChunkStatus | None:
        """The chunk of ``key``."""
        return self._chunks().get(key)

    def _chunks(self) -> dict[bytes, ChunkStatus]:
        found = self._tier.get_chunks().items()
        return {key: _status(*chunk) for key, chunk in found}


def _not_here(what_happens_to: str) -> AttributeError:
    return AttributeError(
        f"{what_happens_to} a policy that is in Rust, of which this is a view; "
        "set KVOXIDE_HOST=off to have vLLM's"
    )


def _refused(name: str) -> Any:
    def refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
        raise _not_here(f"{name}() changes")

    return refuse


# All that a manager calls of its policy but get().
_Refusals: Any = type(
    "_Refusals",
    (),
    {
        name: _refused(name)
        for name, value in vars(CachePolicy).items()
        if callable(value) and not name.startswith("_") and name != "get"
    },
)


class LruView(_PolicyView, _Refusals, LRUCachePolicy):  # type: ignore[misc]
    """What vLLM's LRU keeps."""

    @property
    def chunks(self) -> Mapping[bytes, ChunkStatus]:
        """The chunks of all keys."""
        return MappingProxyType(self._chunks())


class ArcView(_PolicyView, _Refusals, ARCCachePolicy):  # type: ignore[misc]
    """What vLLM's ARC keeps: all lists have the oldest key first."""

    @property
    def t1(self) -> Mapping[bytes, ChunkStatus]:
        """Keys used once."""
        return self._list(0)

    @property
    def t2(self) -> Mapping[bytes, ChunkStatus]:
        """Keys used again."""
        return self._list(1)

    @property
    def b1(self) -> Mapping[bytes, None]:
        """Keys that were evicted from :attr:`t1`."""
        return MappingProxyType(dict.fromkeys(self._lists()[2]))

    @property
    def b2(self) -> Mapping[bytes, None]:
        """Keys that were evicted from :attr:`t2`."""
        return MappingProxyType(dict.fromkeys(self._lists()[3]))

    @property
    def target_t1_size(self) -> float:
        """The size that :attr:`t1` should have."""
        target: float = self._lists()[4]
        return target

    def _list(self, place: int) -> Mapping[bytes, ChunkStatus]:
        chunks = self._chunks()
        return MappingProxyType({key: chunks[key] for key in self._lists()[place]})

    def _lists(self) -> Any:
        return self._tier.get_arc_lists()


def _status(chunk_id: int, num_loads: int | None) -> ChunkStatus:
    status = ChunkStatus(chunk_id)
    status.ref_cnt = -1 if num_loads is None else num_loads
    return status

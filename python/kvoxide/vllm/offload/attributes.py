"""Attributes of vLLM's objects whose values are in Rust: of the manager, its policies, requests and
jobs."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, MutableSet, Sequence, Set
from functools import cached_property
from itertools import chain
from types import MappingProxyType
from typing import Any, ClassVar

from vllm.v1.kv_cache_interface import MambaSpec
from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager as StockManager
from vllm.v1.kv_offload.cpu.policies.arc import ARCCachePolicy
from vllm.v1.kv_offload.cpu.policies.base import CachePolicy, ChunkStatus
from vllm.v1.kv_offload.cpu.policies.lru import LRUCachePolicy

from kvoxide import HostTier
from kvoxide._core_vllm import (
    OffloadLeavingPlan,
    VllmBlockIds,
    VllmBlocks,
    VllmChunkKeys,
    VllmRequestKeys,
)


class ViewedState(StockManager):  # type: ignore[misc]
    """The attributes of vLLM's manager whose values are in the tier."""

    tier: HostTier
    stock: ClassVar[type] = StockManager
    """The class of vLLM's whose arguments it takes."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        """Nothing was counted yet by the manager that vLLM makes with these arguments."""
        self.arguments = arguments
        self._num_skipped = 0
        self._store_sizes: list[int] = []

    @property
    def store_threshold(self) -> int:
        """Offers of a key before it is stored."""
        return int(self.arguments["store_threshold"])

    @property
    def max_tracker_size(self) -> int:
        """The most keys whose offers are counted."""
        return int(self.arguments["max_tracker_size"])

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
    def _num_chunks(self) -> int:
        return self.tier.num_chunks

    @property
    def _num_evictable_cache_chunks(self) -> int:
        return self.tier.num_evictable_chunks

    @property
    def _num_write_pending_chunks(self) -> int:
        return self.tier.num_pending_chunks

    @property
    def _num_allocated_chunks(self) -> int:
        return self.tier.num_allocated_chunks

    @cached_property
    def _policy(self) -> CachePolicy:
        if self.tier.policy == "adaptive":
            raise AttributeError(
                "CPU memory has no policy of vLLM's with KVOXIDE_HOST_POLICY=adaptive. Unset it to "
                "use this attribute"
            )
        return (LruView if self.tier.policy == "lru" else ArcView)(self)

    def _get_num_free_chunks(self) -> int:
        return self.tier.num_free_chunks


def _changing(name: str) -> Any:
    def change(self: Any, *args: Any, **kwargs: Any) -> Any:
        # The method is vLLM's already if it was taken from the view before.
        if isinstance(self, _Changes):
            self._manager.switch_to_vllm(f"_policy.{name}() is called")
        return getattr(type(self), name)(self, *args, **kwargs)

    return change


# All that a manager calls of its policy but get().
_Changes: Any = type(
    "_Changes",
    (CachePolicy,),
    {
        name: _changing(name)
        for name, value in vars(CachePolicy).items()
        if callable(value) and not name.startswith("_") and name != "get"
    },
)


class ShownChunk(ChunkStatus):  # type: ignore[misc]
    """A chunk's status. With a ``view``, its references are read anew at each access, until the
    policy is vLLM's."""

    view: Any = None
    shown_references: Any = ChunkStatus.ref_cnt

    @property
    def ref_cnt(self) -> int:
        """The loads of the chunk; -1 while it is stored."""
        if isinstance(self.view, _PolicyView):
            self.view._chunks()
        return int(self.shown_references)

    @ref_cnt.setter
    def ref_cnt(self, references: int) -> None:
        if isinstance(self.view, _PolicyView):
            self.view._manager.switch_to_vllm("the ref_cnt of a chunk is set")
        self.shown_references = references


class _PolicyView(_Changes):  # type: ignore[misc]
    """The attributes of one of vLLM's policies, computed at each access. If a caller changes one,
    vLLM's own manager and policy replace this one."""

    _manager: Any
    _shown: dict[bytes, ShownChunk]
    cache_capacity: int

    def __init__(self, manager: ViewedState) -> None:
        self.__dict__.update(_manager=manager, _shown={}, cache_capacity=manager.tier.num_chunks)

    def __setattr__(self, name: str, value: object) -> None:
        self._manager.switch_to_vllm(f"_policy.{name} is set")
        setattr(self, name, value)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") or name.startswith("__"):
            raise AttributeError(f"{type(self).__name__} has no {name}")
        self._manager.switch_to_vllm(f"_policy.{name} is read")
        return getattr(self, name)

    def get(self, key: bytes) -> ChunkStatus | None:
        """The chunk of ``key``, which shows its loads also later."""
        chunk = self._chunks().get(key)
        if chunk is not None:
            chunk.view = self
        return chunk

    def _chunks(self) -> dict[bytes, ShownChunk]:
        shown = _chunks_of(self._manager.tier, self._shown)
        self.__dict__["_shown"] = shown
        return shown


def _chunks_of(tier: Any, shown: dict[bytes, ShownChunk]) -> dict[bytes, ShownChunk]:
    """Return vLLM's objects for the chunks of all keys. A chunk in ``shown`` keeps its object."""
    chunks = {}
    for key, (chunk_id, num_loads) in tier.get_chunks().items():
        chunk = shown.get(key)
        if chunk is None or chunk.chunk_id != chunk_id:
            chunk = ShownChunk(chunk_id)
        # vLLM counts a store as -1 references.
        chunk.shown_references = -1 if num_loads is None else num_loads
        chunks[key] = chunk
    return chunks


class LruView(_PolicyView, LRUCachePolicy):  # type: ignore[misc]
    """The attributes of vLLM's LRU."""

    @property
    def chunks(self) -> Mapping[bytes, ChunkStatus]:
        """The chunks of all keys."""
        return MappingProxyType(self._chunks())


class ArcView(_PolicyView, ARCCachePolicy):  # type: ignore[misc]
    """The attributes of vLLM's ARC. All lists have the oldest key first."""

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
        return self._manager.tier.get_arc_lists()


def in_rust(keys: Any) -> Any:
    """Returns the keys as a tier reads them best."""
    return keys.chunks if type(keys) is ChunkKeySet else keys


class KeyPositions(MutableMapping[bytes, int]):
    """The position of each key of a request. ``boundaries`` has the positions that vLLM noted."""

    def __init__(self, keys: VllmRequestKeys) -> None:
        """Begin without boundaries."""
        self._keys = keys
        self.boundaries: dict[bytes, int] = {}

    def __getitem__(self, key: bytes) -> int:
        """The tokens up to the end of ``key``."""
        position = self.boundaries.get(key)
        if position is None:
            position = self._keys.position(key)
        if position is None:
            raise KeyError(key)
        return position

    def __setitem__(self, key: bytes, position: int) -> None:
        """Note a boundary."""
        self.boundaries[key] = position

    def __delitem__(self, key: bytes) -> None:
        """Forget a boundary."""
        del self.boundaries[key]

    def __iter__(self) -> Iterator[bytes]:
        """Iterate over the keys of all groups, then the keys of boundaries."""
        return iter(dict.fromkeys(chain(*self._keys.groups(), self.boundaries)))

    def __len__(self) -> int:
        """How many keys have a position."""
        return len(list(iter(self)))


class ChunkKeySet(Set[bytes]):
    """The keys of a job."""

    def __init__(self, chunks: VllmChunkKeys | OffloadLeavingPlan) -> None:
        """Take the keys, which are distinct."""
        self.chunks = chunks

    @cached_property
    def _keys(self) -> frozenset[bytes]:
        return frozenset(self.chunks)

    def __contains__(self, key: object) -> bool:
        """Whether the job has ``key``."""
        return key in self._keys

    def __iter__(self) -> Iterator[bytes]:
        """Iterate over the keys, in no order."""
        return iter(self._keys)

    def __len__(self) -> int:
        """How many keys the job has."""
        return len(self.chunks)

    @classmethod
    def of(cls, keys: Any) -> Any:
        """Return a set of keys, in Rust if they are."""
        return cls(keys) if type(keys) is VllmChunkKeys else set(keys)

    @classmethod
    def _from_iterable(cls, keys: Iterable[Any]) -> Any:
        return set(keys)


class KeysBeingLoaded(MutableSet[bytes]):
    """The keys of a tier that requests load now, so that others wait for them."""

    def __init__(self, tier: HostTier) -> None:
        """Read and note them in ``tier``."""
        self.tier = tier

    def __contains__(self, key: Any) -> bool:
        """Whether a request loads ``key``."""
        return self.tier.is_any_loading([key])

    def __iter__(self) -> Iterator[bytes]:
        """Iterate over all keys of the tier to find these."""
        return filter(self.__contains__, self.tier.get_chunks())

    def __len__(self) -> int:
        """How many keys are being loaded."""
        return self.tier.num_loading_keys

    def add(self, key: bytes) -> None:
        """A request loads ``key``."""
        self.update([key])

    def discard(self, key: bytes) -> None:
        """No request loads ``key``."""
        self.difference_update([key])

    def update(self, keys: Any) -> None:
        """Requests load ``keys``."""
        self.tier.set_loading(in_rust(keys), True)

    def difference_update(self, keys: Any) -> None:
        """No request loads ``keys``."""
        self.tier.set_loading(in_rust(keys), False)

    def clear(self) -> None:
        """No request loads a key."""
        self.tier.set_loading(list(self), False)

    @classmethod
    def _from_iterable(cls, keys: Iterable[Any]) -> Any:
        return set(keys)


class AllocatedBlocks:
    """The ids of blocks, which may be many. vLLM iterates over all of them to find the blocks that
    jobs watch, so iteration yields only these."""

    def __init__(self, block_ids: Iterable[int]) -> None:
        """Take the first ids."""
        self.ids = VllmBlockIds()
        self._watched: list[int] = []
        if block_ids:
            self.update(block_ids)

    def note(self, block_ids: list[int]) -> None:
        """Add ids; the null block is none of them."""
        self.ids.update(block_ids)

    def note_table(self, blocks: Any) -> None:
        """Add the ids of all groups of a request."""
        if type(blocks) is VllmBlocks:
            self.ids.update_from(blocks)
            return
        self.update(chain.from_iterable(blocks.get_block_ids()))

    def update(self, block_ids: Iterable[int]) -> None:
        """Add ids."""
        self.note(list(block_ids))

    def watch(self, block_ids: dict[int, set[int]]) -> None:
        """Keep the allocated ids among ``block_ids`` for iteration."""
        self._watched = self.ids.contained_of(block_ids) if block_ids else []

    def __contains__(self, block_id: int) -> bool:
        """Return whether a block was allocated."""
        return block_id in self.ids

    def __len__(self) -> int:
        """Return how many blocks were allocated."""
        return len(self.ids)

    def __iter__(self) -> Iterator[int]:
        """Iterate over the blocks that jobs watch."""
        return iter(self._watched)


_Range = tuple[int, int, bytes]


class LoadedRanges(Sequence[_Range]):
    """The tokens that each key of a load covers; ``spans`` has the tokens of each group."""

    def __init__(self, groups: Sequence[Any], parts: Iterable[tuple[int, int, int, Any]]) -> None:
        """Take for each part of a load the index of its group, its tokens and its keys."""
        self._loads = [(groups[at], *part) for at, *part in parts]
        self.spans = [(start, end, b"") for _, start, end, _ in self._loads]

    def __iter__(self) -> Iterator[_Range]:
        """Iterate over the first token, the one after the last, and the key."""
        for group, start, end, keys in self._loads:
            # A state covers all tokens before it.
            if isinstance(group.kv_cache_spec, MambaSpec):
                yield from ((start, end, key) for key in keys)
                continue
            size = group.tokens_per_chunk
            starts = range(start // size * size, end, size)
            for at, key in zip(starts, keys, strict=True):
                yield max(at, start), min(at + size, end), key

    def __len__(self) -> int:
        """Return how many keys are loaded."""
        return sum(len(keys) for *_, keys in self._loads)

    def __getitem__(self, at: Any) -> Any:
        """Return some of the ranges."""
        return list(self)[at]

    def __eq__(self, other: object) -> bool:
        """Return whether ``other`` has the same ranges."""
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

"""Keys that stay in Rust: lists, sets and dictionaries of ``bytes`` for vLLM's code that reads
them."""

from collections.abc import Iterable, Iterator, MutableMapping, MutableSet, Sequence, Set
from functools import cached_property
from itertools import chain
from typing import Any

from kvoxide import HostTier
from kvoxide._core_vllm import VllmChunkKeys, VllmRequestKeys


def joined(parts: Sequence[Any]) -> Any:
    """Returns the keys of all parts, which are of one request."""
    if parts and type(parts[0]) is VllmChunkKeys:
        return VllmChunkKeys.joined(parts)
    return list(chain.from_iterable(parts))


def in_rust(keys: Any) -> Any:
    """Returns the keys as a tier reads them best."""
    return keys.chunks if type(keys) is ChunkKeySet else keys


class KeyPositions(MutableMapping[bytes, int]):
    """The position of each key of a request; ``boundaries`` are those that vLLM noted itself."""

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
        """Iterate over the keys of all groups, then those of boundaries."""
        return iter(dict.fromkeys(chain(*self._keys.groups(), self.boundaries)))

    def __len__(self) -> int:
        """How many keys have a position."""
        return len(list(iter(self)))


class ChunkKeySet(Set[bytes]):
    """The keys of a job."""

    def __init__(self, chunks: VllmChunkKeys) -> None:
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

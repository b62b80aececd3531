"""The prefix cache's maps between packed keys and blocks, read from the engine."""

from collections.abc import Iterator, MutableMapping
from typing import Any

from vllm.v1.core.block_pool import BlockHashToBlockMap

from kvoxide._core_vllm import VllmManager
from kvoxide.vllm.adapter.tables import KeptDict
from kvoxide.vllm.adapter.watched import Watched, Watcher, replacing_class


class NativeIndex(Watched):
    """The prefix cache's map from packed keys to blocks."""

    _name_in_messages = "cached_block_hash_to_block"
    _watcher: Watcher

    def __init__(self, engine: VllmManager) -> None:
        """The map of ``engine``."""
        self._engine = engine
        self._shown = Cache(engine)
        self.get_one_block = engine.block_of_key

    def contain(self, key: bytes, block_id: int) -> bool:
        return self._engine.block_has_key(block_id, key)

    def insert(self, key: bytes, block: Any) -> None:
        self._engine.insert_key(block.block_id, key, None)

    def pop(self, key: bytes, block_id: int) -> Any:
        """Take ``block_id`` out of the map, if it has this key; the block loses all its keys."""
        if not self.contain(key, block_id):
            return None
        self._engine.remove_keys(block_id)
        return self._engine.block(block_id)

    @property
    def _cache(self) -> "Cache":
        return self._shown

    @_cache.setter
    def _cache(self, cache: Any) -> None:
        self._watcher.before_change(f"{self._name_in_messages}._cache is set")
        object.__setattr__(self, "_cache", cache)

    def __len__(self) -> int:
        return self._engine.num_keys()


class Cache(MutableMapping[bytes, Any]):
    """The map's own dictionary: under a key the block that has it, or its several blocks by id, the
    one that serves it first. What is taken out loses all its keys."""

    def __init__(self, engine: VllmManager) -> None:
        """The dictionary of ``engine``."""
        self._engine = engine

    def __len__(self) -> int:
        return self._engine.num_keys()

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._engine.keys())

    def __contains__(self, key: object) -> bool:
        return isinstance(key, bytes) and self._engine.find_key(key) is not None

    def __getitem__(self, key: bytes) -> Any:
        """Raises :class:`KeyError` for a key that no block has."""
        blocks = {i: self._engine.block(i) for i in self._engine.blocks_of_key(key)}
        if not blocks:
            raise KeyError(key)
        return blocks if len(blocks) > 1 else next(iter(blocks.values()))

    def __setitem__(self, key: bytes, value: Any) -> None:
        """Give the key to a block, to several by id, or to those that a copy says had it."""
        for block_id in self._engine.blocks_of_key(key):
            self._engine.remove_keys(block_id)
        if isinstance(value, list):
            for block_id, num_tokens in value:
                self._engine.insert_key(block_id, key, num_tokens)
            return
        for block in value.values() if isinstance(value, dict) else [value]:
            self._engine.insert_key(block.block_id, key, None)

    def __delitem__(self, key: bytes) -> None:
        block_ids = self._engine.blocks_of_key(key)
        if not block_ids:
            raise KeyError(key)
        for block_id in block_ids:
            self._engine.remove_keys(block_id)

    def clear(self) -> None:
        for key in self:
            self.pop(key, None)

    def __copy__(self) -> "dict[bytes, list[tuple[int, int | None]]]":
        """Block ids by key, with the tokens that each block's hash covers."""
        saved: dict[bytes, list[tuple[int, int | None]]] = {}
        for block_id in range(1, self._engine.num_blocks):
            block = self._engine.block(block_id)
            if block.block_hash is not None:
                entry = (block_id, block.block_hash_num_tokens)
                saved.setdefault(block.block_hash, []).append(entry)
        return saved


class _IndexInVllm(MutableMapping[bytes, Any]):
    """The dictionary of the index that vLLM's own replaced."""

    _engine: Any

    def __len__(self) -> int:
        return len(self._engine)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._engine)

    def __getitem__(self, key: bytes) -> Any:
        return self._engine[key]

    def __setitem__(self, key: bytes, value: Any) -> None:
        self._engine[key] = value

    def __delitem__(self, key: bytes) -> None:
        del self._engine[key]


def release_index(index: Any, blocks: dict[bytes, Any]) -> None:
    """Let what ``index`` showed pass everything on to ``blocks``, vLLM's own dictionary."""
    cache = index._shown
    cache._engine = blocks
    cache.__class__ = _IndexInVllm


HashToBlock: Any = replacing_class(NativeIndex, BlockHashToBlockMap)


class ExtraKeysByBlock(KeptDict):
    """The further keys of blocks besides their own hash: block id -> packed keys.

    The engine keeps it up to date; nothing else writes to it.
    """

    __slots__ = ()

    def __init__(self, engine: VllmManager) -> None:
        """The further keys of ``engine``'s blocks."""
        super().__init__()
        engine.sync_alias_keys(self)

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(
            "the further keys of a block cannot be set here. Add a key with "
            "cached_block_hash_to_block.insert, or remove all keys of a block with .pop"
        )

    __setitem__ = __delitem__ = __ior__ = pop = popitem = clear = update = setdefault = _refuse

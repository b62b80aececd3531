"""The prefix cache's maps between packed keys and blocks, read from the engine."""

from collections.abc import Iterator, Mapping
from typing import Any

from kvoxide._core_vllm import VllmManager


class HashToBlock:
    """The prefix cache's map from packed keys to blocks."""

    def __init__(self, engine: VllmManager) -> None:
        """The map of ``engine``."""
        self._engine = engine

    def get_one_block(self, key: bytes) -> Any:
        block_id = self._engine.find_key(key)
        return None if block_id is None else self._engine.block(block_id)

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
        return Cache(self._engine)

    def __len__(self) -> int:
        return self._engine.num_keys()


class Cache:
    """The map's own dictionary, as far as it can be looked into, cut down and put back."""

    def __init__(self, engine: VllmManager) -> None:
        """The dictionary of ``engine``."""
        self._engine = engine

    def __len__(self) -> int:
        return self._engine.num_keys()

    def __contains__(self, key: bytes) -> bool:
        return self._engine.find_key(key) is not None

    def pop(self, key: bytes, *default: Any) -> Any:
        """Take every block with ``key`` out of the prefix cache; the one that served it."""
        served = self._engine.find_key(key)
        if served is None:
            if default:
                return default[0]
            raise KeyError(key)
        block_id: int | None = served
        while block_id is not None:
            self._engine.remove_keys(block_id)
            block_id = self._engine.find_key(key)
        return self._engine.block(served)

    def __setitem__(self, key: bytes, saved: "list[tuple[int, int | None]]") -> None:
        for block_id, num_tokens in saved:
            self._engine.insert_key(block_id, key, num_tokens)

    def __copy__(self) -> "dict[bytes, list[tuple[int, int | None]]]":
        """Block ids by key, with the tokens that each block's hash covers."""
        saved: dict[bytes, list[tuple[int, int | None]]] = {}
        for block_id in range(1, self._engine.num_blocks):
            block = self._engine.block(block_id)
            if block.block_hash is not None:
                entry = (block_id, block.block_hash_num_tokens)
                saved.setdefault(block.block_hash, []).append(entry)
        return saved


class ExtraKeysByBlock(Mapping[int, set[bytes]]):
    """Blocks with keys beside their own hash: block id -> those packed keys."""

    def __init__(self, engine: VllmManager) -> None:
        """The further keys of ``engine``'s blocks."""
        self._engine = engine

    def __getitem__(self, block_id: int) -> set[bytes]:
        keys = self._engine.keys_of_block(block_id)[1:]
        if not keys:
            raise KeyError(block_id)
        return set(keys)

    def __iter__(self) -> Iterator[int]:
        return iter(self._engine.blocks_with_extra_keys())

    def __len__(self) -> int:
        return len(self._engine.blocks_with_extra_keys())

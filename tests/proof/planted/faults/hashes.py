"""Errors in the hashes of blocks."""

from typing import Any

from vllm.v1.core import kv_cache_utils

from ..fault import Faults, Plant

hashes = Faults("block hashes")
AREAS = (hashes,)


@hashes
def parent_not_hashed(plant: Plant) -> None:
    def hash_block_tokens(original: Any, function: Any, parent: Any, *rest: Any) -> Any:
        del parent
        return original(function, None, *rest)

    plant.around(kv_cache_utils, "hash_block_tokens", hash_block_tokens)


@hashes
def keys_not_hashed(plant: Plant) -> None:
    def hash_block_tokens(
        original: Any, function: Any, parent: Any, tokens: Any, keys: Any = None
    ) -> Any:
        del keys
        return original(function, parent, tokens, None)

    plant.around(kv_cache_utils, "hash_block_tokens", hash_block_tokens)


@hashes
def last_token_not_hashed(plant: Plant) -> None:
    def hash_block_tokens(
        original: Any, function: Any, parent: Any, tokens: Any, *rest: Any
    ) -> Any:
        return original(function, parent, tokens[:-1] or tokens, *rest)

    plant.around(kv_cache_utils, "hash_block_tokens", hash_block_tokens)


@hashes
def first_key_alone_hashed(plant: Plant) -> None:
    def hash_block_tokens(
        original: Any, function: Any, parent: Any, tokens: Any, keys: Any = None
    ) -> Any:
        return original(function, parent, tokens, keys[:1] if keys else keys)

    plant.around(kv_cache_utils, "hash_block_tokens", hash_block_tokens)


@hashes
def last_full_block_not_hashed(plant: Plant) -> None:
    def get_request_block_hasher(original: Any, *args: Any, **kwargs: Any) -> Any:
        hasher = original(*args, **kwargs)
        return lambda request: hasher(request)[:-1]

    plant.around(kv_cache_utils, "get_request_block_hasher", get_request_block_hasher)

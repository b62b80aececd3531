"""Managers and requests so small that every block id can be worked out by hand."""

from collections.abc import Iterable
from typing import Any

from kvoxide import (
    BlockHasher,
    KVCacheBlocks,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheManager,
    Policy,
    Request,
)

MAX_MODEL_LEN = 1024


def full(block_size: int = 4, **options: Any) -> KVCacheGroupSpec:
    return KVCacheGroupSpec("full_attention", block_size, **options)


def window(block_size: int = 4, sliding_window: int = 8, **options: Any) -> KVCacheGroupSpec:
    return KVCacheGroupSpec("sliding_window", block_size, sliding_window=sliding_window, **options)


def chunked(block_size: int = 4, chunk: int = 8) -> KVCacheGroupSpec:
    return KVCacheGroupSpec("chunked_local_attention", block_size, attention_chunk_size=chunk)


def make_manager(*groups: KVCacheGroupSpec, num_blocks: int = 41, **options: Any) -> KVCacheManager:
    """Return a small manager. Without a policy it keeps every tail, so that tests can see them."""
    options.setdefault("policy", Policy(retention_interval=None))
    zeroing = options.pop("needs_kv_cache_zeroing", False)
    config = KVCacheConfig(num_blocks, groups or [full()], needs_kv_cache_zeroing=zeroing)
    return KVCacheManager(config, options.pop("max_model_len", MAX_MODEL_LEN), **options)


def make_request(
    manager: KVCacheManager, request_id: str, tokens: Iterable[int], **options: Any
) -> Request:
    hasher = BlockHasher(manager.hash_block_size)
    return Request(request_id, list(tokens), block_hasher=hasher, **options)


def allocate(
    manager: KVCacheManager, request: Request, num_new: int, **options: Any
) -> KVCacheBlocks:
    """Allocate slots, which must fit, and count their tokens as computed from then on."""
    blocks = manager.allocate_slots(request, num_new, **options)
    assert blocks is not None
    request.num_computed_tokens += num_new
    return blocks


def admit(manager: KVCacheManager, request: Request, *, chunk: int | None = None) -> int:
    """Look up and prefill, ``chunk`` tokens per step. Return the hit tokens."""
    hit, num_hit, request.shared_prefix_boundary = manager.get_computed_blocks(request)
    first = min(chunk or request.num_tokens, request.num_tokens - num_hit)
    allocate(manager, request, first, num_new_computed_tokens=num_hit, new_computed_blocks=hit)
    request.num_computed_tokens += num_hit
    while request.num_computed_tokens < request.num_tokens:
        rest = request.num_tokens - request.num_computed_tokens
        allocate(manager, request, min(chunk or rest, rest))
    return num_hit


def decode(manager: KVCacheManager, request: Request, tokens: Iterable[int]) -> None:
    for token in tokens:
        request.append_output_token_ids(token)
        allocate(manager, request, 1)


def serve(
    manager: KVCacheManager, request_id: str, tokens: Iterable[int], **options: Any
) -> Request:
    """Return a request after serving it from look-up to end. Its blocks stay in the cache."""
    request = make_request(manager, request_id, tokens, **options)
    admit(manager, request)
    manager.free(request)
    return request


def num_hit_tokens(manager: KVCacheManager, tokens: Iterable[int]) -> int:
    return manager.get_computed_blocks(make_request(manager, "probe", tokens))[1]


def cached_positions(manager: KVCacheManager, request: Request, group: int = 0) -> list[int]:
    """Return the positions in a request's block table whose block is cached."""
    blocks = manager.get_blocks(request.request_id).blocks[group]
    return [i for i, block in enumerate(blocks) if block.block_hash is not None]


def free_ids(manager: KVCacheManager) -> list[int]:
    return list(map(int, manager.block_pool.get_free_block_ids()))


def pinned_ids(manager: KVCacheManager) -> list[int]:
    return list(map(int, manager.block_pool.get_pinned_block_ids()))

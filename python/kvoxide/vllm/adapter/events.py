"""KV cache events in vLLM's classes."""

from typing import Any

from vllm.distributed.kv_events import AllBlocksCleared, BlockRemoved
from vllm.multimodal.utils import get_mm_features_in_window
from vllm.v1.core.kv_cache_utils import (
    generate_block_hash_extra_keys,
    maybe_convert_block_hash,
)

from kvoxide._core_vllm import ClearedEvent, RemovedEvent, StoredEvent


def to_vllm_event(pool: Any, event: StoredEvent | RemovedEvent | ClearedEvent, request: Any) -> Any:
    """One event of the engine as vLLM's. ``pool`` knows how vLLM builds a stored event of
    ``request``, extra keys and lookahead tokens included."""
    if isinstance(event, ClearedEvent):
        return AllBlocksCleared()
    if isinstance(event, RemovedEvent):
        return BlockRemoved(
            block_hashes=[maybe_convert_block_hash(event.block_hash)],
            medium=pool.medium,
            group_idx=event.group,
        )
    starts, block_size, parent = event.block_starts, event.block_size, event.parent
    return pool._build_block_stored_event(
        request,
        block_hashes=[maybe_convert_block_hash(block_hash) for block_hash in event.block_hashes],
        parent_block_hash=None if parent is None else maybe_convert_block_hash(parent),
        start_token_idx=event.start_token,
        end_token_idx=event.end_token,
        block_size=block_size,
        kv_cache_group_id=event.group,
        extra_keys_list=_extra_keys(pool, request, starts, block_size),
        **_lookahead(pool, request, starts, block_size),
    )


def _extra_keys(pool: Any, request: Any, starts: list[int], block_size: int) -> list[Any]:
    """The extra keys of each block. Multimodal inputs are walked once, from the first block's."""
    generate = _extra_key_generator(pool)
    index = _first_mm_index(request, starts[0], block_size) if starts else 0
    keys = []
    for start in starts:
        of_block, index = generate(request, start, start + block_size, index)
        keys.append(of_block)
    return keys


def _extra_key_generator(pool: Any) -> Any:
    return getattr(pool, "_generate_event_extra_keys", generate_block_hash_extra_keys)


def _first_mm_index(request: Any, start: int, block_size: int) -> int:
    features = request.mm_features
    if start == 0 or not features:
        return 0
    last = features[-1].mm_position
    if last.offset + last.length <= start:
        return 0
    index, _ = get_mm_features_in_window(features, start, start + block_size)
    return int(index)


def _lookahead(pool: Any, request: Any, starts: list[int], block_size: int) -> dict[str, Any]:
    """The argument for lookahead tokens, in releases that have it."""
    if not hasattr(pool, "_lookahead_token_ids"):
        return {}
    if not pool.num_hash_lookahead_tokens:
        return {"lookahead_token_ids": None}
    ids = [pool._lookahead_token_ids(request, start + block_size) for start in starts]
    return {"lookahead_token_ids": ids}

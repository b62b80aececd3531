"""Counts the blocks that requests need and hold, for the messages about standstills."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

NAMED_HOLDERS: Final = 5

_NO_HOLDER: Final = "kvoxide: a request that holds nothing"


def num_needed(scheduler: Any, request: Any, *, held: bool) -> int:
    """Return how many blocks ``request`` needs until all of its tokens and its next drafts have
    slots, in addition to the blocks that it holds. Without ``held``, count its tokens for an empty
    pool."""
    manager = scheduler.kv_cache_manager
    num_drafts = scheduler.num_spec_tokens if held else 0
    num_lookahead = scheduler.num_lookahead_tokens if held else 0
    num_tokens = min(request.num_tokens + num_drafts, scheduler.max_model_len)
    computed = request.num_computed_tokens if held else 0
    needed: int = manager.coordinator.get_num_blocks_to_allocate(
        request_id=request.request_id if held else _NO_HOLDER,
        num_tokens=min(num_tokens + num_lookahead, scheduler.max_model_len),
        new_computed_blocks=manager.empty_kv_cache_blocks.blocks,
        num_encoder_tokens=0,
        total_computed_tokens=computed,
        num_local_computed_tokens=computed,
        num_tokens_main_model=num_tokens,
        apply_admission_cap=True,
        prefill_end=max(request.num_prompt_tokens, request.num_tokens - 1),
    )
    return max(needed, 0)


def num_available(scheduler: Any) -> int:
    """Return how many blocks an empty pool can give to requests."""
    available: int = scheduler.kv_cache_manager.block_pool.num_gpu_blocks - 1
    return available


def num_free(scheduler: Any) -> int:
    """Return how many blocks the pool can give to requests now."""
    free: int = scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
    return free


def held_by(scheduler: Any, request: Any) -> frozenset[int]:
    """Return the ids of the blocks that a request holds."""
    groups = scheduler.kv_cache_manager.get_block_ids(request.request_id)
    return frozenset(block for ids in groups for block in ids if block)


def describe_need(scheduler: Any, request: Any, needed: int) -> str:
    """Describe the blocks that a request waits for, and which requests hold the others."""
    return (
        f"request {request.request_id} ({request.status.name}) waits for {needed} more "
        f"block{'' if needed == 1 else 's'} for its {request.num_tokens} tokens; "
        f"{num_free(scheduler)} of {num_available(scheduler)} blocks are free"
        f"{_describe_holders(scheduler)}"
    )


@dataclass(frozen=True)
class _Holder:
    name: str
    blocks: frozenset[int]


def _describe_holders(scheduler: Any) -> str:
    holders = sorted(_holders(scheduler), key=lambda holder: -len(holder.blocks))
    parts = [f"{holder.name} holds {len(holder.blocks)}" for holder in holders[:NAMED_HOLDERS]]
    if len(holders) > NAMED_HOLDERS:
        rest = frozenset[int]().union(*(holder.blocks for holder in holders[NAMED_HOLDERS:]))
        parts.append(f"{len(holders) - NAMED_HOLDERS} other requests hold {len(rest)}")
    of_requests = frozenset[int]().union(*(holder.blocks for holder in holders))
    others = num_available(scheduler) - num_free(scheduler) - len(of_requests)
    if others > 0:
        parts.append(f"a connector or unfinished copies hold {others}")
    return "; " + "; ".join(parts) if parts else ""


def _holders(scheduler: Any) -> Iterator[_Holder]:
    for request in scheduler.requests.values():
        blocks = held_by(scheduler, request)
        if blocks:
            yield _Holder(f"{request.request_id} ({request.status.name})", blocks)

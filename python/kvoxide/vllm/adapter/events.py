"""Gives the engine vLLM's classes of KV cache events and vLLM's extra keys of embeddings, and
completes the events that vLLM takes."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from vllm import envs
from vllm.distributed.kv_events import AllBlocksCleared, BlockRemoved, BlockStored
from vllm.v1.core import kv_cache_utils

from kvoxide._core_vllm import VllmEventClasses


def by_position(removed: Any) -> Callable[[list[Any], Any, int], Any]:
    """``removed``, an event class, as something to call with the hashes, the medium and the group.

    The class itself, where its first fields are these: keywords take twice the time.
    """
    if removed.__struct_fields__[:3] == ("block_hashes", "medium", "group_idx"):
        return removed  # type: ignore[no-any-return]
    return lambda block_hashes, medium, group_idx: removed(
        block_hashes=block_hashes, medium=medium, group_idx=group_idx
    )


def add_kinds(events: Iterable[Any], kinds: Sequence[tuple[str, int | None]]) -> bool:
    """Write the kind and the window of its group to each event of stored blocks.

    ``kinds`` has the kind and the window of each group. Returns whether every group is in
    ``kinds``. An event of another group, which the engine does not manage, stays unchanged.
    """
    are_known = True
    for event in events:
        # Nearly all are of this class, and asking for instances of another takes ten times longer.
        if type(event) is BlockRemoved or not isinstance(event, BlockStored):
            continue
        group = event.group_idx
        if group is None:
            continue
        if 0 <= group < len(kinds):
            event.kv_cache_spec_kind, event.kv_cache_spec_sliding_window = kinds[group]
        else:
            are_known = False
    return are_known


def _embedded_keys(
    request: Any,
    block_starts: list[int],
    block_size: int,
    num_lookahead_tokens: int,
    mm_index: int,
) -> Any:
    """The extra keys of each block of a request with prompt embeddings, as events publish them."""
    keys = []
    for start in block_starts:
        end = start + block_size
        if num_lookahead_tokens:
            of_block, mm_index = kv_cache_utils.generate_lookahead_block_hash_extra_keys(
                request, start, end, end + num_lookahead_tokens, mm_index
            )
        else:
            of_block, mm_index = kv_cache_utils.generate_block_hash_extra_keys(
                request, start, end, mm_index
            )
        keys.append(of_block)
    return kv_cache_utils.to_event_extra_keys(keys)


EVENT_CLASSES = VllmEventClasses(
    stored=BlockStored,
    removed=by_position(BlockRemoved),
    cleared=AllBlocksCleared,
    envs=envs,
    embedded_keys=_embedded_keys,
)

"""Which chunks a request offers to the host tier, and which blocks are stored of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

from kvoxide._core_vllm import VllmBlockIds, VllmChunkKeys, VllmGroupKeys


@dataclass(frozen=True)
class Offer:
    """A group's chunks from ``start`` to before ``end``, of one block each; ``wanted`` are the keys
    of those that are there and that a look-up can reach."""

    config: Any
    state: Any
    start: int
    end: int
    wanted: Sequence[bytes]


def blocks_of(offered: Sequence[Offer], accepted: Any) -> list[tuple[list[int], int]]:
    """Returns for each group the blocks of the accepted keys, and the index of the first of them,
    else 0."""
    if type(accepted) is VllmChunkKeys:
        blocks, firsts = accepted.blocks([offer.state.block_ids for offer in offered])
        return list(zip(blocks, firsts, strict=True))
    accepted = set(accepted)
    found = []
    for offer in offered:
        keys = offer.state.offload_keys[offer.start : offer.end]
        places = list(compress(range(offer.start, offer.end), map(accepted.__contains__, keys)))
        block_ids = offer.state.block_ids
        found.append(([block_ids[place] for place in places], places[0] if places else 0))
    return found


def offers(
    connector: Any, state: Any, num_tokens: int, num_prompt_tokens: int
) -> list[Offer] | None:
    """Returns what a request whose ``num_tokens`` can be stored offers in each group;
    ``num_prompt_tokens`` of them can be of its prompt. None for what vLLM's own method has to
    find."""
    boundaries = _boundaries(connector.config, state.req)
    has_ended = state.req.is_finished()
    found = []
    for config, group in zip(connector.config.kv_group_configs, state.group_states, strict=True):
        end = state.storable_chunks(config, group, num_tokens)
        prompt_end = num_prompt_tokens // config.tokens_per_chunk
        if has_ended and end != prompt_end and config.sliding_window_size_in_chunks is not None:
            # The last tail of a window may be another one than before.
            return None
        horizon = _horizon(connector.config, config, end, end if has_ended else prompt_end)
        wanted = _wanted(connector, config, group, end, horizon, boundaries)
        found.append(Offer(config, group, group.next_stored_chunk_idx, end, wanted))
    return found


def _boundaries(config: Any, req: Any) -> tuple[int, ...]:
    if config.retention_interval is None:
        return ()
    shared = (req.shared_prefix_boundary,) if req.shared_prefix_boundary else ()
    return (req.num_prompt_tokens - 1, *shared)


def _horizon(connector_config: Any, config: Any, end: int, last: int) -> int | None:
    """Returns the chunk at which the last tail ends, of which ``last`` is known; None where only
    fixed tails count."""
    if connector_config.retention_interval is not None or config.is_eagle_group:
        return None
    return last if end <= last else None


def _wanted(
    connector: Any,
    config: Any,
    group: Any,
    end: int,
    horizon: int | None,
    boundaries: tuple[int, ...],
) -> Sequence[bytes]:
    keys: Sequence[bytes] = group.offload_keys
    start = VllmBlockIds.first_in(group.block_ids, group.next_stored_chunk_idx, end)
    # States are handed over by vLLM's scheduler, not found in tables.
    if config.requires_cow_source or end <= start:
        return keys[:0]
    mask = connector._reachable_store_block_mask(
        group_config=config,
        start_chunk_idx=start,
        end_chunk_idx=end,
        final_segment_end_chunk_idx=horizon,
        reachable_boundaries=boundaries,
    )
    if type(keys) is VllmGroupKeys:
        return keys.chosen(start, end, group.block_ids, mask)
    keys, block_ids = keys[start:end], group.block_ids[start:end]
    if mask is None:
        return list(compress(keys, block_ids))
    is_wanted = (block and reached for block, reached in zip(block_ids, mask, strict=False))
    return list(compress(keys, is_wanted))

"""Which chunks a running request offers to the host tier, and which blocks are stored of them."""

from collections.abc import Container, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any


@dataclass(frozen=True)
class Offer:
    """A group's chunks from ``start`` to before ``end``, of one block each; ``wanted`` are the keys
    of those that are there and that a look-up can reach."""

    config: Any
    state: Any
    start: int
    end: int
    wanted: Sequence[bytes]

    def blocks_of(self, accepted: Container[bytes]) -> tuple[list[int], int]:
        """Returns the blocks of the accepted keys, and the index of the first of them, else 0."""
        keys = self.state.offload_keys[self.start : self.end]
        places = list(compress(range(self.start, self.end), map(accepted.__contains__, keys)))
        block_ids = self.state.block_ids
        return [block_ids[place] for place in places], places[0] if places else 0


def offers(connector: Any, state: Any, num_tokens: int, num_prompt_tokens: int) -> list[Offer]:
    """Returns what a running request whose ``num_tokens`` can be stored offers in each group;
    ``num_prompt_tokens`` of them can be of its prompt."""
    boundaries = _boundaries(connector.config, state.req)
    found = []
    for config, group in zip(connector.config.kv_group_configs, state.group_states, strict=True):
        end = state.storable_chunks(config, group, num_tokens)
        horizon = _horizon(connector.config, config, end, num_prompt_tokens)
        wanted = _wanted(connector, config, group, end, horizon, boundaries)
        found.append(Offer(config, group, group.next_stored_chunk_idx, end, wanted))
    return found


def _boundaries(config: Any, req: Any) -> tuple[int, ...]:
    if config.retention_interval is None:
        return ()
    shared = (req.shared_prefix_boundary,) if req.shared_prefix_boundary else ()
    return (req.num_prompt_tokens - 1, *shared)


def _horizon(connector_config: Any, config: Any, end: int, num_prompt_tokens: int) -> int | None:
    """Returns the chunk at which the last tail before it ends, the prompt's; None where only fixed
    tails count."""
    if connector_config.retention_interval is not None or config.is_eagle_group:
        return None
    prompt_end: int = num_prompt_tokens // config.tokens_per_chunk
    return prompt_end if end <= prompt_end else None


def _wanted(
    connector: Any,
    config: Any,
    group: Any,
    end: int,
    horizon: int | None,
    boundaries: tuple[int, ...],
) -> list[bytes]:
    start = group.next_stored_chunk_idx
    # States are handed over by vLLM's scheduler, not found in tables.
    if config.requires_cow_source or end <= start:
        return []
    mask = connector._reachable_store_block_mask(
        group_config=config,
        start_chunk_idx=start,
        end_chunk_idx=end,
        final_segment_end_chunk_idx=horizon,
        reachable_boundaries=boundaries,
    )
    keys, block_ids = group.offload_keys[start:end], group.block_ids[start:end]
    if mask is None:
        return list(compress(keys, block_ids))
    is_wanted = (block and reached for block, reached in zip(block_ids, mask, strict=False))
    return list(compress(keys, is_wanted))

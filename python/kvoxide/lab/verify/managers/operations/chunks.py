"""Finds where the scheduler ends a chunk of a prefill, so that a state can be cached there."""

from collections.abc import Iterator

from vllm.v1 import kv_cache_interface

from kvoxide.lab.verify import installed
from kvoxide.lab.verify.managers.scenarios import Group, Scenario
from kvoxide.lab.verify.managers.world import RequestModel


def aligned_chunk(scenario: Scenario, model: RequestModel, start: int, num_tokens: int) -> int:
    """Return the length of a chunk that begins at ``start``, at most ``num_tokens``. It is never 0,
    because a chunk may be less than a block."""
    if not scenario.aligns_states or start >= model.prefill_end:
        return num_tokens
    size = scenario.state_groups[0].block_size
    end = start + num_tokens
    if end < model.prefill_end and end // size * size > start:
        end = end // size * size
    stops = _stops(scenario, model, start, end)
    return min((stop for stop in stops if start < stop < end), default=end) - start


def _stops(scenario: Scenario, model: RequestModel, start: int, end: int) -> Iterator[int]:
    size = scenario.state_groups[0].block_size
    has_partial_hits = scenario.hash_block_size < size
    unit = scenario.hash_block_size if has_partial_hits else size
    checkpoint = _checkpoint_before(scenario, model.prefill_end, unit)
    if not _is_kept_within(scenario, model, start, end, checkpoint):
        last = _checkpoint_before(scenario, model.num_tokens, size)
        yield last
        if start % size:
            yield (start // size + 1) * size
        if has_partial_hits:
            tail = _checkpoint_before(scenario, model.num_prompt_tokens, scenario.hash_block_size)
            if tail > last:
                yield tail
    junction = model.shared_prefix_boundary
    if scenario.shared_prefix_checkpoint and junction <= model.num_prompt_tokens:
        yield junction
    elif junction > start:
        yield start + (junction - start) // size * size


def _checkpoint_before(scenario: Scenario, num_tokens: int, unit: int) -> int:
    lookahead = installed.without_missing(
        {"num_hash_lookahead_tokens": scenario.num_hash_lookahead_tokens}
    )
    position: int = kv_cache_interface.get_mamba_prefill_checkpoint_position(
        num_tokens, unit, scenario.use_eagle, **lookahead
    )
    return position


def _is_kept_within(
    scenario: Scenario, model: RequestModel, start: int, end: int, checkpoint: int
) -> bool:
    """Return whether the worker keeps the state at ``checkpoint`` although the chunk continues."""
    groups: tuple[Group, ...] = scenario.state_groups
    return (
        all(group.num_prefill_checkpoint_blocks > 0 for group in groups)
        and end >= model.prefill_end
        and kv_cache_interface.is_mamba_prefill_checkpoint_valid(
            query_start=start,
            query_end=end,
            checkpoint_position=checkpoint,
            hash_block_size=scenario.hash_block_size,
            mamba_block_size=groups[0].block_size,
            checkpoint_alignment=groups[0].prefill_checkpoint_alignment,
        )
    )

"""Tests which of a step's blocks are removed from the lists of requests."""

from types import SimpleNamespace
from typing import Any

import pytest
from kvoxide._core_vllm import VllmBlockIds


def state(*groups: tuple[list[int], int]) -> Any:
    """Return vLLM's state of a request: the block ids and the stored chunks of each group."""
    of_groups = (SimpleNamespace(block_ids=ids, next_stored_chunk_idx=n) for ids, n in groups)
    return SimpleNamespace(group_states=tuple(of_groups))


def allocated(*block_ids: int) -> VllmBlockIds:
    made = VllmBlockIds()
    made.update(list(block_ids))
    return made


def test_what_is_stored_or_came_in_the_step_is_left() -> None:
    full, window = [7, 8, 7], [7, 7, 9, 7, 7]
    states = {"a": state((full, 0), (window, 1)), "b": state(([7], 0), ([7, 5], 0))}
    allocated(7, 9).forget_in(states, [1], 1, {"a": (4,)})
    assert (full, window) == ([7, 8, 7], [7, 0, 0, 0, 7])
    assert [group.block_ids for group in states["b"].group_states] == [[7], [0, 5]]


def test_chunks_of_several_blocks() -> None:
    window = [7] * 6
    allocated(7).forget_in({"a": state((window, 2))}, [0], 2, {})
    assert window == [7, 7, 7, 7, 0, 0]


def test_what_was_gone_before_is_not_looked_at_until_the_list_is_emptied() -> None:
    window = [7] * 80 + [8] * 20
    states = {"a": state((window, 0))}
    allocated(7).forget_in(states, [0], 1, {})
    assert window == [0] * 80 + [8] * 20
    window[10] = 8  # no code does this; it shows that the position is skipped
    allocated(8).forget_in(states, [0], 1, {})
    assert window == [0] * 10 + [8] + [0] * 89
    window.clear()
    allocated(8).forget_in(states, [0], 1, {})
    window += [8] * 100
    allocated(8).forget_in(states, [0], 1, {})
    assert window == [0] * 100


def test_a_state_of_another_kind_is_refused() -> None:
    states = {"a": SimpleNamespace(group_states=(SimpleNamespace(block_ids=[]),))}
    with pytest.raises(AttributeError, match="no next_stored_chunk_idx"):
        allocated(7).forget_in(states, [0], 1, {})
    with pytest.raises(IndexError):
        allocated(7).forget_in({"a": state(([7], 0))}, [0], 1, {"a": ()})

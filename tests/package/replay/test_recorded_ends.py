"""Recordings of requests that end while a step or a load is in flight."""

from pathlib import Path
from typing import Any

import pytest

from tests.testing.traces import replay_json

from .test_recorded_schedules import END, RULES, request, write

SMALL = {"num_blocks": 7, "is_async": True}
HOST_MEMORY = {"num_chunks": 40, "chunk_bytes": 4096, "offload_prompt_only": True}


def run_of(
    tmp_path: Path, *lines: dict[str, Any], rules: dict[str, Any], **header: Any
) -> dict[str, Any]:
    """Return the result of a replay of a recording with a small pool."""
    header = {"num_blocks": 7, "rules": {**RULES, **SMALL, **rules}, **header}
    write(tmp_path / "r", *lines, END, **header)
    result: dict[str, Any] = replay_json(tmp_path, str(tmp_path / "r"), "--quiet")["results"][0]
    return result


def prompt(number: int, *ids: int, **more: Any) -> dict[str, Any]:
    """Return the line of a request that generates one token."""
    given = [*ids, 10 + number]
    length = 16 * len(ids) + 8
    return request(number, number, **{"output_length": 1, **more}, hash_ids=given) | {
        "input_length": length
    }


@pytest.mark.parametrize(("frees_late", "expected"), [(True, 0), (False, 16)])
def test_blocks_in_a_step_in_flight_are_free_after_that_step(
    tmp_path: Path, frees_late: bool, expected: int
) -> None:
    """Request 1 is aborted during a step. Its last block is not cached, and is evicted first if it
    is free. Otherwise request 2 evicts the whole prompt of request 0."""
    result = run_of(
        tmp_path,
        {"schedule": [[[0, 40, 0]], {"in_flight": 1}, [[0, 0], [1, 40, 0]]]},
        prompt(0, 0, 1),
        {"schedule": [1]},
        prompt(1, 2, 3, status="aborted"),
        {"schedule": [[[2, 40, 0]], [[2, 0], [3, 40, 0]]]},
        prompt(2, 4, 5),
        {"schedule": [[[3, 0]]]},
        prompt(3, 0, 1),
        rules={"frees_late": frees_late},
    )
    assert result["hit_tokens"] == expected


@pytest.mark.parametrize(
    ("status", "expected"), [("aborted", 3), ("length_capped", 2), ("stopped", 2)]
)
def test_aborted_requests_also_offer_tokens_in_flight(
    tmp_path: Path, status: str, expected: int
) -> None:
    """The 48th token is computed by a step in flight, and completes a block."""
    memory = HOST_MEMORY | {"offload_prompt_only": False}
    result = run_of(
        tmp_path,
        {"schedule": [[[0, 40, 0]], {"in_flight": 1}, 8]},
        prompt(0, 0, 1, output_length=8, status=status),
        {"schedule": [[[1, 8, 0]], [[1, 0]]]},
        prompt(1),
        rules={"frees_late": True},
        host_memory=memory,
    )
    assert result["host_memory"]["stored_chunks"] == expected


def test_stores_of_no_request_can_be_loaded(tmp_path: Path) -> None:
    """Request 1 takes the blocks of request 0, which are stored before. Request 2 loads them."""
    result = run_of(
        tmp_path,
        {"schedule": [[[0, 40, 0]]]},
        prompt(0, 0, 1),
        {"schedule": [{"storing": 1}, [[1, 88, 0]], {"stored": [0]}]},
        prompt(1, 2, 3, 4, 5, 6),
        {"schedule": [[[2, 8, 32]]]},
        prompt(2, 0, 1),
        rules={"is_async": False, "frees_late": False},
        host_memory=HOST_MEMORY | {"eviction_policy": "adaptive"},
    )
    assert result["host_memory"]["loaded_tokens"] == 32


@pytest.mark.parametrize(("loads_longer", "expected"), [(True, 16), (False, 48)])
def test_blocks_that_are_loaded_are_free_after_the_load(
    tmp_path: Path, loads_longer: bool, expected: int
) -> None:
    """Request 3 is aborted while its blocks are loaded. If they are free, request 4 gets them.
    Otherwise it evicts two cached blocks of request 2."""
    transferred = {"schedule": [{"transferred": [[3, 0]]}]}
    result = run_of(
        tmp_path,
        {"schedule": [[[0, 40, 0]]]},
        prompt(0, 0, 1),
        {"schedule": [{"transferred": [[0, 1]]}, [[1, 40, 0]]]},
        prompt(1, 2, 3),
        {"schedule": [{"transferred": [[1, 1]]}, [[2, 56, 0]]]},
        prompt(2, 4, 5, 6),
        {"schedule": [{"transferred": [[2, 1]]}, {"loading": [3]}, []]},
        *([] if loads_longer else [transferred]),
        prompt(3, 0, 1, status="aborted", output_length=0),
        {"schedule": [[[4, 40, 0]]]},
        *([transferred] if loads_longer else []),
        prompt(4, 7, 8),
        {"schedule": [[[5, 8, 48]]]},
        prompt(5, 4, 5, 6),
        rules={"is_async": False, "frees_late": False},
        host_memory=HOST_MEMORY,
    )
    loaded = result["host_memory"]["loaded_tokens"]
    assert result["hit_tokens"] - loaded == expected
    assert loaded == 32 + 48 - expected

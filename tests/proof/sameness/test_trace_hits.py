"""Tests that the replay hits the same tokens per request of the Mooncake trace as vLLM's own
manager."""

import pytest
from kvoxide import _core

from . import vllm_required
from .mooncake import MAX_BATCHED_TOKENS, trace_lines, trace_path
from .sides import make_group
from .trace_hits import CASES, NUM_REQUESTS, Case, hits, vllm_hits


@pytest.fixture(scope="module")
def lines() -> list[bytes]:
    path = trace_path()
    if not path.exists():
        pytest.skip(f"no trace at {path}; KVOXIDE_TRACE names another place")
    return trace_lines(path, NUM_REQUESTS)


@pytest.mark.parametrize("name", CASES)
def test_hits_of_each_request(name: str, lines: list[bytes]) -> None:
    expected = hits(name, lines)
    assert sum(expected) > 0, vllm_required.RELEASE
    assert replay_hits(CASES[name], lines) == expected


def test_the_record_is_what_vllm_answers(lines: list[bytes]) -> None:
    """This computes one case. ``tests/run.sh long recorded`` computes all of them."""
    name = "llama, small pool"
    assert vllm_hits(CASES[name], lines) == hits(name, lines)


def replay_hits(case: Case, lines: list[bytes]) -> list[int]:
    trace = _core.Trace()
    for line in lines:
        trace.push_line(line)
    simulation = _core.Simulation(
        trace,
        [make_group(group) for group in case.groups],
        case.num_blocks,
        policy=_core.Policy(retention_interval=case.retention_interval),
        concurrency=1,
        max_batched_tokens=MAX_BATCHED_TOKENS,
    )
    hits: list[int] = simulation.run().per_request[:, 2].tolist()
    return hits

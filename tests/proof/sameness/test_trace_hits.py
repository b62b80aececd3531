"""Hit tokens per request of the Mooncake trace: the replay's equal vLLM's own manager's."""

import math
from dataclasses import dataclass

import pytest
from kvoxide import _core

from . import vllm_required
from .mooncake import MAX_BATCHED_TOKENS, SequentialRun, trace_lines, trace_path
from .scenario import Group, Scenario
from .sides import make_group

NUM_REQUESTS = 500
MAX_MODEL_LEN = 1 << 20
POOL_THAT_NEVER_EVICTS = 1_000_000

LLAMA = (Group("full_attention", 16),)
GEMMA_3 = (Group("full_attention", 16), *[Group("sliding_window", 16, 1024)] * 5)
GPT_OSS = (Group("full_attention", 16), Group("sliding_window", 16, 128))
DEEPSEEK_V4 = (
    Group("full_attention", 256),
    Group("sliding_window", 64, 128),
    Group("sliding_window", 4, 8),
    Group("sliding_window", 8, 128),
)


@dataclass(frozen=True)
class Case:
    """``num_blocks=None`` is the pool that never evicts."""

    groups: tuple[Group, ...]
    num_blocks: int | None
    retention_interval: int | None = None


CASES = {
    "llama": Case(LLAMA, 200_000),
    "llama, small pool": Case(LLAMA, 20_000),
    "llama, unlimited": Case(LLAMA, None),
    "gemma-3": Case(GEMMA_3, 1_000_000),
    "gemma-3, interval": Case(GEMMA_3, 400_000, retention_interval=8192),
    "gpt-oss": Case(GPT_OSS, 400_000),
    "deepseek-v4": Case(DEEPSEEK_V4, 300_000),
    "deepseek-v4, interval": Case(DEEPSEEK_V4, 100_000, retention_interval=8192),
}


@pytest.fixture(scope="module")
def lines() -> list[bytes]:
    path = trace_path()
    if not path.exists():
        pytest.skip(f"no trace at {path}; KVOXIDE_TRACE names another place")
    return trace_lines(path, NUM_REQUESTS)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_hits_of_each_request(case: Case, lines: list[bytes]) -> None:
    expected = vllm_hits(case, lines)
    assert sum(expected) > 0, vllm_required.RELEASE
    assert replay_hits(case, lines) == expected


def vllm_hits(case: Case, lines: list[bytes]) -> list[int]:
    block_sizes = [group.block_size for group in case.groups]
    scenario = Scenario(
        groups=case.groups,
        num_blocks=case.num_blocks or POOL_THAT_NEVER_EVICTS,
        max_model_len=MAX_MODEL_LEN,
        scheduler_block_size=math.lcm(*block_sizes),
        hash_block_size=math.gcd(*block_sizes),
        retention_interval=case.retention_interval,
    )
    return list(SequentialRun(scenario).hit_tokens(lines))


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

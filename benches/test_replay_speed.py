"""Measures how fast traces play: ``python -m pytest benches/test_replay_speed.py``.

The Mooncake trace is read from ``$KVOXIDE_TRACE`` (see docs/how-to/measure-speed.md). Without
it, its test is skipped.
"""

import os
import resource
from pathlib import Path

import numpy as np
import pytest
from kvoxide import KVCacheGroupSpec, Policy, Simulation, SimulationResult, Trace
from kvoxide.lab.replay.input import PRESETS, preset_groups
from pytest_benchmark.fixture import BenchmarkFixture

POLICIES = {
    "fifo": Policy(recycle_order="fifo", retention_interval=None),
    "uncached-first": Policy(retention_interval=None),
    "pin": Policy(pin_min_drop_size=16, retention_interval=None),
}
MILLION = 1_000_000


@pytest.fixture(scope="session")
def mooncake() -> Trace:
    path = os.environ.get("KVOXIDE_TRACE")
    if path is None:
        pytest.skip("KVOXIDE_TRACE does not name a Mooncake trace")
    trace = Trace()
    for line in Path(path).read_bytes().splitlines():
        trace.push_line(line)
    return trace


@pytest.mark.parametrize("policy", POLICIES)
def test_whole_mooncake_trace(benchmark: BenchmarkFixture, mooncake: Trace, policy: str) -> None:
    """12,031 requests at block size 16, one policy on one core. Goal: below 30 s and 2 GB."""
    groups = [KVCacheGroupSpec("full_attention", 16)]

    def play() -> SimulationResult:
        return Simulation(mooncake, groups, 50_000, policy=POLICIES[policy]).run()

    result = benchmark.pedantic(play, rounds=1)
    assert result.requests == len(mooncake)
    benchmark.extra_info["peak_resident_gb"] = (
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    )


@pytest.mark.parametrize("preset", PRESETS)
def test_million_token_request(benchmark: BenchmarkFixture, preset: str) -> None:
    """A million-token prompt, computed once and hit once. Goal: no step above 1 ms."""
    groups = preset_groups(preset).specs
    trace = Trace()
    for own in (1, 2):
        prompt = np.arange(MILLION)
        prompt[-100:] += own * MILLION
        trace.push_prompt(prompt, 16)

    def play() -> SimulationResult:
        blocks = 3 * sum(-(-MILLION // group.block_size) for group in groups)
        return Simulation(trace, groups, blocks, concurrency=1).run()

    result = benchmark.pedantic(play, rounds=5)
    assert result.hit_tokens > 0.98 * MILLION
    p50, p99, longest = result.step_seconds
    benchmark.extra_info |= {
        "step_p50_us": p50 * 1e6,
        "step_p99_us": p99 * 1e6,
        "step_max_us": longest * 1e6,
    }

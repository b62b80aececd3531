"""Why prompt tokens were not hit, and what the pool held, in tables, files and plots."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kvoxide import KVCacheGroupSpec, Policy, Simulation, SimulationResult, Trace
from kvoxide.lab.replay.input import PRESETS, SAMPLE, parse_policy, preset_groups, read_trace
from kvoxide.lab.replay.results.outcome_records import LOSSES, RETENTION_COLUMNS

from tests.testing.traces import line, prompt, replay_json, succeed, write_trace

POLICIES = ("vllm", "fifo", "uncached-first", "pin", "adaptive")


@pytest.fixture(scope="module")
def sample() -> Trace:
    return read_trace(SAMPLE, limit=120, skip_bad=False, tokens_per_id=None).trace


def play(
    trace: Trace, groups: tuple[KVCacheGroupSpec, ...], blocks: int | None, policy: Policy
) -> SimulationResult:
    return Simulation(trace, groups, blocks, policy=policy, concurrency=16).run()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("preset", "blocks"), [("llama", 9000), ("gpt-oss", 12_000)])
def test_hits_and_why_the_rest_was_not_hit_are_all_prompt_tokens(
    sample: Trace, preset: str, blocks: int, policy: str
) -> None:
    result = play(sample, preset_groups(preset).specs, blocks, parse_policy(policy).policy)
    assert result.evictions > 0
    assert result.hit_tokens + sum(result.loss_tokens) == result.prompt_tokens
    rows, losses = result.per_request, result.losses_per_request
    assert (rows[:, 2] + losses.sum(axis=1) == rows[:, 0]).all()
    assert losses.sum(axis=0).tolist() == result.loss_tokens
    assert result.loss_tokens[0] > 0
    assert (result.loss_tokens[1] > 0) == (preset == "gpt-oss")
    if policy != "adaptive":
        assert (result.loss_tokens[2] > 0) == ((preset, policy) == ("gpt-oss", "vllm"))


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_adds_up(sample: Trace, preset: str) -> None:
    for blocks in (20_000, None):
        result = play(sample, preset_groups(preset).specs, blocks, Policy(retention="adaptive"))
        assert result.hit_tokens + sum(result.loss_tokens) == result.prompt_tokens
        if blocks is None:
            assert result.loss_tokens[:2] == [0, 0]


@pytest.mark.parametrize("policy", ["uncached-first", "pin", "adaptive"])
def test_the_pool_over_the_trace(sample: Trace, policy: str) -> None:
    result = play(sample, preset_groups("gpt-oss").specs, 12_000, parse_policy(policy).policy)
    points = result.retention_timeline
    assert points.shape == (100, len(RETENTION_COLUMNS) - 1)
    assert points[:, 3:8].sum(axis=1) == pytest.approx(np.ones(100))
    assert (np.diff(points[:, [0, 1, 2, 8, 9]], axis=0) >= 0).all()
    assert points[-1, :3].tolist() == [120, result.prompt_tokens, result.hit_tokens]
    assert points[-1, 8:].sum() == result.evictions
    functions = {"recency", "frequency", "hazard"} if policy == "adaptive" else {None}
    assert len(result.scoring_functions) == 100
    assert set(result.scoring_functions) <= functions
    with pytest.warns(DeprecationWarning, match="is now SimulationResult.scoring_functions"):
        assert result.orderings == result.scoring_functions
    assert (points[:, 6].max() > 0) == (policy != "uncached-first"), "held or pinned"


def test_requests_that_warm_the_cache_are_left_out() -> None:
    trace = Trace()
    for _ in range(2):
        trace.push_prompt(list(prompt(0, 100)), 1)
    groups = (KVCacheGroupSpec("full_attention", 16),)
    result = Simulation(trace, groups, 50, concurrency=1, report_from=1).run()
    assert (result.hit_tokens, result.loss_tokens) == (96, [0, 0, 0, 4])
    assert result.losses_per_request.tolist() == [[0, 0, 0, 100], [0, 0, 0, 4]]


def test_a_rejected_request_lost_nothing() -> None:
    trace = Trace()
    trace.push_prompt(list(prompt(0, 500)), 1)
    result = Simulation(trace, (KVCacheGroupSpec("full_attention", 16),), 8).run()
    assert (result.loss_tokens, result.losses_per_request.tolist()) == ([0] * 4, [[-1] * 4])


@pytest.fixture
def scan(tmp_path: Path) -> str:
    """Three prompts of 20 blocks in turns, for a pool that holds less than two of them."""
    return write_trace(tmp_path / "t", *(line(prompt(n % 3, 320)) for n in range(9)))


def test_the_table_and_the_files_tell_why(tmp_path: Path, scan: str) -> None:
    path = tmp_path / "lines.jsonl"
    arguments = (scan, "--blocks", "30", "--concurrency", "1", "--per-request", path)
    output = succeed("replay", *arguments).output
    record: dict[str, Any] = replay_json(tmp_path, *arguments)
    pool, unlimited = record["results"]
    shares = [pool["hit_share"], *(pool[f"{loss}_share"] for loss in LOSSES)]
    assert sum(shares) == pytest.approx(1)
    # Each prompt once for the first time, and 16 tokens of each that no hit covers.
    assert shares[1:] == pytest.approx([6 * 304 / (9 * 320) - shares[0], 0, 0, 1056 / 2880])
    rows = [text.split() for text in output.splitlines()]
    row = next(row for row in rows if row[:1] == ["vllm"])
    assert [f"{share:.2%}" for share in shares] == row[5:10]
    assert unlimited["evicted_full_share"] == 0
    lines = [json.loads(text) for text in path.open()]
    for each in lines:
        lost = sum(each[f"{loss}_tokens"] for loss in LOSSES)
        assert each["hit_tokens"] + lost == each["prompt_tokens"]
    assert len(pool["retention"]) == 9
    assert pool["retention"][-1][-1] is None

"""Tests that vLLM's engine serves the same tokens if GPU and CPU memory decide together."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.testing.vllm_environments import SECOND_IF_LONG
from tests.testing.vllm_releases import RELEASES

from .jobs import FEW_BLOCKS, QWEN, TINY_POOL, Job, offloaded, recurrent
from .outcome import Outcome
from .processes import run_together
from .test_engines import tokens


def with_memory(job: Job, num_bytes: int, num_requests: int | None = None) -> Job:
    """Return the same engine with CPU memory of this size, and one workload."""
    job = offloaded(job, megabytes=1)
    config: dict[str, Any] = job.options["kv_transfer_config"]
    extra = config["kv_connector_extra_config"] | {"cpu_bytes_to_use": num_bytes}
    config = config | {"kv_connector_extra_config": extra}
    (workload, *_) = job.workloads
    if num_requests is not None:
        workload = replace(workload, num_requests=num_requests)
    options = job.options | {"kv_transfer_config": config}
    return replace(job, options=options, workloads=(workload,))


JOBS = {
    "llama": with_memory(Job("llama", TINY_POOL), 1 << 20, 80),
    "llama ahead": with_memory(Job("llama", TINY_POOL, async_scheduling=True), 1 << 20, 80),
    "windows": with_memory(Job("gemma", {"num_gpu_blocks_override": 130}), 3 << 20, 80),
    "states": with_memory(recurrent("qwen3-next", {**QWEN, **FEW_BLOCKS}), 4 << 20),
}
ORDINARY = ("windows",)


def cached_tokens(outcome: Outcome) -> float:
    counters = outcome.played[0].counters
    return counters["prefix_cache_hits"] + counters["external_prefix_cache_hits"]


@pytest.mark.parametrize("release", SECOND_IF_LONG)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in ORDINARY else pytest.mark.long) for name in JOBS],
)
def test_both_memories_serve_the_same_tokens(
    name: str, release: str, models: Path, tmp_path: Path
) -> None:
    off, together = run_together(JOBS[name], ("off", "together"), release, models, tmp_path)
    assert [tokens(played) for played in off.played] == [
        tokens(played) for played in together.played
    ]
    assert together.played[0].counters["external_prefix_cache_hits"]
    assert cached_tokens(together) >= cached_tokens(off)


@pytest.mark.long
@pytest.mark.parametrize("release", RELEASES)
def test_they_hit_more_than_apart_where_the_pool_holds_several_prompts(
    release: str, models: Path, tmp_path: Path
) -> None:
    few = {"num_gpu_blocks_override": 250, "max_num_seqs": 3}
    job = with_memory(Job("gemma", few), 2 << 20, 200)
    apart, together = run_together(job, ("adaptive", "together"), release, models, tmp_path)
    assert tokens(apart.played[0]) == tokens(together.played[0])
    assert cached_tokens(apart) < cached_tokens(together)

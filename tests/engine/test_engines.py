"""Tests that vLLM's engine serves the same with kvoxide as without: tokens, blocks, cached tokens,
events."""

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from tests.testing.vllm_environments import OLDER_IF_LONG, ON_EACH_RELEASE, SECOND_IF_LONG
from tests.testing.vllm_releases import RELEASES

from .jobs import (
    ADAPTED,
    JOBS,
    LONG_JOBS,
    LONG_OFFLOADED_JOBS,
    OFFLOADED_JOBS,
    SHOWN_BY_OTHERS,
    Job,
)
from .jobs import ON_EACH_RELEASE as SHORT_JOBS
from .outcome import Outcome, Played, first_difference
from .processes import run_together

MANAGERS = {
    "off": "vllm.v1.core.kv_cache_manager.KVCacheManager",
    "require": "kvoxide.vllm.",
}
SCHEDULERS = {
    False: "vllm.v1.core.sched.scheduler.Scheduler",
    True: "vllm.v1.core.sched.async_scheduler.AsyncScheduler",
}
MODES = tuple(MANAGERS)
# kvoxide's manager over vLLM's own host tier needs one job, and shares its engine without kvoxide.
HOST_MODES = dict.fromkeys(OFFLOADED_JOBS, MODES) | {"llama": (*MODES, "vllm's host tier")}
VLLMS_HOST = "vllm.v1.kv_offload.cpu.manager.CPUOffloadingManager"

on_each_release = pytest.mark.parametrize("release", ON_EACH_RELEASE)
# kvoxide has no host tier for older releases than these two.
with_host_tier = pytest.mark.parametrize("release", SECOND_IF_LONG)
on_older_releases_if_long = pytest.mark.parametrize("release", OLDER_IF_LONG)


@on_each_release
@pytest.mark.parametrize("name", SHORT_JOBS)
def test_engine_of_each_release_serves_the_same(
    name: str, release: str, models: Path, tmp_path: Path
) -> None:
    assert_same(JOBS[name], *run_together(JOBS[name], MODES, release, models, tmp_path))


@on_older_releases_if_long
@pytest.mark.parametrize(
    "name", [name for name in JOBS if name not in (ADAPTED, *SHORT_JOBS, *SHOWN_BY_OTHERS)]
)
def test_engine_serves_the_same(name: str, release: str, models: Path, tmp_path: Path) -> None:
    assert_same(JOBS[name], *run_together(JOBS[name], MODES, release, models, tmp_path))


@on_older_releases_if_long
def test_adaptive_retention_serves_the_same_tokens_and_hits_more(
    release: str, models: Path, tmp_path: Path
) -> None:
    job = JOBS[ADAPTED]
    *both, adaptive = run_together(job, (*MODES, "adaptive"), release, models, tmp_path)
    assert_same(job, *both)
    for usual, adapted in zip(both[0].played, adaptive.played, strict=True):
        assert tokens(usual) == tokens(adapted)
    hits = [outcome.played[0].counters["prefix_cache_hits"] for outcome in (both[0], adaptive)]
    assert hits[0] < hits[1]


@with_host_tier
@pytest.mark.parametrize("name", OFFLOADED_JOBS)
def test_prompts_come_back_from_each_host_tier_the_same(
    name: str, release: str, models: Path, tmp_path: Path
) -> None:
    job = OFFLOADED_JOBS[name]
    off, require, *vllms = run_together(job, HOST_MODES[name], release, models, tmp_path)
    assert_same(job, off, require)
    assert off.host == VLLMS_HOST
    assert str(require.host).startswith("kvoxide.vllm.")
    for each in vllms:
        assert_same(job, off, each)
        assert each.host == VLLMS_HOST


@pytest.mark.long
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", LONG_OFFLOADED_JOBS)
def test_more_prompts_come_back_from_each_host_tier_the_same(
    name: str, release: str, models: Path, tmp_path: Path
) -> None:
    job = LONG_OFFLOADED_JOBS[name]
    modes = (*MODES, "vllm's host tier")
    off, require, vllms = run_together(job, modes, release, models, tmp_path)
    assert_same(job, off, require)
    assert_same(job, off, vllms)


def tokens(played: Played) -> dict[str, Any]:
    return {name: request["tokens"] for name, request in played.requests.items()}


@pytest.mark.long
@on_each_release
@pytest.mark.parametrize("name", LONG_JOBS)
def test_more_engines_serve_the_same(name: str, release: str, models: Path, tmp_path: Path) -> None:
    assert_same(LONG_JOBS[name], *run_together(LONG_JOBS[name], MODES, release, models, tmp_path))


def assert_same(job: Job, off: Outcome, require: Outcome) -> None:
    assert first_difference(off.played, require.played) is None
    assert [name for name in job.counters if not off.played[0].counters[name]] == []
    assert [what for what in job.seen if not any(step[what] for step in off.played[0].steps)] == []
    assert off.manager == MANAGERS["off"]
    assert require.manager.startswith(MANAGERS["require"])
    assert {off.scheduler, require.scheduler} == {SCHEDULERS[job.async_scheduling]}
    assert_workloads_tell(job, off.played)


def assert_workloads_tell(job: Job, played: list[Played]) -> None:
    """Check that the same workload is served the same again, and another one differently."""
    both = zip(job.workloads, played, strict=True)
    for (workload, one), (other_workload, other) in combinations(both, 2):
        assert (one.requests == other.requests) == (workload == other_workload)
        if workload != other_workload:
            assert one.steps != other.steps
            assert one.events != other.events or "prefix_cache_hits" not in job.counters

"""vLLM's engine serves the same with kvoxide as without: tokens, blocks, cached tokens, events."""

from pathlib import Path
from typing import Any

import pytest

from .jobs import ADAPTED, JOBS, LONG_JOBS, Job
from .outcome import Played, first_difference
from .processes import run_twice
from .workload import Workload

MANAGERS = {
    "off": "vllm.v1.core.kv_cache_manager.KVCacheManager",
    "require": "kvoxide.vllm.",
}
SCHEDULERS = {
    False: "vllm.v1.core.sched.scheduler.Scheduler",
    True: "vllm.v1.core.sched.async_scheduler.AsyncScheduler",
}


@pytest.mark.parametrize("name", JOBS)
def test_engine_serves_the_same(name: str, models: Path, tmp_path: Path) -> None:
    assert_serves_the_same(JOBS[name], models, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("name", LONG_JOBS)
def test_more_engines_serve_the_same(name: str, models: Path, tmp_path: Path) -> None:
    assert_serves_the_same(LONG_JOBS[name], models, tmp_path)


def assert_serves_the_same(job: Job, models: Path, tmp_path: Path) -> None:
    off, require = run_twice(job, ("off", "require"), models, tmp_path)
    assert first_difference(off.played, require.played) is None
    assert [name for name in job.counters if not off.played[0].counters[name]] == []
    assert [what for what in job.seen if not any(step[what] for step in off.played[0].steps)] == []
    assert off.manager == MANAGERS["off"]
    assert require.manager.startswith(MANAGERS["require"])
    assert {off.scheduler, require.scheduler} == {SCHEDULERS[job.async_scheduling]}


def test_adaptive_retention_serves_the_same_tokens_and_hits_more(
    models: Path, tmp_path: Path
) -> None:
    standard, adaptive = run_twice(ADAPTED, ("require", "adaptive"), models, tmp_path)
    for usual, adapted in zip(standard.played, adaptive.played, strict=True):
        assert tokens(usual) == tokens(adapted)
    hits = [outcome.played[0].counters["prefix_cache_hits"] for outcome in (standard, adaptive)]
    assert hits[0] < hits[1]


def tokens(played: Played) -> dict[str, Any]:
    return {name: request["tokens"] for name, request in played.requests.items()}


def test_same_engine_serves_the_same_twice_and_other_prompts_otherwise(
    models: Path, tmp_path: Path
) -> None:
    few = [Workload(seed=seed, num_requests=20, num_aborts=2) for seed in (1, 1, 2)]
    one, other = run_twice(Job("gemma", workloads=tuple(few)), ("off", "off"), models, tmp_path)
    assert first_difference(one.played, other.played) is None
    first, again, different = one.played
    assert first.requests == again.requests
    for aspect in ("requests", "steps", "events"):
        assert getattr(first, aspect) != getattr(different, aspect)

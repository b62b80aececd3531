"""Tests of metrics in an engine: what its scheduler reports, and when."""

import logging
import random
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.vllm.metrics_world import (
    POOL,
    all_stats,
    gauges,
    report_of,
    stats_with,
    tokens,
    travelled,
    world_of,
)

# Import after the plugin.
from kvoxide import PoisonedError  # isort: skip
from kvoxide.lab.verify.schedulers import configuration  # isort: skip
from kvoxide.vllm.environment import Reason, counters  # isort: skip
from kvoxide.vllm.environment.fallbacks import FALLBACK_KINDS  # isort: skip
from kvoxide.vllm.metrics import engine_process, reporter  # isort: skip
from kvoxide.vllm.metrics.report import Values, read_payload  # isort: skip
from kvoxide.vllm.plugin import decision  # isort: skip
from vllm.v1.core import kv_cache_metrics  # isort: skip
from vllm.v1.metrics.stats import SchedulerStats  # isort: skip

from tests.testing.small_world import BLOCK_SIZE, full, window  # isort: skip
from tests.vllm.scheduler_world import SchedulerWorld  # isort: skip


@pytest.fixture(autouse=True)
def _of_this_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "_counters", {})
    monkeypatch.setattr(counters, "_gauges", {})


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.WARNING, "vllm.kvoxide")
    return lambda: [r.getMessage() for r in caplog.records if "metrics" in r.getMessage()]


def test_statistics_travel_with_and_without_a_report() -> None:
    values = Values()
    values.gauge("kvoxide_poisoned", 1, part="manager")
    values.count("kvoxide_fallbacks_total", 2.5, reason="error")
    received = travelled(stats_with(values))
    assert type(received) is SchedulerStats
    assert read_payload(received.kvoxide) == values
    assert travelled(SchedulerStats()).kvoxide is None


def test_reports_come_first_and_when_idle_but_not_in_every_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reporter, "monotonic", lambda: 100.0)
    world = world_of()
    stats = all_stats(world, monkeypatch)
    world.serve("a", tokens(40), 30)
    world.serve("b", tokens(40), 30)
    has_report = [each.kvoxide is not None for each in stats]
    at = [number for number, reported in enumerate(has_report) if reported]
    assert at == [0, len(stats) // 2 - 1, len(stats) - 1]


def test_a_report_is_due_after_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(reporter, "monotonic", lambda: now[0])
    world = world_of()
    stats = all_stats(world, monkeypatch)
    world.add("a", tokens(40), 50)
    for _ in range(20):
        world.step()
        now[0] += 0.3
    at = [number for number, each in enumerate(stats) if each.kvoxide is not None]
    assert at == [0, 4, 8, 12, 16]


def test_the_parts_and_the_policy_are_those_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    found = report_of(world_of())
    active = gauges(found, "kvoxide_active")
    # Other tests of this process can have made a hasher.
    assert (active[("manager",)], active[("host",)]) == (1, 0)
    assert ("hasher",) in active
    ((labels, value),) = [(dict(k[1]), v) for k, v in found.gauges.items() if "info" in k[0]]
    assert value == 1
    assert labels["mode"] == "auto"
    assert labels["policy"] == "vllm"
    assert labels["groups"] == "full_attention:1"
    assert labels["vllm"] == labels["code_of"]
    monkeypatch.setenv("KVOXIDE_POLICY", "adaptive")
    adaptive = report_of(world_of())
    assert gauges(adaptive, "kvoxide_scoring_function")[("recency",)] == 1
    assert "adaptive" in str(adaptive.gauges)


def test_a_switch_to_vllm_is_counted_and_changes_the_parts() -> None:
    world = world_of()
    world.serve("a", tokens(50), 2)
    before = report_of(world)
    world.scheduler.kv_cache_manager.block_pool.blocks = ()
    after = report_of(world)
    assert after.counters["kvoxide_fallbacks_total", (("reason", "poked"),)] == 1
    active = [gauges(report, "kvoxide_active")[("manager",)] for report in (before, after)]
    assert active == [1, 0]
    policies = {
        dict(labels)["policy"]: value
        for (name, labels), value in after.gauges.items()
        if name == "kvoxide_info"
    }
    assert policies == {"vllm": 1}
    assert gauges(after, "kvoxide_blocks") == {("in_use",): 0, ("free",): POOL - 1}
    world.serve("b", tokens(50), 2)


def test_a_poisoned_manager_is_reported_although_it_makes_no_statistics() -> None:
    world = world_of()
    world.serve("a", tokens(50), 2)
    report_of(world)
    world.scheduler.kv_cache_manager.engine.poison("planted")
    with pytest.raises(PoisonedError):
        world.scheduler.make_stats()
    found = report_of(world)
    assert gauges(found, "kvoxide_poisoned") == {("manager",): 1, ("host",): 0}
    assert gauges(found, "kvoxide_active")[("manager",)] == 0


@pytest.mark.parametrize("mode", ["off", "shadow"])
def test_vllms_own_manager_is_reported_too(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVOXIDE", mode)
    world = world_of()
    world.serve("a", tokens(50), 2)
    found = report_of(world)
    assert set(gauges(found, "kvoxide_active").values()) == {0}
    assert gauges(found, "kvoxide_blocks") == {("in_use",): 0, ("free",): POOL - 1}
    assert f"'{mode}'" in str(found.gauges)


@pytest.mark.parametrize("kind", FALLBACK_KINDS)
def test_each_kind_of_fallback_is_counted(kind: Any) -> None:
    decision.fall_back([Reason("why", kind), "and more"])
    found = report_of(world_of())
    counted = {
        dict(labels)["reason"]: amount
        for (name, labels), amount in found.counters.items()
        if name == "kvoxide_fallbacks_total"
    }
    assert counted == {each: int(each == kind) for each in FALLBACK_KINDS}


def test_a_source_that_raises_is_left_out_and_logged_once(warnings: Any) -> None:
    world = world_of()
    sender = reporter.reporter_of(world.scheduler)
    assert sender is not None

    def fail(*args: Any) -> None:
        raise ValueError("planted")

    sender._sources._readers["prompts"] = fail
    assert gauges(report_of(world), "kvoxide_blocks")
    assert gauges(report_of(world), "kvoxide_blocks")
    assert len(warnings()) == 1
    assert re.search(r"metrics of prompts are off .*planted", warnings()[0])


def test_a_report_that_fails_reaches_no_scheduler(
    warnings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any) -> None:
        raise ValueError("planted")

    world = world_of()
    monkeypatch.setattr(reporter, "as_payload", fail)
    world.serve("a", tokens(50), 5)
    world.serve("b", tokens(50), 5)
    assert len(warnings()) == 1


class Process:
    """Replaces vLLM's process of an engine."""

    log_stats = True

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.sent: list[Any] = []
        self.output_queue = SimpleNamespace(put_nowait=self.sent.append)

    def run_busy_loop(self) -> None:
        self.sent.append("loop")

    def _send_engine_dead(self) -> None:
        self.sent.append("dead")


def test_an_engine_reports_before_it_serves_and_before_it_ends() -> None:
    cls = type("EngineCoreProc", (Process,), dict(vars(Process)))
    for _ in range(2):  # a second time changes nothing
        engine_process.take_over(SimpleNamespace(EngineCoreProc=cls))  # type: ignore[arg-type]
    world = world_of()
    process: Any = cls(world.scheduler)
    process.run_busy_loop()
    world.scheduler.kv_cache_manager.engine.poison("planted")
    process._send_engine_dead()
    (client, first), loop, (_, last), dead = process.sent
    assert (client, loop, dead) == (0, "loop", "dead")
    poisoned = [
        gauges(read_payload(each.scheduler_stats.kvoxide), "kvoxide_poisoned")[("manager",)]
        for each in (first, last)
    ]
    assert poisoned == [0, 1]


def test_an_engine_without_a_report_serves() -> None:
    cls = type("EngineCoreProc", (Process,), dict(vars(Process)))
    engine_process.take_over(SimpleNamespace(EngineCoreProc=cls))  # type: ignore[arg-type]
    process: Any = cls(SimpleNamespace())
    process.run_busy_loop()
    assert process.sent == ["loop"]


def residency_of(mode: str, monkeypatch: pytest.MonkeyPatch, *specs: Any) -> list[Any]:
    """Return what vLLM's own metrics of blocks say for the same traffic, at the same times."""
    clock: Any = SimpleNamespace(now=0)
    clock.monotonic_ns = lambda: clock.now
    rng = random.Random(3)
    monkeypatch.setenv("KVOXIDE", mode)
    watched = SimpleNamespace(**vars(configuration._observability_config()))
    watched.kv_cache_metrics, watched.kv_cache_metrics_sample = True, 0.7
    monkeypatch.setattr(configuration, "_observability_config", lambda: watched)
    world = world_of(*specs)
    with monkeypatch.context() as patch:
        patch.setattr(kv_cache_metrics, "time", clock)
        patch.setattr(kv_cache_metrics, "random", SimpleNamespace(random=rng.random))
        return serve_at(world, clock, patch)


def serve_at(world: SchedulerWorld, clock: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Serve random requests, and return the evictions that vLLM's metrics report."""
    stats = all_stats(world, monkeypatch)
    traffic = random.Random(5)
    for number in range(60):
        shared = tokens(BLOCK_SIZE * traffic.randrange(1, 4), 1000 * traffic.randrange(5))
        own = tokens(traffic.randrange(1, 40), 10_000 + 100 * number)
        world.add(str(number), shared + own, traffic.randrange(1, 20))
        for _ in range(traffic.randrange(1, 9)):
            clock.now += traffic.randrange(10**9)
            world.step()
    world.run()
    return [event for each in stats for event in each.kv_cache_eviction_events]


@pytest.mark.parametrize("specs", [(full(),), (full(), window())], ids=["full", "hybrid"])
def test_vllms_own_metrics_of_blocks_are_the_same(
    specs: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = residency_of("off", monkeypatch, *specs)
    assert len(own) > 20
    assert any(event.reuse_gaps_seconds for event in own)
    assert any(event.idle_seconds < event.lifetime_seconds for event in own)
    assert residency_of("require", monkeypatch, *specs) == own

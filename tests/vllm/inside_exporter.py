"""Tests of metrics in an API server: reports of engines become the page, without a server."""

import logging
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from threading import Event
from typing import Any

import pytest

from tests.vllm.metrics_world import (
    MODEL,
    POOL,
    all_stats,
    config_of,
    new_exporter,
    report_of,
    stats_with,
    tokens,
    travelled,
    world_of,
)

# Import after the plugin.
import prometheus_client  # isort: skip
from kvoxide.outcomes import NAMES  # isort: skip
from kvoxide.vllm.environment import counters  # isort: skip
from kvoxide.vllm.metrics import exporter, sources  # isort: skip
from kvoxide.vllm.metrics.definitions import BY_NAME  # isort: skip
from kvoxide.vllm.metrics.report import Values  # isort: skip
from vllm.v1.metrics.loggers import AggregateStatLoggerBase, StatLoggerManager  # isort: skip
from vllm.v1.metrics.stats import SchedulerStats  # isort: skip

from tests.testing.small_world import full, window  # isort: skip

OFTEN = 200


@pytest.fixture(autouse=True)
def _of_this_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "_counters", {})
    monkeypatch.setattr(counters, "_gauges", {})


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Callable[[], dict[str, float]]:
    """Read the samples of a new registry."""
    registry = prometheus_client.CollectorRegistry()
    for name in ("Counter", "Gauge", "Histogram"):
        original = getattr(prometheus_client, name)

        def made(*args: Any, _original: Any = original, **kwargs: Any) -> Any:
            return _original(*args, registry=registry, **kwargs)

        monkeypatch.setattr(exporter, name, made)
    monkeypatch.setattr(exporter, "_families", {})
    monkeypatch.setattr(exporter, "_num_label_sets", {})

    def read() -> dict[str, float]:
        found = {}
        for family in registry.collect():
            for sample in family.samples:
                labels = {k: v for k, v in sample.labels.items() if k != "model_name"}
                assert sample.labels["model_name"] == MODEL
                found[f"{sample.name} {' '.join(map(str, labels.values()))}"] = sample.value
        return found

    return read


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.WARNING, "vllm.kvoxide")
    return lambda: [r.getMessage() for r in caplog.records if "metrics" in r.getMessage()]


def test_increments_add_up_and_come_once(page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_of(full(), window())
    logger = new_exporter()
    stats = all_stats(world, monkeypatch)
    for number in range(6):
        world.serve(str(number), tokens(100, 1000 * number), 3)
        report_of(world)
    for each in stats:
        logger.record(travelled(each), None)
    engine = world.scheduler.kv_cache_manager.engine
    engine_calls = engine.call_seconds()[1]
    found = page()
    for call, (counts, seconds) in engine_calls.items():
        assert found[f"kvoxide_call_seconds_count 0 {call}"] == sum(counts)
        assert found[f"kvoxide_call_seconds_sum 0 {call}"] == pytest.approx(seconds)
    assert sum(sum(counts) for counts, _ in engine_calls.values()) > 0
    states = [found[f"kvoxide_blocks 0 {state}"] for state in ("in_use", "evictable", "empty")]
    assert states[0] == 0
    assert sum(states) == POOL - 1
    before = page()
    logger.record(stats_with(report_of(world)), None)
    assert {k: v for k, v in page().items() if "seconds" in k} == {
        k: v for k, v in before.items() if "seconds" in k
    }


class Outcomes:
    """Replaces the engine's report of prompts."""

    is_poisoned = False

    def __init__(self) -> None:
        self.outcomes = dict.fromkeys(NAMES, 7)
        self.evictions = {"full": 3, "tail": 4}
        self.reuse_gap_bounds = [1.0, 10.0]
        self.reuse_gap_counts = [2, 1, 1]
        self.reuse_gap_sum = 105.5

    def outcome_report(self) -> "Outcomes":
        return self


def test_outcomes_of_prompts_are_exported(page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVOXIDE", "off")
    world = world_of()
    source = Outcomes()
    monkeypatch.setattr(sources, "observed_engine", lambda scheduler: source)
    logger = new_exporter()
    logger.record(stats_with(report_of(world)), None)
    source.outcomes["first_time"] += 5
    source.reuse_gap_counts, source.reuse_gap_sum = [2, 3, 1], 120.0
    logger.record(stats_with(report_of(world)), None)
    found = page()
    for outcome in NAMES:
        expected = 12 if outcome == "first_time" else 7
        assert found[f"kvoxide_prompt_tokens_total 0 {outcome}"] == expected
    assert found["kvoxide_evictions_total 0 tail"] == 4
    assert found["kvoxide_evict_reuse_gap_seconds_sum 0"] == 120.0
    gaps = "kvoxide_evict_reuse_gap_seconds_bucket 0 "
    assert [found[gaps + bound] for bound in ("1.0", "10.0", "+Inf")] == [2, 5, 6]


def test_scrapes_while_an_engine_serves_and_dies_never_fall(
    page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API server is another process than its engine. So a scrape can come at any time, and the
    last report of an engine can be missing."""
    monkeypatch.setenv("KVOXIDE", "require")
    world = world_of(full())
    logger = new_exporter()
    made = all_stats(world, monkeypatch)
    scrapes: list[dict[str, float]] = []
    died = Event()

    def record_all() -> None:
        while made:
            logger.record(made.pop(0), None)

    def scrape() -> None:
        while not died.is_set():
            scrapes.append(page())

    with ThreadPoolExecutor(1) as pool:
        scraping = pool.submit(scrape)
        for number in range(60):
            world.serve(f"r{number}", tokens(100, 1_000 * (number % 7)), 2)
            record_all()
        report_of(world)
        world.scheduler.kv_cache_manager.engine.poison("planted")
        record_all()
        logger.record(stats_with(report_of(world)), None)
        died.set()
        scraping.result()
    scrapes.append(page())
    for before, after in pairwise(scrapes):
        totals = [key for key in before if key.split(" ")[0].endswith(("_total", "_count", "_sum"))]
        assert all(after[key] >= before[key] for key in totals)
    prompts = [value for key, value in scrapes[-1].items() if "prompt_tokens_total" in key]
    assert sum(prompts) == 60 * 100
    assert scrapes[-1]["kvoxide_poisoned 0 manager"] == 1


def test_engines_of_one_server_have_their_own_labels(page: Any) -> None:
    first, second = Values(), Values()
    first.count("kvoxide_default_hit_tokens_total", 5)
    second.count("kvoxide_default_hit_tokens_total", 7)
    logger = new_exporter(0, 1)
    logger.record(stats_with(first), None, engine_idx=0)
    logger.record(stats_with(second), None, engine_idx=1)
    found = page()
    assert found["kvoxide_default_hit_tokens_total 0"] == 5
    assert found["kvoxide_default_hit_tokens_total 1"] == 7


def test_a_second_exporter_of_a_process_continues_the_counters(page: Any) -> None:
    values = Values()
    values.count("kvoxide_default_hit_tokens_total", 5)
    for _ in range(2):
        new_exporter().record(stats_with(values), None)
    assert page()["kvoxide_default_hit_tokens_total 0"] == 10


def test_a_restarted_engine_continues_the_counters(page: Any) -> None:
    logger = new_exporter()
    total = 0.0
    for _ in range(3):  # each engine's own totals begin at zero
        world = world_of()
        world.serve("a", tokens(90), 4)
        counters.add("kvoxide_default_hit_tokens_total", 3)
        logger.record(stats_with(report_of(world)), None)
        found = page()["kvoxide_default_hit_tokens_total 0"]
        assert found > total
        total = found


BAD_PAYLOADS: list[Any] = [
    None,
    7,
    [],
    {"counters": 7, "gauges": None},
    {"counters": [["kvoxide_default_hit_tokens_total", {}, -5]]},
    {"counters": [["kvoxide_default_hit_tokens_total", {}, float("nan")]]},
    {"counters": [["kvoxide_default_hit_tokens_total", {}, "5"]]},
    {"counters": [["kvoxide_default_hit_tokens_total", {"more": "labels"}, 5]]},
    {"counters": [["kvoxide_of_a_later_version_total", {}, 5]]},
    {"counters": [["kvoxide_host_used_bytes", {}, 5]]},
    {"counters": [["kvoxide_fallbacks_total", {"reason": 5}, 5]]},
    {"counters": [["kvoxide_fallbacks_total", {"reason": "x" * 1000}, 5]]},
    {"counters": [[], 5, ["kvoxide_default_hit_tokens_total"]]},
    {"gauges": [["kvoxide_host_used_bytes", {}, True], ["kvoxide_host_used_bytes", {}, 10**400]]},
    {"histograms": [["kvoxide_evict_reuse_gap_seconds", {}, [1.0], [1], 1.0]]},
    {"histograms": [["kvoxide_evict_reuse_gap_seconds", {}, [2.0, 1.0], [1, 1, 1], 1.0]]},
    {"histograms": [["kvoxide_evict_reuse_gap_seconds", {}, [1.0], [-1, 1], 1.0]]},
    {"histograms": [["kvoxide_evict_reuse_gap_seconds", {}, [], [1], 1.0]]},
    {"histograms": [["kvoxide_evict_reuse_gap_seconds", {}, None, None, None]]},
]


@pytest.mark.parametrize("payload", BAD_PAYLOADS, ids=str)
def test_a_payload_of_another_version_changes_nothing_and_stops_nothing(
    payload: Any, page: Any, warnings: Any
) -> None:
    good = Values()
    good.count("kvoxide_default_hit_tokens_total", 5)
    logger = new_exporter()
    logger.record(stats_with(good), None)
    before = page()
    stats = SchedulerStats()
    stats.kvoxide = payload
    logger.record(stats, None)
    assert page() == before
    logger.record(stats_with(good), None)
    assert page()["kvoxide_default_hit_tokens_total 0"] == 10
    assert warnings() == []


def test_random_payloads_stop_nothing_and_counters_never_fall(page: Any, warnings: Any) -> None:
    rng = random.Random(7)
    logger = new_exporter()

    def value(depth: int = 0) -> Any:
        plain = [None, -1, 0, 3, 2.5, float("inf"), "kvoxide_call_seconds", "reason", True, b"x"]
        if depth > 3 or rng.random() < 0.4:
            return rng.choice([*plain, *BY_NAME])
        if rng.random() < 0.5:
            return [value(depth + 1) for _ in range(rng.randrange(6))]
        return {rng.choice(["reason", "part", 5]): value(depth + 1) for _ in range(2)}

    before: dict[str, float] = {}
    for _ in range(OFTEN):
        stats = SchedulerStats()
        stats.kvoxide = {kind: [value() for _ in range(5)] for kind in ("counters", "histograms")}
        logger.record(stats, None)
        found = page()
        assert all(found[name] >= number for name, number in before.items())
        before = found
    assert warnings() == []


def test_too_many_sets_of_labels_are_left_out(page: Any) -> None:
    values = Values()
    for number in range(2 * exporter.MAX_LABEL_SETS):
        values.gauge("kvoxide_standstill", 1, reason=str(number))
    new_exporter().record(stats_with(values), None)
    assert len(page()) == exporter.MAX_LABEL_SETS


def test_other_buckets_of_an_engine_are_left_out(page: Any) -> None:
    logger = new_exporter()
    for bounds in ([1.0, 2.0], [1.0, 3.0]):
        stats = SchedulerStats()
        entry = ["kvoxide_evict_reuse_gap_seconds", {}, bounds, [1, 1, 1], 9.0]
        stats.kvoxide = {"histograms": [entry]}
        logger.record(stats, None)
    assert page()["kvoxide_evict_reuse_gap_seconds_count 0"] == 3


def test_an_exporter_that_fails_is_off_and_logged_once(
    warnings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any) -> None:
        raise OSError("planted: no space left on device")

    monkeypatch.setattr(exporter, "_child", fail)
    values = Values()
    values.gauge("kvoxide_poisoned", 1, part="manager")
    logger = new_exporter()
    for _ in range(3):
        logger.record(stats_with(values), None)
    assert len(warnings()) == 1


@pytest.mark.parametrize("record", [False, True])
def test_a_server_without_kvoxide_says_so(
    record: bool, page: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("KVOXIDE", "off")
    if record:  # the engine reports then
        monkeypatch.setenv("KVOXIDE_RECORD", str(tmp_path))
    new_exporter(0, 1)
    found = page()
    assert len(found) == (0 if record else 8)
    assert set(found.values()) <= {0, 1}
    assert ("kvoxide_info 1" in str(found)) is not record


class Plain(AggregateStatLoggerBase):  # type: ignore[misc]
    def __init__(self, vllm_config: Any, engine_indexes: list[int]) -> None:
        pass

    def record(self, *args: Any, **kwargs: Any) -> None:
        pass

    def log_engine_initialized(self) -> None:
        pass


@pytest.fixture
def stat_loggers(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    monkeypatch.setattr("vllm.v1.metrics.loggers.PrometheusStatLogger", lambda *args: Plain(*args))
    return lambda: StatLoggerManager(config_of(), [0, 1], enable_default_loggers=False)


def test_vllms_statistics_have_one_exporter(stat_loggers: Any, page: Any) -> None:
    made = stat_loggers()
    assert [type(each).__name__ for each in made.stat_loggers].count("Exporter") == 1
    values = Values()
    values.count("kvoxide_default_hit_tokens_total", 5)
    made.record(stats_with(values), None, engine_idx=1)
    made.log_engine_initialized()
    assert page()["kvoxide_default_hit_tokens_total 1"] == 5


def test_an_exporter_that_cannot_be_made_stops_no_server(
    stat_loggers: Any, warnings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any) -> None:
        raise ValueError("planted")

    monkeypatch.setattr(exporter, "Exporter", fail)
    assert len(stat_loggers().stat_loggers) == 1
    assert len(warnings()) == 1

"""Tests of metrics from the scheduler's statistics to the page, without a server."""

import logging
import random
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.plugins import load_general_plugins

load_general_plugins()

import prometheus_client  # noqa: E402
from kvoxide import PoisonedError  # noqa: E402
from kvoxide.lab.verify.schedulers import configuration  # noqa: E402
from kvoxide.outcomes import NAMES  # noqa: E402
from kvoxide.vllm.environment import Reason, counters  # noqa: E402
from kvoxide.vllm.environment.fallbacks import FALLBACK_KINDS  # noqa: E402
from kvoxide.vllm.metrics import engine_process, exporter, reporter, sources  # noqa: E402
from kvoxide.vllm.metrics.definitions import BY_NAME  # noqa: E402
from kvoxide.vllm.metrics.report import Values, as_payload, read_payload  # noqa: E402
from kvoxide.vllm.plugin import decision  # noqa: E402
from vllm.v1.core import kv_cache_metrics  # noqa: E402
from vllm.v1.engine import EngineCoreOutputs  # noqa: E402
from vllm.v1.metrics.loggers import AggregateStatLoggerBase, StatLoggerManager  # noqa: E402
from vllm.v1.metrics.stats import SchedulerStats  # noqa: E402
from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder  # noqa: E402

from tests.testing.small_world import BLOCK_SIZE, full, window  # noqa: E402
from tests.vllm.scheduler_world import SchedulerWorld  # noqa: E402

MODEL = "served"
POOL = 20
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


def config_of(model: str = MODEL) -> Any:
    return SimpleNamespace(model_config=SimpleNamespace(served_model_name=model))


def new_exporter(*engines: int) -> exporter.Exporter:
    return exporter.Exporter(config_of(), list(engines or (0,)))


def travelled(stats: Any) -> Any:
    """Return statistics as another process receives them."""
    sent = MsgpackEncoder().encode(EngineCoreOutputs(scheduler_stats=stats))
    return MsgpackDecoder(EngineCoreOutputs).decode(sent).scheduler_stats


def stats_with(values: Values) -> Any:
    stats = SchedulerStats()
    stats.kvoxide = as_payload(values)
    return stats


def tokens(num: int, start: int = 0) -> list[int]:
    return list(range(start, start + num))


def world_of(*specs: Any, **changes: Any) -> SchedulerWorld:
    return SchedulerWorld(*specs, **{"num_blocks": POOL, **changes})


def all_stats(world: SchedulerWorld, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list to which all statistics of a world are added."""
    made: list[Any] = []
    make_stats = world.scheduler.make_stats

    def kept(*args: Any, **kwargs: Any) -> Any:
        stats = make_stats(*args, **kwargs)
        made.append(stats)
        return stats

    monkeypatch.setattr(world.scheduler, "make_stats", kept)
    return made


def report_of(world: SchedulerWorld) -> Values:
    """Return the next report of a world."""
    sender = reporter.reporter_of(world.scheduler)
    assert sender is not None
    return read_payload(sender.stats_now().kvoxide)


def gauges(values: Values, name: str) -> dict[tuple[str, ...], float]:
    return {
        tuple(value for _, value in labels): number
        for (metric, labels), number in values.gauges.items()
        if metric == name
    }


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
    assert scrapes[-1]["kvoxide_poisoned 0"] == 1


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

"""Tests of the warning of lost cache hits: once an hour, with the reason and the setting."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kvoxide.outcomes import NAMES, OUTCOMES
from kvoxide.vllm.adapter import lost_hits_log, periodic_tasks
from kvoxide.vllm.adapter.periodic_tasks import PeriodicTask, with_tasks

from tests.testing.clock import Clock


class Engine:
    """An engine whose outcomes grow by the same numbers with each step."""

    def __init__(self, **per_step: int) -> None:
        self.is_replaced = False
        self.per_step = per_step
        self.counts = dict.fromkeys(NAMES, 0)

    def step(self) -> None:
        for name, tokens in self.per_step.items():
            self.counts[name] += tokens

    def outcome_report(self) -> Any:
        return SimpleNamespace(outcomes=dict(self.counts))


class Server:
    """The steps of a server, and its warnings."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self.clock = clock
        self.warnings: list[str] = []
        log = lost_hits_log.LostHitsLog(cast("Any", engine))
        self._step = with_tasks(engine.step, [PeriodicTask(lost_hits_log.HOUR, log.end_period)])

    def warning(self, form: str, *values: Any) -> None:
        self.warnings.append(form % values)

    def serve(self, minutes: int) -> None:
        for _ in range(minutes):
            self.clock.now += 60
            self._step()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(5_000.0)
    for module in (lost_hits_log, periodic_tasks):
        monkeypatch.setattr(module, "monotonic", clock)
    return clock


@pytest.fixture
def serving(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Callable[[Engine], Server]:
    def start(engine: Engine) -> Server:
        server = Server(engine, clock)
        monkeypatch.setattr(lost_hits_log, "logger", server)
        return server

    return start


@pytest.mark.parametrize("minutes", [59, 60, 119, 120, 180])
def test_each_hour_has_at_most_one_warning(minutes: int, serving: Any) -> None:
    server = serving(Engine(hit_gpu=60, evicted_tail=30, never_cached=10))
    server.serve(minutes)
    assert len(server.warnings) == minutes // 60


def test_the_warning_names_share_reason_and_setting(serving: Any) -> None:
    server = serving(Engine(hit_gpu=60, evicted_tail=30, never_cached=10))
    server.serve(60)
    (warning,) = server.warnings
    assert warning.startswith(
        "kvoxide: in the last 60 minutes, 30.0% of the prompt tokens lost a cache hit for one "
        "avoidable reason, evicted_tail: its full attention is cached"
    )
    assert "Set KVOXIDE_POLICY=adaptive." in warning


@pytest.mark.parametrize(
    "per_step",
    [
        {"hit_gpu": 96, "evicted_full": 4},
        {"first_time": 100},
        {"hit_gpu": 92, "evicted_full": 4, "evicted_tail": 4},
        {},
    ],
)
def test_small_losses_and_first_time_tokens_are_not_worth_a_warning(
    per_step: dict[str, int], serving: Any
) -> None:
    server = serving(Engine(**per_step))
    server.serve(180)
    assert server.warnings == []


@pytest.mark.parametrize("name", [each.name for each in OUTCOMES if each.is_avoidable])
def test_a_share_of_five_percent_is_worth_a_warning(name: str, serving: Any) -> None:
    server = serving(Engine(**{"first_time": 95, name: 5}))
    server.serve(60)
    assert len(server.warnings) == 1
    assert (
        f"5.0% of the prompt tokens lost a cache hit for one avoidable reason, {name}:"
        in (server.warnings[0])
    )


def test_only_the_last_hour_counts(serving: Any) -> None:
    engine = Engine(evicted_full=50, hit_gpu=50)
    server = serving(engine)
    server.serve(60)
    engine.per_step = {"hit_gpu": 100}
    server.serve(60)
    assert len(server.warnings) == 1


def test_after_idle_hours_the_warning_has_their_minutes(serving: Any, clock: Clock) -> None:
    server = serving(Engine(evicted_full=50, hit_gpu=50))
    server.serve(30)
    clock.now += 5 * 3600
    server.serve(1)
    (warning,) = server.warnings
    assert "in the last 331 minutes, 50.0%" in warning


def test_a_clock_that_jumps_back_gives_no_further_warning(serving: Any, clock: Clock) -> None:
    """A suspended machine can have one whose clock is earlier than before."""
    server = serving(Engine(evicted_full=50, hit_gpu=50))
    server.serve(60)
    clock.now -= 10 * 3600
    server.serve(60)
    assert len(server.warnings) == 1


def test_an_engine_that_vllm_replaced_gives_no_warning(serving: Any) -> None:
    engine = Engine(evicted_full=50)
    server = serving(engine)
    engine.is_replaced = True
    server.serve(120)
    assert server.warnings == []


def test_a_failed_engine_gives_no_warning_and_no_error(serving: Any) -> None:
    class Failed(Engine):
        def outcome_report(self) -> Any:
            raise RuntimeError("poisoned")

    server = serving(Failed(evicted_full=50))
    server.serve(120)
    assert server.warnings == []

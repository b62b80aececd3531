"""Tests of tasks that run at intervals, as steps of a scheduler begin."""

import pytest
from kvoxide.vllm.adapter import periodic_tasks
from kvoxide.vllm.adapter.periodic_tasks import PeriodicTask, with_tasks

from tests.testing.clock import Clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(100.0)
    monkeypatch.setattr(periodic_tasks, "monotonic", clock)
    return clock


def test_each_task_runs_at_its_own_interval_after_the_step(clock: Clock) -> None:
    ran: list[object] = []
    step = with_tasks(
        lambda: ran.append("step"),
        [
            PeriodicTask(60, lambda now: ran.append(("minute", now))),
            PeriodicTask(150, lambda now: ran.append(("longer", now))),
        ],
    )
    for _ in range(5):
        clock.now += 50
        step()
    assert [each for each in ran if each != "step"] == [
        ("minute", 200),
        ("longer", 250),
        ("minute", 300),
    ]
    assert ran[1:3] == ["step", ("minute", 200)]


def test_a_step_reads_the_clock_once(clock: Clock) -> None:
    step = with_tasks(lambda: None, [PeriodicTask(1, lambda now: None)] * 3)
    clock.num_reads = 0
    for _ in range(4):
        clock.now += 1
        step()
    assert clock.num_reads == 4


def test_after_a_pause_each_task_runs_once(clock: Clock) -> None:
    times: list[float] = []
    step = with_tasks(lambda: None, [PeriodicTask(60, times.append)])
    clock.now += 6_000
    step()
    step()
    assert times == [6_100]

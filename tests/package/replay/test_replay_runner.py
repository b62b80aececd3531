"""Running simulations side by side."""

import pickle
import threading
import time
from typing import NoReturn

import pytest
from kvoxide._core import ConfigError, Trace
from kvoxide.lab.replay.input import parse_groups, parse_policy
from kvoxide.lab.replay.run import SharedTrace, Workload, check_run
from kvoxide.lab.replay.run.execution.interface import execute
from kvoxide.lab.replay.run.execution.local import Local
from kvoxide.lab.replay.run.planning import plan_runs

from tests.testing.traces import prompt


def trace_of(num_requests: int, output_length: int = 1) -> Trace:
    trace = Trace()
    for number in range(num_requests):
        trace.push_prompt(list(prompt(number, 100)), output_length)
    return trace


def long_trace() -> SharedTrace:
    """Requests that decode for minutes, and fit a pool of 50,000 blocks of 16 tokens."""
    return SharedTrace(200, lambda: trace_of(200, output_length=700_000))


def workload_of(trace: SharedTrace, groups: str = "full:16") -> Workload:
    return Workload(trace, parse_groups(groups).specs, concurrency=1, max_batched_tokens=8192)


def test_outcomes_are_in_order_and_the_last_one_is_unlimited() -> None:
    workload = workload_of(SharedTrace(3, lambda: trace_of(3)))
    runs = plan_runs(workload, [parse_policy("fifo"), parse_policy("pin")], [100, 200])
    outcomes = execute(runs, lambda finished: None, Local())
    assert [(o.run.policy.name, o.run.blocks) for o in outcomes] == [
        ("fifo", 100),
        ("fifo", 200),
        ("pin", 100),
        ("pin", 200),
        ("unlimited", None),
    ]
    assert [o.is_unlimited for o in outcomes] == [False, False, False, False, True]


def test_a_shared_trace_is_built_once_and_let_go() -> None:
    built = []

    def build() -> Trace:
        built.append(trace_of(3))
        return built[-1]

    trace = SharedTrace(3, build)
    execute(
        plan_runs(workload_of(trace), [parse_policy("fifo")], [100, 200]), lambda _: None, Local()
    )
    assert len(built) == 1
    assert trace._trace is None


def test_progress_ends_with_all_requests_of_all_runs() -> None:
    seen: list[int] = []
    runs = plan_runs(
        workload_of(SharedTrace(3, lambda: trace_of(3))), [parse_policy("fifo")], [100]
    )
    execute(runs, seen.append, Local())
    assert seen == sorted(seen)
    assert seen[-1] == 6


def test_an_interrupt_stops_every_run() -> None:
    sizes = [50_000, 60_000, 70_000, 80_000]
    runs = plan_runs(workload_of(long_trace()), [parse_policy("fifo")], sizes)

    def interrupt(finished: int) -> NoReturn:
        raise KeyboardInterrupt

    threads = threading.enumerate()
    started = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        execute(runs, interrupt, Local())
    assert time.perf_counter() - started < 5
    assert threading.enumerate() == threads


def test_an_error_in_one_run_stops_the_others() -> None:
    broken = workload_of(SharedTrace(1, lambda: trace_of(1)), "full:16,swa:16:64")
    runs = [
        *plan_runs(workload_of(long_trace()), [parse_policy("fifo")], [50_000]),
        *plan_runs(broken, [parse_policy("interval=1")], [100]),
    ]
    started = time.perf_counter()
    with pytest.raises(ConfigError):
        execute(runs[::-1], lambda finished: None, Local())
    assert time.perf_counter() - started < 5


def test_a_run_and_its_outcome_travel_between_processes() -> None:
    runs = plan_runs(workload_of(SharedTrace(3, lambda: trace_of(3))), [parse_policy("pin")], [100])
    copies = pickle.loads(pickle.dumps(runs))
    assert [(run.policy, run.blocks, run.workload.groups) for run in copies] == [
        (run.policy, run.blocks, run.workload.groups) for run in runs
    ]
    assert copies[0].workload.trace.num_requests == 3
    for copy, outcome in zip(copies, execute(runs, lambda _: None, Local()), strict=True):
        (again,) = execute([copy], lambda _: None, Local())
        told = pickle.loads(pickle.dumps(outcome))
        for other in (again, told):
            assert other.per_request.tolist() == outcome.per_request.tolist()
            assert other.hit_share == outcome.hit_share


def test_a_check_names_the_policy() -> None:
    workload = workload_of(SharedTrace(1, lambda: trace_of(1)))
    for run in plan_runs(workload, [parse_policy("fifo")], [100]):
        check_run(run)
    with pytest.raises(ConfigError, match=r"policy 'interval=64': "):
        check_run(plan_runs(workload, [parse_policy("interval=64")], [100])[0])

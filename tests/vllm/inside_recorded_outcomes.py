"""The outcomes of prompts: in recordings, from a replay of them, and in the hourly warning."""

import errno
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.vllm.recorded_world import SchedulerWorld, closed, hooks, lines, prompt

# Import after the plugin.
from kvoxide.cli import main  # isort: skip
from kvoxide.outcomes import NAMES  # isort: skip
from kvoxide.vllm.adapter import lost_hits_log, periodic_tasks  # isort: skip
from kvoxide.vllm.environment import observed_engine  # isort: skip

from tests.testing.small_world import full, window  # isort: skip

OBSERVING = ("require", "shadow")


def explain(folder: Path, *options: str) -> dict[str, Any]:
    path = folder.parent / "why.json"
    done = CliRunner().invoke(main, ["why", str(folder), "--quiet", "--json", str(path), *options])
    assert done.exit_code == 0, done.output
    record: dict[str, Any] = json.loads(path.read_text())
    return record


def without_answers(record: dict[str, Any]) -> dict[str, int]:
    """Return the outcomes, with hits on answers as other hits, as a replay counts them."""
    counts = dict(record["outcomes"])
    counts["hit_gpu"] += counts.pop("hit_answer")
    return counts


def full_disk(*_: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def serve_chats(world: SchedulerWorld) -> None:
    """Serve chats in turns, in a pool that is too small for all of them."""
    chats = [prompt(number, 60) for number in range(5)]
    for turn in range(4):
        for number, tokens in enumerate(chats):
            more = prompt(50 + 10 * turn + number, 20)
            chats[number] = world.serve(f"{number}.{turn}", [*tokens, *more], 18)


@pytest.mark.parametrize("mode", OBSERVING)
@pytest.mark.parametrize(
    ("specs", "num_blocks"), [((full(),), 40), ((full(), window()), 80)], ids=["full", "windows"]
)
def test_recorded_outcomes_are_the_outcomes_of_a_replay(
    mode: str,
    specs: tuple[Any, ...],
    num_blocks: int,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KVOXIDE", mode)
    world = SchedulerWorld(*specs, num_blocks=num_blocks)
    serve_chats(world)
    closed(world)
    record = explain(folder)
    assert (record["recorded_requests"], record["computed_requests"]) == (20, 0)
    counts = record["outcomes"]
    assert counts["hit_gpu"] + counts["hit_answer"] == world.hits
    assert counts["hit_answer"] > 0
    assert sum(counts.values()) == sum(line["input_length"] for line in lines(folder))
    assert sum(counts[name] for name in ("evicted_full", "evicted_tail", "never_cached")) > 0
    replayed, ours = without_answers(explain(folder, "--replay")), without_answers(record)
    # The server forgets some evicted blocks, and counts their tokens as first-time tokens.
    forgotten = ours["first_time"] - replayed["first_time"]
    assert 0 <= forgotten < 0.2 * replayed["evicted_full"] + 1
    lost = ("evicted_full", "evicted_tail", "never_cached")
    assert sum(replayed[name] - ours[name] for name in lost) == forgotten
    others = set(ours) - {"first_time", *lost}
    assert {name: ours[name] for name in others} == {name: replayed[name] for name in others}


def test_a_server_without_kvoxide_records_no_outcomes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVOXIDE", "off")
    world = SchedulerWorld(num_blocks=40)
    serve_chats(world)
    closed(world)
    assert not any("outcomes" in line for line in lines(folder))
    record = explain(folder)
    assert (record["recorded_requests"], record["computed_requests"]) == (0, 20)
    assert record["outcomes"]["hit_gpu"] == world.hits
    assert record["outcomes"]["evicted_full"] > 0


@pytest.mark.parametrize("mode", OBSERVING)
def test_each_request_has_its_own_outcomes(
    mode: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVOXIDE", mode)
    world = SchedulerWorld()
    answered = world.serve("a", prompt(1, 40), 30)
    world.serve("b", [*answered, *prompt(2, 10)], 1)
    world.serve("c", prompt(1, 40), 1, prompt_logprobs=1)
    world.serve("d", prompt(3, 40), 1, salt="s")
    closed(world)
    assert [line["outcomes"] for line in lines(folder)] == [
        {"first_time": 40},
        {"hit_gpu": 32, "hit_answer": 32, "first_time": 16},
        {"not_cacheable": 40},
        {"first_time": 40},
    ]


@pytest.mark.parametrize("mode", OBSERVING)
def test_preempted_requests_have_the_outcomes_of_their_first_admission(
    mode: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVOXIDE", mode)
    world = SchedulerWorld(num_blocks=12)
    for number in range(4):
        world.add(f"r{number}", prompt(number, 40), 60)
    requests = list(world.scheduler.requests.values())
    world.run()
    assert sum(request.num_preemptions for request in requests) > 0
    recorder = world.scheduler._kvoxide_recorder
    recorder.flush()
    assert recorder._outcomes == {}
    closed(world)
    assert [line["outcomes"] for line in lines(folder)] == [{"first_time": 40}] * 4


def test_a_manager_that_vllm_replaces_records_no_more_outcomes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVOXIDE", "auto")
    world = SchedulerWorld()
    world.serve("a", prompt(1, 40), 1)
    world.scheduler.kv_cache_manager.block_pool.get_new_blocks = lambda count: None
    del world.scheduler.kv_cache_manager.block_pool.get_new_blocks
    world.serve("b", prompt(1, 40), 1)
    closed(world)
    has_outcomes = ["outcomes" in line for line in lines(folder)]
    is_replaced = "kvoxide" not in type(world.scheduler.kv_cache_manager).__module__
    assert has_outcomes == [True, not is_replaced]
    assert explain(folder)["outcomes"]["hit_gpu"] == 32


@pytest.mark.parametrize("mode", OBSERVING)
def test_a_full_disk_ends_the_recording_and_outcomes_still_count(
    mode: str, folder: Path, monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    monkeypatch.setenv("KVOXIDE", mode)
    world = SchedulerWorld()
    world.serve("a", prompt(1, 40), 1)
    recorder = world.scheduler._kvoxide_recorder
    wait_until(lambda: len(lines(folder)) == 1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full_disk)
        world.serve("b", prompt(2, 40), 1)
        wait_until(lambda: not recorder.is_on)
    world.serve("c", prompt(1, 40), 1)
    assert "No space left" in warnings[0]
    assert recorder._outcomes == {}
    outcomes = observed_engine(world.scheduler).outcome_report().outcomes
    assert (outcomes["hit_gpu"], sum(outcomes.values())) == (32, 120)
    assert [line["outcomes"] for line in lines(folder)] == [{"first_time": 40}]
    assert explain(folder)["recorded_requests"] == 1


def test_an_engine_that_fails_ends_no_recording(
    folder: Path, monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    monkeypatch.setenv("KVOXIDE", "shadow")

    def failing(scheduler: Any) -> Any:
        raise RuntimeError("poisoned")

    world = SchedulerWorld()
    monkeypatch.setattr(hooks, "observed_engine", failing)
    world.serve("a", prompt(1, 40), 1)
    closed(world)
    assert len(lines(folder)) == 1
    assert warnings == []


@pytest.mark.parametrize("mode", OBSERVING)
def test_a_server_warns_once_an_hour_of_the_largest_loss(
    mode: str, folder: Path, monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    now = 100.0
    monkeypatch.setenv("KVOXIDE", mode)
    for module in (lost_hits_log, periodic_tasks):
        monkeypatch.setattr(module, "monotonic", lambda: now)
    world = SchedulerWorld(num_blocks=40)
    serve_chats(world)
    assert warnings == []
    now += 3600
    world.serve("last", prompt(90, 40), 3)
    closed(world)
    counts = explain(folder)["outcomes"]
    assert list(counts) == list(NAMES)
    assert len(warnings) == 1
    assert "in the last 60 minutes," in warnings[0]
    assert "avoidable reason, evicted_full: computed before" in warnings[0]
    assert "Raise --gpu-memory-utilization" in warnings[0]

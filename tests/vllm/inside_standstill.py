"""Tests that the log has one warning if requests wait for blocks that never become free, and that
nothing else changes."""

import logging
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from vllm.plugins import load_general_plugins

load_general_plugins()

from kvoxide.vllm.adapter import native_class  # noqa: E402
from kvoxide.vllm.plugin import standstill  # noqa: E402
from vllm.v1.request import RequestStatus, StreamingUpdate  # noqa: E402

from tests.testing.small_world import BLOCK_SIZE, window  # noqa: E402
from tests.vllm.scheduler_world import SchedulerWorld  # noqa: E402


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.WARNING, "vllm.kvoxide")
    return lambda: [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]


def make_world(*specs: Any, **changes: Any) -> SchedulerWorld:
    world = SchedulerWorld(*specs, num_blocks=11, **{"reserves_full_input": True, **changes})
    assert isinstance(world.scheduler.kv_cache_manager, native_class())
    return world


def tokens(num_blocks: int, start: int = 0) -> list[int]:
    return list(range(start, start + num_blocks * BLOCK_SIZE))


def two_sessions(world: SchedulerWorld) -> None:
    """Add two sessions. Each holds 4 blocks of 10 and wants 4 more."""
    for number, name in enumerate(("first", "second")):
        request = world.add(name, tokens(4, 1000 * number), 1)
        request.resumable = True
        request.streaming_queue = deque()
        while request.status != RequestStatus.WAITING_FOR_STREAMING_REQ:
            world.step()
    for number, name in enumerate(("first", "second")):
        request = world.scheduler.requests[name]
        more = tokens(4, 1000 * number + 500)
        update = StreamingUpdate(
            mm_features=None,
            prompt_token_ids=more,
            max_tokens=1,
            arrival_time=0.0,
            sampling_params=request.sampling_params,
        )
        world.scheduler._update_request_as_session(request, update)


def test_a_request_that_no_empty_pool_could_hold(warnings: Any) -> None:
    world = make_world()
    world.add("fits", tokens(10)[:-1], 1)
    assert warnings() == []
    world.add("too long", tokens(12, 1000), 1)
    (line,) = warnings()
    assert "request too long can never finish: its 192 tokens need 12 blocks" in line
    assert "the pool has 10" in line


def test_a_window_needs_no_more_than_its_own(warnings: Any) -> None:
    world = make_world(window())
    world.add("long", tokens(14), 1)
    assert warnings() == []


def test_a_request_that_grows_beyond_the_pool(warnings: Any) -> None:
    """vLLM computes the request again and again, so steps are full but the request never ends."""
    world = make_world(reserves_full_input=False, enable_caching=False)
    world.add("grows", tokens(10), 4)
    assert warnings() == []
    for _ in range(30):
        world.step()
    (line,) = warnings()
    assert "request grows can never finish: its 161 tokens need 11 blocks" in line


def test_a_standstill_is_told_once(warnings: Any) -> None:
    world = make_world()
    two_sessions(world)
    for _ in range(standstill.STEPS + 50):
        assert not world.step().total_num_scheduled_tokens
    (line,) = warnings()
    assert f"in {standstill.STEPS} steps" in line
    assert "request first (WAITING) waits for 4 more blocks for its" in line
    assert "2 of 10 blocks are free" in line
    assert "first (WAITING) holds 4" in line
    assert "second (WAITING) holds 4" in line
    world.abort("second")
    world.run()
    assert len(warnings()) == 1


def test_slow_steps_count_by_the_clock(warnings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world()
    two_sessions(world)
    now = iter(range(0, 1000, 4))
    monkeypatch.setattr(standstill, "monotonic", lambda: float(next(now)))
    for _ in range(3):
        world.step()
    assert warnings() == []
    world.step()
    (line,) = warnings()
    assert "in 4 steps (12.0 s)" in line


def test_waiting_for_more_input_is_no_standstill(warnings: Any) -> None:
    world = make_world()
    request = world.add("session", tokens(4), 1)
    request.resumable = True
    request.streaming_queue = deque()
    for _ in range(standstill.STEPS + 50):
        world.step()
    assert request.status == RequestStatus.WAITING_FOR_STREAMING_REQ
    assert warnings() == []


def test_what_goes_wrong_in_looking_stays_out_of_the_scheduler(
    warnings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world()

    def fail(*args: Any, **kwargs: Any) -> int:
        raise RuntimeError("not so")

    monkeypatch.setattr(standstill, "_num_blocks_needed", fail)
    world.serve("any", tokens(2), 2)
    assert warnings() == []

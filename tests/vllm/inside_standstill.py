"""Tests that the log has one warning, and a gauge is 1, while vLLM's scheduler does not admit
requests that wait for blocks. Nothing else changes."""

import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from tests.testing.clock import Clock
from tests.vllm.standstill_world import MODES, Output, World, standing, tokens, two_sessions

# Import after the plugin.
from kvoxide.vllm.adapter import native_class  # isort: skip
from kvoxide.vllm.plugin.standstill import blocks, head, outside, watcher  # isort: skip
from vllm.v1.core.sched.interface import PauseState  # isort: skip
from vllm.v1.request import RequestStatus  # isort: skip

from tests.testing.logs import logged  # isort: skip
from tests.testing.small_world import window  # isort: skip
from tests.vllm.stuck_connector import LATER, StuckConnector  # isort: skip


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(1_000_000.0)
    monkeypatch.setattr(watcher, "monotonic", clock)
    return clock


@pytest.fixture
def make_world(clock: Clock) -> Callable[..., World]:
    return lambda *specs, **changes: World(clock, *specs, **changes)


class TestBlocks:
    def test_a_request_that_no_empty_pool_could_hold(
        self, make_world: Any, warnings: list[str]
    ) -> None:
        world = make_world()
        assert isinstance(world.scheduler.kv_cache_manager, native_class())
        world.add("fits", tokens(10)[:-1], 1)
        assert warnings == []
        world.add("too long", tokens(12, 1000), 1)
        (line,) = warnings
        assert "request too long can never finish: its 192 tokens need 12 blocks" in line
        assert "the pool has 10" in line
        assert standing() == {"never_fits"}
        world.steps(outside.SECONDS)
        assert len(warnings) == 1
        world.abort("too long")
        world.step()
        assert standing() == set()

    def test_a_window_needs_no_more_than_its_own(
        self, make_world: Any, warnings: list[str]
    ) -> None:
        world = make_world(window())
        world.add("long", tokens(14), 1)
        assert warnings == []

    @pytest.mark.parametrize("uses_v2_runner", [False, True])
    def test_a_request_that_grows_beyond_the_pool(
        self, uses_v2_runner: bool, make_world: Any, warnings: list[str]
    ) -> None:
        """vLLM computes the request again and again, so steps are full but the request never
        ends."""
        world = make_world(
            reserves_full_input=False, enable_caching=False, uses_v2_runner=uses_v2_runner
        )
        world.add("grows", tokens(10), 4)
        assert warnings == []
        for _ in range(30):
            world.step()
        (line,) = warnings
        assert "request grows can never finish: its 161 tokens need 11 blocks" in line

    @MODES
    def test_requests_that_hold_the_blocks_of_each_other(
        self, mode: str, make_world: Any, warnings: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("KVOXIDE", mode)
        world = make_world()
        two_sessions(world)
        world.steps(head.IDLE_SECONDS - 1)
        assert warnings == []
        world.steps(50)
        (line,) = warnings
        assert "kvoxide: standstill for 11 s (" in line
        assert "steps), reason blocks: request first (WAITING) waits for 4 more blocks" in line
        assert "2 of 10 blocks are free" in line
        assert "first (WAITING) holds 4" in line
        assert "second (WAITING) holds 4" in line
        assert standing() == {"blocks"}
        world.abort("second")
        world.step()
        assert standing() == set()
        while world.scheduler.has_unfinished_requests():
            world.step()
        assert len(warnings) == 1

    def test_the_end_is_logged_with_its_length(self, make_world: Any, lines: list[str]) -> None:
        world = make_world()
        two_sessions(world)
        world.steps(30)
        world.abort("second")
        world.step()
        assert lines[-1] == "kvoxide: standstill ended after 30 s, reason blocks."

    def test_a_few_slow_steps_are_no_standstill(self, make_world: Any, warnings: list[str]) -> None:
        world = make_world()
        two_sessions(world)
        for _ in range(head.IDLE_STEPS - 1):
            world.step(5)
        assert warnings == []
        world.step(5)
        assert len(warnings) == 1

    def test_blocks_that_are_sent_to_another_server_get_more_time(
        self, make_world: Any, warnings: list[str]
    ) -> None:
        connector = StuckConnector()
        connector.sending = {"sent"}
        world = make_world(connector=connector)
        world.add("sent", tokens(6), 1)
        world.step()
        world.step()
        world.add("waits", tokens(8, 1000), 1)
        world.steps(outside.SECONDS - 1)
        assert warnings == []
        world.steps(2)
        (line,) = warnings
        assert "reason blocks: request waits (WAITING) waits for 8 more blocks" in line
        assert "sent (FINISHED_LENGTH_CAPPED) holds 6" in line

    def test_a_head_whose_blocks_no_running_request_can_free(
        self, make_world: Any, warnings: list[str]
    ) -> None:
        world = make_world(num_blocks=41)
        world.session("idle", tokens(30))
        world.add("runs", tokens(2, 1000), 5000)
        world.step()
        world.add("waits", tokens(20, 2000), 1)
        world.steps(head.SECONDS - 1, each=0.5)
        assert warnings == []
        world.steps(5, each=0.5)
        assert world.scheduler.running
        (line,) = warnings
        assert "reason blocks: request waits (WAITING) waits for 20 more blocks" in line
        assert "idle (WAITING_FOR_STREAMING_REQ) holds 30" in line
        assert standing() == {"blocks"}
        world.abort("idle")
        world.steps(2)
        assert standing() == set()


class TestNoStandstill:
    def test_a_full_server_with_a_long_queue(self, make_world: Any, warnings: list[str]) -> None:
        world = make_world(max_num_seqs=4)
        world.add("runs", tokens(7), 40)
        for number in range(20):
            world.add(f"waits {number}", tokens(5, 1000 * (number + 1)), 1)
        for _ in range(35):
            assert world.step(20).total_num_scheduled_tokens
        assert warnings == []

    def test_a_server_without_a_free_slot(self, make_world: Any, warnings: list[str]) -> None:
        world = make_world(max_num_seqs=1, num_blocks=41)
        world.add("runs", tokens(1), 300)
        world.add("waits", tokens(1, 1000), 1)
        world.steps(250, each=1)
        assert world.scheduler.waiting
        assert warnings == []

    def test_a_session_that_waits_for_its_client(
        self, make_world: Any, warnings: list[str]
    ) -> None:
        world = make_world()
        session = world.session("session", tokens(4))
        world.steps(700, each=1)
        assert session.status == RequestStatus.WAITING_FOR_STREAMING_REQ
        assert warnings == []

    @pytest.mark.parametrize("state", [PauseState.PAUSED_NEW, PauseState.PAUSED_ALL])
    def test_a_paused_scheduler(
        self, state: PauseState, make_world: Any, warnings: list[str], clock: Clock
    ) -> None:
        connector = StuckConnector(later=LATER)
        world = make_world(connector=connector)
        world.scheduler.set_pause_state(state)
        world.add("later", tokens(2), 1)
        world.add("waits", tokens(2), 1)
        world.steps(700, each=1)
        world.scheduler.set_pause_state(PauseState.UNPAUSED)
        connector.answers.clear()
        clock.now += 3600
        world.steps(2)
        assert warnings == []

    def test_an_hour_without_steps_does_not_count(
        self, make_world: Any, warnings: list[str], clock: Clock
    ) -> None:
        world = make_world(connector=StuckConnector(loads=(32, True)))
        world.add("loads", tokens(4), 1)
        world.steps(20)
        clock.now += 3600
        world.steps(2)
        assert warnings == []

    def test_loads_that_complete_one_after_the_other(
        self, make_world: Any, warnings: list[str]
    ) -> None:
        names = [f"load {number}" for number in range(20)]
        connector = StuckConnector(**dict.fromkeys(names, (16, True)))
        world = make_world(connector=connector, num_blocks=200, max_num_seqs=40)
        for number, name in enumerate(names):
            world.add(name, tokens(2, 1000 * number), 1)
        world.step()
        for name in names:
            world.steps(25)
            world.step(loaded=[name])
        assert warnings == []


class TestOther:
    def test_a_running_request_that_gets_no_tokens(
        self, make_world: Any, warnings: list[str]
    ) -> None:
        """vLLM #42722: a request counts more computed tokens than it has."""
        world = make_world()
        request = world.add("stuck", tokens(2), 50)
        world.step()
        request.num_computed_tokens = request.num_tokens
        world.steps(head.IDLE_SECONDS + 2)
        (line,) = warnings
        assert "reason other: request stuck (RUNNING) gets no tokens; it needs " in line
        assert standing() == {"other"}

    def test_a_head_that_is_not_admitted_although_it_fits(
        self, make_world: Any, warnings: list[str]
    ) -> None:
        """vLLM #45414: a chunk that ends at a block's end never fits into the budget."""
        world = make_world(num_blocks=60)
        scheduler = world.scheduler
        scheduler.need_mamba_block_aligned_split = True
        scheduler._mamba_block_aligned_split = _no_chunk_for_the_request_that_waits
        world.add("runs", tokens(2), 700)
        world.step()
        world.add("waits", tokens(2, 1000), 1)
        world.steps(head.SECONDS + 3, each=0.5)
        (line,) = warnings
        assert "reason other: request waits (WAITING) gets no tokens; it needs 2 more" in line
        assert standing() == {"other"}
        scheduler.need_mamba_block_aligned_split = False
        world.steps(2)
        assert standing() == set()


class TestReportsOfUsers:
    @MODES
    def test_loads_that_completed_wait_for_blocks_of_each_other(
        self, mode: str, make_world: Any, warnings: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """vLLM #57104: the first load needs one more block for drafts, and the second one holds it.
        vLLM's scheduler now reserves that block, so this test takes the reservation away."""
        monkeypatch.setenv("KVOXIDE", mode)
        connector = StuckConnector(first=(63, True), second=(48, True))
        world = make_world(
            connector=connector,
            num_blocks=8,
            num_spec_tokens=1,
            num_lookahead_tokens=1,
            drafts_with_cache=True,
            max_num_batched_tokens=128,
        )
        scheduler = world.scheduler
        scheduler._inflight_prefill_reserved_blocks = lambda: 0
        is_method = callable(scheduler._spec_decode_step_blocks)
        scheduler._spec_decode_step_blocks = (lambda: 0) if is_method else 0
        world.add("first", tokens(4), 5)
        world.add("second", tokens(3, 1000), 5)
        world.step()
        assert [each.status.name for each in scheduler.requests.values()] == 2 * [
            "WAITING_FOR_REMOTE_KVS"
        ]
        world.step(loaded=["first", "second"])
        world.steps(head.IDLE_SECONDS - 2)
        assert warnings == []
        world.steps(4)
        assert not scheduler.running
        (line,) = warnings
        assert (
            "reason blocks: request first (WAITING) waits for 1 more block for its 64 tokens"
            in line
        )
        assert "0 of 7 blocks are free" in line
        assert "second (WAITING_FOR_REMOTE_KVS) holds 3" in line
        assert standing() == {"blocks"}

    @MODES
    @pytest.mark.parametrize("reason", ["connector_later", "grammar", "remote_load"])
    def test_a_few_requests_run_and_all_others_are_deferred(
        self,
        reason: str,
        mode: str,
        make_world: Any,
        warnings: list[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """vLLM #53130: running and deferred requests together are ``max_num_seqs``, and none of the
        deferred ones is admitted."""
        monkeypatch.setenv("KVOXIDE", mode)
        connector = StuckConnector()
        world = make_world(connector=connector, num_blocks=200, max_num_seqs=8)
        for number in range(3):
            world.add(f"runs {number}", tokens(2, 1000 * number), 500)
        world.step()
        for number in range(5):
            name = f"deferred {number}"
            if reason != "grammar":
                connector.answers[name] = LATER if reason == "connector_later" else (16, True)
            request = world.add(name, tokens(2, 10_000 + 1000 * number), 1)
            if reason == "grammar":
                request.structured_output_request = Output(Future())
                request.status = RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
        world.steps(outside.SECONDS + 5, each=0.25)
        assert len(world.scheduler.running) == 3
        (line,) = warnings
        assert f"reason {reason}: 5 requests wait for " in line
        assert "request deferred 0 has waited for " in line
        assert standing() == {reason}


def _no_chunk_for_the_request_that_waits(request: Any, num_new_tokens: int, *_: int) -> int:
    return 0 if request.request_id == "waits" else num_new_tokens


def test_an_error_of_the_check_does_not_reach_the_scheduler(
    make_world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **kwargs: Any) -> int:
        raise RuntimeError("not so")

    monkeypatch.setattr(watcher, "examine", fail)
    monkeypatch.setattr(blocks, "num_needed", fail)
    with logged(logging.DEBUG) as seen:
        world = make_world()
        world.add("any", tokens(2), 2)
        world.steps(3)
    assert not world.scheduler.has_unfinished_requests()
    assert {line.split(":")[1] for line in seen} >= {" the check for stuck requests failed"}

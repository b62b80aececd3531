"""Tests of the same warning and gauge if requests wait for something else than blocks: a load, a
connector, a grammar or a slot."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from tests.testing.clock import Clock
from tests.vllm.standstill_world import MODES, Output, World, standing, tokens

# Import after the plugin.
from kvoxide.vllm.plugin.standstill import head, outside, watcher  # isort: skip
from vllm.v1.request import RequestStatus  # isort: skip

from tests.vllm.stuck_connector import LATER, StuckConnector  # isort: skip


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(1_000_000.0)
    monkeypatch.setattr(watcher, "monotonic", clock)
    return clock


@pytest.fixture
def make_world(clock: Clock) -> Callable[..., World]:
    return lambda *specs, **changes: World(clock, *specs, **changes)


class TestLoads:
    @MODES
    def test_a_load_that_never_completes_while_others_run(
        self, mode: str, make_world: Any, warnings: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("KVOXIDE", mode)
        world = make_world(connector=StuckConnector(stuck=(32, True)), num_blocks=100)
        world.add("stuck", tokens(4), 1)
        number = 0
        while not warnings and number < 1000:
            world.add(f"other {number}", tokens(2, 1000 + 100 * number), 1)
            world.step(1)
            number += 1
        (line,) = warnings
        assert number == pytest.approx(outside.SECONDS, abs=5)
        assert "reason remote_load: 1 request waits for KV that StuckConnector loads" in line
        assert "request stuck has waited for 60 s" in line
        assert standing() == {"remote_load"}
        world.step(1, loaded=["stuck"])
        world.step(1)
        world.step(1)
        assert standing() == set()
        assert len(warnings) == 1

    def test_one_lost_load_among_many_that_complete(
        self, make_world: Any, warnings: list[str]
    ) -> None:
        connector = StuckConnector(lost=(16, True))
        world = make_world(connector=connector, num_blocks=200)
        world.add("lost", tokens(2), 1)
        for number in range(int(outside.REQUEST_SECONDS / 10)):
            assert warnings == []
            name = f"other {number}"
            connector.answers[name] = (16, True)
            world.add(name, tokens(2, 1000 * (number + 1)), 1)
            world.steps(9)
            world.step(1, loaded=[name])
        world.steps(2)
        (line,) = warnings
        assert "reason remote_load: " in line
        assert "request lost has waited for 60" in line

    def test_clients_that_give_up_do_not_count_as_progress(
        self, make_world: Any, warnings: list[str]
    ) -> None:
        """The connector is broken, and each client aborts after 30 seconds."""
        connector = StuckConnector()
        world = make_world(connector=connector, num_blocks=200)
        for number in range(8):
            connector.answers[f"stuck {number}"] = (16, True)
            world.add(f"stuck {number}", tokens(2, 1000 * number), 1)
            world.steps(15)
            if number:
                world.abort(f"stuck {number - 1}")
        assert len(warnings) == 1
        assert "reason remote_load: " in warnings[0]


class TestConnectorWithoutAnswer:
    @MODES
    def test_a_connector_that_always_answers_later(
        self, mode: str, make_world: Any, warnings: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("KVOXIDE", mode)
        connector = StuckConnector(first=LATER, second=LATER)
        world = make_world(connector=connector)
        world.add("first", tokens(2), 1)
        world.add("second", tokens(2, 1000), 1)
        world.steps(outside.SECONDS - 2)
        assert warnings == []
        world.steps(10)
        (line,) = warnings
        assert "reason connector_later: 2 requests wait for StuckConnector, which gives no" in line
        assert "request first has waited for " in line
        assert standing() == {"connector_later"}
        assert "get_num_new_matched_tokens" not in vars(connector)
        connector.answers.clear()
        world.steps(3)
        assert standing() == set()
        assert not world.scheduler.has_unfinished_requests()

    def test_a_connector_is_asked_no_more_often(self, make_world: Any) -> None:
        connector = StuckConnector(first=LATER)
        world = make_world(connector=connector)
        world.add("first", tokens(2), 1)
        for _ in range(500):
            world.step()
        assert connector.num_queries == 500

    def test_a_connector_whose_method_cannot_be_replaced_still_works(
        self, make_world: Any, warnings: list[str]
    ) -> None:
        class Sealed(StuckConnector):
            def __setattr__(self, name: str, value: object) -> None:
                if name == "get_num_new_matched_tokens":
                    raise AttributeError(name)
                super().__setattr__(name, value)

        world = make_world(connector=Sealed(first=LATER))
        world.add("first", tokens(2), 1)
        world.steps(outside.SECONDS + 5)
        (line,) = warnings
        assert "reason other: request first (WAITING) gets no tokens" in line


class TestGrammar:
    def test_a_grammar_that_is_never_compiled(self, make_world: Any, warnings: list[str]) -> None:
        world = make_world()
        request = world.add("json", tokens(2), 1)
        grammar: Future[object] = Future()
        request.structured_output_request = Output(grammar)
        request.status = RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
        world.steps(outside.SECONDS + 3)
        (line,) = warnings
        assert "reason grammar: 1 request waits for a grammar that is not compiled" in line
        assert standing() == {"grammar"}
        world.abort("json")
        world.step()
        assert standing() == set()


class TestSlots:
    def test_idle_sessions_that_hold_all_slots(self, make_world: Any, warnings: list[str]) -> None:
        world = make_world(max_num_seqs=2)
        world.session("first", tokens(2))
        world.session("second", tokens(2, 1000))
        world.add("waits", tokens(2, 2000), 1)
        world.steps(head.IDLE_SECONDS + 2)
        (line,) = warnings
        assert "reason streaming: 2 sessions without input hold slots" in line
        assert "the server has 2; request waits waits for a slot" in line
        assert standing() == {"streaming"}
        world.abort("first")
        world.step()
        assert standing() == set()

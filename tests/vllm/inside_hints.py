"""Tests of sessions and KV hints of vLLM's requests, inside vLLM."""

import itertools
import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from kvoxide._core_vllm import VllmGrantedHints
from kvoxide.vllm.environment import counters
from vllm import SamplingParams
from vllm.plugins import load_general_plugins

load_general_plugins()

from tests.testing.bad_input import IN_HINTS, Row, rows  # noqa: E402
from tests.testing.logs import about  # noqa: E402
from tests.testing.small_world import (  # noqa: E402
    config,
    full,
    make_manager,
    make_request,
)
from tests.vllm.scheduler_world import SchedulerWorld  # noqa: E402

# Imported after the plugin.
from vllm.v1.request import RequestStatus  # noqa: E402, isort: skip

try:
    from vllm.v1.kv_hints import KvHintAction, KvHintsEnvelope
except ImportError:  # vLLM 0.32.0 has no envelope; kvoxide reads any object with its attributes
    KvHintAction = KvHintsEnvelope = SimpleNamespace

BLOCK = 16
OLDER = range(50, 53)
NEW_PROMPTS = itertools.count(1_000)


@pytest.fixture(autouse=True)
def adaptive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVOXIDE_POLICY", "adaptive")
    monkeypatch.setenv("KVOXIDE_CHECK", "1")
    monkeypatch.setenv("KVOXIDE", "require")
    monkeypatch.setattr(counters, "_counters", {})


def counted() -> dict[tuple[str, str], float]:
    """Return the number of hints by kind and result."""
    values = counters.counters().get("kvoxide_hints_total", {})
    found = [(dict(labels), number) for labels, number in values.items()]
    return {(labels["hint"], labels["result"]): number for labels, number in found}


def action(kind: str, version: Any = "0.1", **payload: Any) -> Any:
    return KvHintAction(action_id="a", action_type=kind, action_version=version, payload=payload)


def envelope(*actions: Any, version: str = "0.1") -> Any:
    return KvHintsEnvelope(protocol_version=version, message_id="m", actions=list(actions))


def as_json(*actions: dict[str, Any], version: str = "0.1") -> str:
    return json.dumps({"protocol_version": version, "message_id": "m", "actions": actions})


def plain_action(kind: str, **payload: Any) -> dict[str, Any]:
    return {"action_id": "a", "action_type": kind, "action_version": "0.1", "payload": payload}


def request(
    name: object,
    prompt: int,
    num_blocks: int,
    *,
    session: Any = None,
    hints: Any = None,
    extra: Any = None,
) -> Any:
    first = prompt * 100_000
    made = make_request(name, list(range(first, first + num_blocks * BLOCK + 1)))
    made.sampling_params = SamplingParams(max_tokens=10, extra_args=extra)
    made.session_id = session
    made.kv_hints = hints
    return made


def admit(manager: Any, served: Any) -> int:
    hit, num_hit, *_ = manager.get_computed_blocks(served)
    num_new = served.num_tokens - num_hit
    assert manager.allocate_slots(served, num_new, num_hit, hit) is not None
    served.num_computed_tokens = served.num_tokens
    return int(num_hit)


def serve(manager: Any, served: Any) -> int:
    """Serve a request from look-up to end. Return the tokens that it hit."""
    num_hit = admit(manager, served)
    served.status = RequestStatus.FINISHED_STOPPED
    manager.free(served)
    return num_hit


def make_adaptive() -> Any:
    return make_manager(kv_cache_config=config(full()))


def num_cached(manager: Any, prompt: int, num_blocks: int) -> int:
    return int(manager.get_computed_blocks(request("probe", prompt, num_blocks))[1]) // BLOCK


def fill(manager: Any, num_requests: int = 60) -> None:
    for number in range(100, 100 + num_requests):
        serve(manager, request(f"other {number}", number, 20))


def serve_older(manager: Any) -> None:
    for number in OLDER:
        serve(manager, request(f"older {number}", number, 23))


def num_older(manager: Any) -> int:
    return sum(num_cached(manager, number, 23) for number in OLDER)


def evict(manager: Any, num_blocks: int) -> None:
    """Serve a prompt of new blocks, for which this number of cached blocks is evicted."""
    *_, num_empty = manager.engine.count_blocks()
    serve(manager, request("newest", next(NEW_PROMPTS), num_empty + num_blocks - 1))


# Retain


@pytest.mark.parametrize("kind", ["retain", "kv.retain"])
@pytest.mark.parametrize("version", ["0.1", "1.0", "1"])
def test_a_retained_range_outlasts_traffic(kind: str, version: str) -> None:
    manager = make_adaptive()
    hints = envelope(action(kind, version, priority=80, start=0, end=64), version=version)
    serve(manager, request("kept", 1, 8, hints=hints))
    fill(manager)
    assert num_cached(manager, 1, 8) == 4
    assert counted() == {("retain", "taken"): 1}


def test_retain_without_a_range_has_all_tokens() -> None:
    manager = make_adaptive()
    serve(manager, request("kept", 1, 8, hints=envelope(action("retain", priority=80))))
    fill(manager)
    assert num_cached(manager, 1, 8) == 8


@pytest.mark.parametrize(("name", "kept"), [("ttl", 0), ("duration", 0), (None, 4)])
def test_a_time_to_live_ends_the_priority(name: str | None, kept: int) -> None:
    manager = make_adaptive()
    ttl = {} if name is None else {name: 0.001}
    hints = envelope(action("retain", priority=80, end=64, **ttl))
    serve(manager, request("kept", 1, 8, hints=hints))
    fill(manager)
    assert num_cached(manager, 1, 8) == kept


@pytest.mark.parametrize("extra_key", ["kvoxide_hints", None])
def test_json_in_xargs_and_the_envelope_do_the_same(extra_key: str | None) -> None:
    manager = make_adaptive()
    fields = {"priority": 80, "start": 0, "end": 32}
    hints = envelope(action("retain", **fields)) if extra_key is None else None
    extra = extra_key and {extra_key: as_json(plain_action("retain", **fields))}
    serve(manager, request("kept", 1, 8, hints=hints, extra=extra))
    fill(manager)
    assert num_cached(manager, 1, 8) == 2
    assert counted() == {("retain", "taken"): 1}


@pytest.mark.parametrize(("ranges", "kept"), [([0, 64], 4), ([0, 32, 32, 48], 3), (None, 8)])
def test_ranges_of_a_claimed_priority(ranges: list[int] | None, kept: int) -> None:
    manager = make_adaptive()
    extra: dict[str, Any] = {"kvoxide_priority": 80}
    if ranges is not None:
        extra["kvoxide_priority_ranges"] = ranges
    serve(manager, request("kept", 1, 8, extra=extra))
    fill(manager)
    assert num_cached(manager, 1, 8) == kept
    assert counted() == {("priority", "taken"): 1}


# Release and the end of a session


@pytest.mark.parametrize(
    ("hints", "extra"),
    [
        (envelope(action("session_end")), None),
        (envelope(action("kv.session_end")), None),
        (envelope(action("release")), None),
        (None, {"kvoxide_session_end": 1}),
        (None, {"kvoxide_session_end": True}),
        (None, {"kvoxide_session_end": 1.0}),
        (None, {"kvoxide_hints": as_json(plain_action("session_end"))}),
    ],
)
def test_an_ended_session_is_evicted_first(hints: Any, extra: Any) -> None:
    for ends in (True, False):
        manager = make_adaptive()
        serve_older(manager)
        given = {"hints": hints, "extra": extra} if ends else {}
        serve(manager, request("last", 1, 8, session="s", **given))
        evict(manager, 8)
        assert num_cached(manager, 1, 8) == (0 if ends else 8)
        assert num_older(manager) == 3 * 23 - (0 if ends else 8)


def test_a_released_range_is_evicted_first() -> None:
    manager = make_adaptive()
    serve_older(manager)
    hints = envelope(action("release", start=64, end=128))
    serve(manager, request("half", 1, 8, hints=hints))
    evict(manager, 4)
    assert (num_cached(manager, 1, 8), num_older(manager)) == (4, 3 * 23)
    assert counted() == {("release", "taken"): 1}


def test_blocks_that_another_session_hit_are_not_released() -> None:
    manager = make_adaptive()
    serve_older(manager)
    serve(manager, request("a", 1, 8, session="a"))
    assert serve(manager, request("b", 1, 8, session="b")) == 8 * BLOCK
    serve(manager, request("end", 1, 8, session="a", hints=envelope(action("session_end"))))
    evict(manager, 4)
    assert (num_cached(manager, 1, 8), num_older(manager)) == (8, 3 * 23 - 4)


def finish(manager: Any, served: Any, end: str) -> None:
    """Let a running request end, or preempt it, in the order in which vLLM's scheduler does it."""
    status = {
        "stop": RequestStatus.FINISHED_STOPPED,
        "abort": RequestStatus.FINISHED_ABORTED,
        "preempt": None,
    }[end.removesuffix(" later")]
    served.status = RequestStatus.RUNNING if status is None else status
    if end.endswith("later"):
        manager.block_pool.free_blocks(reversed(manager.pop_blocks_for_free(served)))
    else:
        manager.free(served)
    if status is None:
        served.status = RequestStatus.PREEMPTED
        served.num_computed_tokens = 0
        served.num_preemptions += 1


@pytest.mark.parametrize("end", ["stop", "abort", "preempt", "stop later", "preempt later"])
def test_only_a_request_that_ends_gives_its_blocks_up(end: str) -> None:
    manager = make_adaptive()
    serve_older(manager)
    served = request("last", 1, 8, session="s", hints=envelope(action("session_end")))
    admit(manager, served)
    finish(manager, served, end)
    evict(manager, 4)
    is_preempted = end.startswith("preempt")
    assert num_cached(manager, 1, 8) == (8 if is_preempted else 4)
    if is_preempted:
        assert admit(manager, served) == 8 * BLOCK
        finish(manager, served, "stop")
        evict(manager, 8)
        assert num_cached(manager, 1, 8) == 0
    assert counted() == {("session_end", "taken"): 1}


def test_the_scheduler_preempts_without_giving_up() -> None:
    world = SchedulerWorld(num_blocks=12)
    first = world.add("a", list(range(64)), 60, extra={"kvoxide_session_end": 1})
    second = world.add("b", list(range(1000, 1064)), 60, extra={"kvoxide_session_end": 1})
    world.run()
    assert first.num_preemptions + second.num_preemptions > 0
    assert all(it.status == RequestStatus.FINISHED_LENGTH_CAPPED for it in (first, second))
    assert counted() == {("session_end", "taken"): 2}


@pytest.mark.parametrize("ends", ["abort", "stop"])
def test_the_scheduler_gives_up_at_the_end(ends: str) -> None:
    world = SchedulerWorld()
    manager = world.scheduler.kv_cache_manager
    serve_older(manager)
    world.add(
        "a",
        list(range(100_000, 100_129)),
        5 if ends == "stop" else 600,
        extra={"kvoxide_session_end": 1},
    )
    if ends == "abort":
        world.step()
        world.step()
        world.step()
        world.abort("a")
    world.run()
    evict(manager, 8)
    assert (num_cached(manager, 1, 8), num_older(manager)) == (0, 3 * 23)


# Counts


@pytest.mark.parametrize(
    ("hints", "expected"),
    [
        ([action("retain", priority=80, end=64)], {("retain", "taken"): 1}),
        ([action("retain", priority=80, ttl=0)], {("retain", "expired"): 1}),
        ([action("retain", priority=80, duration=-5)], {("retain", "expired"): 1}),
        ([action("demote")], {("other", "unknown"): 1}),
        ([action("kv.fetch", keys=[1])], {("other", "unknown"): 1}),
        ([action("retain", "2.0", priority=80)], {("retain", "unknown"): 1}),
        ([action("session_end", "")], {("session_end", "unknown"): 1}),
        (
            [action("release", end=16), action("release", end=0), action("pin")],
            {("release", "taken"): 1, ("release", "malformed"): 1, ("other", "unknown"): 1},
        ),
    ],
)
def test_each_action_has_one_count(hints: list[Any], expected: dict[Any, int]) -> None:
    manager = make_adaptive()
    serve(manager, request("a", 1, 8, hints=envelope(*hints)))
    assert counted() == expected
    reported = manager.engine.hint_counts()
    assert {(hint, it): n for hint in reported for it, n in reported[hint].items()} == expected


def test_an_unknown_protocol_makes_each_action_unknown() -> None:
    hints = envelope(action("retain", priority=80), action("session_end"), version="9")
    serve(make_adaptive(), request("a", 1, 8, hints=hints))
    assert counted() == {("retain", "unknown"): 1, ("session_end", "unknown"): 1}


def test_a_priority_above_the_limit_is_clipped(
    monkeypatch: pytest.MonkeyPatch, lines: list[str]
) -> None:
    monkeypatch.setenv("KVOXIDE_PRIORITY", "60")
    manager = make_adaptive()
    for name in "ab":
        hints = envelope(action("retain", priority=80), action("retain", priority=60))
        serve(manager, request(name, 1, 4, hints=hints))
    assert counted() == {("retain", "clipped"): 2, ("retain", "taken"): 2}
    (message,) = about(lines, "hint")
    assert "its priority 80 was lowered to 60, the limit of KVOXIDE_PRIORITY" in message


@pytest.mark.parametrize(("share", "num_blocks"), [("0", 1), ("0.25", 30)])
def test_a_range_beyond_the_protected_share_is_clipped(
    share: str, num_blocks: int, monkeypatch: pytest.MonkeyPatch, lines: list[str]
) -> None:
    monkeypatch.setenv("KVOXIDE_POLICY", f"adaptive,share={share}")
    manager = make_adaptive()
    hints = envelope(action("retain", priority=80), action("retain", priority=20))
    serve(manager, request("large", 1, num_blocks, hints=hints))
    assert counted() == {("retain", "clipped"): 1, ("retain", "taken"): 1}
    (message,) = about(lines, "hint")
    assert "the protected share of the pool has no room for all its blocks" in message


def test_a_full_protected_share_clips_the_next_request() -> None:
    manager = make_adaptive()
    hints = envelope(action("retain", priority=80))
    serve(manager, request("first", 1, 8, hints=hints))
    serve(manager, request("second", 2, 8, hints=hints))
    assert counted() == {("retain", "taken"): 1, ("retain", "clipped"): 1}


def test_an_operator_can_ignore_all_hints(
    monkeypatch: pytest.MonkeyPatch, lines: list[str]
) -> None:
    monkeypatch.setenv("KVOXIDE_PRIORITY", "off")
    manager = make_adaptive()
    hints = envelope(action("session_end"), action("retain", priority="high"), action("x"))
    serve_older(manager)
    serve(manager, request("a", 1, 4, session="s", hints=hints))
    evict(manager, 4)
    assert num_cached(manager, 1, 4) == 4
    assert sum(counted().values()) == 3
    assert {result for _, result in counted()} == {"ignored"}
    assert "because KVOXIDE_PRIORITY is off" in about(lines, "hint")[0]


# Values of all kinds


class Raising:
    """An object whose every attribute raises."""

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__"):
            return object.__getattribute__(self, name)
        raise RuntimeError(f"no {name}")

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


class RaisingList(list[Any]):
    def __iter__(self) -> Iterator[Any]:
        raise RuntimeError("no iteration")

    def __len__(self) -> int:
        raise RuntimeError("no length")


class Raised(dict[str, Any]):
    def __getitem__(self, key: str) -> Any:
        raise RuntimeError("no item")

    def __contains__(self, key: object) -> bool:
        raise RuntimeError("no item")


def retain(**payload: Any) -> Any:
    return envelope(action("retain", **payload))


def with_payload(payload: Any) -> Any:
    bad = SimpleNamespace(action_type="retain", action_version="0.1", payload=payload)
    return SimpleNamespace(protocol_version="0.1", message_id="m", actions=[bad])


BAD = [row for row in rows() if row.how == IN_HINTS]


def given_hints(row: Row) -> dict[str, Any]:
    """Return the arguments of :func:`request` that a row has."""
    return dict(eval(f"dict({row.given})", dict(globals())))


@pytest.mark.parametrize("row", BAD, ids=lambda row: row.what)
def test_a_bad_hint_is_counted_and_logged_once(row: Row, lines: list[str]) -> None:
    manager = make_adaptive()
    given = given_hints(row)
    num_blocks = given.pop("prompt_blocks", 8)
    assert serve(manager, request("a", 1, num_blocks, **given)) == 0
    assert serve(manager, request("b", 1, num_blocks, **given)) == num_blocks * BLOCK
    assert {result for _, result in counted()} == {row.answer}
    (message,) = about(lines, "hint")
    assert [part for part in row.says if part not in message] == [], message
    assert len(message) < 400
    # The next request is served with its own hints.
    manager.reset_prefix_cache()
    serve(manager, request("kept", 2, 8, hints=retain(priority=80, end=64)))
    fill(manager, 12)
    assert num_cached(manager, 2, 8) == 4


def test_each_call_with_a_bad_hint_is_counted() -> None:
    manager = make_adaptive()
    for number, row in enumerate(BAD):
        before = sum(counted().values())
        given = given_hints(row)
        given.pop("prompt_blocks", None)
        serve(manager, request(number, 1, 8, **given))
        added = sum(counted().values()) - before
        assert added == (5_000 if row.what == "thousands of actions" else 1), row.what


@pytest.mark.parametrize("actions", [RaisingList([action("session_end")]), (Raised(),)])
def test_lists_and_dictionaries_that_raise_stop_no_request(actions: Any) -> None:
    hints = SimpleNamespace(protocol_version="0.1", actions=actions)
    assert serve(make_adaptive(), request("a", 1, 8, hints=hints)) == 0
    assert sum(counted().values()) == 1


@pytest.mark.parametrize("name", ["session_id", "kv_hints", "sampling_params"])
def test_an_attribute_of_the_request_that_raises_stops_no_request(name: str) -> None:
    served = request("a", 1, 8)
    kind = type(served)

    def fails(self: Any) -> Any:
        raise RuntimeError(name)

    served.__class__ = type("Other", (kind,), {name: property(fails)})
    assert serve(make_adaptive(), served) == 0
    assert counted() == {("other", "malformed"): 1}


def test_extra_args_that_raise_stop_no_request() -> None:
    served = request("a", 1, 8)
    served.sampling_params = Raising()
    assert serve(make_adaptive(), served) == 0
    assert counted() == {("other", "malformed"): 1}


def test_at_most_64_actions_are_read(lines: list[str]) -> None:
    many = [action("retain", priority=80, start=i % 100) for i in range(5_000)]
    manager = make_adaptive()
    extra = {"kvoxide_hints": as_json(plain_action("session_end"))}
    serve(manager, request("many", 1, 8, hints=envelope(*many), extra=extra))
    counts = counted()
    assert counts == {
        ("session_end", "taken"): 1,
        ("retain", "taken"): 63,
        ("other", "malformed"): 4_937,
    }
    assert "at most 64 actions" in about(lines, "hint")[0]


def test_a_session_that_comes_back_after_its_end_is_served() -> None:
    manager = make_adaptive()
    for turn in range(1, 6):
        ends = envelope(action("session_end")) if turn in (2, 4) else None
        hit = serve(manager, request(turn, 1, 4 * turn, session="s", hints=ends))
        assert hit == (turn - 1) * 4 * BLOCK
    assert counted() == {("session_end", "taken"): 2}


@pytest.mark.parametrize("session", [None, ""])
def test_an_empty_session_id_is_none(session: str | None) -> None:
    serve(make_adaptive(), request("a", 1, 8, session=session))
    assert counted() == {}
    fields = VllmGrantedHints(100).of_request(SimpleNamespace(session_id=session))
    assert fields == {}


@pytest.mark.parametrize("policy", ["adaptive", "standard"])
def test_hints_are_read_once_and_only_for_adaptive_retention(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVOXIDE_POLICY", policy)
    reads = []
    served = request("a", 1, 4)
    kind = type(served)

    def read(self: Any) -> Any:
        reads.append(1)
        return envelope(action("release"))

    served.__class__ = type("Other", (kind,), {"kv_hints": property(read)})
    serve(make_adaptive(), served)
    assert len(reads) == (1 if policy == "adaptive" else 0)
    assert counted() == ({("release", "taken"): 1} if policy == "adaptive" else {})


def test_the_newest_vllm_has_the_attributes_that_are_read() -> None:
    served = make_request("a", [1])
    assert hasattr(served, "session_id")
    assert hasattr(served, "kv_hints") or KvHintAction is SimpleNamespace


# Recorded fields


@pytest.mark.parametrize(
    ("given", "fields"),
    [
        ({}, {}),
        ({"session": "s"}, {"session": 0}),
        ({"hints": retain(priority=80)}, {"priority": 80}),
        ({"hints": retain(priority=80, ttl=2.5)}, {"priority": 80, "ttl": 2.5}),
        ({"hints": retain(priority=80, end=32)}, {"retain": [(0, 32, 80, None)]}),
        (
            {
                "hints": retain(priority=90, start=16, end=32, ttl=1),
                "extra": {"kvoxide_priority": 20},
            },
            {"retain": [(0, None, 20, None), (16, 32, 90, 1.0)]},
        ),
        ({"hints": envelope(action("release", start=16))}, {"release": [(16, None)]}),
        ({"hints": envelope(action("release", start=16, end=32))}, {"release": [(16, 32)]}),
        (
            {"hints": envelope(action("session_end")), "session": "s"},
            {"session": 0, "session_end": True},
        ),
        ({"hints": envelope(action("pin"))}, {}),
    ],
)
def test_granted_hints_are_recorded(given: dict[str, Any], fields: dict[str, Any]) -> None:
    assert VllmGrantedHints(100).of_request(request("a", 1, 8, **given)) == fields


def test_recorded_sessions_are_numbered_by_first_use() -> None:
    granted = VllmGrantedHints(100)
    sessions = ["b", "a", "b", "c", "a"]
    numbers = [granted.of_request(request("r", 1, 1, session=s))["session"] for s in sessions]
    assert numbers == [0, 1, 0, 2, 1]


def test_recorded_priorities_are_lowered_to_the_limit() -> None:
    served = request("a", 1, 8, hints=retain(priority=80, end=32))
    assert VllmGrantedHints(60).of_request(served) == {"retain": [(0, 32, 60, None)]}
    assert VllmGrantedHints(0).of_request(served) == {}

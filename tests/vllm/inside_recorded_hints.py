"""Tests of recorded priorities, sessions and hints: a replay has what the server granted, not what
its clients asked for."""

import gzip
import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.vllm.recorded_world import SchedulerWorld, closed, hit_tokens, lines, plain, prompt

# Import after the plugin.
from kvoxide.vllm.environment import counters  # isort: skip
from kvoxide._core_vllm import VllmGrantedHints  # isort: skip

CLAIMS = [
    {"kvoxide_priority": 80},
    {"kvoxide_priority": 60, "kvoxide_ttl": 2},
    {"kvoxide_priority": 0},
    {"kvoxide_ttl": 2.5},
    {"kvoxide_ttl": 0.0001},
    {"kvoxide_priority": 101},
    {"kvoxide_priority": -1},
    {"kvoxide_priority": "80"},
    {"kvoxide_priority": 80.0},
    {"kvoxide_priority": True},
    {"kvoxide_priority": None},
    {"kvoxide_priority": 80, "kvoxide_ttl": 0},
    {"kvoxide_priority": 80, "kvoxide_ttl": -1.5},
    {"kvoxide_priority": 80, "kvoxide_ttl": "2"},
    {"kvoxide_priority": 80, "kvoxide_ttl": True},
    {"kvoxide_priority": 80, "kvoxide_ttl": None},
    {"kvoxide_priority": 80, "kvoxide_ttl": float("nan")},
    {"kvoxide_priority": 80, "kvoxide_ttl": float("inf")},
    {"kvoxide_priority": 80, "kvoxide_ttl": [2]},
]


@pytest.fixture(autouse=True)
def adaptive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVOXIDE", "require")
    monkeypatch.setenv("KVOXIDE_POLICY", "adaptive")
    monkeypatch.setattr(counters, "_counters", {})


def result() -> str:
    """Return what the server did with the only claim."""
    counted = counters.counters()["kvoxide_hints_total"]
    (result,) = (dict(labels)["result"] for labels, number in counted.items() if number)
    return result


@pytest.mark.parametrize("limit", ["100", "60", "50", "off"])
@pytest.mark.parametrize("claim", CLAIMS, ids=str)
def test_the_recording_grants_what_the_server_grants(
    claim: dict[str, Any], limit: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVOXIDE_PRIORITY", limit)
    world = SchedulerWorld()
    world.add("any", prompt(1, 40), 2, extra=claim)
    world.run()
    closed(world)
    (line,) = lines(folder)
    done = result()
    if done in ("malformed", "expired", "ignored"):
        assert not {"priority", "ttl"} & line.keys()
        return
    claimed = claim.get("kvoxide_priority", 50)
    assert line.get("priority") == (int(limit) if done == "clipped" else claimed)
    assert line.get("ttl") == (max(claim["kvoxide_ttl"], 0.001) if "kvoxide_ttl" in claim else None)


@pytest.mark.parametrize(
    "claim",
    [{"kvoxide_priority": 2**70}, {"kvoxide_priority": 80, "kvoxide_ttl": 10**400}],
    ids=["priority", "ttl"],
)
def test_numbers_that_vllm_itself_refuses_grant_nothing(claim: dict[str, Any]) -> None:
    request = SimpleNamespace(sampling_params=SimpleNamespace(extra_args=claim))
    assert VllmGrantedHints(100).of_request(request) == {}


@pytest.mark.parametrize("limit", ["100", "50"])
def test_a_replay_hits_what_the_server_hit(
    limit: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVOXIDE_PRIORITY", limit)
    world = SchedulerWorld()
    world.add("first", prompt(1, 64), 1, extra={"kvoxide_priority": 100})
    world.run()
    for number in range(2, 30):
        world.serve(f"other {number}", prompt(number, 300), 1)
    world.serve("again", prompt(1, 64), 1)
    closed(world)
    assert world.hits == (48 if limit == "100" else 0)
    assert hit_tokens(folder, "--concurrency", "1") == world.hits


def hints(*actions: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    made = [
        {"action_id": "a", "action_type": kind, "action_version": "0.1", "payload": payload}
        for kind, payload in actions
    ]
    envelope = {"protocol_version": "0.1", "message_id": "m", "actions": made}
    return {"kvoxide_hints": json.dumps(envelope)}


def serve(world: SchedulerWorld, name: str, tokens: list[int], session: Any, extra: Any) -> Any:
    """Serve a request of a session, and return it."""
    request = world.add(name, tokens, 1, extra=extra)
    request.session_id = session
    world.run()
    return request


def test_sessions_are_recorded_as_numbers_by_first_use(folder: Path) -> None:
    world = SchedulerWorld()
    for number, session in enumerate(["secret-b", "secret-a", None, "secret-b", 7, "x" * 2_000]):
        serve(world, f"{number}", prompt(number, 40), session, None)
    closed(world)
    assert [line.get("session") for line in lines(folder)] == [0, 1, None, 0, None, None]
    for path in folder.iterdir():
        assert b"secret" not in plain(path)


@pytest.mark.parametrize("limit", ["100", "60"])
def test_granted_hints_are_recorded(
    limit: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVOXIDE_PRIORITY", limit)
    world = SchedulerWorld()
    granted = hints(
        ("retain", {"priority": 80, "ttl": 2.5, "end": 32}),
        ("retain", {"priority": 101}),
        ("release", {"start": 32}),
        ("release", {"start": 500}),
        ("pin", {}),
    )
    serve(world, "hinted", prompt(1, 64), "s", granted)
    serve(world, "last", prompt(1, 64), "s", {"kvoxide_session_end": True})
    closed(world)
    first, last = lines(folder)
    assert first["retain"] == [[0, 32, min(80, int(limit)), 2.5]]
    assert first["release"] == [[32, None]]
    assert not {"priority", "ttl", "session_end"} & first.keys()
    assert (last["session"], last["session_end"]) == (first["session"], True)
    assert not {"retain", "release"} & last.keys()


@pytest.mark.parametrize("seed", range(2))
def test_a_replay_of_hints_hits_what_the_server_hit(
    seed: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Agents take turns in a small pool, with sessions, ends of sessions, and ranges."""
    rng = random.Random(seed)
    world = SchedulerWorld(num_blocks=45)
    said = {agent: prompt(agent, 40) for agent in range(6)}
    for turn in range(60):
        agent = rng.randrange(6)
        ends = rng.random() < 0.15
        extra = {"kvoxide_session_end": True} if ends else None
        if not ends and rng.random() < 0.3:
            start = rng.randrange(len(said[agent]))
            kind, fields = rng.choice([("retain", {"priority": 80}), ("release", {})])
            extra = hints((kind, {"start": start, "end": start + 48, **fields}))
        serve(world, f"{turn}", said[agent], f"agent {agent}", extra)
        said[agent] = prompt(agent + 10 * turn, 40) if ends else said[agent] + prompt(turn, 20)
        if len(said[agent]) > 300:
            said[agent] = said[agent][:100] + prompt(turn + 500, 20)
    closed(world)
    assert world.hits > 0
    assert hit_tokens(folder, "--arrivals", "recorded") == world.hits
    # The hits depend on the hints, so the replay has read them.
    assert hits_without_hints(folder) != world.hits


def hits_without_hints(folder: Path) -> int:
    """Return the hits of a replay of the same requests without their sessions and hints."""
    other = folder.parent / "without hints"
    other.mkdir()
    for path in folder.glob("requests-*.jsonl.gz"):
        records = [json.loads(line) for line in plain(path).splitlines()]
        for record in records:
            for name in ("session", "session_end", "retain", "release"):
                record.pop(name, None)
        text = "".join(json.dumps(record) + "\n" for record in records)
        (other / path.name).write_bytes(gzip.compress(text.encode()))
    return hit_tokens(other, "--arrivals", "recorded")


def test_a_wrong_limit_ends_the_recording(
    folder: Path, monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    monkeypatch.setenv("KVOXIDE", "off")
    monkeypatch.setenv("KVOXIDE_PRIORITY", "101")
    world = SchedulerWorld()
    world.serve("any", prompt(1, 40), 2)
    assert world.scheduler._kvoxide_recorder is None
    (warning,) = warnings
    assert "KVOXIDE_PRIORITY='101' is not valid" in warning

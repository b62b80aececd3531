"""Tests of recorded priorities: a replay has the priorities that the server gave, not the ones that
its clients claimed."""

from pathlib import Path
from typing import Any

import pytest

from tests.vllm.recorded_world import SchedulerWorld, closed, hit_tokens, lines, prompt

# Import after the plugin.
from kvoxide.vllm.environment import counters  # isort: skip
from kvoxide.vllm.recording.granted import granted_retention  # isort: skip

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
    counted = counters.counters()["kvoxide_priority_requests_total"]
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
    if done in ("invalid", "ignored"):
        assert not {"priority", "ttl"} & line.keys()
        return
    claimed = claim.get("kvoxide_priority")
    assert line.get("priority") == (int(limit) if done == "lowered" else claimed)
    assert line.get("ttl") == (max(claim["kvoxide_ttl"], 0.001) if "kvoxide_ttl" in claim else None)


@pytest.mark.parametrize(
    "claim",
    [{"kvoxide_priority": 2**70}, {"kvoxide_priority": 80, "kvoxide_ttl": 10**400}],
    ids=["priority", "ttl"],
)
def test_numbers_that_vllm_itself_refuses_grant_nothing(claim: dict[str, Any]) -> None:
    assert granted_retention(claim, 100) == (None, None)


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

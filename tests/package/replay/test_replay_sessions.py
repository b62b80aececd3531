"""Tests of sessions that are replayed in an open and in a closed loop."""

import json
from pathlib import Path
from typing import Any

import pytest
from kvoxide import ConfigError
from kvoxide._core import Serving, Trace

from tests.testing.traces import kvoxide, replay_json, succeed, write_trace

CLOCK = ("--blocks", "5000", "--step-time", "base=10ms,prefill=0s,context=0s,running=0s")


def turn(seconds: float, *ids: int, **fields: Any) -> dict[str, Any]:
    """Return a request of a session, whose answer takes 3 seconds."""
    return {
        "session_id": "a",
        "timestamp": seconds * 1000,
        "input_length": 512 * len(ids),
        "output_length": 300,
        "hash_ids": ids,
    } | fields


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    return write_trace(path, b"".join(json.dumps(row).encode() + b"\n" for row in rows))


def arrivals(folder: Path, rows: list[dict[str, Any]], *options: str) -> list[float]:
    path, out = write(folder / "trace", rows), folder / "rows.jsonl"
    succeed("replay", path, *CLOCK, "--per-request", out, *options)
    played = [json.loads(row) for row in out.read_bytes().splitlines()]
    return [row["arrival"] for row in played if row["policy"] != "unlimited"]


def near(*seconds: float) -> Any:
    """Match times up to the step after the last token, in which the request ends."""
    return pytest.approx(seconds, abs=0.021)


def test_a_turn_arrives_after_the_answer_and_at_its_distance(tmp_path: Path) -> None:
    rows = [turn(0, 1), turn(1, 1, 2), turn(9, 1, 2, 3), turn(9.5, 4, session_id="b")]
    assert arrivals(tmp_path, rows) == near(0, 3, 11, 9.5)
    assert arrivals(tmp_path, rows, "--arrivals", "closed") == near(0, 3, 11, 9.5)
    assert arrivals(tmp_path, rows, "--arrivals", "trace") == near(0, 1, 9, 9.5)
    assert arrivals(tmp_path, rows, "--arrivals", "full") == near(0, 0, 0, 0)
    fast = ("--arrivals", "closed", "--speed", "4")
    assert arrivals(tmp_path, rows, *fast) == near(0, 3, 6, 9.5 / 4)


def test_parallel_requests_of_a_session_do_not_wait_for_each_other(tmp_path: Path) -> None:
    rows = [turn(0, 1, 2), turn(0.5, 7, 8), turn(1, 1, 2, 3), turn(6, 7, 8, 9)]
    assert arrivals(tmp_path, rows) == near(0, 0.5, 3, 6)


def test_a_note_says_how_sessions_are_played(tmp_path: Path) -> None:
    rows = [turn(0, 1), turn(1, 1, 2)]
    path = write(tmp_path / "trace", rows)
    result = succeed("replay", path)
    assert "closed loop: 1 turns of sessions arrive after the answers before them" in result.stderr
    assert "at the trace's times, in a closed loop" in result.stdout
    record = replay_json(tmp_path, path)
    assert record["settings"]["serving"]["arrivals"] == "closed"
    assert "closed loop" not in succeed("replay", path, "--arrivals", "trace").stderr
    apart = write(tmp_path / "apart", [turn(0, 1), turn(1, 2, session_id="b")])
    assert "closed loop" not in succeed("replay", apart).stderr
    assert replay_json(tmp_path, apart)["settings"]["serving"] is None
    asked = succeed("replay", apart, "--arrivals", "closed")
    assert "no request continues a session, so --arrivals closed changes nothing" in asked.stderr


def test_a_line_with_a_time_and_a_delay_is_played_either_way(tmp_path: Path) -> None:
    rows = [turn(0, 1), turn(5, 1, 2, delay=500)]
    assert arrivals(tmp_path, rows) == near(0, 3.5)
    assert arrivals(tmp_path, rows, "--arrivals", "trace") == near(0, 5)


def test_the_end_of_a_session_is_read(tmp_path: Path) -> None:
    rows = [turn(0, 1, session_end=False), turn(1, 1, 2, session_end=True)]
    path = write(tmp_path / "trace", rows)
    assert "not used" not in succeed("replay", path).stderr
    refused = kvoxide("replay", write(tmp_path / "bad", [turn(0, 1, session_end="yes")]))
    assert refused.exit_code == 1
    assert "line 1: field 'session_end' is \"yes\"; expected true or false" in refused.stderr


def test_the_loop_of_a_trace_is_closed_from_python() -> None:
    trace = Trace()
    for row in (turn(0, 1), turn(1, 1, 2), turn(2, 1, 2)):
        trace.push_line(json.dumps(row).encode())
    assert not trace.is_closed_loop
    assert trace.close_loop() == 2
    assert trace.is_closed_loop
    assert trace.close_loop() == 0
    assert Serving(speed=1.0, closed_loop=True).closed_loop
    assert not Serving(speed=1.0).closed_loop
    with pytest.raises(ConfigError, match="closed_loop needs a speed"):
        Serving(closed_loop=True)

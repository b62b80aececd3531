"""``kvoxide why``: recorded and computed outcomes, spans, and the requests that lost most."""

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest
from kvoxide.lab.why.selection import Moment
from kvoxide.outcomes import NAMES, OUTCOMES

from tests.package.replay.test_recorded_schedules import END, PLAIN, SKIP, request, steps, write
from tests.testing.traces import kvoxide, succeed

HOUR = 3_600_000.0
BEGAN = 1_780_000_200.0  # 2026-05-28 20:30 UTC


def explain(folder: Path, *options: str) -> dict[str, Any]:
    path = folder.with_suffix(".json")
    succeed("why", folder, "--quiet", "--json", path, *options)
    record: dict[str, Any] = json.loads(path.read_bytes())
    return record


def counts(part: dict[str, Any]) -> dict[str, int]:
    return {name: tokens for name, tokens in part["outcomes"].items() if tokens}


def recorded(number: int, timestamp: float, **outcomes: int) -> dict[str, Any]:
    return request(number, timestamp, outcomes=outcomes)


def write_hours(folder: Path) -> Path:
    """Write four requests of three hours, with outcomes."""
    write(
        folder,
        steps(0, 0),
        recorded(0, 1.0, first_time=40),
        steps(1, 0),
        recorded(1, 2.0, evicted_tail=30, first_time=10),
        steps(2, 0),
        recorded(2, 0.75 * HOUR, evicted_full=33, hit_host=7),
        steps(3, 32),
        recorded(3, 2.75 * HOUR, hit_gpu=32, first_time=8),
        END,
        started=BEGAN,
    )
    return folder


def test_recorded_outcomes_are_shown(tmp_path: Path) -> None:
    record = explain(write_hours(tmp_path / "r"))
    assert (record["recorded_requests"], record["computed_requests"]) == (4, 0)
    assert record["unknown_outcomes"] == []
    assert counts(record) == {
        "hit_gpu": 32,
        "hit_host": 7,
        "first_time": 58,
        "evicted_full": 33,
        "evicted_tail": 30,
    }
    assert record["prompt_tokens"] == 160
    largest = record["largest_avoidable"]
    assert (largest["outcome"], largest["tokens"], largest["share"]) == (
        "evicted_full",
        33,
        33 / 160,
    )
    assert "--gpu-memory-utilization" in largest["settings"]
    assert [each["request"] for each in record["most_lost"]] == [2, 1]


def test_hours_are_hours_of_the_clock(tmp_path: Path) -> None:
    hours = explain(write_hours(tmp_path / "r"))["hours"]
    assert [hour["begin"] - BEGAN for hour in hours] == [-1800.0, 1800.0, 9000.0]
    assert [hour["requests"] for hour in hours] == [2, 1, 1]
    assert [hour["prompt_tokens"] for hour in hours] == [80, 40, 40]


@pytest.mark.parametrize(
    ("options", "requests"),
    [
        (("--from", "30m"), [2, 3]),
        (("--to", "30m"), [0, 1]),
        (("--from", "21:00"), [2, 3]),
        (("--from", "2026-05-28T21:00", "--to", "2026-05-28T23:00Z"), [2]),
        (("--from", "2026-05-28T22:00+01:00", "--to", "+1h30m0s"), [2]),
        (("--hour", "21"), [2]),
        (("--hour", "30m"), [2]),
        (("--hour", "23:00"), [3]),
        (("--request", "3"), [3]),
    ],
)
def test_a_span_selects_by_arrival(
    tmp_path: Path, options: tuple[str, ...], requests: list[int]
) -> None:
    record = explain(write_hours(tmp_path / "r"), *options)
    assert record["requests"] == len(requests)
    lost = {each["request"] for each in record["most_lost"]}
    assert lost == {1, 2} & set(requests)


def test_a_time_of_day_before_the_begin_is_on_the_next_day() -> None:
    assert Moment.parse("20:15").since_epoch(BEGAN) - BEGAN == 86_400 - 900
    assert Moment.parse("20:30").since_epoch(BEGAN + 59) == BEGAN


@pytest.mark.parametrize("text", ["", "1.5h", "m", "25:00", "90", "1h 30m", "14:30Z", "2026-13-01"])
def test_other_times_are_refused(tmp_path: Path, text: str) -> None:
    result = kvoxide("why", write_hours(tmp_path / "r"), f"--from={text}")
    assert result.exit_code == 2
    assert f"{text!r} is no time" in " ".join(result.output.replace("│", " ").split())


def test_outcomes_that_are_not_recorded_come_from_a_replay(tmp_path: Path) -> None:
    write(tmp_path / "r", *PLAIN)
    record = explain(tmp_path / "r")
    assert (record["recorded_requests"], record["computed_requests"]) == (0, 2)
    assert record["unknown_outcomes"] == ["hit_host", "hit_answer", "other_salt_or_adapter"]
    assert counts(record) == {"hit_gpu": 32, "first_time": 48}


def test_a_recording_can_have_both(tmp_path: Path) -> None:
    lines = list(PLAIN)
    lines[1] = recorded(0, 1.0, first_time=39, not_cacheable=1)
    write(tmp_path / "r", *lines)
    record = explain(tmp_path / "r")
    assert (record["recorded_requests"], record["computed_requests"]) == (1, 1)
    assert counts(record) == {"hit_gpu": 32, "first_time": 47, "not_cacheable": 1}
    output = succeed("why", tmp_path / "r").output
    assert "outcomes of 1 request recorded by the server, of 1 computed by a replay" in output
    replayed = explain(tmp_path / "r", "--replay")
    assert (replayed["recorded_requests"], replayed["computed_requests"]) == (0, 2)


def test_a_request_that_skips_the_cache_is_not_cacheable(tmp_path: Path) -> None:
    write(tmp_path / "r", *SKIP)
    record = explain(tmp_path / "r", "--request", "1")
    assert counts(record) == {"not_cacheable": 40}
    assert record["selected"][0]["outcomes"]["not_cacheable"] == 40


@pytest.mark.parametrize("policy", ["uncached-first", "adaptive", None])
def test_outcomes_sum_to_each_prompt(tmp_path: Path, policy: str | None) -> None:
    draw = random.Random(3)
    lines: list[dict[str, Any]] = []
    for number in range(60):
        ids = [draw.randrange(4), *(100 + draw.randrange(3) for _ in range(2)), 1000 + number]
        length = 16 * len(ids) - draw.randrange(16)
        lines.append({"schedule": [[[number, length, 0]], 1]})
        line = request(number, float(number), input_length=length, hash_ids=ids)
        lines.append(line | ({"skips_cache": True} if draw.random() < 0.1 else {}))
    write(tmp_path / "r", *lines, END, num_blocks=20, policy=policy)
    record = explain(tmp_path / "r", "--most", "60")
    assert record["requests"] == 60
    assert sum(record["outcomes"].values()) == record["prompt_tokens"]
    assert record["outcomes"]["evicted_full"] > 0
    assert record["most_lost"]
    for each in record["most_lost"]:
        assert sum(each["outcomes"].values()) == each["prompt_tokens"]
    assert ("hit_answer" in record["unknown_outcomes"]) is (policy != "adaptive")


def test_a_followed_schedule_knows_what_was_cached(tmp_path: Path) -> None:
    """The full attention of the shared prefix is cached, but no window inside of the prompt."""
    windowed = {"kind": "sliding_window", "sliding_window": 32, "block_size": 16, "cached": True}
    ids = list(range(20))
    write(
        tmp_path / "r",
        {"schedule": [[[0, 64, 0]], [[0, 64]], [[0, 64]], [[0, 64]], [[0, 64]], 1]},
        request(0, 1.0, input_length=320, hash_ids=ids),
        {"schedule": [[[1, 64, 0]], [[1, 64]], [[1, 64]], 1]},
        request(1, 5.0, input_length=192, hash_ids=[*ids[:10], 98, 99]),
        END,
        groups=[{"kind": "full_attention", "block_size": 16, "cached": True}, windowed],
        policy="vllm",
        num_blocks=100,
    )
    record = explain(tmp_path / "r", "--request", "1")
    assert counts(record) == {"first_time": 32, "never_cached": 160}


def test_all_ranks_and_servers_are_explained(tmp_path: Path) -> None:
    write(tmp_path / "r", *PLAIN, started=BEGAN)
    write(tmp_path / "r", *PLAIN, started=BEGAN + 60, rank=1, recording="b")
    record = explain(tmp_path / "r", "--request", "1")
    assert [(each["server"], counts(each)) for each in record["selected"]] == [
        (0, {"hit_gpu": 32, "first_time": 8}),
        (1, {"hit_gpu": 32, "first_time": 8}),
    ]
    output = succeed("why", tmp_path / "r", "--request", "1").output
    assert "server 0, request 1, arrived 2026-05-28 20:30:00 UTC" in output
    assert "server 1, request 1, arrived 2026-05-28 20:31:00 UTC" in output


def test_the_older_format_is_explained_by_its_times(tmp_path: Path) -> None:
    lines = [line for line in PLAIN if "request" in line]
    write(tmp_path / "r", *lines, kvoxide_recording=1)
    output = succeed("why", tmp_path / "r")
    assert "outcomes computed by a replay" in output.stdout
    assert "the recording has format 1, without steps" in output.stderr
    assert counts(explain(tmp_path / "r", "--request", "1")) == {"hit_gpu": 32, "first_time": 8}


def test_missing_parts_are_named(tmp_path: Path) -> None:
    folder = write_hours(tmp_path / "r")
    (path,) = folder.iterdir()
    lines = gzip.decompress(path.read_bytes()).replace(b'"part": 0', b'"part": 2')
    path.write_bytes(gzip.compress(lines)[:-20])
    output = succeed("why", folder)
    notes = output.stderr.splitlines()
    assert notes[0] == ("the beginning of the recording is missing; the explanation leaves it out")
    assert notes[1] == "files end too early; the explanation leaves it out"
    assert notes[2].startswith("the recording has no end (the server was killed")
    replayed = succeed("why", folder, "--replay").stderr
    assert "files that end too early: 1; all whole lines are explained" in replayed
    assert "The first requests have fewer hits than on the server" in replayed


def test_damaged_lines_can_be_left_out(tmp_path: Path) -> None:
    lines = [*PLAIN[:2], request(9, 2.0, outcomes={"hit_gpu": 1}), *PLAIN[2:]]
    write(tmp_path / "r", *lines)
    assert kvoxide("why", tmp_path / "r").exit_code == 1
    result = succeed("why", tmp_path / "r", "--skip-bad")
    assert "bad lines: 1;" in result.stderr
    assert "field 'outcomes' has 1 tokens" in result.stderr


def test_the_tables_name_reason_and_setting(tmp_path: Path) -> None:
    output = succeed("why", write_hours(tmp_path / "r")).output
    assert "4 requests, 160 prompt tokens, arrived 2026-05-28 20:30:00 to" in output
    assert "outcomes recorded by the server" in output
    assert "Largest avoidable reason: evicted_full, 33 tokens (20.6% of the prompts)." in output
    assert [name for name in NAMES if f" {name} " not in output] == []
    assert "2026-05-28 21:00         1             40  17.5%        0.0%      82.5%" in output
    assert "request 2  2026-05-28 21:15:00             40    7         33  evicted_full" in output


def test_a_recording_without_losses_says_so(tmp_path: Path) -> None:
    write(tmp_path / "r", *PLAIN)
    output = succeed("why", tmp_path / "r").output
    assert "No token was computed for a reason that a setting avoids." in output
    assert "The requests that lost most" not in output


def test_each_outcome_is_read_from_a_recording(tmp_path: Path) -> None:
    for index, outcome in enumerate(OUTCOMES):
        write(tmp_path / str(index), steps(0, 0), recorded(0, 1.0, **{outcome.name: 40}), END)
        record = explain(tmp_path / str(index))
        assert counts(record) == {outcome.name: 40}
        found = record["largest_avoidable"]
        assert (found and found["outcome"]) == (outcome.name if outcome.is_avoidable else None)

"""Times of traces: units, text, offsets, order, and what is said of them."""

import json
from pathlib import Path

import pytest
from kvoxide import KVCacheGroupSpec, Serving, Simulation, Trace
from kvoxide.lab.replay.input import read_trace
from kvoxide.lab.replay.input.trace_file import TraceFileError

from tests.testing.traces import succeed, write_trace

ROW = {"input_length": 16, "output_length": 1, "hash_ids": [1]}


def lines(times: list[object], **fields: object) -> bytes:
    rows = ({**ROW, "timestamp": time, **fields} for time in times)
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def azure(*times: str) -> bytes:
    rows = (f"{time},16,1" for time in times)
    return "\n".join(("TIMESTAMP,ContextTokens,GeneratedTokens", *rows)).encode()


def arrivals(trace: Trace) -> list[float]:
    """Seconds from the first arrival to each, as they are played."""
    groups = [KVCacheGroupSpec("full_attention", 16)]
    result = Simulation(trace, groups, 1000, serving=Serving(speed=1.0)).run()
    assert result.serving is not None
    return [round(float(moment), 6) for moment in result.serving.moments[:, 0]]


def read(tmp_path: Path, content: bytes, **options: str) -> tuple[list[float], list[str]]:
    file = read_trace(write_trace(tmp_path / "trace", content), **options)  # type: ignore[arg-type]
    said = [note for note in file.notes if "ids" not in note and "count from 0" not in note]
    return arrivals(file.trace), said


@pytest.mark.parametrize(
    ("times", "seconds", "word"),
    [
        ([1790000000.125, 1790000010.25, 1790000020.5], [0.0, 10.125, 20.375], "seconds since"),
        ([1790000000, 1790000010], [0.0, 10.0], "seconds since 1970"),
        ([1790000000125000, 1790000010250000], [0.0, 10.125], "microseconds since 1970"),
        ([1790000000125000000, 1790000010250000000], [0.0, 10.125], "nanoseconds since 1970"),
        ([0.0, 5.5, 11.0], [0.0, 5.5, 11.0], "seconds, because they are fractions"),
        ([81234.5, 81234.75, 81240.25], [0.0, 0.25, 5.75], "seconds, because they are fractions"),
        ([0, 5_500_000_000, 11_000_000_000], [0.0, 5.5, 11.0], "nanoseconds, by their size"),
        ([1790000000, 1790000010000], [0.0, 10.0], "have several units"),
        ([0, 5, 11], [0.0, 0.005, 0.011], "as milliseconds: 3 requests in 0.011 s"),
        ([0, 40.5, 81], [0.0, 0.0405, 0.081], "use --time-unit s for seconds"),
        ([0, 5_500_000, 11_000_000], [0.0, 5500.0, 11000.0], "use --time-unit us for microseconds"),
        ([0, 700.25, 9000.5], [0.0, 0.70025, 9.0005], "use --time-unit us for microseconds"),
        ([0, 98_000.25, 201_000.25], [0.0, 0.098, 0.201], "as microseconds, by their size"),
        ([0, 98_000_000.5, 2e8], [0.0, 0.098, 0.2], "as nanoseconds, by their size"),
        (["1790000000", "1790000010"], [0.0, 10.0], "seconds since 1970"),
    ],
)
def test_a_unit_is_inferred_with_a_note(
    tmp_path: Path, times: list[object], seconds: list[float], word: str
) -> None:
    found, said = read(tmp_path, lines(times))
    assert found == seconds
    assert len(said) == 1
    assert word in said[0]
    assert f"{len(times)} requests in " in said[0]


@pytest.mark.parametrize(
    "times",
    [
        [0, 3000, 6000],
        [0, 0, 0],
        [1790000000125, 1790000003125],
        [5],
    ],
)
def test_milliseconds_are_read_without_a_note(tmp_path: Path, times: list[object]) -> None:
    found, said = read(tmp_path, lines(times))
    assert found == [pytest.approx((time - times[0]) / 1000) for time in times]  # type: ignore[operator]
    assert said == []


def test_a_dense_load_with_fractions_is_read_by_its_tokens(tmp_path: Path) -> None:
    """Short requests every 10 s are no load for a server; long ones are."""
    times: list[object] = [index * 10.125 for index in range(100)]
    found, (said,) = read(tmp_path, lines(times))
    assert found[-1] == pytest.approx(99 * 0.010125, abs=1e-6)
    assert "read as milliseconds: 100 requests in 1 s; use --time-unit s for seconds" in said
    found, (said,) = read(tmp_path, lines(times, input_length=20_000, hash_ids=[0] * 40))
    assert found[-1] == 99 * 10.125
    assert "read as seconds, because they are fractions close together" in said


@pytest.mark.parametrize(("unit", "second"), [("s", 1), ("ms", 1e3), ("us", 1e6), ("ns", 1e9)])
def test_a_given_unit_is_used_without_a_note(tmp_path: Path, unit: str, second: float) -> None:
    found, said = read(tmp_path, lines([0, 2 * second, 3 * second]), time_unit=unit)
    assert (found, said) == ([0.0, 2.0, 3.0], [])


def test_a_unit_that_the_trace_says_itself_cannot_be_given(tmp_path: Path) -> None:
    content = azure("2026-10-25 12:00:00", "2026-10-25 12:00:05")
    found, said = read(tmp_path, content, time_unit="us")
    assert found == [0.0, 5.0]
    assert said == ["--time-unit us is not used, because the trace names its own units"]


@pytest.mark.parametrize(
    "times",
    [
        ("2026-09-21T12:00:00Z", "2026-09-21T12:00:10.5Z"),
        ("2026-09-21 12:00:00 UTC", "2026-09-21 12:00:10.5 UTC"),
        ("2026-09-21 12:00:00.0000000", "2026-09-21 12:00:10.5000000"),
        ("2026-09-21 12:00:00-07:00", "2026-09-21 12:00:10.500-07:00"),
        ("2026-09-21T12:00:00+0530", "2026-09-21T12:00:10.5+0530"),
        ("2026-10-25 02:59:58+02:00", "2026-10-25 02:00:08.5+01:00"),
        ("2026-12-31T23:59:58Z", "2027-01-01T01:00:08.5+01:00"),
    ],
)
def test_text_is_read_with_its_offset(tmp_path: Path, times: tuple[str, str]) -> None:
    assert read(tmp_path, lines(list(times))) == ([0.0, 10.5], [])
    assert read(tmp_path, azure(*times)) == ([0.0, 10.5], [])


def test_lines_are_played_in_order_of_time(tmp_path: Path) -> None:
    content = azure("2026-10-25 02:00:00+01:00", "2026-10-25 02:59:58+02:00")
    found, said = read(tmp_path, content)
    assert found == [0.0, 2.0]
    assert said == ["lines are not in order of time; requests are replayed in order of arrival"]
    half = azure("2026-10-25 02:59:58+02:00", "2026-10-25 01:00:00")
    assert read(tmp_path, half) == ([0.0, 2.0], ["1 times have no offset and are read as UTC"])


def test_text_that_is_no_time_is_refused(tmp_path: Path) -> None:
    for time in ("noon", "2026-10-25", "25.10.2026 12:00:00", "2026-10-25 12:00:00 CEST", True):
        path = write_trace(tmp_path / "trace", lines([time]))
        with pytest.raises(
            TraceFileError, match=r"line 1: field 'timestamp' is .*; expected a number"
        ):
            read_trace(path)
    assert read(tmp_path, lines([0, 7000]))[0] == [0.0, 7.0]
    null = write_trace(tmp_path / "trace", lines([None]))
    assert len(read_trace(null).trace) == 1


def test_bailians_seconds_may_be_milliseconds(tmp_path: Path) -> None:
    fields = {"chat_id": 1, "parent_chat_id": -1}
    found, said = read(tmp_path, lines([1790000000125, 1790000003125], **fields))
    assert found == [0.0, 3.0]
    assert said[0].startswith("times are read as milliseconds since 1970: 2 requests in 3 s")
    assert read(tmp_path, lines([0.5, 3.5], **fields)) == ([0.0, 3.0], [])


def test_commands_take_a_unit_and_say_what_they_inferred(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "trace", lines([0, 5, 11]))
    clock = ("--arrivals", "trace", "--blocks", "1000")
    assert "use --time-unit s for seconds" in succeed("replay", path, *clock).output
    given = succeed("replay", path, *clock, "--time-unit", "s").output
    assert "times are read as" not in given

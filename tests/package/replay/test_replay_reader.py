"""Traces from plain and compressed files and standard input; damaged ones."""

import gzip
import io
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import zstandard
from kvoxide import KVCacheGroupSpec, Simulation
from kvoxide.lab.replay.input import read_trace
from kvoxide.lab.replay.input.trace_file import TraceFileError

from tests.testing.traces import line, mooncake_line, write_trace

GOOD = line(range(100)) + b"\n" + mooncake_line([7, 8], 600, 2) + b"  \r\n" + line(range(3))


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "plain": lambda data: data,
    "gzip": gzip.compress,
    "gzip members": lambda data: gzip.compress(data[:150]) + gzip.compress(data[150:]),
    "zstd": zstd,
    "zstd frames": lambda data: zstd(data[:150]) + zstd(data[150:]),
    "pzstd": lambda data: b"\x50\x2a\x4d\x18\x04\x00\x00\x00\x00\x00\x00\x00" + zstd(data),
}


class Trickle(io.RawIOBase):
    """A pipe that gives a byte at a time."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        return self._data.read(1)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_file_is_read_whichever_way_it_is_compressed(tmp_path: Path, compression: str) -> None:
    # The name says nothing about the content.
    path = write_trace(tmp_path / "trace", COMPRESSIONS[compression](GOOD))
    file = read_trace(path)
    assert (len(file.trace), file.trace.num_prompt_tokens) == (3, 703)
    assert (file.trace.num_output_tokens, file.bad_lines) == (4, 0)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_standard_input(monkeypatch: pytest.MonkeyPatch, compression: str) -> None:
    pipe = Trickle(COMPRESSIONS[compression](GOOD))
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=pipe))
    assert len(read_trace("-").trace) == 3
    assert not pipe.closed


@pytest.mark.parametrize("name", ["gzip", "zstd"])
@pytest.mark.parametrize("damage", [lambda d: d[:-5], lambda d: d[: len(d) // 2]])
def test_a_stream_that_ends_too_early_is_an_error(
    tmp_path: Path, name: str, damage: Callable[[bytes], bytes]
) -> None:
    path = write_trace(tmp_path / "cut", damage(COMPRESSIONS[name](GOOD)))
    with pytest.raises(TraceFileError, match=rf"cut: the {name} stream ends too early"):
        read_trace(path, skip_bad=True)


@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_a_damaged_stream_is_an_error(tmp_path: Path, name: str) -> None:
    data = COMPRESSIONS[name](GOOD)
    path = write_trace(tmp_path / "hurt", data[:20] + b"\xff" * 10 + data[30:])
    with pytest.raises(TraceFileError, match=rf"hurt: the {name} stream is damaged"):
        read_trace(path, skip_bad=True)


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (b"not json", None),
        (b"[1, 2]", None),
        (b'{"prompt_token_ids": [1, 2]}', "output_length"),
        (b'{"prompt_token_ids": [1, 2], "output_length": -1}', "output_length"),
        (b'{"prompt_token_ids": [1, "two"], "output_length": 1}', "prompt_token_ids"),
        (b'{"input_length": 600, "output_length": 1}', "hash_ids"),
        (b'{"input_length": 600, "output_length": 1, "hash_ids": [1]}', "hash_ids"),
        (b'{"input_length": 2, "output_length": 1, "hash_ids": [1, 2, 3]}', "hash_ids"),
        (b'{"input_length": "long", "output_length": 1, "hash_ids": [1]}', "input_length"),
        (b"\xff\xfe", None),
    ],
)
def test_a_damaged_line_is_named(tmp_path: Path, bad: bytes, field: str | None) -> None:
    path = write_trace(tmp_path / "trace.jsonl", line(range(9)), b"\n", bad + b"\n")
    with pytest.raises(TraceFileError) as refused:
        read_trace(path)
    where = f"{path}, line 3: " + (f"field '{field}' " if field else "")
    assert str(refused.value).startswith(where)


def test_skip_bad_counts_and_remembers_the_first(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t", b"bad\n", line(range(9)), b"{}\n", line(range(5)))
    file = read_trace(path, skip_bad=True)
    assert (len(file.trace), file.bad_lines) == (2, 2)
    assert file.first_bad_line is not None
    assert file.first_bad_line.startswith(f"{path}, line 1: ")


def test_reading_stops_at_the_limit(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t", line(range(9)), line(range(5)), b"bad\n")
    assert read_trace(path, limit=2).trace.num_prompt_tokens == 14


@pytest.mark.parametrize("content", [b"", b"\n\n", gzip.compress(b"", mtime=0), zstd(b"")])
def test_an_empty_trace_is_an_error(tmp_path: Path, content: bytes) -> None:
    path = write_trace(tmp_path / "empty", content)
    with pytest.raises(TraceFileError, match="empty is empty"):
        read_trace(path)


def test_nothing_but_bad_lines_is_an_error(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t", b"bad\nworse\n")
    with pytest.raises(TraceFileError, match=r"holds no request; bad lines: 2"):
        read_trace(path, skip_bad=True)


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceFileError, match=r"missing: No such file"):
        read_trace(str(tmp_path / "missing"))
    with pytest.raises(TraceFileError, match=r"[Dd]irectory|the folder"):
        read_trace(str(tmp_path))


def test_the_sample_comes_with_the_package() -> None:
    assert len(read_trace("sample").trace) == 600


@pytest.mark.parametrize("width", [1, 16, 64, 100, 512, 1024, 4096])
def test_how_many_tokens_an_id_stands_for_is_found_out(tmp_path: Path, width: int) -> None:
    lengths = [7 * width + 1, 12 * width, 40 * width + width // 2 + 1]
    lines = [mooncake_line(range(-(-length // width)), length) for length in lengths]
    file = read_trace(write_trace(tmp_path / "t", line(range(9)), *lines))
    assert file.trace.tokens_per_id == width


def test_equal_ids_are_equal_tokens_whatever_they_stand_for(tmp_path: Path) -> None:
    """Two prompts that share three ids hit what these stand for, in whole blocks."""
    for width in (16, 48, 100):
        lines = [mooncake_line([1, 2, 3, ids], 3 * width + 1 + width // 2, 1) for ids in (4, 5)] + [
            mooncake_line(range(10), 10 * width),
            mooncake_line(range(20, 31), 10 * width + 1),
        ]
        trace = read_trace(write_trace(tmp_path / "t", *lines)).trace
        assert trace.tokens_per_id == width
        result = Simulation(trace, [KVCacheGroupSpec("full_attention", 16)], 1000).run()
        assert result.hit_tokens == 3 * width // 16 * 16


def test_damaged_lines_are_left_out_of_what_ids_stand_for(tmp_path: Path) -> None:
    bad = mooncake_line([1, 2], 700)
    good = mooncake_line(range(10), 640)
    path = write_trace(tmp_path / "t", good, bad, good)
    file = read_trace(path, skip_bad=True)
    assert (len(file.trace), file.bad_lines, file.trace.tokens_per_id) == (2, 1, 64)
    assert str(file.first_bad_line).startswith(f"{path}, line 2: field 'hash_ids' has 2 ids")

"""The plot files."""

import os
import struct
from pathlib import Path

import pytest

from tests.testing.traces import line, prompt, succeed, write_trace


def png_size(path: Path) -> tuple[int, int]:
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", data[16:24])
    return width, height


@pytest.fixture
def trace(tmp_path: Path) -> str:
    return write_trace(tmp_path / "t", *(line(prompt(n % 3)) for n in range(12)))


@pytest.mark.parametrize("blocks", ["100", "100,200,4000"])
def test_a_plot_is_a_png_of_a_sane_size(tmp_path: Path, trace: str, blocks: str) -> None:
    path = tmp_path / "plot.png"
    policies = ("--policy", "fifo", "--policy", "pin")
    succeed("replay", trace, "--blocks", blocks, *policies, "--plot", path)
    width, height = png_size(path)
    assert 1000 <= width <= 3000
    assert 500 <= height <= 2000


def test_a_plot_of_one_request(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "t", line(prompt(0)))
    succeed("replay", trace, "--plot", tmp_path / "plot.PNG")
    png_size(tmp_path / "plot.PNG")


def test_a_plot_when_every_request_is_rejected(tmp_path: Path, trace: str) -> None:
    succeed("replay", trace, "--blocks", "8", "--plot", tmp_path / "plot.png")
    png_size(tmp_path / "plot.png")


@pytest.mark.parametrize("name", [b"caf\xe9", b"$\\alpha", b"[red]$x$"])
def test_any_file_name_can_be_shown(tmp_path: Path, name: bytes) -> None:
    trace = write_trace(tmp_path / os.fsdecode(name), line(prompt(0)))
    succeed("replay", trace, "--plot", tmp_path / "plot.png", "--json", tmp_path / "r.json")
    png_size(tmp_path / "plot.png")


def test_the_ending_says_the_format(tmp_path: Path, trace: str) -> None:
    succeed("replay", trace, "--plot", tmp_path / "plot.svg")
    assert b"<svg" in (tmp_path / "plot.svg").read_bytes()

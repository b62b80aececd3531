"""The plot files."""

import os
import struct
from pathlib import Path

import numpy as np
import pytest
from kvoxide.lab.replay.input import parse_groups, parse_policy, read_trace
from kvoxide.lab.replay.page import figures
from kvoxide.lab.replay.results import draw_trace
from kvoxide.lab.replay.run import Outcome, Settings, compare
from matplotlib.collections import Collection
from matplotlib.colors import to_hex

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


@pytest.fixture
def outcomes(trace: str) -> list[Outcome]:
    policies = (parse_policy("fifo"), parse_policy("adaptive"))
    settings = Settings(parse_groups("full:16,swa:16:64"), (100,), policies, 1, 8192)
    return compare(settings, read_trace(trace), quiet=True).outcomes


def test_bars_of_a_plot_and_of_a_page_are_the_same(outcomes: list[Outcome]) -> None:
    axes = draw_trace(outcomes, "").axes[1]
    names = [text.get_text() for text in axes.get_yticklabels()]
    assert names == ["fifo", "adaptive", "unlimited"]
    styles = figures.Styles(names)
    bars = figures.fates(outcomes, styles, "", "whole").plot["data"][: len(axes.containers)]
    for drawn, bar in zip(axes.containers, bars, strict=True):
        assert drawn.get_label() == bar["name"]
        assert [patch.get_width() for patch in drawn][:2] == pytest.approx(list(bar["x"]))
        assert to_hex(drawn[0].get_facecolor()) == bar["marker"]["color"]


def test_blocks_of_a_plot_and_of_a_page_are_the_same(outcomes: list[Outcome]) -> None:
    axes = draw_trace(outcomes, "").axes[3]
    areas = {str(area.get_label()): _colour(area) for area in axes.collections}
    page = figures.blocks(outcomes[0])
    marks = [mark for mark in page.plot["data"] if mark.get("stackgroup")]
    assert areas == {mark["name"]: mark["fillcolor"] for mark in marks}
    assert "in use" in areas
    assert sum(mark["y"][-1] for mark in marks) == pytest.approx(1)


def _colour(area: Collection) -> str:
    red, green, blue, _ = np.asarray(area.get_facecolor())[0].tolist()
    return to_hex((red, green, blue))

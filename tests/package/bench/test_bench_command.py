"""Tests of ``kvoxide bench``, with small prompts."""

import importlib.util
import json
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from kvoxide.cli import main
from kvoxide.lab.bench import command, vllm_release
from kvoxide.lab.bench.layouts import LAYOUTS
from kvoxide.lab.bench.rows import HOST_ROWS, ROWS
from kvoxide.lab.bench.traffic import Effort
from kvoxide.lab.bench.vllm_release import UsableVllm, find_vllm
from kvoxide.vllm.environment import releases

from tests.testing.vllm_releases import NEWEST

SMALL = ("--tokens", "4096")
needs_vllm = pytest.mark.skipif(
    importlib.util.find_spec("vllm") is None, reason="vLLM is not installed"
)
needs_matplotlib = pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed"
)


@pytest.fixture(autouse=True)
def every_row_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure every row once. The tests do not depend on how exact the times are."""
    rounds = ("prefill_rounds", "hit_rounds", "decode_rounds", "short_rounds")
    monkeypatch.setattr(command, "Effort", partial(Effort, **dict.fromkeys(rounds, 1)))


def bench(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["bench", *map(str, arguments)])


def rows_in(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(path.read_bytes())["rows"]
    return rows


def require_every_row(rows: Sequence[dict[str, Any]], layouts: Sequence[str]) -> None:
    expected = [(layout, key) for layout in layouts for key in ROWS]
    assert [(row["layout"], row["row"]) for row in rows] == expected
    assert all(row["kvoxide_us"] > 0 for row in rows)


@pytest.mark.parametrize(
    ("options", "layouts"),
    [
        (["--alone"], tuple(LAYOUTS)),
        pytest.param(["--layout", "dsv4"], ("dsv4",), marks=needs_vllm, id="beside vLLM"),
    ],
)
def test_the_host_tier_is_measured_if_asked_for(
    options: list[str], layouts: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / "bench.json"
    result = bench(*SMALL, "--host", *options, "--json", path)
    assert result.exit_code == 0, result.output
    rows = rows_in(path)
    assert [(row["layout"], row["row"]) for row in rows] == list(product(layouts, HOST_ROWS))
    assert all(row["kvoxide_us"] > 0 for row in rows)
    assert all((row["vllm_us"] is None) == ("--alone" in options) for row in rows)


def test_alone_gives_times_of_every_layout(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    result = bench(*SMALL, "--alone", "--json", path)
    assert result.exit_code == 0, result.output
    assert "vLLM is not measured: left out by --alone" in result.stdout
    assert "vLLM µs" not in result.stdout
    rows = rows_in(path)
    require_every_row(rows, list(LAYOUTS))
    assert {row["ratio"] for row in rows} == {row["vllm_us"] for row in rows} == {None}


@needs_vllm
def test_beside_vllm_gives_ratios(tmp_path: Path) -> None:
    vllm = find_vllm()
    if vllm.version is None:
        pytest.skip(f"no vLLM to compare with: {vllm.why_not}")
    path = tmp_path / "bench.json"
    result = bench(*SMALL, "--layout", "dsv4", "--json", path)
    assert result.exit_code == 0, result.output
    assert f"; vLLM {vllm.version};" in result.stdout
    rows = rows_in(path)
    require_every_row(rows, ["dsv4"])
    for row in rows:
        assert row["ratio"] == pytest.approx(row["vllm_us"] / row["kvoxide_us"])


def test_without_vllm_it_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "find_vllm", lambda: UsableVllm(None, "it is not installed"))
    result = bench(*SMALL, "--layout", "full")
    assert result.exit_code == 0, result.output
    assert "vLLM is not measured: it is not installed" in result.stdout


def test_no_vllm_is_not_compared_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "installed_version", lambda: None)
    assert find_vllm() == UsableVllm(None, "it is not installed")


def test_a_changed_release_is_not_compared_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "installed_version", lambda: NEWEST)
    reasons = ["KVCacheManager.free has changed"]
    monkeypatch.setattr(vllm_release, "environment_reasons", lambda: reasons)
    assert find_vllm() == UsableVllm(None, reasons[0])


def test_layouts_are_measured_in_the_order_given(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    chosen = ("--layout", "dsv4", "--layout", "full", "--layout", "dsv4")
    result = bench(*SMALL, "--alone", "--quiet", *chosen, "--json", path)
    assert (result.exit_code, result.output) == (0, "")
    require_every_row(rows_in(path), ["dsv4", "full"])


@needs_matplotlib
def test_the_plot_is_written(tmp_path: Path) -> None:
    path = tmp_path / "bench.svg"
    result = bench(*SMALL, "--alone", "--layout", "full", "--plot", path)
    assert result.exit_code == 0, result.output
    assert b"<svg" in path.read_bytes()


def test_a_plot_without_matplotlib_is_refused_before_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    result = bench("--plot", tmp_path / "bench.png")
    assert result.exit_code == 2
    assert "plots need matplotlib; install kvoxide with its extra 'cli'" in result.output


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--layout", "llama"), "'llama' is not one of 'full', 'gemma', 'dsv4', 'qwen3-next'"),
        (("--tokens", "2047"), "2047 is not in the range 2048<=x<=4000000"),
        (("--tokens", "4000001"), "is not in the range"),
        (("--tokens", "many"), "'many' is not a valid integer"),
        (("--plot", "bench.txt"), "must end in one of .png, .pdf, .svg"),
        (("--json", "no/such/folder/bench.json"), "cannot write"),
        (("prompt",), "unexpected extra argument"),
    ],
)
def test_bad_options_are_refused(arguments: tuple[str, ...], says: str) -> None:
    result = bench(*arguments)
    assert result.exit_code == 2
    assert says in result.output


def test_one_file_for_two_results_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bench.svg"
    if importlib.util.find_spec("matplotlib") is None:
        pytest.skip("matplotlib is not installed")
    result = bench("--json", path, "--plot", path)
    assert result.exit_code == 1
    assert "is named for two results" in result.output


def test_a_wrong_policy_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    if find_vllm().version is None:
        pytest.skip("no vLLM to compare with")
    monkeypatch.setenv("VLLM_PIN_SWA_TOKENS", "perhaps")
    result = bench(*SMALL, "--layout", "full")
    assert result.exit_code == 1
    assert "VLLM_PIN_SWA_TOKENS" in result.output

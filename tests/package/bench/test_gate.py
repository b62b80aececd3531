"""Tests of the regression gate's verdicts, on invented numbers."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from kvoxide.lab.bench.comparison import Measurement
from kvoxide.lab.bench.rows import ROWS
from kvoxide.lab.bench.traffic import Effort
from kvoxide.lab.bench.vllm_release import UsableVllm

from benches import baseline, counts, gate, ratios
from benches.baseline import Section, Values
from benches.verdict import compare
from tests.testing.vllm_releases import INSTALLED, NEWEST

TOOLS = {"rustc": "1.2.3", "host": "somewhere"}
Measure = Callable[[Sequence[str]], ratios.Measurements]


@pytest.fixture(autouse=True)
def _baseline_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baseline, "PATH", tmp_path / "baseline.json")
    monkeypatch.setattr(gate, "find_vllm", lambda: UsableVllm(NEWEST, None))
    monkeypatch.setattr(counts, "missing_tool", lambda: None)
    monkeypatch.setattr(counts, "tools", lambda: TOOLS)


def counting(monkeypatch: pytest.MonkeyPatch, count: float) -> None:
    monkeypatch.setattr(counts, "count", lambda: {"full": {"free": count, "admit": 500.0}})


def measuring(monkeypatch: pytest.MonkeyPatch, kvoxide_us: Sequence[float]) -> list[list[str]]:
    """Let vLLM take 100 µs, and kvoxide these times, one run after the other. Return the measured
    layouts."""
    asked: list[list[str]] = []
    times: Iterator[float] = iter(kvoxide_us)

    def measure(layouts: Sequence[str], _: Effort) -> ratios.Measurements:
        asked.append(list(layouts))
        us = next(times)
        return {(la, "free"): Measurement(ROWS["free"], la, 100.0, us) for la in layouts}

    monkeypatch.setattr(ratios, "measure_rows", measure)
    return asked


def write_ratios(value: float) -> None:
    values: Values = {layout: {"free": value} for layout in ("full", "gemma", "dsv4")}
    baseline.write("ratios", Section(ratios.tools(NEWEST), values))


@pytest.mark.parametrize(("now", "status"), [(1000, 0), (1029, 0), (700, 0), (1031, 1), (1300, 1)])
def test_counts_within_three_per_cent_pass(
    monkeypatch: pytest.MonkeyPatch, now: float, status: int
) -> None:
    counting(monkeypatch, 1000)
    assert gate.main(["counts", "--renew"]) == 0
    counting(monkeypatch, now)
    assert gate.main(["counts"]) == status


@pytest.mark.parametrize(("adaptive", "status"), [(1299, 0), (900, 0), (1301, 1)])
def test_adaptive_retention_may_add_thirty_per_cent(
    monkeypatch: pytest.MonkeyPatch, adaptive: float, status: int
) -> None:
    values: Values = {"full": {"free": 1000}, "full-adaptive": {"free": adaptive}}
    monkeypatch.setattr(counts, "count", lambda: values)
    assert gate.main(["counts", "--renew"]) == 0
    assert gate.main(["counts"]) == status


def test_adaptive_retention_without_its_default_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "count", lambda: {"full-adaptive": {"free": 1000}})
    assert gate.main(["counts", "--renew"]) == 0
    assert gate.main(["counts"]) == 1


def test_an_operation_without_baseline_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    baseline.write("counts", Section(TOOLS, {"full": {"admit": 500}}))
    counting(monkeypatch, 1000)
    assert gate.main(["counts"]) == 1


def test_an_operation_that_is_gone_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    values: Values = {"full": {"admit": 500, "free": 1000, "reset": 7}}
    baseline.write("counts", Section(TOOLS, values))
    counting(monkeypatch, 1000)
    assert gate.main(["counts"]) == 1


def test_counts_of_another_compiler_are_not_compared(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    counting(monkeypatch, 1000)
    assert gate.main(["counts", "--renew"]) == 0
    counting(monkeypatch, 2000)
    monkeypatch.setattr(counts, "tools", lambda: {**TOOLS, "rustc": "1.3.0"})
    assert gate.main(["counts"]) == 0
    assert "made with rustc 1.2.3, here it is 1.3.0; " in capsys.readouterr().out


def test_without_valgrind_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(counts, "missing_tool", lambda: "valgrind")
    assert gate.main(["counts"]) == 0
    assert gate.main(["counts", "--renew"]) == 1
    assert "valgrind is not installed" in capsys.readouterr().out


def test_thirty_per_cent_slower_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    write_ratios(10)
    asked = measuring(monkeypatch, [13] * 5)
    assert gate.main(["ratios"]) == 1
    assert len(asked) == 5


def test_a_slow_run_is_repeated_before_it_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    write_ratios(10)
    asked = measuring(monkeypatch, [13, 11])
    assert gate.main(["ratios"]) == 0
    assert len(asked) == 2


def test_only_slow_layouts_are_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    values: Values = {"full": {"free": 10}, "gemma": {"free": 1}, "dsv4": {"free": 1}}
    baseline.write("ratios", Section(ratios.tools(NEWEST), values))
    asked = measuring(monkeypatch, [13, 13, 11])
    assert gate.main(["ratios"]) == 0
    assert asked == [["dsv4", "full", "gemma"], ["full"], ["full"]]


def test_faster_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    write_ratios(10)
    measuring(monkeypatch, [1])
    assert gate.main(["ratios"]) == 0


def test_ratios_to_another_release_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    write_ratios(10)
    monkeypatch.setattr(gate, "find_vllm", lambda: UsableVllm(INSTALLED, None))
    assert gate.main(["ratios"]) == 1


def test_without_vllm_there_are_no_ratios(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "find_vllm", lambda: UsableVllm(None, "it is not installed"))
    assert gate.main(["ratios"]) == 1


def test_renewing_one_kind_leaves_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    write_ratios(10)
    counting(monkeypatch, 1000)
    assert gate.main(["counts", "--renew"]) == 0
    assert baseline.read("ratios").values["full"] == {"free": 10}
    measuring(monkeypatch, [5, 5, 5])
    assert gate.main(["ratios", "--renew"]) == 0
    assert baseline.read("ratios").values["full"] == {"free": 20}
    assert baseline.read("counts").values["full"]["free"] == 1000


def test_an_unknown_check_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        gate.main(["speed"])
    assert stopped.value.code == 2
    assert "checks are counts, ratios" in capsys.readouterr().err


def test_slowdown_of_ratios_and_of_counts() -> None:
    before: Values = {"full": {"free": 13.0}}
    now: Values = {"full": {"free": 10.0}}
    assert compare(before, now, more_is_better=True)[0].slowdown == pytest.approx(0.3)
    assert compare(now, before, more_is_better=False)[0].slowdown == pytest.approx(0.3)

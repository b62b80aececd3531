"""Tests that the error of fitted step times reduces margins or leaves targets open."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from kvoxide.lab.plan.target import parse_target
from kvoxide.lab.plan.uncertainty import Uncertainty

from tests.package.replay.test_replay_recordings import QWEN, TURNS, write
from tests.testing.traces import kvoxide


@pytest.mark.parametrize(
    ("error", "value", "is_met"),
    [(0.0, 1.9, True), (0.2, 1.6, True), (0.2, 1.8, None), (0.2, 2.2, None), (0.2, 2.5, False)],
)
def test_a_target_of_time_is_met_with_the_error(
    error: float, value: float, is_met: bool | None
) -> None:
    assert Uncertainty(error).is_met(parse_target("ttft_p99<2s"), value) is is_met


def test_the_error_is_taken_off_the_margin() -> None:
    uncertain = Uncertainty(0.2)
    assert uncertain.margin(parse_target("ttft_p99<2s"), 1.0) == pytest.approx(0.4)
    assert uncertain.margin(parse_target("throughput>100"), 180.0) == pytest.approx(0.5)
    assert uncertain.margin(parse_target("hit_share>50%"), 0.75) == pytest.approx(0.5)
    assert uncertain.margin(parse_target("ttft_p99<2s"), None) is None


def test_a_large_error_tells_nothing_of_times() -> None:
    uncertain = Uncertainty(0.57)
    assert uncertain.margin(parse_target("ttft_p99<2s"), 1.17) is None
    assert uncertain.is_met(parse_target("ttft_p99<2s"), 1.17) is None
    assert uncertain.is_met(parse_target("hit_share>50%"), 0.75) is True


def planned(tmp_path: Path, noise: float, *options: str) -> tuple[int, str, dict[str, Any]]:
    """Plan with a recording whose steps take alternately more and less time than their work
    says."""
    write(tmp_path / "r", 0, *TURNS, given_block_size=16)
    steps = [
        {
            "duration": 0.01 * (1 + number % 7) * (1 + noise * (-1) ** (number // 3)),
            "prefill_tokens": number % 7 * 50,
            "context_tokens": number % 5 * 100,
            "running": 1 + number % 3,
        }
        for number in range(60)
    ]
    text = "".join(json.dumps(step) + "\n" for step in steps)
    (tmp_path / "r" / "steps-0-7-0000.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    path = tmp_path / "plan.json"
    model = ("--model", QWEN, "--memory", "10GiB", "--instances", "1")
    done = kvoxide("plan", tmp_path / "r", *model, "--json", path, *options)
    return done.exit_code, done.output, json.loads(path.read_text())


def test_a_plan_with_a_bad_fit_cannot_tell(tmp_path: Path) -> None:
    code, output, record = planned(tmp_path, 0.9, "--target", "ttft_p99<60s")
    assert code == 3
    assert "cannot tell whether a combination meets all targets" in output
    assert "targets of time cannot be judged" in output
    assert record["settings"]["relative_error_of_times"] > 0.25
    verdict = record["verdicts"][0]
    assert verdict["is_met"] is None
    assert verdict["figures"]["ttft_p99"]["margin"] is None
    assert record["cheapest"] == []


def test_a_plan_with_a_fair_fit_takes_its_error_off(tmp_path: Path) -> None:
    code, output, record = planned(tmp_path, 0.1, "--target", "ttft_p99<60s")
    assert code == 0
    assert "this median error is subtracted from the margins of times" in output
    figure = record["verdicts"][0]["figures"]["ttft_p99"]
    error = record["settings"]["relative_error_of_times"]
    assert 0 < error < 0.25
    assert figure["margin"] == pytest.approx(1 - figure["value"] * (1 + error) / 60)


def test_targets_without_times_are_met_whatever_the_fit(tmp_path: Path) -> None:
    code, _, record = planned(tmp_path, 0.9, "--target", "hit_share>1%")
    assert code == 0
    assert record["verdicts"][0]["is_met"] is True


def test_the_recorded_block_size_is_used(tmp_path: Path) -> None:
    """The server had blocks of 64 tokens, although no option set them."""
    groups = [{"kind": "full_attention", "block_size": 64, "cached": True}]
    write(tmp_path / "r", 0, *TURNS, groups=groups)
    path = tmp_path / "plan.json"
    model = ("--model", QWEN, "--memory", "10GiB", "--instances", "1", "--json", path)
    command = ("plan", tmp_path / "r", *model, "--target", "hit_share>0.1%")
    done = kvoxide(*command)
    assert (
        "blocks of 64 tokens are used as on the recorded server. vLLM would choose 16"
        in done.stderr
    )
    assert json.loads(path.read_text())["settings"]["model"]["block_size"] == 64
    given = kvoxide(*command, "--block-size", "32")
    assert "as on the recorded server" not in given.stderr
    assert json.loads(path.read_text())["settings"]["model"]["block_size"] == 32

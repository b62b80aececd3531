"""Step times that are found from steps that an engine took."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from kvoxide._core import ConfigError, StepTime
from kvoxide.lab.replay.input import read_steps
from kvoxide.lab.replay.serving import parse_step_time
from kvoxide.lab.replay.serving.step_fit import MIN_STEPS, fit_step_time
from numpy.typing import NDArray

from tests.testing.traces import line, prompt, replay_json, succeed, write_trace

TRUE = np.array([4e-3, 25e-6, 30e-9, 12e-6])


def steps(seconds: NDArray[np.float64] = TRUE, noise: float = 0.0) -> NDArray[np.float64]:
    generator = np.random.default_rng(7)
    work = np.column_stack(
        (
            generator.choice([0, 100, 8192], 400),
            generator.integers(0, 2_000_000, 400),
            generator.integers(1, 256, 400),
        )
    )
    durations = seconds[0] + work @ seconds[1:]
    return np.column_stack((durations * (1 + noise * generator.normal(size=400)), work))


def parts(step_time: StepTime) -> list[float]:
    return [step_time.base, step_time.prefill, step_time.context, step_time.running]


def json_lines(rows: NDArray[np.float64]) -> bytes:
    names = ("duration", "prefill_tokens", "context_tokens", "running")
    records = (dict(zip(names, row, strict=True)) for row in rows.tolist())
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def test_exact_steps_give_their_times() -> None:
    fit = fit_step_time(steps())
    np.testing.assert_allclose(parts(fit.step_time), TRUE, rtol=1e-6)
    assert fit.median_error < 1e-9
    assert fit.r_squared == pytest.approx(1)


def test_errors_are_those_of_the_noise() -> None:
    fit = fit_step_time(steps(noise=0.05))
    np.testing.assert_allclose(parts(fit.step_time)[:3], TRUE[:3], rtol=0.1)
    # The quantiles of the distance of a normal variable from its mean.
    assert fit.median_error == pytest.approx(0.05 * 0.674, rel=0.2)
    assert fit.p90_error == pytest.approx(0.05 * 1.645, rel=0.2)
    assert 0.9 < fit.r_squared < 1


def test_steps_that_now_and_then_take_longer_take_so_on_average() -> None:
    """A machine that others use too: one step in five takes four times as long."""
    rows = steps()
    rows[::5, 0] *= 4
    fit = fit_step_time(rows)
    found = parts(fit.step_time)[0] + rows[:, 1:] @ parts(fit.step_time)[1:]
    assert found.sum() == pytest.approx(rows[:, 0].sum(), rel=0.05)
    prefills = rows[:, 1] > 0
    assert found[prefills].sum() == pytest.approx(rows[prefills, 0].sum(), rel=0.1)


def test_no_time_is_negative() -> None:
    rows = steps(np.array([4e-3, 25e-6, 30e-9, -10e-6]))
    fit = fit_step_time(rows)
    assert fit.step_time.running == 0
    assert min(parts(fit.step_time)) >= 0
    # No other choice of what is 0 describes the steps better.
    without = np.column_stack((np.ones(len(rows)), rows[:, 1:3]))
    found = without @ parts(fit.step_time)[:3]
    best = np.linalg.lstsq(without / found[:, None], rows[:, 0] / found)[0]
    np.testing.assert_allclose(parts(fit.step_time)[:3], best, rtol=1e-6)


def test_what_a_server_recorded_is_read(tmp_path: Path) -> None:
    record = {
        "timestamp": 1.0,
        "duration": 12.5,
        "prefill_tokens": 100,
        "prefill_requests": 2,
        "prefill_context_tokens": 30,
        "decode_tokens": 3,
        "decode_requests": 3,
        "decode_context_tokens": 400,
        "running": 6,
        "waiting": 0,
    }
    text = json.dumps(record).encode() + b"\n"
    (tmp_path / "steps-1.jsonl.gz").write_bytes(gzip.compress(text))
    (tmp_path / "steps-2.jsonl").write_bytes(text + text[:20])
    (tmp_path / "requests.jsonl").write_bytes(b"other\n")
    assert read_steps(tmp_path).tolist() == [[0.0125, 100, 430, 5]] * 2


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{}\n", "steps.jsonl, line 1: field 'duration' is None; expected a recorded step"),
        (b"[1]\n", "line 1: is not a JSON object"),
        (b"{\n", "line 1: Expecting property name"),
        (json_lines(np.array([[0.0, 1, 1, 1]])), "field 'duration' is 0"),
        (json_lines(np.array([[1.0, -1, 1, 1]])), "field 'prefill_tokens' is -1"),
    ],
)
def test_damaged_lines_are_named(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "steps.jsonl"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=said):
        read_steps(path)


def test_steps_that_do_not_tell_the_parts_apart_are_refused() -> None:
    with pytest.raises(ConfigError, match=f"{MIN_STEPS - 1} steps are too few"):
        fit_step_time(steps()[: MIN_STEPS - 1])
    rows = steps()
    rows[:, 1] = 0
    with pytest.raises(ConfigError, match="prefill_tokens is 0 in every step"):
        fit_step_time(rows)


def test_a_replay_takes_what_was_fitted(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "t", line(prompt(0)))
    (tmp_path / "steps.jsonl").write_bytes(json_lines(steps()))
    record = replay_json(tmp_path, trace, "--fit", tmp_path / "steps.jsonl")
    serving = record["settings"]["serving"]
    np.testing.assert_allclose(list(serving["step_time"].values()), TRUE, rtol=1e-6)
    assert serving["fit"]["steps"] == 400
    output = succeed("replay", trace, "--fit", tmp_path / "steps.jsonl").output
    assert "step times fitted to 400 steps: relative error 0.0% (median)" in output


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("4ms", 4e-3), ("25us", 25e-6), ("25µs", 25e-6), ("1.5s", 1.5), ("30ns", 30e-9)],
)
def test_times_have_units(text: str, seconds: float) -> None:
    assert parse_step_time(f"base={text}") == StepTime(base=seconds)

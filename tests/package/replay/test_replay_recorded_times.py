"""A recording is played at its own arrivals, with the step times of its own steps."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kvoxide.lab.replay.serving.step_fit import MIN_STEPS

from tests.testing.paths import ROOT
from tests.testing.traces import kvoxide, replay_json, succeed

from .test_replay_recordings import HEADER, TURNS, two_ranks, write

QWEN = ROOT / "tests/vllm/models/configs/qwen3-8b.json"
PLAN = ("--model", QWEN, "--memory", "10GiB", "--instances", "1", "--target", "ttft_p50<60min")
# Seconds: base, for each prefilled token, for each token of context, for each request.
SERVER = (0.02, 1e-4, 1e-6, 1e-3)
OTHER = (0.5, 1e-3, 1e-5, 1e-2)
ABSENT = "no step times can be fitted to the recording: "


def write_steps(
    folder: Path, seconds: tuple[float, ...] = SERVER, num: int = 200, rank: int = 0
) -> Path:
    """A file of steps that took as long as these times say."""
    generator = np.random.default_rng(3)
    records: list[dict[str, Any]] = [{**HEADER, "kind": "steps", "rank": rank}]
    for _ in range(num):
        prefill, context, running = map(int, generator.integers(1, (500, 9000, 20)))
        duration = float(np.dot(seconds, (1, prefill, context, running)))
        records.append(
            {
                "duration": 1e3 * duration,
                "prefill_tokens": prefill,
                "prefill_requests": 1,
                "prefill_context_tokens": context // 2,
                "decode_requests": running - 1,
                "decode_context_tokens": context - context // 2,
            }
        )
    path = folder / f"steps-{rank}-7-0000.jsonl.gz"
    path.write_bytes(
        b"".join(gzip.compress(json.dumps(record).encode() + b"\n") for record in records)
    )
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "r", 0, *TURNS)
    write_steps(tmp_path / "r")
    return tmp_path / "r"


def serving_of(record: dict[str, Any]) -> dict[str, Any]:
    serving: dict[str, Any] = record["settings"]["serving"]
    return serving


def step_times(record: dict[str, Any]) -> list[float]:
    return list(serving_of(record)["step_time"].values())


def test_a_recording_is_played_at_its_times(tmp_path: Path, folder: Path) -> None:
    record = replay_json(tmp_path, folder)
    assert serving_of(record)["arrivals"] == "trace"
    assert step_times(record) == pytest.approx(SERVER)
    fit = serving_of(record)["fit"]
    assert (fit["steps"], fit["of_recording"]) == (200, True)
    spelled_out = replay_json(tmp_path, folder, "--arrivals", "trace", "--fit", folder)
    assert serving_of(spelled_out)["fit"] == {**fit, "of_recording": False}
    result, other = record["results"][0], spelled_out["results"][0]
    assert result["serving"] == other["serving"]
    assert result["hit_tokens"] == other["hit_tokens"] == 64
    # 24 tokens, then with the answer, 8 more than the 64 that are hit, each in one step.
    expected = [np.dot(SERVER, (1, 24, 0, 1)), np.dot(SERVER, (1, 8, 64, 1))]
    moments = tmp_path / "lines"
    replay_json(tmp_path, folder, "--per-request", moments)
    lines = [json.loads(line) for line in moments.open()][:2]
    waits = [line["first_token"] - line["arrival"] for line in lines]
    assert waits == pytest.approx(expected)


def test_what_is_played_is_told_with_the_error_of_the_fit(folder: Path) -> None:
    told = (
        "arrivals and step times are from the recording; step times fitted to 200 steps: relative"
        " error 0.0% (median), 0.0% (p90); R² 1.000"
    )
    for command in (("replay", folder), ("plan", folder, *PLAN)):
        done = succeed(*command)
        assert told in done.stdout
        assert ABSENT not in done.stderr
    assert "64 tokens per step; arrivals at the trace's times" in succeed("replay", folder).stdout


def test_a_plan_takes_the_times_of_the_recording(tmp_path: Path, folder: Path) -> None:
    path = tmp_path / "plan.json"
    plan = ("plan", folder, *PLAN, "--json", path)
    succeed(*plan)
    own = json.loads(path.read_bytes())
    assert serving_of(own)["arrivals"] == "trace"
    assert step_times(own) == pytest.approx(SERVER)
    succeed(*plan, "--fit", folder)
    assert json.loads(path.read_bytes())["verdicts"] == own["verdicts"]
    succeed(*plan, "--step-time", "base=1s")
    other = json.loads(path.read_bytes())
    assert step_times(other)[0] == 1
    assert other["verdicts"] != own["verdicts"]


def test_options_say_otherwise(tmp_path: Path, folder: Path) -> None:
    assert serving_of(replay_json(tmp_path, folder, "--arrivals", "full")) is None
    given = replay_json(tmp_path, folder, "--step-time", "base=1s")
    assert (serving_of(given)["arrivals"], serving_of(given)["fit"]) == ("trace", None)
    assert step_times(given)[0] == 1
    others = tmp_path / "others"
    others.mkdir()
    write_steps(others, OTHER)
    fitted = replay_json(tmp_path, folder, "--fit", others)
    assert serving_of(fitted)["arrivals"] == "trace"
    assert step_times(fitted) == pytest.approx(OTHER)
    assert serving_of(fitted)["fit"]["of_recording"] is False
    arriving = replay_json(tmp_path, folder, "--arrivals", "trace")
    assert step_times(arriving) == pytest.approx(SERVER)
    full = replay_json(tmp_path, folder, "--arrivals", "full", "--fit", others)
    assert serving_of(full)["arrivals"] == "full"
    assert step_times(full) == pytest.approx(OTHER)
    fast = replay_json(tmp_path, folder, "--speed", "2")
    assert (serving_of(fast)["speed"], serving_of(fast)["fit"]["of_recording"]) == (2, True)


def test_ranks_are_fitted_together(tmp_path: Path) -> None:
    folder = Path(two_ranks(tmp_path / "r"))
    for rank in range(2):
        write_steps(folder, rank=rank)
    serving = serving_of(replay_json(tmp_path, folder))
    assert (serving["instances"], serving["fit"]["steps"]) == (2, 400)
    write_steps(folder, OTHER, rank=1)
    for rank, seconds in enumerate((SERVER, OTHER)):
        (path,) = folder.glob(f"requests-{rank}-*")
        alone = replay_json(tmp_path, path)
        assert serving_of(alone)["fit"]["steps"] == 200
        assert step_times(alone) == pytest.approx(seconds)


def no_steps(folder: Path) -> None:
    next(folder.glob("steps-*")).unlink()


def too_few_steps(folder: Path) -> None:
    write_steps(folder, num=MIN_STEPS - 1)


def only_a_header(folder: Path) -> None:
    write_steps(folder, num=0)


def a_damaged_line(folder: Path) -> None:
    path = next(folder.glob("steps-*"))
    path.write_bytes(path.read_bytes() + gzip.compress(b"{}\n"))


def a_damaged_stream(folder: Path) -> None:
    path = next(folder.glob("steps-*"))
    path.write_bytes(path.read_bytes() + b"\xff" * 50)


WITHOUT_A_FIT = [
    (no_steps, "has no files steps-*.jsonl*"),
    (too_few_steps, "19 steps are too few for a fit; it needs at least 20"),
    (only_a_header, "0 steps are too few for a fit; it needs at least 20"),
    (a_damaged_line, "steps-0-7-0000.jsonl.gz, line 202: field 'duration' is None"),
    (a_damaged_stream, "the gzip stream is damaged"),
]


@pytest.mark.parametrize(("spoil", "reason"), WITHOUT_A_FIT)
def test_without_a_fit_all_is_as_without_a_recording(
    tmp_path: Path, folder: Path, spoil: Any, reason: str
) -> None:
    spoil(folder)
    done = succeed("replay", folder)
    (line,) = (line for line in done.stderr.splitlines() if line.startswith(ABSENT))
    assert reason in line
    assert line.endswith(
        "; requests arrive as soon as they may run. For the server's own times, give --step-time or"
        " --fit"
    )
    record = replay_json(tmp_path, folder)
    assert serving_of(record) is None
    assert record["results"][0]["requests"] == 2
    assert succeed("replay", folder, "--quiet").output == ""
    planned = succeed("plan", folder, *PLAN)
    (line,) = (line for line in planned.stderr.splitlines() if line.startswith(ABSENT))
    assert reason in line
    assert "; steps take the default times. " in line
    # What the line asks for is enough.
    given = replay_json(tmp_path, folder, "--step-time", "base=1s")
    assert (serving_of(given)["arrivals"], step_times(given)[0]) == ("trace", 1)
    assert ABSENT not in succeed("replay", folder, "--arrivals", "full").stderr
    assert kvoxide("replay", folder, "--fit", folder).exit_code == 2


def test_steps_that_are_cut_off_are_fitted_as_far_as_they_go(tmp_path: Path, folder: Path) -> None:
    path = next(folder.glob("steps-*"))
    path.write_bytes(path.read_bytes()[:-9])
    assert serving_of(replay_json(tmp_path, folder))["fit"]["steps"] in (199, 200)


def test_other_traces_are_played_without_times(tmp_path: Path, folder: Path) -> None:
    """Steps next to a trace do not belong to its server."""
    trace = folder / "mooncake.jsonl"
    trace.write_text('{"timestamp": 0, "input_length": 9, "output_length": 1, "hash_ids": [0]}\n')
    assert serving_of(replay_json(tmp_path, trace)) is None
    assert ABSENT not in succeed("replay", trace).stderr

"""``kvoxide replay`` over time: moments that can be counted by hand, and several instances."""

import json
from pathlib import Path
from typing import Any

import pytest
from kvoxide._core import KVCacheGroupSpec, Serving, Simulation, StepTime, Trace

from tests.testing.traces import kvoxide, prompt, replay_json, succeed, write_trace

# 10 ms for every step, and 1 ms for each prefilled token.
STEP_TIME = "base=10ms,prefill=1ms,context=0s,running=0s"
TIMED = ["--arrivals", "trace", "--step-time", STEP_TIME]


def timed_line(timestamp: float, number: int, length: int, output_length: int = 1) -> bytes:
    """A prompt that arrives so many milliseconds after the epoch."""
    record = {
        "timestamp": timestamp,
        "prompt_token_ids": list(prompt(number, length)),
        "output_length": output_length,
    }
    return json.dumps(record).encode() + b"\n"


@pytest.fixture
def three(tmp_path: Path) -> str:
    """Two prompts that overlap, and the first again, a second later."""
    lines = (timed_line(5000, 0, 20, 3), timed_line(5005, 1, 10, 2), timed_line(6000, 0, 20))
    return write_trace(tmp_path / "three.jsonl", *lines)


def without_times(record: dict[str, Any]) -> dict[str, Any]:
    """A run's record but for what depends on the machine."""
    machine = ("wall_seconds", "schedule_seconds", "step_seconds")
    return {key: value for key, value in record.items() if key not in machine}


def test_moments_are_those_of_the_steps(tmp_path: Path, three: str) -> None:
    lines = tmp_path / "lines.jsonl"
    record = replay_json(tmp_path, three, *TIMED, "--per-request", lines)
    pool = record["results"][0]["serving"]
    # 20 tokens until 30 ms, a decode and 10 tokens until 50, two decodes until 60. The third
    # request hits 16 of its 20 tokens.
    moments = [
        (r["arrival"], r["first_token"], r["last_token"]) for r in map(json.loads, lines.open())
    ][:3]
    assert moments == [(0.0, 0.03, 0.06), (0.005, 0.05, 0.06), (1.0, 1.014, 1.014)]
    assert pool["time_to_first_token"] == {"p50": 0.03, "p90": 0.045, "p99": 0.045}
    assert pool["makespan"] == 1.024
    assert pool["requests_per_second"] == 3 / 1.024
    assert pool["generated_tokens_per_second"] == 6 / 1.024
    assert pool["prompt_tokens_per_second"] == 50 / 1.024
    assert pool["utilisation"] == pytest.approx(0.094 / 1.024)
    assert pool["hit_tokens"] == record["results"][0]["hit_tokens"] == 16
    assert record["settings"]["serving"] == {
        "arrivals": "trace",
        "speed": 1.0,
        "step_time": {"base": 0.01, "prefill": 0.001, "context": 0.0, "running": 0.0},
        "fit": None,
        "instances": 1,
        "router": "round-robin",
        "weights": {},
        "as_recorded": False,
    }


def test_without_the_options_no_time_passes(tmp_path: Path, three: str) -> None:
    record = replay_json(tmp_path, three)
    assert record["settings"]["serving"] is None
    assert [result["serving"] for result in record["results"]] == [None, None]
    assert "first token" not in succeed("replay", three).output


def test_speed_compresses_arrivals(tmp_path: Path, three: str) -> None:
    lines = tmp_path / "lines.jsonl"
    succeed("replay", three, *TIMED, "--speed", "4", "--per-request", lines)
    arrivals = [r["arrival"] for r in map(json.loads, lines.open())]
    assert arrivals[:3] == [0.0, 0.00125, 0.25]


def test_the_clock_decides_nothing_if_all_arrive_as_room_allows(tmp_path: Path) -> None:
    plain = replay_json(tmp_path, "sample", "--blocks", "8000")
    timed = replay_json(tmp_path, "sample", "--blocks", "8000", "--step-time", "base=1ms")
    for without, with_time in zip(plain["results"], timed["results"], strict=True):
        assert with_time.pop("serving") is not None
        assert without.pop("serving") is None
        assert without_times(with_time) == without_times(without)


def test_one_instance_is_what_there_is_without_the_option(tmp_path: Path, three: str) -> None:
    plain = replay_json(tmp_path, three, *TIMED)
    one = replay_json(tmp_path, three, *TIMED, "--instances", "1")
    assert plain["settings"] == one["settings"]
    assert list(map(without_times, plain["results"])) == list(map(without_times, one["results"]))


def test_each_instance_has_a_line(tmp_path: Path, three: str) -> None:
    record = replay_json(tmp_path, three, *TIMED, "--instances", "2", "--blocks", "100")
    for result in record["results"]:
        serving = result["serving"]
        first, second = serving["instances"]
        assert (first["requests"], second["requests"]) == (2, 1)
        for count in ("requests", "prompt_tokens", "generated_tokens", "hit_tokens", "steps"):
            assert serving[count] == first[count] + second[count]
        assert (result["steps"], result["hit_tokens"]) == (serving["steps"], serving["hit_tokens"])
        assert (first["hit_share"], second["hit_share"]) == (16 / 40, 0)
    output = succeed("replay", three, *TIMED, "--instances", "2").output
    assert "Times in seconds" in output
    assert "Instances" in output


def test_pools_of_all_instances_are_drawn_together(tmp_path: Path, three: str) -> None:
    plot, options = tmp_path / "plot.png", ["--instances", "2", "--blocks", "100"]
    record = replay_json(tmp_path, three, *TIMED, *options, "--plot", plot)
    timeline = record["results"][0]["timeline"]
    assert [row[0] for row in timeline] == [1, 2, 3]
    # Nothing is in use in the end, and one full block is cached, of 99 in each pool.
    assert timeline[-1][1:] == [0, 1 / 198, 0]
    assert plot.stat().st_size > 10_000


@pytest.mark.parametrize(
    ("router", "instances"),
    [
        ("round-robin", [0, 1, 0]),
        ("least-loaded", [0, 1, 0]),
        ("prefix", [0, 1, 0]),
        ("prefix:overlap=0", [0, 1, 0]),
        ("scored", [0, 1, 0]),
        ("scored:prefix=0,queue=1,cache=0.5", [0, 1, 0]),
    ],
)
def test_routers_choose(tmp_path: Path, three: str, router: str, instances: list[int]) -> None:
    lines = tmp_path / "lines.jsonl"
    options: list[str | Path] = ["--instances", "2", "--router", router, "--per-request", lines]
    record = replay_json(tmp_path, three, *TIMED, *options)
    assert [r["instance"] for r in map(json.loads, lines.open())][:3] == instances
    assert record["settings"]["serving"]["router"] == router.partition(":")[0]


def test_a_session_stays_where_it_is(tmp_path: Path) -> None:
    sessions = ["a", "b", "c", "a", "b", "c", "c"]
    records = [
        {"timestamp": t, "session_id": s, "prompt_token_ids": [t], "output_length": 1}
        for t, s in enumerate(sessions)
    ]
    trace = write_trace(tmp_path / "t", *(json.dumps(r).encode() + b"\n" for r in records))
    lines = tmp_path / "lines.jsonl"
    options: list[str | Path] = ["--instances", "64", "--router", "session", "--per-request", lines]
    replay_json(tmp_path, trace, *TIMED, *options)
    chosen = [r["instance"] for r in map(json.loads, lines.open())][: len(sessions)]
    assert chosen[:3] == chosen[3:6]
    assert chosen[6] == chosen[2]
    assert len(set(chosen)) == 3


def test_a_trace_without_times_is_named(tmp_path: Path, three: str) -> None:
    path = Path(three)
    path.write_bytes(path.read_bytes() + b'{"prompt_token_ids": [1], "output_length": 1}\n')
    result = kvoxide("replay", three, "--arrivals", "trace")
    assert result.exit_code == 1
    assert "request 4 of the trace has no time of arrival" in result.stderr
    assert kvoxide("replay", three).exit_code == 0


def test_python_plays_over_time_too() -> None:
    trace = Trace()
    trace.push_prompt(range(20), 1, arrival=3.5)
    trace.push_prompt(range(20), 0, arrival=3.0)
    step_time = StepTime(base=0.01, prefill=0.001, context=0.0, running=0.0)
    serving = Serving(step_time=step_time, speed=1.0)
    groups = [KVCacheGroupSpec("full_attention", 16)]
    result = Simulation(trace, groups, 50, serving=serving).run().serving
    assert result is not None
    assert result.moments[0].tolist() == [0.5, 0.514, 0.514]
    assert result.moments[1, 0] == 0.0
    assert result.moments[1, 1] != result.moments[1, 1], "no token is generated"
    assert result.total.time_to_first_token == (0.014, 0.014, 0.014)
    assert result.total.time_between_tokens is None
    assert Simulation(trace, groups, 50).run().serving is None


def test_defaults_are_told() -> None:
    serving = Serving(instances=2, router="scored", weights={"queue": 0.5})
    assert serving.step_time == StepTime()
    assert serving.speed is None
    assert serving.weights == {"prefix": 3.0, "queue": 0.5, "cache": 2.0}
    assert StepTime(base=1.0).prefill == StepTime().prefill > 0

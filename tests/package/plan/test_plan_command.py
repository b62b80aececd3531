"""Tests of ``kvoxide plan``: its output, its files and its exit codes."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.testing.paths import ROOT
from tests.testing.traces import kvoxide, line, prompt, succeed, write_trace
from tests.vllm.models.cases import BY_NAME

QWEN = ROOT / "tests/vllm/models/configs/qwen3-8b.json"
MODEL: list[str | Path] = ["--model", QWEN, "--max-model-len", "8192", "--memory", "2GiB,3GiB,6GiB"]


@pytest.fixture
def trace(tmp_path: Path) -> str:
    """Write twelve conversations of up to 6,000 tokens, with a request each half second."""
    lines = []
    for number in range(120):
        record = json.loads(line(prompt(number % 12, 1000 + 40 * number), 20))
        lines.append(json.dumps({**record, "timestamp": 500 * number}).encode() + b"\n")
    return write_trace(tmp_path / "trace.jsonl", *lines)


def planned(tmp_path: Path, trace: str, *arguments: str | Path) -> dict[str, Any]:
    path = tmp_path / "plan.json"
    succeed("plan", trace, *MODEL, *arguments, "--json", path, "--quiet")
    record: dict[str, Any] = json.loads(path.read_bytes())
    return record


def test_the_cheapest_is_told_with_its_margins(trace: str) -> None:
    targets = ["--target", "hit_share>80%", "--target", "ttft_p99<9s"]
    output = succeed("plan", trace, *MODEL, *targets, "--instances", "1,2").output
    table = output.split("\n \n", maxsplit=1)[0]
    assert "targets hit_share>80%, ttft_p99<9s" in table
    assert "hit_share  margin  ttft_p99  margin" in output
    rows = [row.split() for row in output.splitlines() if row.startswith((" yes", " no"))]
    assert [row[0] for row in rows] == sorted((row[0] for row in rows), reverse=True)
    assert rows[0][:5] == ["yes", "2", "6", "GiB", "2"]
    assert "cheapest: 2 instances with router prefix, 6 GiB on each GPU, " in output
    assert "18 combinations, " in output


def test_the_file_holds_everything(tmp_path: Path, trace: str) -> None:
    record = planned(tmp_path, trace, "--target", "hit_share>80%", "--instances", "1,2", "--all")
    assert list(record) == [
        "kvoxide",
        "settings",
        "trace",
        "timing",
        "is_complete",
        "combinations",
        "played",
        "cheapest",
        "verdicts",
    ]
    assert (record["is_complete"], record["combinations"]) == (True, 18)
    assert len(record["verdicts"]) == 18
    best = record["cheapest"][0]
    assert {**record["verdicts"][0], **best} == record["verdicts"][0]
    figure = record["verdicts"][0]["figures"]["hit_share"]
    assert figure["margin"] == pytest.approx(figure["value"] / 0.8 - 1)
    assert {v["router"] for v in record["verdicts"]} == {None, "round-robin", "prefix"}
    assert {v["policy"] for v in record["verdicts"]} == {"vllm", "adaptive"}


def test_figures_are_those_of_a_replay(tmp_path: Path, trace: str) -> None:
    record = planned(tmp_path, trace, "--target", "hit_share>1%", "--instances", "2", "--all")
    path = tmp_path / "replay.json"
    memory = [*MODEL[:-1], "3GiB"]
    time = ["--arrivals", "trace", "--instances", "2", "--router", "prefix"]
    succeed("replay", trace, *memory, *time, "--json", path)
    replayed = json.loads(path.read_bytes())["results"][0]
    (verdict,) = [
        v
        for v in record["verdicts"]
        if (v["memory"], v["router"], v["policy"]) == (3 * 2**30, "prefix", "vllm")
    ]
    assert verdict["blocks"] == replayed["blocks"]
    assert verdict["figures"]["hit_share"]["value"] == replayed["hit_share"]


def test_gpus_are_those_of_all_ranks_and_instances(tmp_path: Path, trace: str) -> None:
    ranks = ["--tensor-parallel", "2", "--pipeline-parallel", "2"]
    target = ["--target", "throughput>1"]
    record = planned(tmp_path, trace, *target, "--instances", "1,3", "--all", *ranks)
    assert {(v["instances"], v["gpus"]) for v in record["verdicts"]} == {(1, 4), (3, 12)}


def test_targets_that_nothing_meets_end_with_how_far_the_best_was(
    tmp_path: Path, trace: str
) -> None:
    path = tmp_path / "plan.json"
    target = ["--target", "ttft_p50<1ms"]
    result = kvoxide("plan", trace, *MODEL, *target, "--instances", "1,2", "--json", path)
    assert result.exit_code == 1
    (error,) = [row for row in result.output.splitlines() if row.startswith("Error: ")]
    assert "no combination meets all targets; the closest is 2 instances with router " in error
    assert ": ttft_p50 is " in error
    assert error.endswith("% above its limit")
    record = json.loads(path.read_bytes())
    assert (record["cheapest"], len(record["verdicts"])) == ([], 18)


def test_memory_that_is_too_small_is_named(tmp_path: Path, trace: str) -> None:
    arguments = ["--target", "throughput>1", "--instances", "1"]
    output = succeed("plan", trace, *MODEL[:-1], "1GiB,3GiB", *arguments).output
    assert "1 GiB is left out: 1.00 GiB hold 455 blocks of" in output
    refused = kvoxide("plan", trace, *MODEL[:-1], "1GiB", *arguments)
    assert refused.exit_code == 1
    assert "One request of max_model_len 8,192 needs" in refused.output


def test_memory_with_too_few_states_is_left_out_by_name(tmp_path: Path, trace: str) -> None:
    states = BY_NAME["qwen3.5-35b-a3b"]
    arguments: list[str | Path] = ["plan", trace, "--model", states, "--instances", "1"]
    arguments += ["--target", "throughput>1", "--policy", "fifo"]
    memories = ["--memory", "3GiB,20GiB", "--max-model-len", "32768"]
    path = tmp_path / "plan.json"
    output = succeed(*arguments, *memories, "--json", path).output
    reason = "max_num_seqs (256) exceeds available Mamba cache blocks (144)"
    assert f"3 GiB is left out: vLLM refuses to start: {reason}" in output
    assert "cheapest: 1 instance, 20 GiB" in output
    (left_out,) = json.loads(path.read_bytes())["settings"]["left_out"]
    assert left_out["memory"] == 3 * 2**30
    assert reason in left_out["reason"]
    fewer = [*memories, "--concurrency", "144"]
    assert "cheapest: 1 instance, 3 GiB" in succeed(*arguments, *fewer).output
    replayed = kvoxide("replay", trace, "--model", states, "--memory", "3GiB", *memories[2:])
    assert replayed.exit_code == 1
    assert reason in replayed.output


def test_requests_that_never_fit_are_no_success(tmp_path: Path) -> None:
    long = write_trace(tmp_path / "long", line(range(60_000)), line(range(100)))
    arguments = ["--target", "throughput>1", "--instances", "1", "--arrivals", "full"]
    result = kvoxide("plan", long, *MODEL, *arguments)
    assert result.exit_code == 1
    assert "1 requests are too large for its pool" in result.output
    assert "rejected" in result.output


def test_the_sample_is_planned_for(tmp_path: Path) -> None:
    time = ["--step-time", "base=8ms", "--speed", "2"]
    arguments = ["--target", "ttft_p90<3s", "--instances", "1,2", "--requests", "200", *time]
    record = planned(tmp_path, "sample", *arguments, "--router", "session", "--policy", "pin")
    assert record["settings"]["serving"]["speed"] == 2.0
    assert record["settings"]["serving"]["step_time"]["base"] == 0.008
    assert {v["policy"] for v in record["verdicts"]} == {"pin"}


def test_cpu_memory_is_the_last_part_of_the_cost(tmp_path: Path, trace: str) -> None:
    """A pool of 2 GiB holds no conversation until its next turn, and 16 GiB in addition most."""
    arguments: list[str | Path] = [*MODEL[:-1], "2GiB", "--instances", "1", "--policy", "vllm"]
    arguments += ["--target", "hit_share>80%", "--host-memory", "0,1GiB,16GiB,32GiB", "--all"]
    path = tmp_path / "plan.json"
    output = succeed("plan", trace, *arguments, "--json", path).output
    assert "cheapest: 1 instance, 2 GiB on each GPU, vllm, CPU memory 16 GiB lru" in output
    note = (
        "2 GiB on each GPU, CPU memory 1 GiB: CPU memory has 455 blocks, fewer than the pool of 910"
    )
    assert note in output
    record = json.loads(path.read_bytes())
    are_met = {
        verdict.get("host_memory", {}).get("name"): verdict["is_met"]
        for verdict in record["verdicts"]
    }
    assert are_met == {None: False, "1 GiB lru": False, "16 GiB lru": True, "32 GiB lru": True}
    replayed = tmp_path / "replay.json"
    sizes = ["--memory", "2GiB", "--host-memory", "16GiB", "--arrivals", "trace"]
    succeed("replay", trace, *MODEL[:-2], *sizes, "--json", replayed)
    result = json.loads(replayed.read_bytes())["results"][0]
    best = record["verdicts"][0]
    assert best["host_memory"]["num_chunks"] == 7281
    assert best["figures"]["hit_share"]["value"] == result["hit_share"]
    assert best["loaded_share"] == result["host_memory"]["loaded_share"] > 0
    assert best["host_memory"].items() <= result["host_memory"].items()
    (row,) = [line for line in output.splitlines() if "16 GiB lru" in line and " yes" in line]
    assert row.split()[-1] == f"{best['loaded_share']:.2%}"
    # 16 GiB have room for everything, so 32 GiB are not played.
    larger = record["verdicts"][1]
    assert (larger["host_memory"]["name"], larger["same_as_host"]) == ("32 GiB lru", "16 GiB lru")
    assert "4 combinations, 3 tried, 1 equal to one with less memory" in output


def test_too_long_prompts_and_too_small_memory_are_named(trace: str) -> None:
    arguments: list[str | Path] = ["--model", QWEN, "--max-model-len", "4096", "--memory", "2GiB"]
    arguments += ["--instances", "1", "--policy", "vllm", "--host-memory", "100MiB"]
    output = kvoxide("plan", trace, *arguments, "--target", "hit_share>1%").output
    assert "prompts have 4,096 tokens (max_model_len) or more. A server refuses them" in output
    arguments[3] = "5760"
    output_of_one = kvoxide("plan", trace, *arguments, "--target", "hit_share>1%").output
    assert "1 prompt has 5,760 tokens (max_model_len) or more" in output_of_one
    assert (
        "2 GiB on each GPU, CPU memory 100 MiB: the longest prompt has 360 full blocks, and CPU"
        " memory has room for 44"
    ) in output
    assert "1 combination, 1 tried" in output

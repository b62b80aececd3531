"""The published experiments: their set-up, and small ones whose hits can be counted by hand."""

import json
from pathlib import Path

import pytest
from kvoxide.lab.replay.cli import experiment_command
from kvoxide.lab.replay.input import parse_groups, parse_policy
from kvoxide.lab.replay.results import experiment_rows, experiment_shares
from kvoxide.lab.replay.run import Experiment, LongContexts, Prefixes, plan_experiment
from kvoxide.lab.replay.run.execution.interface import execute
from kvoxide.lab.replay.run.execution.local import Local
from kvoxide.lab.replay.run.experiments import reserved_blocks

from tests.testing.failing_cluster import MESSAGE, fail_after
from tests.testing.traces import kvoxide, succeed

FULL = parse_groups("full:16")


def test_published_prefixes() -> None:
    published = Prefixes()
    assert published.groups.text == "full:16,swa:16:1024*5"
    assert (list(published.xs), published.pool_blocks) == ([15, 20, 30, 60], 189_245)
    trace = published.trace(15)
    assert (len(trace), trace.num_prompt_tokens) == (30, 30 * 28_200)
    assert published.num_warming(15) == 15


def test_published_long_contexts() -> None:
    published = LongContexts()
    assert list(published.xs) == [100, 90, 80, 70, 60, 50, 40, 30, 20, 10]
    assert [reserved_blocks(spec, 1_000_000) for spec in published.groups.specs] == [
        3907,
        131,
        2051,
        1041,
    ]
    assert published.pool_blocks == int(14.5 * 7130) == 103_385
    assert published.num_warming(10) == 14


def shares(experiment: Experiment, *policies: str) -> dict[str, list[float]]:
    runs = plan_experiment(experiment, [parse_policy(policy) for policy in policies])
    return experiment_shares(experiment, execute(runs, lambda finished: None, Local())).by_policy


def test_prefixes_counts_the_second_pass() -> None:
    # Nine of the ten blocks of 16 tokens are the shared prefix.
    small = Prefixes(xs=(2, 3), prefix_tokens=144, own_tokens=16, groups=FULL, pool_blocks=100)
    assert shares(small, "fifo") == {"fifo": [0.9, 0.9], "unlimited": [0.9, 0.9]}


def test_prefixes_that_take_turns_in_a_small_pool_are_forgotten() -> None:
    # Twenty usable blocks hold two prefixes of nine blocks, but not four that take turns.
    small = Prefixes(xs=(2, 4), prefix_tokens=144, own_tokens=16, groups=FULL, pool_blocks=21)
    assert shares(small, "fifo") == {"fifo": [0.9, 0.0], "unlimited": [0.9, 0.9]}


def test_long_contexts_come_back_cut() -> None:
    small = LongContexts(xs=(100, 50), num_prompts=2, prompt_tokens=1024, groups=FULL)
    expected = [(1023 // 16 * 16) / 1024, (511 // 16 * 16) / 512]
    assert shares(small, "uncached-first") == {"uncached-first": expected, "unlimited": expected}


def test_interval_zero_forgets_what_interval_n_keeps() -> None:
    groups = parse_groups("full:64,swa:16:64")
    small = LongContexts(xs=(100, 50), num_prompts=2, prompt_tokens=65_536, groups=groups)
    kept = shares(small, "interval=0", "interval=4096")
    assert kept["interval=0"][0] > 0.9
    assert kept["interval=0"][1] < 0.1
    assert min(kept["interval=4096"]) > 0.8


def test_rows_name_policy_quantity_and_share() -> None:
    small = Prefixes(xs=(2, 3), prefix_tokens=144, own_tokens=16, groups=FULL, pool_blocks=100)
    outcomes = execute(
        plan_experiment(small, [parse_policy("pin")]), lambda finished: None, Local()
    )
    rows = experiment_rows(small, outcomes)
    assert [(row["policy"], row["prefixes"], row["hit_share"]) for row in rows] == [
        ("pin", 2, 0.9),
        ("unlimited", 2, 0.9),
        ("pin", 3, 0.9),
        ("unlimited", 3, 0.9),
    ]
    assert [row["requests"] for row in rows] == [2, 2, 3, 3]


@pytest.fixture
def _scaled_down(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = parse_groups("full:64,swa:16:64")
    prefixes = Prefixes(xs=(2, 3), prefix_tokens=12_800, groups=groups, pool_blocks=2000)
    long_contexts = LongContexts(xs=(100, 50), num_prompts=2, prompt_tokens=4096, groups=groups)
    monkeypatch.setattr(experiment_command, "PREFIXES", prefixes)
    monkeypatch.setattr(experiment_command, "LONG_CONTEXTS", long_contexts)


@pytest.mark.usefixtures("_scaled_down")
@pytest.mark.parametrize(
    ("name", "key", "policies"),
    [
        ("prefixes", "prefixes", ["vllm", "fifo", "uncached-first", "interval=8192", "pin"]),
        ("long-contexts", "percent", ["vllm", "fifo", "uncached-first", "interval=32768"]),
    ],
)
def test_the_command_prints_and_writes(
    tmp_path: Path, name: str, key: str, policies: list[str]
) -> None:
    path, plot = tmp_path / "rows.json", tmp_path / "plot.png"
    output = succeed("experiment", name, "--json", path, "--plot", plot).output
    record = json.loads(path.read_bytes())
    assert list(record) == ["missing_runs", "rows"]
    assert record["missing_runs"] == 0
    expected = [*policies, "unlimited"]
    assert [row["policy"] for row in record["rows"]] == 2 * expected
    assert all(key in row and 0 <= row["hit_share"] <= 1 for row in record["rows"])
    for policy in expected:
        assert policy in output
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("_scaled_down")
def test_policies_can_be_chosen(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    output = succeed("experiment", "prefixes", "--policy", "pin=2", "--quiet", "--json", path)
    assert output.output == ""
    assert [r["policy"] for r in json.loads(path.read_bytes())["rows"]] == 2 * [
        "pin=2",
        "unlimited",
    ]


@pytest.mark.usefixtures("_scaled_down")
@pytest.mark.parametrize("missing", [2, 3])
def test_runs_that_are_missing_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: int
) -> None:
    fail_after(monkeypatch, lambda run: run.workload.quantity != missing)
    path = tmp_path / "rows.json"
    result = kvoxide("experiment", "prefixes", "--policy", "fifo", "--json", path)
    assert result.exit_code == 1
    record = json.loads(path.read_bytes())
    assert record["missing_runs"] == 2
    done = {row["policy"]: row for row in record["rows"]}
    assert {row["prefixes"] for row in done.values()} == {5 - missing}
    *table, error = map(str.split, result.output.splitlines())
    assert " ".join(error) == f"Error: {MESSAGE}"
    for policy in ("fifo", "unlimited"):
        shares = {missing: "-", 5 - missing: f"{done[policy]['hit_share']:.1%}"}
        assert [policy, shares[2], shares[3]] in table


@pytest.mark.usefixtures("_scaled_down")
def test_nothing_is_written_if_all_runs_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_after(monkeypatch, lambda run: False)
    result = kvoxide("experiment", "prefixes", "--json", tmp_path / "rows.json")
    assert (result.exit_code, result.output) == (1, f"Error: {MESSAGE}\n")
    assert not list(tmp_path.iterdir())

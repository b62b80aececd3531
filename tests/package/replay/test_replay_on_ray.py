"""Sweeps on a real Ray cluster of two nodes with one processor each, all on this machine."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from kvoxide._core import ConfigError, Trace
from kvoxide.lab.replay.input import parse_groups, parse_policy
from kvoxide.lab.replay.run import Place, Run, SharedTrace, Workload, executor_at
from kvoxide.lab.replay.run.execution import cluster
from kvoxide.lab.replay.run.execution.interface import execute
from kvoxide.lab.replay.run.planning import plan_runs
from ray.cluster_utils import Cluster

from tests.testing.pages import PageText
from tests.testing.paths import ROOT
from tests.testing.traces import COMMAND, kvoxide, line, prompt, write_trace

MODELS = ROOT / "tests/vllm/models/configs"
TIMES = ("timing", "wall_seconds", "schedule_seconds", "step_seconds")
SIZES = [100 + 25 * number for number in range(20)]
# The command, which notices sooner that a cluster is gone, and tells when a run has ended.
PATCHED_COMMAND = f"""
import os, pathlib
from kvoxide.lab.replay.run.execution import cluster, on_ray

def count_finished(tasks, at, count=on_ray._Tasks._count_finished):
    count(tasks, at)
    pathlib.Path(os.environ["TOLD"]).touch()

cluster._SILENCE_SECONDS = 2.0
on_ray._Tasks._count_finished = count_finished
{COMMAND}
"""
UNUSED_ADDRESS = "127.0.0.1:9"


@pytest.fixture(scope="module")
def client() -> str:
    """Return the address of the client server of :func:`two_nodes`."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"ray://127.0.0.1:{free.getsockname()[1]}"


@pytest.fixture(scope="module")
def two_nodes(client: str) -> Iterator[str]:
    """The address of a cluster."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # The client server forks for each client, and gRPC's own handling of it crashes now and then.
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
    port = int(client.rpartition(":")[2])
    head = {**node(), "ray_client_server_port": port}
    made = Cluster(initialize_head=True, head_node_args=head)
    try:
        made.add_node(**node())
        yield made.address
    finally:
        made.shutdown()


def node() -> dict[str, Any]:
    return {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 2**27}


@pytest.fixture
def trace(tmp_path: Path) -> str:
    """Prompts that come back, some of them long after."""
    numbers = [number % (3 + number // 10) for number in range(60)]
    return write_trace(tmp_path / "trace", *(line(prompt(number, 500), 9) for number in numbers))


def long_runs(output_length: int, num_runs: int) -> list[Run]:
    """Runs of one request at a time, whose durations are in proportion to the length."""
    made = Trace()
    for number in range(20):
        made.push_prompt(list(prompt(number, 100)), output_length)
    workload = Workload(SharedTrace.of(made), parse_groups("full:16").specs, 1, 8192)
    sizes = [50_000 + number for number in range(num_runs - 1)]
    return plan_runs(workload, [parse_policy("fifo")], sizes)


def counts(runs: list[Run], place: Place | None) -> list[tuple[int, int, int]]:
    with executor_at(place) as executor:
        outcomes = execute(runs, lambda _: None, executor)
    return [(o.result.hit_tokens, o.result.evictions, o.result.steps) for o in outcomes]


def without_times(record: Any) -> Any:
    if isinstance(record, dict):
        return {key: without_times(value) for key, value in record.items() if key not in TIMES}
    return [without_times(value) for value in record] if isinstance(record, list) else record


def workers() -> list[int]:
    """The processes of this one's clusters that do a run now."""
    return ours(b"ray::simulate")


def ours(name: bytes, ancestor: int | None = None) -> list[int]:
    """The processes of a name that this one, or another one, started itself or through others."""
    processes = [path for path in Path("/proc").iterdir() if path.name.isdigit()]
    parents = {int(path.name): parent_of(path) for path in processes}
    of = os.getpid() if ancestor is None else ancestor
    return [pid for pid in parents if descends(pid, of, parents) and is_called(pid, name)]


def parent_of(path: Path) -> int:
    try:
        return int((path / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError):
        return 0


def descends(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    while pid in parents:
        pid = parents[pid]
        if pid == ancestor:
            return True
    return False


def is_called(pid: int, name: bytes) -> bool:
    try:
        return name in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
    except OSError:
        return False


def wait_for(condition: Callable[[], object], seconds: float = 20) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def test_a_sweep_of_forty_runs_is_what_it_is_here(
    two_nodes: str, trace: str, tmp_path: Path
) -> None:
    written = {}
    places: dict[str, list[str]] = {"here": [], "there": ["--on", two_nodes]}
    for name, where in places.items():
        path, lines, page = (tmp_path / f"{name}{end}" for end in ("", ".jsonl", ".html"))
        sizes = ["--blocks", ",".join(map(str, SIZES)), "--policy", "fifo", "--policy", "adaptive"]
        clock = ["--step-time", "base=4ms", "--instances", "2", "--router", "prefix"]
        files: list[str | Path] = ["--json", path, "--per-request", lines, "--html", page]
        result = kvoxide("replay", trace, *sizes, *clock, *files, *where)
        assert result.exit_code == 0, result.output
        plots = PageText(page.read_text(encoding="utf-8")).plots
        written[name] = (without_times(json.loads(path.read_bytes())), lines.read_bytes(), plots)
    record, *others = written["here"]
    assert len(record["results"]) == 41
    assert len({result["hit_tokens"] for result in record["results"]}) > 5
    assert json.dumps(written["there"][0]) == json.dumps(record)
    assert list(written["there"][1:]) == others


def test_a_plan_is_what_it_is_here(two_nodes: str, tmp_path: Path) -> None:
    model: list[str | Path] = ["--model", MODELS / "qwen3-8b.json", "--max-model-len", "32768"]
    model += ["--memory", "5GiB,10GiB,20GiB", "--instances", "1,2", "--requests", "150"]
    places: dict[str, list[str]] = {"here": [], "there": ["--on", two_nodes]}
    for target in ("hit_share>25%", "ttft_p99<1ms"):
        written = []
        for name, where in places.items():
            path = tmp_path / name
            result = kvoxide("plan", "sample", *model, "--target", target, "--json", path, *where)
            written.append((result.exit_code, path))
        (here, _), (there, _) = written
        assert here == there
        records = [without_times(json.loads(path.read_bytes())) for _, path in written]
        assert json.dumps(records[0]) == json.dumps(records[1])
        assert records[0]["is_complete"]
        assert bool(records[0]["cheapest"]) == (here == 0)
    assert len(records[0]["verdicts"]) == 18


def test_a_run_whose_worker_died_is_done_again(two_nodes: str) -> None:
    runs = long_runs(60_000, 6)
    killed: list[int] = []

    def kill_one(_: int) -> None:
        if not killed and (found := workers()):
            os.kill(found[0], signal.SIGKILL)
            killed.append(found[0])

    with executor_at(Place(two_nodes)) as executor:
        outcomes = execute(runs, kill_one, executor)
    assert killed
    found = [(o.result.hit_tokens, o.result.evictions, o.result.steps) for o in outcomes]
    assert found == counts(long_runs(60_000, 6), None)


def test_a_trace_is_sent_once(two_nodes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []
    put = ray.put

    def counted(value: Any) -> Any:
        sent.append(value)
        return put(value)

    monkeypatch.setattr(ray, "put", counted)
    seen: list[int] = []
    with executor_at(Place(two_nodes)) as executor:
        execute([*long_runs(1, 5), *long_runs(2, 4)], seen.append, executor)
    assert len(sent) == 2
    assert seen == sorted(seen)
    assert seen[-1] == 9 * 20


def test_runs_that_are_not_wanted_are_not_done(two_nodes: str) -> None:
    runs = long_runs(1, 8)
    for place in (None, Place(two_nodes)):
        seen: list[int] = []
        with executor_at(place) as executor:
            done = dict(executor.outcomes(runs, seen.append, lambda at: at % 3 == 0))
        assert sorted(done) == [0, 3, 6]
        assert seen[-1] == 8 * 20


def test_an_error_in_a_run_is_raised_and_ends_the_others(two_nodes: str) -> None:
    trace = Trace()
    trace.push_prompt([1], 1)
    groups = parse_groups("full:16,swa:16:64").specs
    broken = Workload(SharedTrace.of(trace), groups, 1, 8192)
    runs = [*plan_runs(broken, [parse_policy("interval=1")], [100]), *long_runs(700_000, 4)]
    started = time.monotonic()
    with pytest.raises(ConfigError, match="retention_interval is 1"):
        counts(runs, Place(two_nodes))
    assert time.monotonic() - started < 20
    assert wait_for(lambda: not workers())


@pytest.mark.parametrize("is_client", [False, True])
def test_an_interrupt_ends_all_tasks(
    two_nodes: str, client: str, tmp_path: Path, is_client: bool
) -> None:
    lines = [line(prompt(number), 700_000) for number in range(200)]
    trace = write_trace(tmp_path / "long", *lines)
    policies = ["--policy", "fifo", "--policy", "pin", "--policy", "uncached-first"]
    process = subprocess.Popen(
        [
            *[sys.executable, "-c", COMMAND, "replay", trace, "--concurrency", "1", *policies],
            *["--json", str(tmp_path / "result.json"), "--on", client if is_client else two_nodes],
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert wait_for(lambda: workers() or process.poll() is not None)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=20)
    assert (process.returncode, output) == (130, b"")
    assert errors.endswith(b"Interrupted.\n")
    assert os.listdir(tmp_path) == ["long"]
    assert wait_for(lambda: not workers())


def test_what_was_done_before_the_cluster_was_gone_is_written(tmp_path: Path) -> None:
    # A pool of one block rejects every request at once; in the others requests decode for minutes.
    trace = write_trace(tmp_path / "long", *(line(prompt(n), 700_000) for n in range(200)))
    path, page = tmp_path / "some.json", tmp_path / "some.html"
    process = subprocess.Popen(
        [
            *[sys.executable, "-c", PATCHED_COMMAND, "replay", trace, "--blocks", "2,60000"],
            *["--concurrency", "1", "--json", str(path), "--html", str(page), "--on", "ray"],
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "RAY_ADDRESS": "local", "TOLD": str(tmp_path / "told")},
    )
    try:
        assert wait_for((tmp_path / "told").exists, 60)
        for name in (b"gcs_server", b"raylet"):
            os.kill(ours(name, process.pid)[0], signal.SIGKILL)
        output, errors = process.communicate(timeout=40)
    finally:
        process.kill()
    assert process.returncode == 1
    assert errors.endswith("Error: the Ray cluster of this machine has not answered for 2 s\n")
    record = json.loads(path.read_bytes())
    assert [result["blocks"] for result in record["results"]] == [2]
    assert record["missing_runs"] == 2
    told = PageText(page.read_text(encoding="utf-8")).texts["dd"]
    assert told[-2:] == ["2 runs", errors.splitlines()[-1].removeprefix("Error: ")]
    assert "vllm" in output


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_nobody_at_the_address(trace: str, tmp_path: Path, scheme: str) -> None:
    path, started = tmp_path / "result.json", time.monotonic()
    result = kvoxide("replay", trace, "--json", path, "--on", scheme + UNUSED_ADDRESS)
    assert result.exit_code == 1
    assert f"Error: no Ray cluster at {scheme}{UNUSED_ADDRESS}: " in result.output
    assert time.monotonic() - started < 10
    assert not path.exists()


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_somebody_else_at_the_address(
    trace: str, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    monkeypatch.setattr(cluster, "_CONNECT_SECONDS", 2.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"{scheme}127.0.0.1:{silent.getsockname()[1]}"
        started = time.monotonic()
        result = kvoxide("replay", trace, "--on", address)
    assert result.exit_code == 1
    assert f"no Ray cluster answered at {address} within 2 s" in result.output
    assert time.monotonic() - started < 15


@pytest.mark.parametrize("named", ["variable", "client"])
def test_every_way_to_name_a_cluster(
    two_nodes: str, client: str, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", two_nodes)
    place = Place(client if named == "client" else None)
    assert counts(long_runs(3, 4), place) == counts(long_runs(3, 4), None)

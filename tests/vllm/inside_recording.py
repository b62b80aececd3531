"""``KVOXIDE_RECORD``: what a scheduler did stands in files, whatever happens, and is replayed."""

import errno
import gzip
import json
import logging
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# vLLM sets variables that only a server of processes of its own would have.
BEFORE_VLLM = dict(os.environ)

from vllm.plugins import load_general_plugins  # noqa: E402

os.environ.setdefault("KVOXIDE_RECORD", "/unused/by/import")
load_general_plugins()

from click.testing import CliRunner  # noqa: E402
from kvoxide.cli import main  # noqa: E402
from kvoxide.replay.reader import read_deployment, read_trace  # noqa: E402
from kvoxide.vllm.environment import releases, settings  # noqa: E402
from kvoxide.vllm.recording import hooks  # noqa: E402
from kvoxide.vllm.recording import recorder as recorder_module  # noqa: E402
from vllm.v1.request import RequestStatus  # noqa: E402

from tests.testing import preloaded  # noqa: E402
from tests.testing.small_world import window  # noqa: E402
from tests.vllm.scheduler_world import SchedulerWorld  # noqa: E402

MODES = ("off", "auto", "require", "shadow")


def environment_of_child() -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if name.startswith("KVOXIDE")}
    return BEFORE_VLLM | ours


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "recorded" / "here"
    monkeypatch.setenv("KVOXIDE_RECORD", str(folder))
    monkeypatch.setenv("KVOXIDE_SHADOW_DIR", str(tmp_path))
    monkeypatch.setattr(recorder_module, "FLUSH_SECONDS", 0.01)
    return folder


@pytest.fixture
def warnings() -> Iterator[list[str]]:
    seen: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: seen.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("vllm.kvoxide")
    logger.addHandler(handler)
    yield seen
    logger.removeHandler(handler)


def plain(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes())


def lines(folder: Path, kind: str = "requests") -> list[dict[str, Any]]:
    """All lines without headers, in the order of their files."""
    found = []
    for path in sorted(folder.glob(f"{kind}-*.jsonl.gz")):
        header, *rest = [json.loads(line) for line in plain(path).splitlines()]
        assert header["kvoxide_recording"] == 1
        found += rest
    return found


def closed(world: SchedulerWorld) -> None:
    world.scheduler.shutdown()
    assert not world.scheduler._kvoxide_recorder.is_on


def prompt(number: int, length: int) -> list[int]:
    return list(range(number * 10_000, number * 10_000 + length))


def ids(line: dict[str, Any]) -> list[int]:
    return list(line["hash_ids"] + line["output_hash_ids"])


@pytest.mark.parametrize("mode", MODES)
def test_a_conversation_is_recorded_in_every_mode(
    mode: str, folder: Path, monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    monkeypatch.setenv("KVOXIDE", mode)
    world = SchedulerWorld()
    first = world.serve("secret-a", prompt(1, 40), 30)
    world.serve("secret-b", [*first, *prompt(2, 10)], 1)
    world.serve("secret-c", prompt(1, 40), 1)
    assert len(first) == 70
    closed(world)
    a, b, c = lines(folder)
    # 69 tokens were computed: four blocks of 16. The third has 8 tokens of the prompt.
    assert (a["input_length"], a["output_length"]) == (40, 30)
    assert (a["hash_ids"], a["output_hash_ids"]) == ([0, 1, 2], [3])
    assert (b["input_length"], b["hash_ids"][:4], b["output_length"]) == (80, [0, 1, 2, 3], 1)
    assert (b["hash_ids"][4:], b["output_hash_ids"]) == ([4], [])
    assert (c["hash_ids"][:2], c["output_hash_ids"]) == ([0, 1], [])
    assert c["hash_ids"][2] not in ids(a) + ids(b)
    assert a["timestamp"] <= b["timestamp"] <= c["timestamp"] < 60_000
    assert {line["status"] for line in (a, b, c)} == {"length_capped"}
    assert world.hits == 64 + 32
    assert warnings == []
    assert hit_tokens(folder, "--concurrency", "1") == world.hits


def hit_tokens(folder: Path, *options: str) -> int:
    """Of the pool that the server had."""
    out = folder.parent / "replayed.json"
    command = ["replay", str(folder), "--quiet", "--json", str(out), *options]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 0, done.output
    return int(json.loads(out.read_text())["results"][0]["hit_tokens"])


def test_the_header_tells_the_deployment(folder: Path) -> None:
    world = SchedulerWorld(max_num_seqs=5, num_blocks=77)
    world.serve("a", prompt(1, 40), 2)
    closed(world)
    deployment = read_deployment(str(folder))
    assert deployment is not None
    assert deployment.groups is not None
    assert deployment.groups.text == "full:16"
    assert (deployment.num_blocks, deployment.max_running_requests) == (77, 5)
    assert (deployment.max_batched_tokens, deployment.vllm) == (64, releases.installed_version())
    assert (deployment.num_ranks, deployment.tensor_parallel, deployment.pipeline_parallel) == (
        1, 1, 1
    )  # fmt: skip
    assert (deployment.cache_dtype, deployment.block_size) == ("auto", None)
    assert deployment.max_model_len == world.scheduler.max_model_len


def test_salts_and_adapters_stay_apart(folder: Path) -> None:
    world = SchedulerWorld()
    ways: list[dict[str, Any]] = [{}, {"salt": "s"}, {"salt": "t"}, {"adapter": "l"}, {}]
    for number, options in enumerate(ways):
        world.serve(f"r{number}", prompt(1, 40), 1, **options)
    closed(world)
    recorded = [set(line["hash_ids"][:2]) for line in lines(folder)]
    assert recorded[0] == recorded[4] == {0, 1}
    assert len(set.union(*recorded)) == 8


def test_aborted_requests_tell_what_they_generated(folder: Path) -> None:
    world = SchedulerWorld(max_num_seqs=2)
    world.add("a", prompt(1, 40), 100)
    world.add("b", prompt(2, 100), 100)
    world.add("waits", prompt(3, 40), 100)
    world.step()  # 40 tokens of a and 24 of b
    for _ in range(20):
        world.step()
    world.abort("a")
    world.abort("waits")
    world.abort("b")
    closed(world)
    a, b = lines(folder)  # the third was never computed
    assert (a["output_length"], a["status"], len(ids(a))) == (21, "aborted", 3)
    assert (b["output_length"], b["status"], b["input_length"]) == (19, "aborted", 100)


def test_a_server_that_stops_loses_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "FLUSH_SECONDS", 60)
    world = SchedulerWorld()
    world.add("a", prompt(1, 40), 3)
    world.add("b", prompt(2, 40), 50)
    for _ in range(4):
        world.step()
    assert lines(folder) == []
    # vLLM's engine does so when it is told to stop; it may be killed right after.
    world.scheduler.finish_requests(None, RequestStatus.FINISHED_ABORTED)
    assert [line["status"] for line in lines(folder)] == ["length_capped", "aborted"]
    assert len(lines(folder, "steps")) == 4
    closed(world)


def test_a_server_that_waits_has_written_all(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be killed at any time then, as vLLM does with data-parallel ranks that are to stop."""
    monkeypatch.setattr(recorder_module, "FLUSH_SECONDS", 60)
    world = SchedulerWorld()
    world.serve("a", prompt(1, 40), 3)
    wait_for_lines(folder, ["length_capped"])
    world.add("b", prompt(2, 40), 50)
    world.step()
    world.abort("b")
    wait_for_lines(folder, ["length_capped", "aborted"])
    closed(world)


def wait_for_lines(folder: Path, expected: list[str]) -> None:
    deadline = time.monotonic() + 30
    while [line["status"] for line in lines(folder)] != expected:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_preempted_requests_are_recorded_once(folder: Path) -> None:
    world = SchedulerWorld(num_blocks=12)
    for number in range(4):
        world.add(f"r{number}", prompt(number, 40), 60)
    requests = list(world.scheduler.requests.values())
    world.run()
    closed(world)
    assert sum(request.num_preemptions for request in requests) > 0
    recorded = lines(folder)
    assert [line["output_length"] for line in recorded] == [60] * 4
    assert all(len(ids(line)) == 6 for line in recorded)
    assert len({each for line in recorded for each in ids(line)}) == 24


def test_steps_tell_their_work(folder: Path) -> None:
    world = SchedulerWorld(max_num_batched_tokens=64)
    world.serve("a", prompt(1, 100), 3)
    closed(world)
    steps = lines(folder, "steps")
    work = [(s["prefill_tokens"], s["context_tokens"], s["running"]) for s in steps]
    assert work == [(64, 0, 1), (36, 64, 1), (0, 100, 1), (0, 101, 1)]
    assert all(0 < step["duration"] < 5 for step in steps)


class Clock:
    """Stands in for the module: each look at it takes a second."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        self.now += 1
        return self.now

    time = staticmethod(time.time)


def test_time_between_steps_is_theirs_while_requests_are_left(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    for module in (hooks, recorder_module):
        monkeypatch.setattr(module, "time", clock)
    world = SchedulerWorld()
    world.add("a", prompt(1, 40), 3)
    world.step()
    clock.now += 100
    world.step()
    world.step()
    clock.now += 1000  # nobody is there
    world.add("b", prompt(2, 40), 3)
    world.step()
    world.abort("b")
    clock.now += 1000
    world.serve("c", prompt(3, 40), 1)
    closed(world)
    assert [step["duration"] for step in lines(folder, "steps")] == [1, 102, 2, 1, 1]


def test_a_step_that_overlaps_another_lasts_from_its_end(folder: Path) -> None:
    world = SchedulerWorld(is_async=True, num_steps_ahead=2)
    world.serve("a", prompt(1, 40), 5)
    closed(world)
    (line,) = lines(folder)
    assert line["output_length"] == 5
    began = time.perf_counter()
    assert sum(step["duration"] for step in lines(folder, "steps")) < began


@pytest.mark.parametrize(
    ("policy", "variables"),
    [
        ("uncached-first", {}),
        ("interval=64", {settings.INTERVAL_VARIABLE: "64"}),
        ("pin=16", {settings.PIN_VARIABLE: "1"}),
        ("adaptive,share=0.25", {settings.POLICY_VARIABLE: "adaptive,share=0.25"}),
    ],
)
def test_a_window_and_the_policy_are_in_the_header(
    folder: Path, monkeypatch: pytest.MonkeyPatch, policy: str, variables: dict[str, str]
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    closed(SchedulerWorld(window()))
    deployment = read_deployment(str(folder))
    assert deployment is not None
    assert deployment.groups is not None
    assert deployment.policy is not None
    assert (deployment.groups.text, deployment.policy.name) == ("swa:16:64", policy)


def test_files_of_bounded_size(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module.Recorder.__init__, "__defaults__", (700,))
    world = SchedulerWorld()
    for number in range(60):
        world.serve(f"r{number}", prompt(number, 40), 1)
        if number % 10 == 0:
            time.sleep(0.05)
    closed(world)
    found = sorted(folder.glob("requests-0-*.jsonl.gz"))
    assert len(found) >= 2
    assert len(lines(folder)) == 60
    assert len(read_trace(str(folder)).trace) == 60


def test_a_second_scheduler_in_one_folder_has_ids_of_its_own(folder: Path) -> None:
    for _ in range(2):
        world = SchedulerWorld()
        world.serve("a", prompt(1, 40), 1)
        world.serve("b", prompt(1, 40), 1)
        closed(world)
    assert [line["hash_ids"][:2] for line in lines(folder)] == [[0, 1]] * 4
    assert hit_tokens(folder, "--concurrency", "1") == 64


def full_disk(*_: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_ends_the_recording_and_nothing_else(
    folder: Path, monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    world = SchedulerWorld()
    world.serve("a", prompt(1, 40), 1)
    time.sleep(0.1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full_disk)
        for number in range(20):
            world.serve(f"r{number}", prompt(number, 40), 3)
            time.sleep(0.01)
    assert not world.scheduler._kvoxide_recorder.is_on
    world.serve("z", prompt(1, 40), 1)
    (warning,) = warnings
    assert f"stops recording to {folder}, serving goes on: [Errno 28] No space left" in warning
    assert [line["output_length"] for line in lines(folder)] == [1]
    assert len(read_trace(str(folder)).trace) == 1


def test_a_limit_on_files_ends_it_too(folder: Path) -> None:
    """The kernel's own error, in a process that may write no more than so many bytes."""
    code = (
        "import resource, time\n"
        "from tests.vllm import inside_recording as here\n"
        "here.recorder_module.FLUSH_SECONDS = 0.01\n"
        "world = here.SchedulerWorld()\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\n"
        "for n in range(100):\n"
        "    world.serve(f'r{n}', here.prompt(n, 700), 1)\n"
        "deadline = time.monotonic() + 100\n"
        "while world.scheduler._kvoxide_recorder.is_on:\n"
        "    assert time.monotonic() < deadline\n"
        "    time.sleep(0.01)\n"
    )
    done = preloaded.run(["-c", code], environment_of_child())
    assert done.returncode == 0, done.stderr[-3_000:]
    assert (done.stdout + done.stderr).count("stops recording to") == 1
    # Every member is whole: the one that did not fit is gone.
    assert len(lines(folder)) + len(lines(folder, "steps")) < 600


def test_a_killed_process_leaves_whole_lines(folder: Path) -> None:
    code = (
        "from tests.vllm import inside_recording as here\n"
        "here.recorder_module.FLUSH_SECONDS = 0.01\n"
        "world = here.SchedulerWorld()\n"
        "for n in range(10**9):\n"
        "    world.serve(f'r{n}', here.prompt(n % 50, 200), 3)\n"
    )
    with open(os.devnull, "r+b") as nothing:
        child = preloaded.start(["-c", code], environment_of_child(), files=[nothing.fileno()] * 3)
    try:
        deadline = time.monotonic() + 100
        while sum(path.stat().st_size for path in folder.glob("requests-*")) < 20_000:
            assert child.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        child.send_signal(signal.SIGKILL)
    child.wait()
    file = read_trace(str(folder))
    assert len(file.trace) > 100
    assert file.bad_lines == 0


@pytest.mark.parametrize("obstacle", ["a file", "no caching", "scheduler"])
def test_where_it_cannot_record_it_says_so(
    obstacle: str, folder: Path, monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    monkeypatch.setenv("KVOXIDE", "off")
    expected, changes = "", dict[str, Any]()
    if obstacle == "a file":
        folder.parent.write_text("")
        expected = "Not a directory"
    elif obstacle == "no caching":
        changes, expected = {"enable_caching": False}, "prefix caching is off"
    else:
        monkeypatch.setitem(hooks._WRAPPERS, "later_method", hooks._WRAPPERS["schedule"])
        expected = "the scheduler of this vLLM has no later_method"
    world = SchedulerWorld(**changes)
    assert len(world.serve("a", prompt(1, 40), 5)) == 45
    (warning,) = warnings
    assert warning.startswith(f"kvoxide does not record to {folder}: ")
    assert expected in warning


def test_without_the_variable_nothing_is_recorded(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KVOXIDE_RECORD")
    world = SchedulerWorld()
    world.serve("a", prompt(1, 40), 5)
    assert world.scheduler._kvoxide_recorder is None
    assert not folder.exists()


def test_what_fails_inside_ends_the_recording_alone(folder: Path, warnings: list[str]) -> None:
    world = SchedulerWorld()
    request = world.add("a", prompt(1, 40), 5)
    world.step()
    request.arrival_time = "never"
    world.abort("a")
    deadline = time.monotonic() + 30
    while world.scheduler._kvoxide_recorder.is_on:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert len(world.serve("b", prompt(2, 40), 5)) == 45
    (warning,) = warnings
    assert "stops recording to" in warning
    assert "TypeError" in warning


def test_nothing_of_a_request_stands_in_the_files(folder: Path) -> None:
    world = SchedulerWorld()
    extra = {"kvoxide_priority": 80, "kvoxide_ttl": 2.5}
    request = world.add("secret", prompt(700, 40), 20, salt="secret", adapter="secret", extra=extra)
    hashes = request.block_hashes
    world.run()
    closed(world)
    (line,) = lines(folder)
    assert (line["priority"], line["ttl"]) == (80, 2.5)
    text = b"".join(map(plain, folder.iterdir()))
    assert b"secret" not in text
    assert not any(each.hex().encode() in text or each in text for each in hashes)
    assert all(number < 1000 for number in line["hash_ids"])


def test_recording_takes_little_beside_the_scheduler(folder: Path) -> None:
    """What the scheduler waits for the recorder in steps of 256 requests, beside the time that
    the scheduler and what plays the model take for them."""
    world = SchedulerWorld(max_num_seqs=256, max_num_batched_tokens=8192, num_blocks=5000)
    for number in range(256):
        world.add(f"r{number}", prompt(number, 32), 60)
    recorder = world.scheduler._kvoxide_recorder
    waited: list[float] = []
    for name in ("step_scheduled", "step_ends", "request_ends"):
        method = getattr(recorder, name)

        def timed(*args: Any, method: Any = method, **more: Any) -> None:
            began = time.thread_time()
            method(*args, **more)
            waited.append(time.thread_time() - began)

        setattr(recorder, name, timed)
    began = time.thread_time()
    world.run()
    in_all = time.thread_time() - began
    closed(world)
    assert len(lines(folder)) == 256
    assert len(lines(folder, "steps")) == 60
    assert sum(waited) < 0.01 * in_all, sum(waited) / in_all

"""Tests of ``KVOXIDE_RECORD``: recordings that end, that fail and that reach their limit."""

import errno
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.vllm.recorded_world import (
    SchedulerWorld,
    all_lines,
    closed,
    environment_of_child,
    hit_tokens,
    hooks,
    lines,
    prompt,
    recorder_module,
)

# Import after the plugin.
from kvoxide.lab.replay.input import read_trace  # isort: skip
from kvoxide.vllm.environment import settings  # isort: skip
from vllm.v1.request import RequestStatus  # isort: skip

from tests.testing import preloaded  # isort: skip


def test_a_server_that_stops_loses_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "FLUSH_SECONDS", 60)
    world = SchedulerWorld()
    world.add("a", prompt(1, 40), 3)
    world.add("b", prompt(2, 40), 50)
    for _ in range(4):
        world.step()
    assert lines(folder) == []
    # vLLM's engine does this when it must stop. It may be killed right after.
    world.scheduler.finish_requests(None, RequestStatus.FINISHED_ABORTED)
    assert [line["status"] for line in lines(folder)] == ["length_capped", "aborted"]
    assert len(lines(folder, "steps")) == 4
    closed(world)


def test_a_server_that_waits_has_written_all(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may then be killed at any time. vLLM does this to data-parallel ranks that must stop."""
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
    wait_until(lambda: [line["status"] for line in lines(folder)] == expected)


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_files_of_bounded_size(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "file_bytes", lambda limit: 700)
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
    assert (
        f"kvoxide: recording to {folder} is off; the server continues. Reason: [Errno 28] No space"
        in warning
    )
    assert [line["output_length"] for line in lines(folder)] == [1]
    assert len(read_trace(str(folder)).trace) == 1


def test_a_limit_on_files_ends_it_too(folder: Path) -> None:
    """The kernel itself raises the error, in a process with a limit on the bytes that it may
    write."""
    code = (
        "import resource, time\n"
        "from tests.vllm import recorded_world as here\n"
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
    assert (done.stdout + done.stderr).count("kvoxide: recording to ") == 1
    # Every member is whole. The member that did not fit is gone.
    assert len(lines(folder)) + len(lines(folder, "steps")) < 600


def test_a_killed_process_leaves_whole_lines(folder: Path) -> None:
    code = (
        "from tests.vllm import recorded_world as here\n"
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
    assert warning.startswith(f"kvoxide: recording to {folder} is off; ")
    assert expected in warning


def test_what_fails_inside_ends_the_recording_alone(folder: Path, warnings: list[str]) -> None:
    world = SchedulerWorld()
    request = world.add("a", prompt(1, 40), 5)
    world.step()
    request.arrival_time = "never"
    world.abort("a")
    wait_until(lambda: not world.scheduler._kvoxide_recorder.is_on)
    assert len(world.serve("b", prompt(2, 40), 5)) == 45
    (warning,) = warnings
    assert f"recording to {folder} is off" in warning
    assert "TypeError" in warning


def ends(folder: Path) -> list[str]:
    return [line["end"] for line in all_lines(folder) if "end" in line]


def test_a_recording_says_when_nothing_is_left_to_write(folder: Path) -> None:
    world = SchedulerWorld()
    world.add("a", prompt(1, 40), 50)
    world.step()
    world.scheduler._kvoxide_recorder.flush()
    # A slow machine can find nothing to write before the first request, too.
    assert "end" not in all_lines(folder)[-1]
    assert "has no end" in " ".join(read_notes(folder))
    world.run()
    wait_until(lambda: all_lines(folder)[-1].get("end") == "idle")
    assert "has no end" not in " ".join(read_notes(folder))
    closed(world)
    assert ends(folder)[-1] == "closed"


def read_notes(folder: Path) -> list[str]:
    try:
        return list(read_trace(str(folder)).notes)
    except ValueError:
        return ["has no end: no request has ended"]


def test_a_failed_recording_says_why_where_it_can(folder: Path) -> None:
    world = SchedulerWorld()
    world.serve("a", prompt(1, 40), 1)
    request = world.add("b", prompt(1, 40), 5)
    world.step()
    request.arrival_time = "never"
    world.abort("b")
    wait_until(lambda: not world.scheduler._kvoxide_recorder.is_on)
    wait_until(lambda: "failed" in ends(folder))
    assert any("recording failed on the server" in note for note in read_notes(folder))


def test_the_oldest_files_go_at_the_limit(
    folder: Path, monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    monkeypatch.setattr(recorder_module, "file_bytes", lambda _: 700)
    monkeypatch.setenv("KVOXIDE_RECORD_LIMIT", "1MiB")
    monkeypatch.setattr(settings, "recording_limit", lambda: 6_000)
    world = SchedulerWorld()
    for number in range(150):
        world.serve(f"r{number}", prompt(number % 3, 40), 1)
        if number % 5 == 0:
            time.sleep(0.03)
    closed(world)
    assert sum(path.stat().st_size for path in folder.iterdir()) < 9_000
    assert 0 < len(lines(folder)) < 150
    (warning,) = warnings
    assert "reached its limit of 6000 bytes" in warning
    assert any("beginning of the recording is missing" in note for note in read_notes(folder))
    assert hit_tokens(folder) > 0


@pytest.mark.parametrize("value", ["ten", "1", "-5GiB", "10 XB"])
def test_a_limit_that_is_no_size_is_named(
    value: str, folder: Path, monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    monkeypatch.setenv("KVOXIDE_RECORD_LIMIT", value)
    assert SchedulerWorld().scheduler._kvoxide_recorder is None
    (warning,) = warnings
    assert f"KVOXIDE_RECORD_LIMIT={value!r} is not valid; allowed: a size of 1 MiB" in warning


@pytest.mark.parametrize(
    ("value", "size"), [("10GiB", 10 << 30), ("2 tb", 2 * 10**12), ("0", 0), ("1048576", 1 << 20)]
)
def test_limits_have_units(value: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVOXIDE_RECORD_LIMIT", value)
    assert settings.recording_limit() == size

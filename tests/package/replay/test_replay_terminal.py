"""The command as a process: progress on a terminal only, interruption, closed pipes."""

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

from kvoxide.lab.replay.run.progress import RateColumn
from rich.progress import Progress

from tests.testing.traces import COMMAND, line, prompt

ARGUMENTS = [sys.executable, "-c", COMMAND, "replay"]


def output_on_a_terminal(*arguments: str) -> bytes:
    """Test what a replay writes to standard error if that is a terminal."""
    terminal, end = pty.openpty()
    process = subprocess.Popen(
        [*ARGUMENTS, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=end,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    )
    os.close(end)
    seen = b""
    try:
        while chunk := os.read(terminal, 4096):
            seen += chunk
    except OSError:  # Linux says EIO when the other end is gone
        pass
    os.close(terminal)
    assert process.wait() == 0
    return seen


def test_a_terminal_gets_a_bar_with_rate_and_remaining_time() -> None:
    seen = output_on_a_terminal("sample")
    assert b"requests/s" in seen
    assert b"remaining" in seen


def test_the_rate_is_there_after_a_single_update() -> None:
    bar = Progress(RateColumn(), disable=True)
    task = bar.add_task("", total=600)
    time.sleep(0.001)
    bar.update(task, completed=600)
    rendered = RateColumn().render(bar.tasks[0])
    rate, unit = rendered.plain.split()
    assert unit == "requests/s"
    assert 0 < float(rate.replace(",", "")) <= 600_000


def test_quiet_has_no_bar() -> None:
    assert output_on_a_terminal("sample", "--quiet") == b""


def test_a_pipe_gets_no_bar() -> None:
    done = subprocess.run([*ARGUMENTS, "sample"], capture_output=True, check=True)
    (line,) = done.stderr.splitlines()
    assert line.startswith(b"no answer comes back in this trace")
    assert b"unlimited" in done.stdout


def heed_interrupts() -> None:
    """A shell's background jobs ignore SIGINT, and hand that on."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_an_interrupt_ends_all_runs_and_leaves_no_file(tmp_path: Path) -> None:
    # Requests that decode for minutes, one at a time, and fit the default pool.
    long_trace = b"".join(line(prompt(number), 700_000) for number in range(200))
    process = subprocess.Popen(
        [
            *[*ARGUMENTS, "-", "--concurrency", "1", "--json", str(tmp_path / "result.json")],
            *["--policy", "fifo", "--policy", "uncached-first", "--policy", "pin"],
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=heed_interrupts,
    )
    assert process.stdin is not None
    process.stdin.write(long_trace)
    process.stdin.flush()
    process.stdin.close()
    process.stdin = None
    time.sleep(1)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=10)
    assert process.returncode == 130
    assert output == b""
    assert errors.splitlines()[1:] == [b"Interrupted."]  # after the note on answers
    assert not os.listdir(tmp_path)


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    process = subprocess.Popen(
        [*ARGUMENTS, "sample"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert b"Traceback" not in process.stderr.read()
    process.stderr.close()
    process.wait()

"""Starts and observes programs, and ends all of their processes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.testing import preloaded

LAST_LINES = 60


@dataclass
class Running:
    """A process with all its descendants, in a session of their own. ``log`` has their output."""

    process: subprocess.Popen[bytes] | preloaded.Process
    log: Path

    def end_of_log(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-LAST_LINES:])

    def members(self) -> list[int]:
        """Return the process ids that are left of the session."""
        return [int(path.name) for path in Path("/proc").glob("[0-9]*") if self.has(path)]

    def wait_for_members(self, timeout: float) -> None:
        """Wait for some time until the remaining processes of the session end by themselves."""
        deadline = time.monotonic() + timeout
        while self.members() and time.monotonic() < deadline:
            time.sleep(0.1)

    def has(self, path: Path) -> bool:
        try:
            fields = (path / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            return False
        state, _, _, session = fields[:4]
        return int(session) == self.process.pid and state != "Z"


@contextmanager
def running(
    command: Sequence[str],
    log: Path,
    *,
    directory: Path,
    environment: dict[str, str],
    standard_input: Path = Path(os.devnull),
    is_new: bool = True,
) -> Iterator[Running]:
    """Run ``python COMMAND...`` until the block ends, then end all of its processes.

    If it need not be a new Python, it is a preloaded one.
    """
    with log.open("wb") as output, standard_input.open("rb") as given:
        files = (given.fileno(), output.fileno(), output.fileno())
        start = _start_new if is_new else _start_preloaded
        started = Running(start(command, environment, directory, files), log)
    try:
        yield started
    finally:
        for member in started.members():
            with suppress(ProcessLookupError):
                os.kill(member, signal.SIGKILL)
        started.process.wait()


def _start_new(
    command: Sequence[str], environment: dict[str, str], directory: Path, files: tuple[int, ...]
) -> subprocess.Popen[bytes]:
    given, output, errors = files
    return subprocess.Popen(
        [sys.executable, *command],
        cwd=directory,
        env=environment,
        stdin=given,
        stdout=output,
        stderr=errors,
        start_new_session=True,
    )


def _start_preloaded(
    command: Sequence[str], environment: dict[str, str], directory: Path, files: tuple[int, ...]
) -> preloaded.Process:
    return preloaded.start(command, environment, directory=directory, files=files)

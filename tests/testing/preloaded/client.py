"""Requests processes, and starts a server if there is none yet."""

import fcntl
import hashlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.testing.paths import ROOT

from .folder import current_folder, variables_at_start
from .wire import Request, receive_number, send_request

_START_TIMEOUT: Final = 300
# A program may have its own values of variables whose names start with these. Only vLLM, kvoxide,
# pytest, the paths of folders and a test's server depend on them.
_OF_THE_PROGRAM: Final = (
    "KVOXIDE",
    "VLLM_",
    "PYTEST_",
    "PYTHONPATH",
    "PATH",
    "PWD",
    "OLDPWD",
    "PORT",
    "TESTS_",
    "TMPDIR",
)
# Third-party modules set these when the tests import them. A server imports the same modules, so it
# begins with the values from before. Otherwise clients would get different servers.
_SET_BY_IMPORTS: Final = (
    "LD_LIBRARY_PATH",
    "PYTORCH_NVML_BASED_CUDA_CHECK",
    "RAY_",
    "TILELANG_",
    "TORCHINDUCTOR_",
    "TRITON_",
)


class Process:
    """A requested process, with methods like :class:`subprocess.Popen`."""

    def __init__(self, request: Request, files: list[int]) -> None:
        self._connection = _connect(request.environment)
        self._code: int | None = None
        send_request(self._connection, request, files)
        self.arguments = request.arguments
        self.pid = receive_number(self._connection)

    def poll(self) -> int | None:
        return self._code if self._ends_within(0) else None

    def wait(self, timeout: float | None = None) -> int:
        if not self._ends_within(timeout):
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.arguments, timeout)
        assert self._code is not None
        return self._code

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def _ends_within(self, timeout: float | None) -> bool:
        if self._code is None and select.select([self._connection], [], [], timeout)[0]:
            self._code = receive_number(self._connection)
            self._connection.close()
        return self._code is not None


def start(
    arguments: Sequence[str | Path],
    environment: dict[str, str],
    *,
    directory: Path | None = None,
    files: Sequence[int],
) -> Process:
    """Start ``python ARGUMENT...`` as the leader of a new session, with these three standard
    files."""
    folder = str(directory or Path.cwd())
    return Process(Request([str(a) for a in arguments], environment, folder), list(files))


def run(
    arguments: Sequence[str | Path], environment: dict[str, str], given: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run ``python ARGUMENT...`` until it ends. ``given`` is its input as text. Return its output
    as text."""
    with ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
        files[0].write(given.encode())
        files[0].seek(0)
        code = start(arguments, environment, files=[file.fileno() for file in files]).wait()
        texts = []
        for file in files[1:]:
            file.seek(0)
            texts.append(file.read().decode())
        return subprocess.CompletedProcess(list(map(str, arguments)), code, *texts)


def _connect(environment: dict[str, str]) -> socket.socket:
    """Connect to the server for these variables. Start it if there is none."""
    others = _OF_THE_PROGRAM + _SET_BY_IMPORTS
    ours = {k: v for k, v in environment.items() if not k.startswith(others)}
    before = variables_at_start()
    ours |= {k: v for k, v in before.items() if k.startswith(_SET_BY_IMPORTS)}
    key = hashlib.sha256(json.dumps(ours, sort_keys=True).encode()).hexdigest()[:16]
    address = current_folder() / key
    with address.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not address.exists():
            _start_server(address, ours)
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(address))
    return connection


def _start_server(address: Path, variables: dict[str, str]) -> None:
    log = address.with_suffix(".log")
    command = [sys.executable, "-m", "tests.testing.preloaded.server", str(address)]
    with log.open("wb") as output:
        server = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**variables, "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    deadline = time.monotonic() + _START_TIMEOUT
    while not address.exists():
        if server.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"no server of preloaded processes:\n{log.read_text()}")
        time.sleep(0.05)

"""Tests that a process forked from one with imported third-party modules is like a new process."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.testing import preloaded
from tests.testing.paths import ROOT
from tests.testing.preloaded.folder import current_folder
from tests.testing.processes import running

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "KVOXIDE": "off"}
TELL = (
    "import os, sys; print(sys.argv, os.environ['KVOXIDE'], os.environ['PYTHONPATH']);"
    "print([name for name in sys.modules if name.startswith(('vllm', 'kvoxide'))]);"
    "print('wrong', file=sys.stderr); sys.exit(7)"
)


def test_arguments_variables_output_and_status() -> None:
    done = preloaded.run(["-c", TELL, "one", "two"], ENVIRONMENT)
    assert done.stdout.splitlines() == [f"['-c', 'one', 'two'] off {ROOT}", "[]"]
    assert (done.stderr, done.returncode) == ("wrong\n", 7)


def test_a_variable_that_an_import_set_needs_no_other_server() -> None:
    code = "import os; print(os.environ['TORCHINDUCTOR_CACHE_DIR'])"
    preloaded.run(["-c", "pass"], ENVIRONMENT)
    servers = {path.name for path in current_folder().iterdir()}
    done = preloaded.run(["-c", code], ENVIRONMENT | {"TORCHINDUCTOR_CACHE_DIR": "/of/test"})
    assert done.stdout == "/of/test\n"
    assert {path.name for path in current_folder().iterdir()} == servers


def test_modules_and_scripts(tmp_path: Path) -> None:
    code = "import sys; print(__name__, sys.argv[1:], sys.path[0])\n"
    (tmp_path / "program_of_test.py").write_text(code)
    environment = {**ENVIRONMENT, "PYTHONPATH": str(tmp_path)}
    done = preloaded.run(["-m", "program_of_test", "x"], environment)
    assert done.stdout == f"__main__ ['x'] {Path.cwd()}\n"
    done = preloaded.run([tmp_path / "program_of_test.py", "y"], ENVIRONMENT)
    assert done.stdout == f"__main__ ['y'] {tmp_path}\n"


def test_an_exception_is_a_traceback_and_status_1() -> None:
    done = preloaded.run(["-c", "1 / 0"], ENVIRONMENT)
    assert done.stderr.splitlines()[-1] == "ZeroDivisionError: division by zero"
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("ending", "status", "last"),
    [
        ("sys.exit()", 0, ""),
        ("sys.exit(True)", 1, ""),
        ("sys.exit(-1)", 255, ""),
        ("sys.exit('no')", 1, "no\n"),
        ("threading.Thread(target=print, args=['thread']).start()", 0, ""),
    ],
)
def test_it_ends_as_python_ends(ending: str, status: int, last: str) -> None:
    code = f"import atexit, sys, threading; atexit.register(print, 'at exit', end=''); {ending}"
    for done in (
        preloaded.run(["-c", code], ENVIRONMENT),
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False),
    ):
        assert (done.returncode, done.stderr) == (status, last)
        assert done.stdout == ("thread\n" if "thread'" in ending else "") + "at exit"


@pytest.mark.parametrize("is_new", [True, False])
def test_nothing_is_left_of_what_is_not_waited_for(is_new: bool, tmp_path: Path) -> None:
    code = "import subprocess, sys; subprocess.run(['sleep', '600'])"
    with running(
        ["-c", code],
        tmp_path / "log",
        directory=tmp_path,
        environment=ENVIRONMENT,
        is_new=is_new,
    ) as started:
        while len(started.members()) < 2:
            assert started.process.poll() is None, started.end_of_log()
    started.wait_for_members(timeout=10)
    assert started.members() == []
    assert started.process.wait() == -signal.SIGKILL


def test_a_signal_is_told(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log, open(os.devnull, "rb") as nothing:
        files = (nothing.fileno(), log.fileno(), log.fileno())
        process = preloaded.start(["-c", "import time; time.sleep(600)"], ENVIRONMENT, files=files)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == -signal.SIGTERM


def test_the_collector_works_and_leaves_what_was_imported_alone() -> None:
    code = "import gc; gc.unfreeze(); print(gc.isenabled(), gc.get_freeze_count() > 100_000)"
    assert preloaded.run(["-c", code], ENVIRONMENT).stdout == "True True\n"

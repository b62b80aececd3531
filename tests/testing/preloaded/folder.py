"""Where the servers of one run of the tests are found: one run, one folder, one server for each
set of variables. They end with the folder, or with the process that made it, its owner."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_VARIABLE: Final = "TESTS_FOLDER_OF_SERVERS"


@contextmanager
def folder_for_servers() -> Iterator[None]:
    """Make the folder for this process and its children, until the block ends."""
    before = os.environ.get(_VARIABLE)
    folder = tempfile.mkdtemp(prefix="tests-")
    (Path(folder) / "owner").write_text(str(os.getpid()))
    os.environ[_VARIABLE] = folder
    try:
        yield
    finally:
        shutil.rmtree(folder)
        if before is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = before


def current_folder() -> Path:
    return Path(os.environ[_VARIABLE])


def owner_of(folder: Path) -> int:
    """Its process id."""
    return int((folder / "owner").read_text())

"""The folder of the servers of one test run. There is one folder per run, and one server for
each set of variables. The servers end with the folder, or with the process that created it, its
owner."""

import json
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
    """Create the folder for this process and its children, until the block ends."""
    before = os.environ.get(_VARIABLE)
    folder = tempfile.mkdtemp(prefix="tests-")
    (Path(folder) / "owner").write_text(str(os.getpid()))
    (Path(folder) / "variables").write_text(json.dumps(dict(os.environ)))
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
    """Return the process id of the owner."""
    return int((folder / "owner").read_text())


def variables_at_start() -> dict[str, str]:
    """Return the owner's variables from when it created the folder."""
    variables: dict[str, str] = json.loads((current_folder() / "variables").read_text())
    return variables

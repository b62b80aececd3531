"""Becomes the requested program."""

import atexit
import gc
import os
import runpy
import sys
import tempfile
import threading
from contextlib import suppress
from types import ModuleType
from typing import NoReturn

from .wire import Request

# The path when Python started, without the folders of the variable PYTHONPATH.
_PATH_OF_PYTHON = [
    path
    for path in sys.path
    if path not in {"", os.getcwd(), *os.environ.get("PYTHONPATH", "").split(os.pathsep)}
]


def become(request: Request) -> NoReturn:
    """Run the program as ``python ARGUMENT...`` would, and end as Python ends. Do not destroy all
    modules: that takes longer than most of the programs."""
    status = 0
    # vLLM's engines unfreeze all objects when they end, and the collector would look through them.
    gc.unfreeze = lambda: None
    try:
        _run(request)
    except SystemExit as end:
        status = _status(end.code)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def _status(code: object) -> int:
    if code is None or isinstance(code, int):
        return (code or 0) & 0xFF
    print(code, file=sys.stderr)
    return 1


def _run(request: Request) -> None:
    os.environ.clear()
    os.environ.update(request.environment)
    os.chdir(request.directory)
    tempfile.tempdir = None  # it may have been computed already
    given = request.environment.get("PYTHONPATH", "").split(os.pathsep)
    path = [*filter(None, given), *_PATH_OF_PYTHON]
    match request.arguments:
        case ["-m", name, *rest]:
            sys.argv, sys.path = [name, *rest], [request.directory, *path]
            runpy.run_module(name, run_name="__main__", alter_sys=True)
        case ["-c", code, *rest]:
            sys.argv, sys.path = ["-c", *rest], ["", *path]
            module = sys.modules["__main__"] = ModuleType("__main__")
            exec(compile(code, "<string>", "exec"), vars(module))
        case [file, *rest]:
            sys.argv, sys.path = [file, *rest], [os.path.dirname(file), *path]
            runpy.run_path(file, run_name="__main__")

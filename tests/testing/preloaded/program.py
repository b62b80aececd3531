"""Becomes the program that was asked for."""

import os
import runpy
import sys
import tempfile
from types import ModuleType

from .wire import Request

# As it was when Python started, but for what the variable PYTHONPATH named.
_PATH_OF_PYTHON = [
    path
    for path in sys.path
    if path not in {"", os.getcwd(), *os.environ.get("PYTHONPATH", "").split(os.pathsep)}
]


def become(request: Request) -> None:
    """Run it as ``python ARGUMENT...`` would; returns, or raises what it raises."""
    os.environ.clear()
    os.environ.update(request.environment)
    os.chdir(request.directory)
    tempfile.tempdir = None  # it may have been looked up already
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

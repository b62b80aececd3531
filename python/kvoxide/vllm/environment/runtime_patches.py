"""Check whether vLLM's own code runs in this process: the functions of its classes and modules, and
the names that its modules imported from each other.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from types import FunctionType, ModuleType
from typing import Any, Final

from kvoxide.vllm.environment.recognition import installed_code
from kvoxide.vllm.environment.sources import module_name
from kvoxide.vllm.environment.tracked_code import ALL_CODE, MANAGER_CODE

_PYTHONS_OWN: Final = os.path.dirname(os.__file__) + os.sep
_INSTALLED: Final = ("site-packages", "dist-packages")
_OURS: Final = __name__.partition(".")[0]


def replacements(paths: Iterable[str] = MANAGER_CODE) -> tuple[str, ...]:
    """Returns a line for each relevant function, class or import in these files of vLLM that was
    replaced in this process, with the module that did it. Modules that are not imported are passed
    over.

    Raises :class:`~kvoxide.vllm.environment.UnreadableSourcesError`.
    """
    code = installed_code(paths)
    found: list[str] = []
    for path, parts in code.parts.items():
        module = sys.modules.get(module_name(path))
        if module is not None:
            checked = _Module(module, code.origins[path], ALL_CODE[path].methods)
            found += checked.replacements(parts)
    return tuple(found)


class _Module:
    """One of vLLM's modules, whose code is in one file."""

    def __init__(self, module: ModuleType, file: str, methods: tuple[str, ...] | None) -> None:
        self._module = module
        self._file = file
        self._methods = methods

    def replacements(self, parts: Mapping[str, str]) -> Iterator[str]:
        replaced: set[str] = set()
        for key in sorted(parts):
            kind, _, name = key.partition(" ")
            if kind == "import":
                yield from self._check_import(name, parts[key])
            elif kind == "class":
                if reason := self._check_class(name):
                    replaced.add(name)
                    yield reason
                else:
                    yield from self._check_additions(name, parts)
            elif kind == "def" and name.partition(".")[0] not in replaced:
                yield from self._check_function(name)

    def _check_import(self, name: str, origin: str) -> Iterator[str]:
        module, has_name, attribute = origin.partition(":")
        source = sys.modules.get(module)
        if source is None or name not in vars(self._module):
            return
        expected: Any = source
        if has_name:
            submodule = sys.modules.get(f"{module}.{attribute}")
            expected = getattr(source, attribute, submodule)
        found = vars(self._module)[name]
        if found is not expected and _unwrapped(found) is not _unwrapped(expected):
            yield self._replaced(name, found)

    def _check_class(self, name: str) -> str | None:
        found = vars(self._module).get(name)
        if found is None:
            return self._removed(name)
        is_own = isinstance(found, type) and found.__module__ == self._module.__name__
        return None if is_own and found.__qualname__ == name else self._replaced(name, found)

    def _check_additions(self, name: str, parts: Mapping[str, str]) -> Iterator[str]:
        for attribute, value in vars(vars(self._module)[name]).items():
            counts = self._methods is None or attribute in self._methods
            if not counts or f"def {name}.{attribute}" in parts:
                continue
            for function in _functions(value):
                if not _is_pythons_own(function) and not _is_ours(function):
                    origin = _origin_of(function)
                    yield f"{self._module.__name__}.{name} got {attribute} from {origin}"

    def _check_function(self, name: str) -> Iterator[str]:
        owner, _, attribute = name.rpartition(".")
        holder = vars(self._module)[owner] if owner else self._module
        if attribute not in vars(holder):
            yield self._removed(name)
            return
        value = vars(holder)[attribute]
        functions = [_unwrapped(function) for function in _functions(value)]
        if not functions:
            yield self._replaced(name, value)
        for function in functions:
            if not self._is_own(function, name):
                yield self._replaced(name, function)

    def _is_own(self, function: Any, name: str) -> bool:
        code = getattr(function, "__code__", None)
        return code is not None and (code.co_filename, code.co_qualname) == (self._file, name)

    def _replaced(self, name: str, found: Any) -> str:
        return f"{self._module.__name__}.{name} is replaced by {_origin_of(found)}"

    def _removed(self, name: str) -> str:
        return f"{self._module.__name__}.{name} is removed"


def _functions(value: Any) -> list[Any]:
    """Returns the functions that an attribute of a class or a module calls."""
    if isinstance(value, property):
        return [function for function in (value.fget, value.fset, value.fdel) if function]
    if isinstance(value, classmethod | staticmethod):
        return _functions(value.__func__)
    if isinstance(value, cached_property):
        return [value.func]
    return [value] if isinstance(value, FunctionType) else []


def _unwrapped(value: Any) -> Any:
    """Returns what kvoxide or a decorator of Python's put a wrapper around, or ``value`` itself."""
    while hasattr(value, "__wrapped__") and (_is_ours(value) or _is_decorated(value)):
        value = value.__wrapped__
    return value


def _is_ours(value: Callable[..., Any]) -> bool:
    # functools.wraps() copies the name of the module, but not the globals.
    module = str(getattr(value, "__globals__", {}).get("__name__", ""))
    return module.partition(".")[0] == _OURS


def _is_decorated(value: Any) -> bool:
    return isinstance(value, FunctionType) and _is_pythons_own(value)


def _is_pythons_own(function: Any) -> bool:
    """Returns whether the standard library generated a function, for example for a dataclass."""
    file, name = str(function.__code__.co_filename), str(function.__code__.co_name)
    if file.startswith("<"):
        return name.startswith(("_", "<"))
    return file.startswith(_PYTHONS_OWN) and not any(folder in file for folder in _INSTALLED)


def _origin_of(found: Any) -> str:
    code = getattr(found, "__code__", None)
    if code is not None:
        module = found.__globals__.get("__name__", "?")
        return f"{module}.{code.co_qualname} ({code.co_filename})"
    if isinstance(found, type):
        return f"{found.__module__}.{found.__qualname__}"
    return f"{type(found).__module__}.{type(found).__qualname__} {found!r:.60}"

"""Runs a function on a module as soon as it is imported, without importing it now."""

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TypeAlias

Callback: TypeAlias = Callable[[ModuleType], None]


def when_imported(name: str, callback: Callback) -> None:
    """Call ``callback`` with module ``name``: now if it is imported, otherwise at the end of its
    import.

    If the callback raises, that import raises. A second request for the same callback has no
    effect.
    """
    module = sys.modules.get(name)
    if module is not None:
        callback(module)
        return
    finder = _Finder(name, callback)
    if finder not in sys.meta_path:
        sys.meta_path.insert(0, finder)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module in the same place as the other finders, with a loader that calls back."""

    def __init__(self, name: str, callback: Callback) -> None:
        self._name = name
        self._callback = callback
        self._is_asking_others = False

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _Finder)
            and self._name == other._name
            and self._callback == other._callback
        )

    def __hash__(self) -> int:
        return hash((self._name, self._callback))

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name or self._is_asking_others:
            return None
        self._is_asking_others = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._is_asking_others = False
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self)
        return spec

    def finish(self, module: ModuleType) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        self._callback(module)


class _Loader(importlib.abc.Loader):
    """Loads a module with another loader, then calls back."""

    def __init__(self, loader: importlib.abc.Loader, finder: _Finder) -> None:
        self._loader = loader
        self._finder = finder

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._finder.finish(module)

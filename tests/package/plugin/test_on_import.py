"""Tests of callbacks on modules that are imported later."""

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from kvoxide.vllm.plugin.on_import import when_imported

NAME = "module_of_test_on_import"


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / f"{NAME}.py"
    path.write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    finders = list(sys.meta_path)
    yield path
    sys.meta_path[:] = finders
    sys.modules.pop(NAME, None)


def test_callback_comes_at_the_end_of_the_import() -> None:
    seen: list[int] = []
    when_imported(NAME, lambda module: seen.append(module.value))
    assert seen == []
    importlib.util.find_spec(NAME)
    assert seen == []
    imported = importlib.import_module(NAME)
    assert seen == [1]
    importlib.reload(imported)
    assert seen == [1]


def test_callback_comes_at_once_for_an_imported_module() -> None:
    importlib.import_module(NAME)
    seen: list[ModuleType] = []
    when_imported(NAME, seen.append)
    assert len(seen) == 1


def test_asking_twice_is_asking_once() -> None:
    seen: list[ModuleType] = []

    def callback(module: ModuleType) -> None:
        seen.append(module)

    when_imported(NAME, callback)
    when_imported(NAME, callback)
    importlib.import_module(NAME)
    assert len(seen) == 1


def test_two_callbacks_both_come() -> None:
    seen: list[str] = []
    when_imported(NAME, lambda module: seen.append("first"))
    when_imported(NAME, lambda module: seen.append("second"))
    importlib.import_module(NAME)
    assert sorted(seen) == ["first", "second"]


def test_the_module_is_as_if_nobody_had_asked() -> None:
    when_imported(NAME, lambda module: None)
    imported = importlib.import_module(NAME)
    assert imported.__spec__ is not None
    assert type(imported.__spec__.loader).__module__ == "_frozen_importlib_external"
    assert imported.__loader__ is imported.__spec__.loader


def test_a_failing_import_fails_as_before(module: Path) -> None:
    module.write_text("raise RuntimeError('broken')\n")
    seen: list[ModuleType] = []
    when_imported(NAME, seen.append)
    with pytest.raises(RuntimeError, match="broken"):
        importlib.import_module(NAME)
    assert seen == []
    module.write_text("value = 2  # repaired\n")
    importlib.invalidate_caches()
    importlib.import_module(NAME)
    assert len(seen) == 1

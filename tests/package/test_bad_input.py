"""Runs the rows of tests/bad_input.md that need no vLLM. Each must give the answer in its row, and
change nothing. tests/vllm runs the others."""

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kvoxide
import pytest
from kvoxide.cli import COMMANDS
from kvoxide.vllm.doctor import probe
from kvoxide.vllm.environment import settings

from tests.testing import preloaded
from tests.testing.bad_input import (
    IN_HINTS,
    IN_VLLM,
    Answer,
    Row,
    require_answer,
    rows,
    run_command,
    run_environment,
    run_in,
    run_line,
    run_python,
    setup,
)

RUNS: dict[str, Callable[[Row], Answer]] = {
    "Python": lambda row: run_python(setup("Python"), row),
    "command": lambda row: run_command(setup("command"), row),
    "environment": run_environment,
    "line": run_line,
}
ROWS = [row for row in rows() if row.how in RUNS]


@pytest.fixture(autouse=True)
def quick_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``kvoxide doctor`` import vLLM in a preloaded process: a new one takes ten seconds."""
    run = SimpleNamespace(run=lambda command, **_: preloaded.run(command[1:], dict(os.environ)))
    monkeypatch.setattr(probe, "subprocess", run)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.how}: {row.what}")
def test_row(row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    require_answer(row, RUNS[row.how](row))


def test_every_row_can_be_told_from_every_other() -> None:
    names = [(row.how, row.what) for row in rows()]
    assert len(set(names)) == len(names)
    assert {row.how for row in rows()} == {*RUNS, IN_VLLM, IN_HINTS}


def with_arguments(cls: type) -> list[str]:
    """Return the public methods of a class that take arguments, which could be wrong."""
    methods = inspect.getmembers(cls, inspect.isroutine)
    public = [(name, method) for name, method in methods if not name.startswith("_")]
    return [name for name, method in public if len(inspect.signature(method).parameters) > 1]


@pytest.mark.parametrize(
    "cls",
    [
        kvoxide.BlockHasher,
        kvoxide.BlockPool,
        kvoxide.HostTier,
        kvoxide.KVCacheBlocks,
        kvoxide.KVCacheManager,
        kvoxide.Request,
        kvoxide.Trace,
    ],
)
def test_every_method_of_the_python_api_has_a_row(cls: type) -> None:
    given = " ".join(row.given for row in rows() if row.how == "Python")
    missing = [name for name in with_arguments(cls) if f".{name}(" not in given]
    assert missing == []


def test_every_command_and_variable_has_a_row() -> None:
    given = [row.given for row in rows()]
    for name in COMMANDS:
        assert any(line.startswith(f"kvoxide {name}") for line in given), name
    for name in (settings.MODE_VARIABLE, settings.HOST_VARIABLE, *settings.POLICY_VARIABLES):
        assert any(line.startswith(f"{name}=") for line in given), name


def test_work_goes_on_after_every_refusal() -> None:
    tried, untouched = world(), world()
    before = tried["manager"].state_digest()
    for row in rows():
        if row.how == "Python":
            assert run_in(tried, row).what == row.answer, row.what
    assert tried["manager"].state_digest() == before

    for each in (tried, untouched):
        manager, running = each["manager"], each["running"]
        running.num_computed_tokens = running.num_tokens
        for token in (1, 2, 3, 4):
            running.append_output_token_ids(token)
            assert manager.allocate_slots(running, 1) is not None
            running.num_computed_tokens += 1
        manager.free(running)
        each["admit"](manager, each["new"])
    assert tried["manager"].get_block_ids("new") == untouched["manager"].get_block_ids("new")


def world() -> dict[str, Any]:
    """Return the namespace in which rows for the Python API run."""
    namespace: dict[str, Any] = {}
    exec(setup("Python"), namespace)
    return namespace

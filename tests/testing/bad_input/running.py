"""Runs rows of each kind, and returns their answers."""

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from kvoxide import Trace, TraceError
from kvoxide.cli import main
from kvoxide.vllm.environment import Settings, SettingsError

from .table import Row

NOTHING = "nothing was refused"
_MOST_READ = 2**24


@dataclass(frozen=True)
class Answer:
    """The result of a row: the answer in the words of the table, the message, and whether
    everything is unchanged."""

    what: str
    message: str
    is_unchanged: bool


def require_answer(row: Row, answer: Answer) -> None:
    """Fail if the answer is not the one in the row."""
    assert answer.what == row.answer, answer.message
    assert [part for part in row.says if part not in answer.message] == [], answer.message
    assert answer.is_unchanged


def run_python(setup: str, row: Row) -> Answer:
    """Run statements in a namespace of their own, which ``setup`` creates."""
    namespace: dict[str, Any] = {}
    exec(compile(setup, "tests/bad_input.md", "exec"), namespace)
    return run_in(namespace, row)


def run_in(namespace: dict[str, Any], row: Row) -> Answer:
    """Run statements in a namespace. Its ``manager``, or the manager's ``engine``, must stay
    unchanged, and so must its ``tier`` if there is one."""
    manager = namespace["manager"]
    engine = getattr(manager, "engine", manager)
    before, tier_before = engine.state_digest(), _state_of_tier(namespace)
    what, message = NOTHING, ""
    try:
        exec(compile(row.given, row.what, "exec"), namespace)
    except BaseException as error:  # a panic of the engine is not an Exception
        what, message = type(error).__name__, printed(error)
    engine.check_invariants()
    is_unchanged = engine.state_digest() == before and _state_of_tier(namespace) == tier_before
    return Answer(what, message, is_unchanged)


def _state_of_tier(namespace: dict[str, Any]) -> Any:
    tier = namespace.get("tier")
    tier = getattr(tier, "tier", tier)  # vLLM's tier contains kvoxide's
    return tier and (tier.get_chunks(), tier.get_lru_order())


def printed(error: BaseException) -> str:
    """Return the message and its notes, which name the argument at fault."""
    return "\n".join([str(error), *getattr(error, "__notes__", ())])


def run_command(setup: str, row: Row) -> Answer:
    """Run a command line in the current folder, after ``setup`` has written files there."""
    exec(compile(setup, "tests/bad_input.md", "exec"), {})
    program, *arguments = shlex.split(row.given)
    assert program == "kvoxide"
    before = _files()
    result = CliRunner().invoke(main, arguments, prog_name=program)
    if not isinstance(result.exception, SystemExit):
        raise AssertionError(f"not refused in words: {result.exception!r}")
    # Messages are wrapped to the width of the terminal.
    message = " ".join(result.output.replace("│", " ").split())
    return Answer(f"exit {result.exit_code}", message, _files() == before)


def run_line(row: Row) -> Answer:
    """Read a line of a trace."""
    trace = Trace()
    trace.push_prompt([1], 1)
    try:
        trace.push_line(row.given.encode())
    except TraceError as error:
        return Answer(error.field or "the line", str(error), len(trace) == 1)
    return Answer(NOTHING, "", len(trace) == 1)


def run_environment(row: Row) -> Answer:
    """Read variables of the environment."""
    variables = dict(part.split("=", 1) for part in shlex.split(row.given))
    before = dict(os.environ)
    try:
        Settings.from_environ(variables)
    except SettingsError as error:
        return Answer(error.variable, str(error), dict(os.environ) == before)
    return Answer(NOTHING, "", dict(os.environ) == before)


def _files() -> dict[str, bytes | tuple[int, int]]:
    """Return the contents of the files in the current folder. For a file that is too large to be
    read for every row, return its size and the time of its last change."""
    found = [path for path in Path().rglob("*") if path.is_file()]
    return {str(path): _mark(path) for path in found}


def _mark(path: Path) -> bytes | tuple[int, int]:
    status = path.stat()
    is_large = status.st_size > _MOST_READ
    return (status.st_size, status.st_mtime_ns) if is_large else path.read_bytes()

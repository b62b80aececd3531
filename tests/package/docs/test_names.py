"""Tests that options, variables, files, modules, commands and classes that a page names exist."""

import builtins
import re
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path

import click
import kvoxide
import pytest
from kvoxide.cli import main
from kvoxide.lab.plan.target import parse_target
from kvoxide.lab.replay.input import parse_policy

from tests.testing import doc_pages as pages
from tests.testing.paths import ROOT
from tests.testing.vllm_names import OPTIONS as VLLM_OPTIONS
from tests.testing.vllm_names import VARIABLES as VLLM_VARIABLES

TOP = {path.name for path in ROOT.iterdir() if path.is_dir()} - {"target", ".git"}
SOURCES = ("python/**/*.py", "rust/**/*.rs", "tests/**/*.py", "tests/*.sh", "benches/**/*.py")
# Of Cargo, curl and other programs that pages call.
OTHER_OPTIONS = {"--locked", "--manifest-path", "--test", "--all", "--duration", "--comment"}
OTHER_MODULES = {"pip", "pytest", "venv", "http.server"}
PLACEHOLDERS = {"TRACE", "DIR", "FILE", "PLACE", "COMMAND"}

each_page = pytest.mark.parametrize(
    "page", pages.PRESENT, ids=[str(page.relative_to(ROOT)) for page in pages.PRESENT]
)


@cache
def source() -> str:
    """Return the text of all code."""
    files = (path for pattern in SOURCES for path in ROOT.glob(pattern))
    return "\n".join(
        path.read_text(encoding="utf-8") for path in files if "target" not in path.parts
    )


@cache
def options() -> set[str]:
    """Return every option that a page may name."""
    written = set(re.findall(r"[\"'\s(|](--[a-z][a-z0-9-]+)", source()))
    return written | VLLM_OPTIONS | OTHER_OPTIONS


def subcommands(group: click.Group) -> Iterator[tuple[list[str], click.Command]]:
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from (([name, *rest], each) for rest, each in subcommands(command))
        yield [name], command


COMMANDS = sorted(subcommands(main), key=lambda each: -len(each[0]))


@each_page
def test_options_exist(page: Path) -> None:
    named = {
        option
        for text in pages.code(page)
        for option in re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", text)
    }
    assert named - options() == set()


@each_page
def test_variables_exist(page: Path) -> None:
    named = set(re.findall(r"\b(?:KVOXIDE|VLLM)_[A-Z_]*[A-Z]\b", page.read_text(encoding="utf-8")))
    unknown = {name for name in named if not re.search(rf"\b{name}\b", source())}
    assert unknown - VLLM_VARIABLES == set()


@each_page
def test_files_exist(page: Path) -> None:
    named = [
        span
        for span in pages.spans(page)
        if not span.startswith("tests/v1/")  # vLLM's own
        and re.fullmatch(r"[\w.-]+(/[\w.*{},-]+)+/?", span)
        and span.split("/")[0] in TOP
    ]
    missing = [span for span in named for path in expanded(span) if not list(ROOT.glob(path))]
    assert missing == []


@each_page
def test_files_that_are_named_without_their_folder_exist(page: Path) -> None:
    named = {
        span
        for span in pages.spans(page)
        if re.fullmatch(r"[\w./-]+\.(rs|py|pyi|toml|lock)", span) and not span.startswith("v1/")
    }
    assert {span for span in named if f"/{span}\n" not in endings()} == set()


@cache
def endings() -> str:
    """Return the paths of all files of code, one per line."""
    folders = [ROOT / name for name in TOP if not name.startswith(".")]
    suffixes = {".rs", ".py", ".pyi", ".toml", ".lock"}
    paths = (path for folder in folders for path in folder.rglob("*"))
    below = [path for path in paths if path.suffix in suffixes]
    return "".join(f"{path}\n" for path in [*below, *ROOT.iterdir()])


def expanded(path: str) -> list[str]:
    """Return the paths that a path with braces means."""
    parts = re.split(r"\{([^}]*)\}", path.rstrip("/"))
    choices = [part.split(",") if i % 2 else [part] for i, part in enumerate(parts)]
    return ["".join(choice) for choice in product(*choices)]


@each_page
def test_modules_exist(page: Path) -> None:
    named = {
        module for text in pages.code(page) for module in re.findall(r"python3? -m ([\w.]+)", text)
    }
    missing = {name for name in named - OTHER_MODULES if not is_module(name)}
    assert missing == set()


def is_module(name: str) -> bool:
    path = name.replace(".", "/")
    return any(
        (ROOT / folder / f"{path}{end}").exists()
        for folder in (".", "python")
        for end in (".py", "/__main__.py")
    )


@each_page
def test_parts_of_the_tests_exist(page: Path) -> None:
    script = (ROOT / "tests/run.sh").read_text(encoding="utf-8")
    (parts,) = re.findall(r"^        (lint \|.*)\) \"\$@\" ;;$", script, re.MULTILINE)
    known = {"long", *parts.split(" | ")}
    named = {
        part for text in pages.code(page) for part in re.findall(r"tests/run\.sh ([a-z]+)", text)
    }
    assert named - known == set()


@each_page
def test_commands_can_be_parsed(page: Path) -> None:
    for arguments in pages.commands(page, "kvoxide"):
        check_arguments(arguments)


def check_arguments(arguments: list[str]) -> None:
    """Raise for a command that does not exist, an unknown option, or a value that is refused."""
    if not arguments or arguments[0] in PLACEHOLDERS or arguments[0].startswith("-"):
        return
    names, command = next(each for each in COMMANDS if arguments[: len(each[0])] == each[0])
    context = click.Context(command, info_name=" ".join(names))
    values, left, _ = command.make_parser(context).parse_args(arguments[len(names) :])
    assert not left, f"{arguments}: unknown arguments {left}"
    for parameter in command.params:
        value = values.get(parameter.name or "")
        if value is None or str(value).isupper():  # such as MODEL
            continue
        if isinstance(parameter.type, click.Choice | click.IntRange | click.FloatRange):
            parameter.type_cast_value(context, value)
        if "--policy" in parameter.opts:
            each_of(value, parse_policy)
        if "--target" in parameter.opts:
            each_of(value, parse_target)


def each_of(value: str | list[str], parse: object) -> None:
    assert callable(parse)
    for text in [value] if isinstance(value, str) else value:
        # A letter can be in place of a number, such as interval=N.
        if not re.search(r"\b[A-Z]+\b|^\.{3}$", text):
            parse(text)


@pytest.mark.parametrize(
    "arguments",
    [
        ["replays"],
        ["replay", "--polices", "adaptive"],
        ["replay", "--policy", "lru"],
        ["replay", "--preset", "gpt-3"],
        ["plan", "--target", "ttft_p98<2s"],
        ["doctor", "a", "b"],
    ],
)
def test_wrong_commands_are_found(arguments: list[str]) -> None:
    with pytest.raises((click.ClickException, ValueError, StopIteration, AssertionError)):
        check_arguments(arguments)


@each_page
def test_names_of_classes_and_methods_exist(page: Path) -> None:
    missing = []
    for span in pages.spans(page):
        for name, member in re.findall(r"\b([A-Z]\w+)\.(\w+)", span):
            is_vllms = ".py: " in span
            if (
                name in kvoxide.__all__
                and not is_vllms
                and not hasattr(getattr(kvoxide, name), member)
            ):
                missing.append(f"{name}.{member}")
        for name in re.findall(r"\b([A-Z]\w+Error)\b", span):
            if not hasattr(builtins, name) and f"class {name}" not in source() + stub():
                missing.append(name)
    assert missing == []


@each_page
def test_policies_in_python_can_be_constructed(page: Path) -> None:
    for span in pages.spans(page):
        if re.fullmatch(r"(Policy|Retention)\((?!\.)[\w =\"'.,]*\)", span):
            eval(span, vars(kvoxide))


@cache
def stub() -> str:
    return (ROOT / "python/kvoxide/_core.pyi").read_text(encoding="utf-8")

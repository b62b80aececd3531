"""The programs in ``examples`` that need no server print what their docstrings say."""

import os
import re
from pathlib import Path

import pytest

from tests.testing.examples import (
    EXAMPLES,
    docstring,
    documented_command,
    documented_output,
    run_example,
    with_path,
)

NEED_A_SERVER = {"serve.py", "priorities.py", "record_and_replay.py"}
PROGRAMS = sorted(path.name for path in EXAMPLES.glob("*.py"))
# The answers are the same, but vLLM takes long to give them.
WITHOUT_VLLM = {"KVOXIDE_ASK_VLLM": "0"}


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in NEED_A_SERVER])
def test_program_prints_its_documented_output(name: str, tmp_path: Path) -> None:
    environment = with_path(dict(os.environ)) | WITHOUT_VLLM
    printed = run_example(name, documented_command(name), tmp_path, environment)
    assert printed == documented_output(name)
    written = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert list(written) == documented_command(name)
    assert all("<svg" in text for text in written.values())


def test_readme_lists_every_program_with_the_first_line_of_its_docstring() -> None:
    rows = re.findall(
        r"^\| \[(\S+)\]\((\S+)\) \| (.+?) \|", (EXAMPLES / "README.md").read_text(), re.M
    )
    listed = {name: shown for name, link, shown in rows if name == link}
    first = {name: docstring(name).splitlines()[0].rstrip(".") for name in PROGRAMS}
    assert listed == {name: line.replace("``", "`") for name, line in first.items()}
    assert len(rows) == 10


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_use_public_names_only(name: str) -> None:
    source = (EXAMPLES / name).read_text()
    assert re.findall(r"kvoxide\.\w+ import|import kvoxide\.|from kvoxide\.", source) == []
    assert re.findall(r"\b_(?!_)\w+", source) in ([], ["_"])

"""Tests that options and variables of vLLM that the docs name exist, and that the examples of
``kvoxide doctor`` have the output that the pages show."""

import importlib.util
from functools import cache
from pathlib import Path

import pytest

from tests.testing import console, vllm_names
from tests.testing import doc_pages as pages
from tests.testing.doc_pages import Fence
from tests.testing.vllm_environments import environment_of
from tests.testing.vllm_releases import NEWEST

from .test_processes import doctor

EXAMPLES = [
    fence
    for page in pages.PRESENT
    for fence in pages.fences(page)
    if fence.language == "console" and "kvoxide doctor" in fence.text
]


@cache
def source_of_vllm() -> str:
    spec = importlib.util.find_spec("vllm")
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent
    places = (folder / "envs.py", *folder.glob("engine/*.py"), *folder.glob("config/*.py"))
    others = folder.glob("entrypoints/**/cli_args.py")
    return "\n".join(path.read_text(encoding="utf-8") for path in (*places, *others))


def test_options_and_variables_of_vllm_exist() -> None:
    text = source_of_vllm()
    fields = {option: option.removeprefix("--").replace("-", "_") for option in vllm_names.OPTIONS}
    unknown = {option for option, field in fields.items() if f'{option}"' not in text}
    assert {option for option in unknown if f"{fields[option]}:" not in text} == set()
    assert {name for name in vllm_names.VARIABLES if f'"{name}"' not in text} == set()


@pytest.fixture(scope="module")
def output_of_doctor(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the output of one run: each takes seconds. test_processes.py runs one in a new
    Python."""
    wide = {"COLUMNS": "300", "NO_COLOR": "1"}
    done = doctor(environment_of(NEWEST, tmp_path_factory.mktemp("doctor")) | wide)
    assert done.returncode == 0, done.stdout + done.stderr
    return console.shown(done.stdout)


@pytest.mark.parametrize("example", EXAMPLES, ids=[each.name for each in EXAMPLES])
def test_examples_of_doctor_show_its_output(example: Fence, output_of_doctor: str) -> None:
    assert example.script() == "kvoxide doctor\n"
    console.assert_shown(example, output_of_doctor)

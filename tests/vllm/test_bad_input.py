"""Runs the rows of tests/bad_input.md for vLLM."""

import json

import pytest

from tests.testing import preloaded
from tests.testing.bad_input import IN_VLLM, Answer, Row, require_answer, rows
from tests.testing.vllm_environments import SECOND_IF_LONG, environment_of

ROWS = [row for row in rows() if row.how == IN_VLLM]


@pytest.fixture(scope="module", params=SECOND_IF_LONG)
def answers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Answer]:
    """Return the answers of a release, by the text of the row."""
    environment = environment_of(request.param, tmp_path_factory.mktemp("plugins"))
    done = preloaded.run(["-m", "tests.vllm.bad_input_answers"], environment)
    assert done.returncode == 0, done.stderr[-4_000:]
    answers = [Answer(**answer) for answer in json.loads(done.stdout.splitlines()[-1])]
    return dict(zip([row.what for row in ROWS], answers, strict=True))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.how}: {row.what}")
def test_row(row: Row, answers: dict[str, Answer]) -> None:
    require_answer(row, answers[row.what])

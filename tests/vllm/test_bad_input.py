"""Runs the rows of tests/bad_input.md for vLLM, with each release."""

import json

import pytest

from tests.testing import preloaded
from tests.testing.bad_input import IN_VLLM, Answer, Row, require_answer, rows
from tests.testing.vllm_environments import environment_of
from tests.testing.vllm_releases import RELEASES

ROWS = [row for row in rows() if row.how == IN_VLLM]


@pytest.fixture(scope="session")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Answer]]:
    """Return for each release the answers to its rows, by the text of the row."""
    names = [row.what for row in ROWS]
    found = []
    for release in RELEASES:
        environment = environment_of(release, tmp_path_factory.mktemp(release))
        done = preloaded.run(["-m", "tests.vllm.bad_input_answers"], environment)
        assert done.returncode == 0, done.stderr[-4_000:]
        answers = [Answer(**answer) for answer in json.loads(done.stdout.splitlines()[-1])]
        found.append(dict(zip(names, answers, strict=True)))
    return found


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.how}: {row.what}")
def test_row(row: Row, answers: list[dict[str, Answer]]) -> None:
    for by_row in answers:
        require_answer(row, by_row[row.what])

"""Tests ``python -m benches.scheduler_steps`` with small prompts."""

import json
from pathlib import Path
from typing import Any

import pytest

from benches.scheduler_steps.phases import PHASES, PhaseError, Step, phases_of
from benches.scheduler_steps.sizes import CONNECTORS, LAYOUT_NAMES, Sizes
from benches.scheduler_steps.turns import MODES, require_same_tokens, side_variables
from tests.testing import preloaded
from tests.testing.vllm_environments import environment_of
from tests.testing.vllm_releases import NEWEST

# One process per side serves all of these, because importing vLLM takes longer.
SIZES = [
    Sizes(layout, 2_048, connector, chunk=512, decoding=4, steps=4)
    for layout in LAYOUT_NAMES
    for connector in CONNECTORS
]
PROGRAM = """
import json, os, sys
from benches.scheduler_steps.server import Server
from benches.scheduler_steps.sizes import Sizes, sizes_parser
from benches.scheduler_steps.traffic import Traffic

for arguments in json.loads(sys.argv[1]):
    sizes = Sizes.parsed(sizes_parser().parse_args(arguments))
    server = Server(sizes)
    server.require_classes_of(os.environ["KVOXIDE"])
    print(json.dumps(list(Traffic(server, sizes).phases())))
"""


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> list[list[Any]]:
    """The phases of each run, first with vLLM's classes and then with kvoxide's."""
    variables = environment_of(NEWEST, tmp_path_factory.mktemp("plugin"))
    return [_play(side_variables(mode, variables)) for mode in MODES]


def _play(variables: dict[str, str]) -> list[Any]:
    arguments = json.dumps([sizes.arguments() for sizes in SIZES])
    done = preloaded.run(["-c", PROGRAM, arguments], variables)
    assert done.returncode == 0, done.stderr[-5_000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_phase_happens_on_both_sides(played: list[list[Any]]) -> None:
    for side in played:
        assert [[name for name, _ in phases] for phases in side] == [
            phases_of(sizes.connector) for sizes in SIZES
        ]
        assert all(
            microseconds > 0 for run in side for _, steps in run for microseconds, _ in steps
        )


def test_both_sides_schedule_the_same_tokens_in_each_step(played: list[list[Any]]) -> None:
    stock, native = (
        [[(name, [tokens for _, tokens in steps]) for name, steps in run] for run in side]
        for side in played
    )
    assert stock == native
    assert len(stock) == len(SIZES)


def test_other_tokens_on_one_side_are_an_error() -> None:
    step = Step(1.0, {"a": 1})
    require_same_tokens("load", [step, step], [step, Step(2.0, {"a": 1})])
    for other in ([step], [step, step, step], [step, Step(1.0, {"a": 2})], [step, Step(1.0, {})]):
        with pytest.raises(PhaseError, match=r"'the prompt is loaded from CPU memory', step [23]"):
            require_same_tokens("load", [step, step], other)


def test_a_phase_that_did_not_happen_is_an_error(tmp_path: Path) -> None:
    variables = environment_of(NEWEST, tmp_path)
    figures = tmp_path / "figures.json"
    # The prompt is one chunk, so there is none between the first and the last.
    command = ["-m", "benches.scheduler_steps", "full", "--tokens=512", "--decoding=2"]
    done = preloaded.run([*command, "--steps=2", "--json", str(figures)], variables)
    assert done.returncode == 1, done.stderr
    assert "phase 'prefill chunk' did not happen with KVOXIDE=off: the prefill had" in done.stderr
    missing = "; ".join(phase.text for name, phase in PHASES.items() if name != "decode")
    assert f"not measured: {missing}" in done.stderr
    document = json.loads(figures.read_text())
    assert [row["phase"] for row in document["rows"]] == ["decode"]
    assert "did not happen" in document["error"]

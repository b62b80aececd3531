"""Tests ``python -m benches.scheduler_steps`` with small prompts."""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from benches.scheduler_steps import turns
from benches.scheduler_steps.__main__ import main
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
# The prompt is one chunk, so no chunk is between the first and the last.
TOO_SHORT = Sizes("full", 512, "none", chunk=8_192, decoding=2, steps=2)
PROGRAM = """
import json, os, sys
from benches.scheduler_steps.side import answers_for
from benches.scheduler_steps.sizes import Sizes, sizes_parser

for arguments in json.loads(sys.argv[1]):
    sizes = Sizes.parsed(sizes_parser().parse_args(arguments))
    print(json.dumps(list(answers_for(sizes))))
"""
# A side that plays one phase, and fails in the second.
FAILING_SIDE = """
import json
print('{"phase": "ready"}', flush=True)
input()
print(json.dumps({"phase": "decode", "steps": [[1.0, {"a": 1}], [3.0, {"a": 1}]]}), flush=True)
input()
print(json.dumps({"error": "no chunk was measured"}), flush=True)
"""
OTHER_SIDE = """
import json, os
print('{"phase": "ready"}', flush=True)
input()
tokens = 1 if os.environ["KVOXIDE"] == "off" else 2
print(json.dumps({"phase": "decode", "steps": [[1.0, {"a": tokens}]]}), flush=True)
"""


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> list[list[Any]]:
    """The phases of each run, first with vLLM's classes and then with kvoxide's."""
    variables = environment_of(NEWEST, tmp_path_factory.mktemp("plugin"))
    with ThreadPoolExecutor() as pool:
        return list(pool.map(_play, [side_variables(mode, variables) for mode in MODES]))


def _play(variables: dict[str, str]) -> list[Any]:
    arguments = json.dumps([sizes.arguments() for sizes in (*SIZES, TOO_SHORT)])
    done = preloaded.run(["-c", PROGRAM, arguments], variables)
    assert done.returncode == 0, done.stderr[-5_000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_phase_happens_on_both_sides(played: list[list[Any]]) -> None:
    for side in played:
        assert [[answer.get("phase") for answer in run] for run in side[:-1]] == [
            ["ready", *phases_of(sizes.connector)] for sizes in SIZES
        ]
        assert all(
            microseconds > 0
            for run in side[:-1]
            for answer in run
            for microseconds, _ in answer["steps"]
        )


def test_both_sides_schedule_the_same_tokens_in_each_step(played: list[list[Any]]) -> None:
    stock, native = (
        [[[tokens for _, tokens in answer["steps"]] for answer in run] for run in side[:-1]]
        for side in played
    )
    assert stock == native
    assert len(stock) == len(SIZES)


def test_a_prompt_that_is_too_short_for_a_phase_is_an_error(played: list[list[Any]]) -> None:
    for side in played:
        _, decoded, failed = side[-1]
        assert decoded["phase"] == "decode"
        assert "no chunk between the first and the last of 1 was measured" in failed["error"]


def test_a_phase_that_did_not_happen_is_reported_with_status_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(turns, "SIDE", (sys.executable, "-c", FAILING_SIDE))
    figures = tmp_path / "figures.json"
    assert main(["full", "--json", str(figures)]) == 1
    printed = capsys.readouterr()
    error = "phase 'prefill chunk' did not happen with KVOXIDE=off: no chunk was measured"
    assert error in printed.err
    missing = "; ".join(phase.text for name, phase in PHASES.items() if name != "decode")
    assert f"not measured: {missing}" in printed.err
    document = json.loads(figures.read_text())
    assert document["error"] == error
    (row,) = document["rows"]
    assert (row["phase"], row["stock"]["median"], row["stock"]["longest"]) == ("decode", 2.0, 3.0)


def test_other_tokens_on_one_side_are_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(turns, "SIDE", (sys.executable, "-c", OTHER_SIDE))
    assert main(["full"]) == 1
    assert "step 1: KVOXIDE=off and KVOXIDE=require scheduled different" in capsys.readouterr().err


def test_a_side_that_ends_early_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(turns, "SIDE", (sys.executable, "-c", "raise SystemExit(7)"))
    assert main(["full"]) == 1
    assert "its process ended with status 7" in capsys.readouterr().err


@pytest.mark.parametrize("native", [1, 3])
def test_another_number_of_steps_is_an_error(native: int) -> None:
    step = Step(1.0, {"a": 1})
    require_same_tokens("load", [step, step], [step, Step(2.0, {"a": 1})])
    with pytest.raises(PhaseError, match=r"'the prompt is loaded from CPU memory', step [23]"):
        require_same_tokens("load", [step, step], [step] * native)


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("--tokens=31", "--tokens 31 is too short for full; use at least 32"),
        ("--steps=0", "must be at least 1"),
        ("--decoding=0", "must be at least 1"),
        ("--chunk=64", "--chunk 64 has no room for a prompt"),
    ],
)
def test_sizes_that_cannot_be_run_are_refused(
    option: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["full", option])
    assert ended.value.code == 2
    assert reason in capsys.readouterr().err

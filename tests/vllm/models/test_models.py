"""Tests that the plan of a model equals vLLM's: groups, bytes per block, blocks of a memory, and
refusals."""

import json
from pathlib import Path
from typing import Any

import pytest
from kvoxide import ConfigError
from kvoxide.lab.model import FAMILIES
from kvoxide.lab.model.config import read_config

from tests.testing import preloaded
from tests.testing.vllm_environments import environment_of
from tests.testing.vllm_releases import NEWEST

from .cases import CONFIGS, Case, all_cases, name_of, recorded, sample
from .ours import answer_of, plan

RECORDED = dict(recorded())


def our_answer(case: Case) -> dict[str, Any]:
    try:
        return answer_of(plan(case.config, **case.served))
    except ConfigError as error:
        return {"refused": str(error)}


def require_same(case: Case, theirs: dict[str, Any]) -> None:
    ours = our_answer(case)
    if "refused" in theirs:
        assert is_same_reason(theirs["refused"], ours.get("refused", "")), (theirs, ours)
    else:
        assert ours == theirs


def equal_cases() -> dict[str, list[Case]]:
    """Return the cases of each class of a model if all of them are answered as vLLM answered."""
    cases: dict[str, list[Case]] = {}
    for case, theirs in RECORDED.items():
        require_same(case, theirs)
        cases.setdefault(class_of(case.config), []).append(case)
    return {name: found for name, found in cases.items() if name}


def class_of(config: Path) -> str:
    """Return the class that a configuration names, empty if it names none."""
    text = (config / "config.json" if config.is_dir() else config).read_text()
    return str(json.loads(text).get("architectures", [""])[0])


def is_same_reason(theirs: str, ours: str) -> bool:
    return any(
        reason in theirs and ours_for_it in ours for reason, ours_for_it in SAME_REASON.items()
    )


@pytest.mark.parametrize("model", [name_of(path) for path in CONFIGS])
def test_as_vllm_answered(model: str) -> None:
    cases = [case for case in all_cases() if case.model == model]
    assert all(case in RECORDED for case in cases)
    for case in cases:
        require_same(case, RECORDED[case])
    is_refused = any("refused" in RECORDED[case] for case in cases)
    assert is_refused or model not in REFUSED_ALWAYS
    assert any("refused" not in RECORDED[case] for case in cases) or model in REFUSED_ALWAYS


def test_every_class_of_a_model_is_among_them() -> None:
    assert set(map(class_of, CONFIGS)) - {""} == set(FAMILIES)


def test_every_language_model_of_a_class_was_compared() -> None:
    answered = [case for case, answer in RECORDED.items() if "refused" not in answer]
    configs = [read_config(path) for path in {case.config for case in answered}]
    compared = {(config.architecture, config.text.get("model_type")) for config in configs}
    for name, family in FAMILIES.items():
        assert {(name, language) for language in family.languages} <= compared


REFUSED_ALWAYS = ("llama-3.1-8b-with-cache-in-int8",)
# Words of vLLM's error and of kvoxide's for the same reason. None is about the imitation of a GPU.
SAME_REASON = {
    "num_bits=8, type=int": "num_bits=8, type=int",
    "attention heads": "attention heads; use a number of ranks",
    " is not divisible by ": "heads of the encoder; use a number of ranks",
    # vLLM's error has no text.
    "AssertionError: ": "KV heads; use a",
    "AssertionError": "of the encoder; use a number of ranks",
    "ZeroDivisionError": "attention kernels need a multiple of",
    "Pipeline parallelism is not supported for this model": "does not support pipeline parallelism",
    "mixed page sizes ([])": "has no KV cache",
}


@pytest.mark.slow
def test_as_vllm_answers(tmp_path: Path) -> None:
    environment = {**environment_of(NEWEST, tmp_path), "KVOXIDE": "off"}
    done = preloaded.run(["-m", "tests.vllm.models", "sample"], environment)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    answers = {Case(**row["case"]): row["answer"] for row in rows}
    assert list(answers) == sample(), done.stderr[-3000:]
    for case, theirs in answers.items():
        assert theirs == RECORDED[case]
        require_same(case, theirs)

"""The plan of a model is vLLM's: groups, bytes per block, blocks of a memory, what it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest
from kvoxide import ConfigError, KVCacheManager
from kvoxide.model import FAMILIES, Deployment, ModelPlan, plan_model
from kvoxide.model.config import read_config
from kvoxide.model.memory import request_blocks

from tests.testing import preloaded
from tests.testing.vllm_environments import environment_of

from .cases import (
    CONFIGS,
    MAX_BATCHED_TOKENS,
    MEMORIES,
    Case,
    all_cases,
    name_of,
    recorded,
    sample,
)

RECORDED = dict(recorded())


def plan(case: Case) -> ModelPlan:
    served = Deployment(**case.served, max_batched_tokens=MAX_BATCHED_TOKENS)
    return plan_model(case.config, served)


def num_blocks(made: ModelPlan, memory: int) -> int | None:
    try:
        return made.num_blocks(memory)
    except ConfigError:
        return None


def our_answer(case: Case) -> dict[str, Any]:
    """As :func:`tests.vllm.models.asking.answer` has it."""
    try:
        made = plan(case)
    except ConfigError as error:
        return {"refused": str(error)}
    rows: list[list[Any]] = []
    for group in made.groups:
        spec = group.spec
        row = [spec.kind, spec.tokens, len(group.layers), spec.window, spec.page]
        row += [spec.num_prefill_checkpoint_blocks, spec.prefill_checkpoint_alignment]
        if rows and rows[-1][1:] == row:
            rows[-1][0] += 1
        else:
            rows.append([1, *row])
    in_flight = made.deployment.max_in_flight_tokens
    blocks = request_blocks(made.groups, made.max_model_len, in_flight)
    return {
        "groups": rows,
        "block_bytes": made.block_bytes,
        "request_bytes": blocks * made.block_bytes,
        "max_model_len": made.max_model_len,
        "blocks": [num_blocks(made, memory) for memory in MEMORIES],
        **hashing(made),
    }


def hashing(made: ModelPlan) -> dict[str, int]:
    """What a manager of these groups makes of them."""
    blocks = request_blocks(made.groups, made.max_model_len, made.deployment.max_in_flight_tokens)
    config = made.kv_cache_config((blocks + 1) * made.block_bytes)
    manager = KVCacheManager(config, made.max_model_len)
    is_partial = manager.enable_partial_hash_hits
    hit_tokens = manager.hash_block_size if is_partial else manager.scheduler_block_size
    return {"hash_tokens": manager.hash_block_size, "hit_tokens": hit_tokens}


def require_same(case: Case, theirs: dict[str, Any]) -> None:
    ours = our_answer(case)
    if "refused" in theirs:
        assert is_same_reason(theirs["refused"], ours.get("refused", "")), (theirs, ours)
    else:
        assert ours == theirs


def equal_cases() -> dict[str, list[Case]]:
    """The cases of each class of a model, all of which are answered as vLLM answered."""
    cases: dict[str, list[Case]] = {}
    for case, theirs in RECORDED.items():
        require_same(case, theirs)
        cases.setdefault(class_of(case.config), []).append(case)
    return {name: found for name, found in cases.items() if name}


def class_of(config: Path) -> str:
    """The class that a configuration names, empty if it names none."""
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
    configs = [read_config(case.config) for case in answered]
    compared = {(config.architecture, config.text.get("model_type")) for config in configs}
    for name, family in FAMILIES.items():
        assert {(name, language) for language in family.languages} <= compared


REFUSED_ALWAYS = ("llama-3.1-8b-with-cache-in-int8",)
# Words of vLLM's error, none of which is about what stands in the place of a GPU, and of ours.
SAME_REASON = {
    "num_bits=8, type=int": "num_bits=8, type=int",
    "attention heads": "attention heads cannot be shared by",
    " is not divisible by ": "heads of the encoder cannot be shared by",
    # vLLM has no words for it.
    "AssertionError: ": "KV heads cannot be shared by",
    "AssertionError": "of the encoder cannot be shared by",
    "ZeroDivisionError": "attention kernels need a multiple of",
    "Pipeline parallelism is not supported for this model": "vLLM has no pipeline parallelism for",
    "mixed page sizes ([])": "which keep nothing",
}


@pytest.mark.slow
def test_as_vllm_answers(tmp_path: Path) -> None:
    environment = {**environment_of("0.33.0", tmp_path), "KVOXIDE": "off"}
    done = preloaded.run(["-m", "tests.vllm.models", "sample"], environment)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    answers = {Case(**row["case"]): row["answer"] for row in rows}
    assert list(answers) == sample(), done.stderr[-3000:]
    for case, theirs in answers.items():
        assert theirs == RECORDED[case]
        require_same(case, theirs)

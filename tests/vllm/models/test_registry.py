"""Tests that no class of vLLM's registry is read differently from vLLM without a note."""

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from kvoxide.lab.model import FAMILIES

from tests.testing import preloaded
from tests.testing.vllm_environments import environment_of
from tests.testing.vllm_releases import NEWEST

from .registry import recorded
from .registry.comparing import (
    DIFFERENT,
    EQUAL,
    NOT_BUILT,
    ONLY_VLLM_REFUSES,
    REFUSED,
    compare,
    our_answer,
)
from .registry.variants import VARIANTS

# Reading all folders takes a minute. A test run reads every fourth, and tests/run.sh long recorded
# reads all.
EVERY = 4
MIN_EQUAL = 30
MIN_EDITED_EQUAL = 120
# The tests ask about these again, because vLLM builds these models within seconds.
AGAIN = (
    ("Qwen3ForCausalLM", "defaults left out"),
    ("Gemma3ForConditionalGeneration", "rope"),
    ("Qwen3_5ForConditionalGeneration", "nested short"),
    ("GptOssForCausalLM", "quantization"),
)


@cache
def rows() -> tuple[recorded.Row, ...]:
    return tuple(recorded.read())


def in_sample(row: recorded.Row) -> bool:
    return crc32(str(recorded.key(row)).encode()) % EVERY == 0


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_plan_is_that_of_vllm_or_refused_with_a_reason(variant: str) -> None:
    wanted = [row for row in rows() if row["variant"] == variant and in_sample(row)]
    found = list(compare(wanted))
    different = [each for each in found if each.result == DIFFERENT]
    assert not different, "\n".join(
        f"{each.name}: {line}" for each in different for line in each.differing()
    )
    assert all(each.ours["refused"] for each in found if "refused" in each.ours)
    assert sum(each.result == EQUAL for each in found) > MIN_EQUAL


def test_an_edited_folder_is_read_as_vllm_reads_it_or_refused() -> None:
    by_result: dict[str, set[str]] = {}
    for each in compare(recorded.read(recorded.EDITED)):
        by_result.setdefault(each.result, set()).add(each.row["class"])
        if each.result == NOT_BUILT and "refused" not in each.ours:
            by_result.setdefault("answered", set()).add(each.row["class"])
    assert DIFFERENT not in by_result
    assert len(by_result[EQUAL]) >= MIN_EDITED_EQUAL
    # vLLM's reasons are sizes of weights, FlashInfer's kernels, and a precision of the weights.
    assert by_result[ONLY_VLLM_REFUSES] == {
        "ModelOpt's weights and KV cache in NVFP4",
        "Quark with a scheme of its own for keys and values",
        "Qwen2.5-VL in AWQ",
        "GptOssModel in float32",
        "quant_method mxfp8",
    }
    # TorchAO is not installed; a vocabulary of 10**18 tokens has no weights.
    assert by_result["answered"] == {"TorchAO", "quant_method torchao", "vocab_size 10**18"}
    assert by_result[REFUSED] == {
        "sliding_window -1",
        "sliding_window true",
        "dtype 16",
        "two classes, the first unknown",
        "LlamaForSequenceClassification",
        "Qwen3ForSequenceClassification",
        "gemma3_text without a class",
        "gemma3_text without a class, in float32",
        "Pixtral in params.json",
    }


def test_every_class_is_recorded_in_every_variant() -> None:
    variants = Counter(row["class"] for row in rows() if row["turn"] == 0)
    assert set(variants.values()) == {len(VARIANTS)}
    assert set(FAMILIES) <= set(variants)


def test_a_changed_answer_is_found() -> None:
    row = next(row for row in rows() if recorded.key(row) == (*AGAIN[0], 0))
    for part, value in (("block_bytes", 1), ("max_model_len", 1), ("groups", [])):
        ((found),) = compare([{**row, "answer": {**row["answer"], part: value}}])
        assert found.result == DIFFERENT
        told = list(found.differing())
        assert [line.split(",")[0] for line in told] == [f"{part}: vLLM {json.dumps(value)}"]


def test_an_error_that_is_no_refusal_counts_as_different(monkeypatch: Any) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise KeyError("head_dim")

    monkeypatch.setattr("tests.vllm.models.registry.comparing.read_model", fail)
    assert our_answer({"config.json": {}}) == {"crashed": "KeyError: 'head_dim'"}
    (found,) = compare([next(row for row in rows() if "groups" in row["answer"])])
    assert found.result == DIFFERENT


@pytest.mark.slow
def test_vllm_answers_as_recorded(tmp_path: Path) -> None:
    environment = {**environment_of(NEWEST, tmp_path), "KVOXIDE": "off"}
    asked = [",".join(question) for question in AGAIN]
    done = preloaded.run(["-m", "tests.vllm.models.registry.again", *asked], environment)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(lines) == 1 + len(AGAIN), done.stderr[-3000:]
    names = {name for table in lines[0].values() for name in table}
    assert names == {row["class"] for row in rows()}
    answers = {recorded.key(row): row["answer"] for row in rows()}
    assert lines[1:] == [answers[*question, 0] for question in AGAIN]

"""Which kinds of groups a config.json leads to."""

import json
from pathlib import Path
from typing import Any

import pytest
from kvoxide.vllm.doctor.model_groups import ModelError, model_groups, read_model_groups

CASES: list[tuple[str, dict[str, Any], list[tuple[str, int | None, bool]]]] = [
    ("llama", {"num_hidden_layers": 32}, [("full_attention", 32, True)]),
    (
        "gemma-3",
        {"text_config": {"layer_types": ["sliding_attention"] * 5 + ["full_attention"]}},
        [("sliding_window", 5, True), ("full_attention", 1, True)],
    ),
    (
        "gemma-2",
        {"model_type": "gemma2", "num_hidden_layers": 26, "sliding_window": 4096},
        [("sliding_window", 13, True), ("full_attention", 13, True)],
    ),
    (
        "gemma-3 of old",
        {"num_hidden_layers": 26, "sliding_window": 512, "sliding_window_pattern": 6},
        [("sliding_window", 22, True), ("full_attention", 4, True)],
    ),
    ("mistral", {"num_hidden_layers": 32, "sliding_window": 4096}, [("sliding_window", 32, True)]),
    (
        "qwen2",
        {"num_hidden_layers": 28, "sliding_window": 131072, "use_sliding_window": False},
        [("full_attention", 28, True)],
    ),
    (
        "deepseek-v3",
        {"num_hidden_layers": 61, "kv_lora_rank": 512},
        [("mla_attention", 61, True)],
    ),
    (
        "llama-4",
        {"text_config": {"num_hidden_layers": 48, "attention_chunk_size": 8192}},
        [("chunked_local_attention", 36, True), ("full_attention", 12, True)],
    ),
    (
        "qwen3-next",
        {"layer_types": ["linear_attention"] * 3 + ["full_attention"], "linear_num_value_heads": 8},
        [("mamba", 3, True), ("full_attention", 1, True)],
    ),
    ("mamba", {"model_type": "mamba2", "state_size": 128}, [("mamba", None, True)]),
    (
        "jamba",
        {"model_type": "jamba", "mamba_d_state": 16, "num_attention_heads": 32},
        [("mamba", None, True), ("full_attention", None, True)],
    ),
    (
        "whisper",
        {"is_encoder_decoder": True, "num_hidden_layers": 4},
        [("full_attention", 4, True), ("cross_attention", None, True)],
    ),
    (
        "a number in words",
        {"num_hidden_layers": "many", "sliding_window": 64},
        [("sliding_window", None, True)],
    ),
    ("news", {"layer_types": ["quantum"]}, [("quantum", 1, False)]),
]


@pytest.mark.parametrize(
    ("config", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_kinds(config: dict[str, Any], expected: list[tuple[str, int | None, bool]]) -> None:
    groups = model_groups(config)
    assert [(g.kind, g.layers, g.is_native) for g in groups] == expected
    assert all(group.because for group in groups)


@pytest.mark.parametrize("content", [None, "", "[]", "{"])
def test_unreadable_configurations(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(ModelError, match=r"config\.json"):
        read_model_groups(tmp_path)


def test_reads_the_models_directory(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"num_hidden_layers": 2}))
    assert [group.kind for group in read_model_groups(tmp_path)] == ["full_attention"]

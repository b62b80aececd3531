"""Which kinds of groups a model has, as it is read, and as they are guessed for unknown classes."""

import json
from pathlib import Path
from typing import Any

import pytest
from kvoxide.model import plan_model
from kvoxide.vllm.doctor import ModelError
from kvoxide.vllm.doctor.guess import guessed_groups
from kvoxide.vllm.doctor.model_groups import read_model_groups

from tests.testing.paths import ROOT

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
    (
        "qwen3-next without a list",
        {"num_hidden_layers": 48, "full_attention_interval": 4, "linear_num_value_heads": 32},
        [("mamba", 36, True), ("full_attention", 12, True)],
    ),
    (
        "nemotron-h",
        {"model_type": "nemotron_h", "hybrid_override_pattern": "M-M*-ME", "ssm_state_size": 128},
        [("mamba", 3, True), ("full_attention", 1, True)],
    ),
    (
        "nemotron-h in words",
        {"layers_block_type": ["linear_attention", "moe", "full_attention", "mlp"]},
        [("mamba", 1, True), ("full_attention", 1, True)],
    ),
    (
        "kimi-linear",
        {
            "num_hidden_layers": 4,
            "kv_lora_rank": 512,
            "linear_attn_config": {"kda_layers": [1, 2, 3], "full_attn_layers": [4]},
        },
        [("mamba", 3, True), ("mla_attention", 1, True)],
    ),
    (
        "granite-4",
        {"layer_types": ["mamba"] * 9 + ["attention"], "mamba_d_state": 128},
        [("mamba", 9, True), ("full_attention", 1, True)],
    ),
    (
        "falcon-h1",
        {
            "model_type": "falcon_h1",
            "num_hidden_layers": 36,
            "mamba_d_state": 256,
            "num_attention_heads": 12,
        },
        [("mamba", 36, True), ("full_attention", 36, True)],
    ),
    (
        "falcon-h1 in words",
        {"layers_block_type": ["hybrid"] * 3},
        [("mamba", 3, True), ("full_attention", 3, True)],
    ),
    (
        "lfm2",
        {"layer_types": ["conv", "conv", "full_attention"]},
        [("mamba", 2, True), ("full_attention", 1, True)],
    ),
    (
        "lfm2 of old",
        {"num_hidden_layers": 16, "full_attn_idxs": [2, 5, 8, 10, 12, 14]},
        [("mamba", 10, True), ("full_attention", 6, True)],
    ),
    ("mamba", {"model_type": "mamba2", "state_size": 128}, [("mamba", None, True)]),
    (
        "jamba",
        {"model_type": "jamba", "mamba_d_state": 16, "num_attention_heads": 32},
        [("mamba", None, True), ("full_attention", None, True)],
    ),
    (
        "whisper",
        {"is_encoder_decoder": True, "num_hidden_layers": 6, "decoder_layers": 4},
        [("full_attention", 4, True), ("cross_attention", 4, True)],
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
    groups = guessed_groups(config)
    assert [(g.kind, g.layers, g.is_native) for g in groups] == expected
    assert all(group.because for group in groups)


@pytest.mark.parametrize("content", [None, "", "[]", "{"])
def test_unreadable_configurations(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(ModelError, match=r"config\.json"):
        read_model_groups(tmp_path, ask=False)


def test_a_known_class_is_read_as_it_is_replayed(tmp_path: Path) -> None:
    config = ROOT / "tests/vllm/models/configs/deepseek-v4-flash.json"
    (tmp_path / "config.json").write_bytes(config.read_bytes())
    read = read_model_groups(config, ask=False)
    assert read_model_groups(tmp_path, ask=False) == read
    layers = {group.kind: group.layers for group in read.groups}
    assert layers == {"sliding_window_mla": 105, "mla_attention": 62}
    replayed = plan_model(config)
    assert {group.kind for group in read.groups} == set(replayed.kinds)
    assert sum(group.layers or 0 for group in read.groups) == sum(replayed.layers_per_group)
    assert not any(group.is_guess for group in read.groups)
    assert read.hit_tokens == replayed.hit_tokens == 256


def test_an_unknown_class_is_guessed(tmp_path: Path) -> None:
    config = {"architectures": ["NewForCausalLM"], "num_hidden_layers": 2, "sliding_window": 64}
    (tmp_path / "config.json").write_text(json.dumps(config))
    read = read_model_groups(tmp_path, ask=False)
    (group,) = read.groups
    assert (group.kind, group.layers, group.is_guess) == ("sliding_window", 2, True)
    assert read.hit_tokens is None
    assert "NewForCausalLM, which is unknown here" in read.notes[0]

"""Tests of groups and blocks of small models, worked out by hand."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from kvoxide import ConfigError, KVCacheManager
from kvoxide.lab.model import Deployment, ModelPlan, plan_model

GIB = 2**30
# A token of a layer takes 2 * 2 heads * 64 elements * 2 bytes = 512 bytes, and 16 tokens take 8
# KiB.
LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 4,
    "hidden_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
}
# A state has 3 * 512 + 4 * 64 * 64 elements: 35,840 bytes, and fits into 70 tokens of attention.
QWEN_NEXT: dict[str, Any] = {
    **LLAMA,
    "architectures": ["Qwen3NextForCausalLM"],
    "model_type": "qwen3_next",
    "head_dim": 64,
    "full_attention_interval": 4,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 64,
    "linear_value_head_dim": 64,
}


def write(folder: Path, config: dict[str, Any], name: str = "config.json") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps(config))
    return folder


def plan(folder: Path, config: dict[str, Any], **served: Any) -> ModelPlan:
    return plan_model(write(folder, config), Deployment(**served))


def test_one_group(tmp_path: Path) -> None:
    made = plan(tmp_path, LLAMA)
    assert made.describe() == ["1 x full_attention, blocks of 16 tokens, 4 layers"]
    assert made.block_bytes == 4 * 8192
    assert made.max_model_len == 1024
    assert made.num_blocks(GIB) == GIB // (4 * 8192)
    assert plan_model(tmp_path / "config.json") == made


@pytest.mark.parametrize(
    ("served", "block_bytes"),
    [
        ({"tensor_parallel": 2}, 4 * 4096),
        ({"tensor_parallel": 4}, 4 * 4096),
        ({"cache_dtype": "fp8"}, 4 * 4096),
        ({"block_size": 64}, 4 * 4 * 8192),
        ({"pipeline_parallel": 2}, 2 * 8192),
        ({"pipeline_parallel": 3}, 2 * 8192),
    ],
)
def test_what_a_block_takes_on_a_rank(
    tmp_path: Path, served: dict[str, Any], block_bytes: int
) -> None:
    assert plan(tmp_path, LLAMA, **served).block_bytes == block_bytes


def test_windows_beside_full_attention(tmp_path: Path) -> None:
    config = {**LLAMA, "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text"}
    config |= {"num_hidden_layers": 6, "head_dim": 64, "sliding_window": 100}
    made = plan(tmp_path, config)
    groups = [(group.spec.kind, group.spec.window, group.indices) for group in made.groups]
    windows = [("sliding_window", 100, (layer,)) for layer in range(5)]
    assert groups == [*windows, ("full_attention", None, (5,))]
    assert made.block_bytes == 8192


def test_a_block_of_attention_holds_a_state(tmp_path: Path) -> None:
    made = plan(tmp_path, QWEN_NEXT)
    assert made.describe() == [
        "3 x mamba, blocks of 128 tokens, 1 layers",
        "1 x full_attention, blocks of 128 tokens, 1 layers",
    ]
    assert made.block_bytes == 128 * 512
    manager = KVCacheManager(made.kv_cache_config(GIB), made.max_model_len)
    assert manager.hash_block_size == 128


def test_the_last_memory_that_is_too_small(tmp_path: Path) -> None:
    made = plan(tmp_path, LLAMA)
    # 64 blocks for 1024 tokens, and the null block.
    assert made.num_blocks(65 * made.block_bytes) == 65
    with pytest.raises(ConfigError, match=r"hold 64 blocks .* needs 64 .*; 1,008 tokens would fit"):
        made.num_blocks(65 * made.block_bytes - 1)
    shorter = plan(tmp_path, LLAMA, max_model_len=1008)
    assert shorter.num_blocks(65 * made.block_bytes - 1) == 64


def test_a_state_for_each_request_that_runs(tmp_path: Path) -> None:
    made = plan(tmp_path, QWEN_NEXT, max_num_seqs=100)
    assert made.num_blocks(100 * made.block_bytes) == 100
    refusal = (
        r"max_num_seqs \(100\) exceeds available Mamba cache blocks \(99\); use --concurrency 99"
    )
    with pytest.raises(ConfigError, match=refusal):
        made.num_blocks(100 * made.block_bytes - 1)
    with pytest.raises(ConfigError, match=refusal):
        made.check_blocks(99)
    assert plan(tmp_path, LLAMA, max_num_seqs=100).num_blocks(70 * 4 * 8192) == 70


MODEL_OPT = {"quant_method": "modelopt"}
COMPRESSED = {"quant_method": "compressed-tensors"}
SCHEME = {"num_bits": 8, "type": "float", "dynamic": False, "strategy": "tensor", "symmetric": True}


@pytest.mark.parametrize(
    ("fields", "served", "cache_dtype"),
    [
        ({}, {}, "auto"),
        ({"quantization_config": MODEL_OPT | {"kv_cache_quant_algo": "FP8"}}, {}, "fp8"),
        (
            {"quantization_config": MODEL_OPT | {"quantization": {"kv_cache_scheme": SCHEME}}},
            {},
            "fp8",
        ),
        ({"quantization_config": MODEL_OPT | {"kv_cache_scheme": {"num_bits": 8}}}, {}, "auto"),
        ({"quantization_config": MODEL_OPT | {"kv_cache_quant_algo": "INT8"}}, {}, "auto"),
        ({"quantization_config": MODEL_OPT | {"kv_cache_quant_algo": "FP8_E4M3"}}, {}, "auto"),
        (
            {"quantization_config": MODEL_OPT | {"kv_cache_quant_algo": "NVFP4"}},
            {"cache_dtype": "fp8"},
            "fp8",
        ),
        ({"quantization_config": MODEL_OPT}, {}, "auto"),
        ({"quantization_config": {"producer": {"name": "modelopt"}}}, {}, "auto"),
        ({"quantization_config": COMPRESSED | {"kv_cache_scheme": SCHEME}}, {}, "fp8"),
        ({"compression_config": COMPRESSED | {"kv_cache_scheme": SCHEME}}, {}, "fp8"),
        ({"quantization_config": COMPRESSED | {"kv_cache_scheme": None}}, {}, "auto"),
        ({"quantization_config": {"quant_method": "fp8", "kv_cache_scheme": SCHEME}}, {}, "auto"),
        (
            {"quantization_config": COMPRESSED | {"kv_cache_scheme": SCHEME}},
            {"cache_dtype": "bfloat16"},
            "bfloat16",
        ),
    ],
)
def test_the_precision_that_a_checkpoint_says(
    tmp_path: Path, fields: dict[str, Any], served: dict[str, Any], cache_dtype: str
) -> None:
    made = plan(tmp_path, {**LLAMA, **fields}, **served)
    assert made.deployment.cache_dtype == cache_dtype
    assert made.block_bytes == 4 * (4096 if cache_dtype == "fp8" else 8192)


MISTRAL = {"dim": 256, "n_layers": 4, "n_heads": 4, "n_kv_heads": 2, "head_dim": 64}


@pytest.mark.parametrize(("weights", "layers"), [((), 4), (("consolidated.safetensors",), 8)])
def test_which_configuration_of_two(tmp_path: Path, weights: tuple[str, ...], layers: int) -> None:
    write(tmp_path, LLAMA)
    write(tmp_path, {**MISTRAL, "n_layers": 8}, "params.json")
    for name in weights:
        (tmp_path / name).touch()
    assert len(plan_model(tmp_path).groups[0].layers) == layers


def test_mistrals_format(tmp_path: Path) -> None:
    config = {**MISTRAL, "sliding_window": [None, 64]}
    made = plan_model(write(tmp_path, config, "params.json"))
    assert made.architecture == "MistralForCausalLM"
    assert made.max_model_len == 128_000
    assert [group.spec.window for group in made.groups] == [None, 64]


@pytest.mark.parametrize(
    ("fields", "longest"),
    [
        ({}, 1024),
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, 4096),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, 1024),
        ({"model_max_length": 2000}, 2000),
    ],
)
def test_the_longest_sequence(tmp_path: Path, fields: dict[str, Any], longest: int) -> None:
    assert plan(tmp_path, {**LLAMA, **fields}).max_model_len == longest


@pytest.mark.parametrize("value", [None, 0, -1, 1.5, "1", [], {}, True, 2**80])
@pytest.mark.parametrize("config", [LLAMA, QWEN_NEXT], ids=["llama", "qwen3-next"])
def test_whatever_stands_in_a_field(tmp_path: Path, config: dict[str, Any], value: Any) -> None:
    """Each value is planned or refused, and raises no other error."""
    for field in config:
        folder = write(tmp_path, {**config, field: value})
        with suppress(ConfigError):
            assert plan_model(folder).num_blocks(GIB) > 1

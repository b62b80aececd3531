"""Tests of fields of a configuration that a folder leaves out, nests or names differently.

``tests/vllm/models`` compares with vLLM's own answers. Here, sizes are worked out by hand.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kvoxide import ConfigError
from kvoxide.lab.model import ModelPlan, UnknownModelError, plan_model
from kvoxide.lab.model.folder_kinds import require_folder

from .test_plan import LLAMA, plan, write

SIXTEEN = 16
QWEN_VL = {
    "architectures": ["Qwen2_5_VLForConditionalGeneration"],
    "model_type": "qwen2_5_vl",
    "text_config": {"model_type": "qwen2_5_vl_text", "hidden_size": 3584, "num_hidden_layers": 28},
}


def windows(made: ModelPlan) -> list[tuple[int | None, int]]:
    """Return window and layers of each group."""
    return [(group.spec.window, len(group.layers)) for group in made.groups]


def of_class(name: str, model_type: str, **fields: Any) -> dict[str, Any]:
    return {**LLAMA, "architectures": [name], "model_type": model_type, **fields}


def without(config: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name not in names}


def test_absent_kv_heads_are_those_of_the_class(tmp_path: Path) -> None:
    config = of_class("Qwen3MoeForCausalLM", "qwen3_moe", num_attention_heads=32, head_dim=128)
    made = plan(tmp_path, without(config, "num_key_value_heads"))
    assert made.block_bytes == 4 * SIXTEEN * 2 * 4 * 128 * 2


@pytest.mark.parametrize(
    ("name", "model_type", "length"),
    [
        ("Qwen3ForCausalLM", "qwen3", 32_768),
        ("Phi3ForCausalLM", "phi3", 4096),
        ("LlamaForCausalLM", "llama", 2048),
    ],
)
def test_absent_length_is_that_of_the_class(
    tmp_path: Path, name: str, model_type: str, length: int
) -> None:
    config = without(of_class(name, model_type), "max_position_embeddings")
    assert plan(tmp_path, config).max_model_len == length


@pytest.mark.parametrize(
    ("name", "model_type"), [("Olmo3ForCausalLM", "olmo3"), ("ExaoneMoEForCausalLM", "exaone_moe")]
)
def test_absent_layer_types_are_derived(tmp_path: Path, name: str, model_type: str) -> None:
    made = plan(tmp_path, of_class(name, model_type, sliding_window=64))
    assert sorted(windows(made), key=str) == [(64, 1)] * 3 + [(None, 1)]


def test_text_config_with_differences_only(tmp_path: Path) -> None:
    made = plan_model(write(tmp_path, QWEN_VL))
    # The class has 64 heads, and 8 heads of keys and values.
    assert made.block_bytes == 28 * SIXTEEN * 2 * 8 * (3584 // 64) * 2
    assert made.max_model_len == 32_768


SPARSE = of_class(
    "GlmMoeDsaForCausalLM",
    "glm_moe_dsa",
    num_hidden_layers=8,
    num_key_value_heads=4,
    kv_lora_rank=512,
    qk_rope_head_dim=64,
    index_head_dim=128,
    index_topk=2048,
)


@pytest.mark.parametrize(
    ("fields", "indexers"),
    [
        ({}, 8),
        # Layers 0 to 2 and 6.
        ({"index_topk_freq": 4, "index_skip_topk_offset": 3}, 4),
        # Layers 0, 1, 3, 5 and 7.
        ({"index_topk_freq": 2}, 5),
        ({"index_topk_pattern": "FFSSFSSS"}, 3),
        ({"index_topk_pattern": "FS", "index_topk_freq": 4}, 7),
    ],
)
def test_shared_indexers(tmp_path: Path, fields: dict[str, Any], indexers: int) -> None:
    made = plan(tmp_path, {**SPARSE, **fields})
    (group,) = made.groups
    assert len(group.layers) == 8 + indexers
    assert made.block_bytes == 64 * (8 * 576 * 2 + indexers * (128 + 4))


def test_deepseek_v3_with_index_topk_has_indexers(tmp_path: Path) -> None:
    fields = without(SPARSE, "architectures", "model_type")
    made = plan(tmp_path, of_class("DeepseekV3ForCausalLM", "deepseek_v3", **fields))
    assert (made.hit_tokens, len(made.groups[0].layers)) == (64, 16)


def test_windows_of_several_sizes(tmp_path: Path) -> None:
    sizes = [16, 32, 64, None]
    config = of_class(
        "ExaoneMoEForCausalLM", "exaone_moe", sliding_window=64, sliding_windows=sizes
    )
    made = plan(tmp_path, config)
    assert windows(made) == [(16, 1), (32, 1), (64, 1), (None, 1)]


@pytest.mark.parametrize(
    ("name", "model_type", "fields", "expected"),
    [
        ("SmolLM3ForCausalLM", "smollm3", {"use_sliding_window": False}, [(None, 4)]),
        (
            "Qwen3ForCausalLM",
            "qwen3",
            {
                "use_sliding_window": True,
                "max_window_layers": 4,
                "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
            },
            [(None, 4)],
        ),
        (
            "Qwen2ForCausalLM",
            "qwen2",
            {"use_sliding_window": True, "max_window_layers": 0},
            [(64, 4)],
        ),
        (
            "PanguEmbeddedForCausalLM",
            "PanguEmbedded",
            {"sliding_window": None, "interleaved_sliding_window": [None, 64, 64, 64]},
            [(None, 1), (64, 1), (64, 1), (64, 1)],
        ),
        ("LlamaForCausalLM", "llama", {}, [(64, 4)]),
        ("LlamaForCausalLM", "llama", {"sliding_window": 0}, [(None, 4)]),
    ],
)
def test_which_layers_have_a_window(
    tmp_path: Path,
    name: str,
    model_type: str,
    fields: dict[str, Any],
    expected: list[tuple[int | None, int]],
) -> None:
    config = {**of_class(name, model_type, sliding_window=64), **fields}
    assert windows(plan(tmp_path, config)) == expected


ROPE = {"factor": 4.0, "original_max_position_embeddings": 256}
LONG = {"type": "longrope", "short_factor": [1.0] * 32, "long_factor": [4.0] * 32}


@pytest.mark.parametrize(
    ("name", "model_type", "rope", "length"),
    [
        ("TeleChat3ForCausalLM", "telechat3", {"type": "telechat3-yarn", **ROPE}, 1024),
        ("TeleChat3ForCausalLM", "telechat3", {"rope_type": "telechat3-yarn", **ROPE}, 1024),
        (
            "Phi3ForCausalLM",
            "phi3",
            {**LONG, "original_max_position_embeddings": 256},
            4096,
        ),
        (
            "LlamaForCausalLM",
            "llama",
            {**LONG, "original_max_position_embeddings": 256},
            1024,
        ),
        ("LlamaForCausalLM", "llama", {"rope_type": "dynamic", "factor": 2.0}, 2048),
    ],
)
def test_length_that_rotary_positions_give(
    tmp_path: Path, name: str, model_type: str, rope: dict[str, Any], length: int
) -> None:
    config = of_class(name, model_type, rope_scaling=rope)
    assert plan(tmp_path, config).max_model_len == length


@pytest.mark.parametrize("value", ["256", [256], True, -1])
@pytest.mark.parametrize("field", ["rope_scaling", "rope_parameters"])
def test_an_original_length_that_is_no_number_is_named(
    tmp_path: Path, field: str, value: object
) -> None:
    name = "original_max_position_embeddings"
    for kind in ("yarn", "llama3", "longrope"):
        config = {**LLAMA, field: {"rope_type": kind, "factor": 4.0, name: value}}
        with pytest.raises(ConfigError) as refused:
            plan(tmp_path, config)
        says = f"config.json: {name} of {field} is {value!r}; it must be a number of tokens above 0"
        assert says in str(refused.value)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float32", "int8", None])
def test_weights_of_another_precision_are_planned_in_bfloat16(
    tmp_path: Path, dtype: str | None
) -> None:
    made = plan(tmp_path, {**LLAMA, "torch_dtype": dtype})
    assert (made.dtype, made.block_bytes) == ("bfloat16", 4 * 8192)


SCHEME = {
    "quant_method": "modelopt",
    "quant_algo": "FP8",
    "kv_cache_scheme": {"dynamic": False, "num_bits": 8, "type": "float"},
}
MISTRAL_3 = {
    "architectures": ["Mistral3ForConditionalGeneration"],
    "model_type": "mistral3",
    "vision_config": {"model_type": "pixtral"},
}
TEXT = {**without(LLAMA, "architectures"), "model_type": "mistral"}


def test_modelopt_scheme_counts_in_the_outer_configuration_only(tmp_path: Path) -> None:
    inside = {**MISTRAL_3, "text_config": {**TEXT, "quantization_config": SCHEME}}
    made = plan(tmp_path / "inside", inside)
    assert (made.cache_dtype, made.block_bytes) == ("bfloat16", 4 * 8192)
    (note,) = made.notes
    assert note.startswith(
        "text_config has a KV cache in fp8; vLLM reads ModelOpt's scheme only from"
    )
    outside = {**MISTRAL_3, "text_config": TEXT, "quantization_config": SCHEME}
    assert plan(tmp_path / "outside", outside).block_bytes == 4 * 4096


OWN_CODE = {
    **LLAMA,
    "architectures": ["InternLM2ForCausalLM"],
    "model_type": "internlm2",
    "auto_map": {"AutoConfig": "configuration_internlm2.InternLM2Config"},
}


def test_code_in_the_folder_is_not_executed(tmp_path: Path) -> None:
    write(tmp_path, OWN_CODE)
    (tmp_path / "configuration_internlm2.py").write_text("raise SystemExit('executed')")
    made = plan_model(tmp_path)
    assert made.block_bytes == 4 * 8192
    (note,) = made.notes
    assert "does not execute the model's own configuration code" in note
    assert note.endswith("layer_types, sliding_window")


@pytest.mark.parametrize("name", ["num_hidden_layers", "num_key_value_heads", "hidden_size"])
def test_field_that_only_the_folders_code_could_fill_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=f"has no {name}. The model's own code may have"):
        plan(tmp_path, without(OWN_CODE, name))


def test_local_class_with_code_in_the_folder_is_noted(tmp_path: Path) -> None:
    (note,) = plan(tmp_path, {**LLAMA, "auto_map": {"AutoConfig": "a.B"}}).notes
    assert "--trust-remote-code" in note


def test_name_on_a_hub_that_is_a_folder_here(tmp_path: Path) -> None:
    require_folder(write(tmp_path / "owner", LLAMA))
    with pytest.raises(ConfigError, match=r"hf download owner/name config\.json"):
        require_folder(Path("owner/name"))


def test_unknown_class_names_similar_ones(tmp_path: Path) -> None:
    with pytest.raises(UnknownModelError, match="similar names that it knows: LlamaForCausalLM"):
        plan(tmp_path, of_class("LlamasForCausalLM", "llama"))


def run(code: str, *arguments: str | Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("name", [None, "Qwen3MoeModel"])
def test_a_base_class_is_planned_for_embeddings(tmp_path: Path, name: str | None) -> None:
    config = of_class("Qwen3MoeForCausalLM", "qwen3_moe", dtype="float32")
    assert plan(tmp_path, config).dtype == "bfloat16"
    made = plan(tmp_path, {**config, "architectures": name and [name]})
    assert (made.architecture, made.dtype) == ("Qwen3MoeModel", "float16")
    assert made.deployment.max_in_flight_tokens == made.deployment.max_batched_tokens
    assert "vLLM serves a Qwen3MoeModel for embeddings" in made.notes[-1]


def pool(folder: Path, **kinds: object) -> None:
    """Write what Sentence Transformers says of a model's pooling."""
    module = {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}
    (folder / "modules.json").write_text(json.dumps([module]))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling/config.json").write_text(json.dumps(kinds))


@pytest.mark.parametrize(
    ("kinds", "caches"),
    [
        ({"pooling_mode_lasttoken": True, "pooling_mode_mean_tokens": False}, True),
        ({"pooling_mode_mean_tokens": True}, False),
        ({"pooling_mode_cls_token": True}, False),
        ({"pooling_mode": "lasttoken"}, True),
        ({}, True),
    ],
)
def test_a_folder_of_sentence_transformers_is_planned_for_embeddings(
    tmp_path: Path, kinds: dict[str, object], caches: bool
) -> None:
    pool(tmp_path, **kinds)
    config = {**LLAMA, "dtype": "float32"}
    made = plan(tmp_path, config)
    assert (made.dtype, made.deployment.async_scheduling) == ("float16", False)
    assert "because modules.json names a pooling" in made.notes[0]
    assert made.prefix_caching is caches
    assert plan(tmp_path, config, prefix_caching=True).prefix_caching
    assert not plan(tmp_path, config, prefix_caching=False).prefix_caching


def test_modules_without_a_pooling_are_planned_for_text(tmp_path: Path) -> None:
    (tmp_path / "modules.json").write_text("[]")
    assert plan(tmp_path, LLAMA).notes == ()


@pytest.mark.parametrize(
    "modules", ["{}", "[", '[{"type": "sentence_transformers.models.Pooling", "path": "../other"}]']
)
def test_damaged_modules_are_refused(tmp_path: Path, modules: str) -> None:
    (tmp_path / "modules.json").write_text(modules)
    with pytest.raises(ConfigError, match=r"modules\.json"):
        plan(tmp_path, LLAMA)


def test_an_encoder_switches_prefix_caching_off_or_is_refused(tmp_path: Path) -> None:
    config = {**LLAMA, "is_encoder_decoder": True}
    made = plan(tmp_path, config)
    assert (made.prefix_caching, made.hit_tokens) == (False, 0)
    (note,) = made.notes
    assert (
        "is_encoder_decoder is true. vLLM disables prefix caching for this model by default" in note
    )
    wanted = plan(tmp_path, config, prefix_caching=True)
    assert (wanted.prefix_caching, wanted.hit_tokens) == (True, 16)
    assert plan(tmp_path, config, prefix_caching=False).notes == ()
    with pytest.raises(ConfigError, match="refuses max_model_len 1,024 above 512 batched tokens"):
        plan(tmp_path, config, max_batched_tokens=512)


def test_an_unknown_precision_is_named_the_same_without_torch(tmp_path: Path) -> None:
    write(tmp_path, {**LLAMA, "dtype": "bf16"})
    code = (
        "import sys, kvoxide, kvoxide.lab.model\n"
        "sys.modules['torch'] = None\n"
        "try: kvoxide.lab.model.plan_model(sys.argv[1])\n"
        "except kvoxide.ConfigError as error: print(error)"
    )
    assert "dtype is 'bf16', which PyTorch does not have" in run(code, tmp_path)


def test_transformers_is_imported_when_a_model_is_read(tmp_path: Path) -> None:
    write(tmp_path, LLAMA)
    code = (
        "import sys, kvoxide.cli, kvoxide.lab.replay, kvoxide.lab.model\n"
        "sys.modules['torch'] = None\n"
        "early = 'transformers' in sys.modules\n"
        "plan = kvoxide.lab.model.plan_model(sys.argv[1])\n"
        "print(early, 'transformers' in sys.modules, plan.block_bytes)"
    )
    # Transformers itself prints nothing. It would import torch, which takes seconds.
    assert run(code, tmp_path) == "False True 32768\n"


def test_without_transformers_the_error_names_the_extra(tmp_path: Path) -> None:
    write(tmp_path, LLAMA)
    code = (
        "import sys, kvoxide, kvoxide.lab.model\n"
        "sys.modules['transformers'] = None\n"
        "try: kvoxide.lab.model.plan_model(sys.argv[1])\n"
        "except kvoxide.ConfigError as error: print(error)"
    )
    assert "this needs Transformers; install kvoxide with its extra 'cli'" in run(code, tmp_path)

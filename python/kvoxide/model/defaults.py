"""What a configuration means that leaves a field out, as far as published ones do: the class of the
model, and the defaults of its class in Transformers."""

from collections.abc import Mapping
from typing import Any, Final

_GATED_DELTA_NET: Final = {
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_value_head_dim": 128,
}

DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "cohere2": {"head_dim": 128, "sliding_window": 4096, "sliding_window_pattern": 4},
    "deepseek_v4": {"head_dim": 512, "sliding_window": 128, "index_head_dim": 128},
    "exaone4": {"sliding_window": 4096, "sliding_window_pattern": 4},
    "falcon": {"multi_query": True},
    "gpt_bigcode": {"multi_query": True},
    "gemma": {"num_key_value_heads": 16, "head_dim": 256, "max_position_embeddings": 8192},
    "gemma2": {"num_key_value_heads": 4, "head_dim": 256, "sliding_window": 4096},
    "gemma3_text": {
        "hidden_size": 2304,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "sliding_window": 4096,
        "sliding_window_pattern": 6,
        "max_position_embeddings": 131_072,
    },
    "gemma4_text": {
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "global_head_dim": 512,
        "sliding_window": 512,
        "max_position_embeddings": 131_072,
    },
    "gpt_oss": {"head_dim": 64, "num_key_value_heads": 8, "sliding_window": 128},
    "granitemoehybrid": {
        "mamba_n_heads": 128,
        "mamba_n_groups": 1,
        "mamba_d_state": 256,
        "mamba_d_conv": 4,
        "mamba_expand": 2,
    },
    "jamba": {
        "num_key_value_heads": 8,
        "attn_layer_period": 8,
        "attn_layer_offset": 4,
        "mamba_d_state": 16,
        "mamba_d_conv": 4,
        "mamba_expand": 2,
        "max_position_embeddings": 262_144,
    },
    "llama4_text": {"head_dim": 128, "attention_chunk_size": 8192, "no_rope_layer_interval": 4},
    "mistral": {"num_key_value_heads": 8, "sliding_window": 4096},
    "mixtral": {"num_key_value_heads": 8},
    "qwen3": {"head_dim": 128, "max_window_layers": 28},
    "qwen2": {"max_window_layers": 28, "sliding_window": 4096},
    "qwen3_next": {"head_dim": 256, "full_attention_interval": 4, **_GATED_DELTA_NET},
    "qwen3_5_text": {"head_dim": 256, "full_attention_interval": 4, **_GATED_DELTA_NET},
    "qwen3_5_moe_text": {"head_dim": 256, "full_attention_interval": 4, **_GATED_DELTA_NET},
}
# Names of whole models whose language model goes by another name.
_TEXT_TYPES: Final = {"gemma3": "gemma3_text", "gemma4": "gemma4_text", "llama4": "llama4_text"}

# Of Transformers, without the ending Model: those whose cache was seen to be that of the model's
# usual class.
_BASES: Final = """
Afmoe Apertus Cohere2 Cohere2Vision Cohere DeepseekV2 DeepseekV32 DeepseekV3 DeepseekV4
Ernie4_5 Ernie4_5_Moe Exaone4 ExaoneMoe FalconH1 GPT2 GPTJ Gemma2 Gemma4 Gemma Glm4
Glm4MoeLite Glm4Moe GlmMoeDsa GptOss Granite GraniteMoeHybrid GraniteMoe GraniteMoeShared
HYV3 HyperCLOVAX Idefics3 InternVL Jamba KimiLinear Lfm2 Lfm2Moe Llama Llava LlavaNext
LlavaOnevision MiMoV2Flash MiniCPM3 MiniMaxM2 Ministral3 Mistral3 Mistral Mixtral NemotronH
Nemotron OPT Olmo2 Olmo3 Olmo Olmoe PaliGemma Phi3 Qwen2Audio Qwen2 Qwen2Moe Qwen2VL
Qwen2_5_VL Qwen3 Qwen3Moe Qwen3Next Qwen3VL Qwen3VLMoe Qwen3_5 Qwen3_5Moe SmolLM3 SmolVLM
StableLm Starcoder2
"""
BASE_CLASSES: Final = tuple(f"{base}Model" for base in _BASES.split())
"""Classes that vLLM loads for a type of models where a configuration names none."""

# Fields by the names that older classes have for them.
_NAMES: Final = {
    "n_embd": "hidden_size",
    "n_head": "num_attention_heads",
    "n_layer": "num_hidden_layers",
    "num_attention_groups": "num_key_value_heads",
}


def with_defaults(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields with those that are missing, not null, filled in for their ``model_type``,
    and under their usual names too."""
    named = {_NAMES[name]: value for name, value in values.items() if name in _NAMES}
    model_type = str(values.get("model_type"))
    return {**DEFAULTS.get(_TEXT_TYPES.get(model_type, model_type), {}), **named, **values}


def base_class(model_type: object) -> str | None:
    """The class for a ``model_type``, None where it is not known here."""
    wanted = f"{model_type}model".replace("_", "")
    return next((name for name in BASE_CLASSES if name.replace("_", "").lower() == wanted), None)

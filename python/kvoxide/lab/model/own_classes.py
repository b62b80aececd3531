"""Types of models that vLLM reads with its own configuration class instead of Transformers'
class. The module has the fields that such a class adds to the file's."""

from collections.abc import Mapping
from typing import Any, Final

# Types whose fields are read with the class of Transformers for another type.
READ_AS: Final[Mapping[str, str]] = {"deepseek_v32": "deepseek_v3", "kimi_k2": "deepseek_v3"}

# Types whose class holds a language model of this type in text_config, and adds nothing else.
LANGUAGE: Final[Mapping[str, str]] = {
    "kimi_vl": "deepseek_v2",
    "kimi_k3": "kimi_linear",
    "minimax_m3_vl": "minimax_m3_text",
    "step3_vl": "step3_text",
}

_SPARSE: Final = [0] * 3 + [1] * 57
_DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "kimi_linear": {
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "max_position_embeddings": 4096,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    },
    "minimax_m3_text": {
        "hidden_size": 6144,
        "num_hidden_layers": 60,
        "num_attention_heads": 64,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "max_position_embeddings": 524_288,
        "rope_theta": 5_000_000,
        "sparse_attention_config": {"sparse_index_dim": 128, "sparse_attention_freq": _SPARSE},
    },
    "step3_text": {
        "hidden_size": 7168,
        "num_hidden_layers": 61,
        "num_attention_heads": 64,
        "num_attention_groups": 1,
        "head_dim": 256,
        "max_seq_len": 65_536,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0},
    },
    "RefinedWeb": {
        "hidden_size": 64,
        "n_layer": 2,
        "n_head": 8,
        "n_head_kv": 1,
        "multi_query": True,
        "new_decoder_architecture": False,
    },
}
_SAME: Final = {"RefinedWebModel": "RefinedWeb", "minimax_m3_vl": "minimax_m3_text"}
_NAMES: Final[Mapping[str, Mapping[str, str]]] = {
    "RefinedWeb": {
        "n_embed": "hidden_size",
        "n_layer": "num_hidden_layers",
        "n_head": "num_attention_heads",
        "n_head_kv": "num_kv_heads",
    },
}
# Hidden size of Falcon 40B. RefinedWeb's class distinguishes it from Falcon 7B by this alone.
_FALCON_40B: Final = 8192

# Further types with a class of vLLM's own.
_UNKNOWN: Final = """
    alpamayo2_super bagel bailing_moe_v3_vl beam chatglm ultravbert colqwen3 ops_colqwen3
    qwen3_vl_nemotron_embed deepseek_vl_v2 dory dots3_note k3_dspark funaudiochat hy_v4 isaac
    muse_spark_dspark musespark1x_text muse_spark_text muse_spark_vision muse_spark_audio
    muse_spark midashenglm minimax_m3_mtp moondream3 moss_transcribe_diarize openvla ovis ultravox
    step5 step5_vl qwen3_asr unlimited-ocr unlimited_ocr deepseek_v41 flint inkling_mm_model
    inkling_model eagle speculators
"""
UNKNOWN: Final = frozenset(_UNKNOWN.split())


def has_class(model_type: str) -> bool:
    """Return whether the fields of a ``model_type`` are known here."""
    return _SAME.get(model_type, model_type) in _DEFAULTS


def with_defaults(model_type: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields in ``values`` and those that vLLM's class adds, under their usual names."""
    name = _SAME.get(model_type, model_type)
    filled = {**_DEFAULTS[name], **values}
    if filled.get("rope_scaling"):
        filled["rope_parameters"] = filled.pop("rope_scaling")
    for older, usual in _NAMES.get(name, {}).items():
        if filled.get(older) is not None:
            filled[usual] = filled[older]
    if name == "RefinedWeb" and filled["hidden_size"] == _FALCON_40B:
        filled["new_decoder_architecture"] = True
    return filled

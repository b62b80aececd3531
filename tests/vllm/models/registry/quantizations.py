"""Adds the quantization of a checkpoint in published forms, with and without the cache's
quantization."""

from typing import Any

Fields = dict[str, Any]
COUNT = 10

_FP8_CACHE = {
    "num_bits": 8,
    "type": "float",
    "strategy": "tensor",
    "dynamic": False,
    "symmetric": True,
}
_MODEL_OPT_CACHE = {"dynamic": False, "num_bits": 8, "type": "float"}
_IGNORED = ["lm_head"]


def _compressed(cache: Any) -> Fields:
    weights = {
        "num_bits": 8,
        "type": "float",
        "strategy": "channel",
        "dynamic": False,
        "symmetric": True,
    }
    inputs = {
        "num_bits": 8,
        "type": "float",
        "strategy": "token",
        "dynamic": True,
        "symmetric": True,
    }
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    return {
        "quant_method": "compressed-tensors",
        "format": "float-quantized",
        "config_groups": {"group_0": group},
        "ignore": _IGNORED,
        "kv_cache_scheme": cache,
    }


def _model_opt(**cache: Any) -> Fields:
    return {
        "quant_method": "modelopt",
        "quant_algo": "FP8",
        "ignore": _IGNORED,
        "producer": {"name": "modelopt", "version": "0.33.0"},
        **cache,
    }


def _hf_quant_config(cache: Any, algorithm: str) -> Fields:
    inner = {"quant_algo": algorithm, "kv_cache_quant_algo": cache, "exclude_modules": _IGNORED}
    if algorithm == "NVFP4":
        inner["group_size"] = 16
    return {"producer": {"name": "modelopt", "version": "0.33.0"}, "quantization": inner}


def add(folder: dict[str, Fields], text: Fields, number: int) -> dict[str, Fields]:
    """Return the folder with one of ``COUNT`` quantizations. Some of them are in ``text``, the part
    of its language model."""
    config = folder["config.json"]
    choice = number % COUNT
    if choice in (6, 7):
        cache = "FP8" if choice == 6 else None
        beside = _hf_quant_config(cache, "FP8" if number // COUNT & 1 else "NVFP4")
        return {**folder, "hf_quant_config.json": beside}
    inside = choice in (1, 3)
    given = (
        _compressed(_FP8_CACHE),
        _compressed(_FP8_CACHE),
        _model_opt(kv_cache_scheme=_MODEL_OPT_CACHE),
        _model_opt(kv_cache_scheme=_MODEL_OPT_CACHE),
        _model_opt(kv_cache_quant_algo="FP8"),
        {"quant_method": "fp8", "activation_scheme": "dynamic"},
        None,
        None,
        _compressed(None),
        {
            "quant_method": "fp8",
            "activation_scheme": "dynamic",
            "weight_block_size": [128, 128],
            "kv_cache_scheme": _FP8_CACHE,
        },
    )[choice]
    (text if inside else config)["quantization_config"] = given
    return folder

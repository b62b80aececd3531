"""The precision of the KV cache that a quantized checkpoint was made for."""

from collections.abc import Mapping
from typing import Any, Final

_FP8: Final = "fp8"
# Where ModelOpt writes down how a KV cache is quantized; the first that is there counts.
_MODEL_OPT_FIELDS: Final = ("kv_cache_scheme", "kv_cache_quant_algo")


def quantized_cache(values: Mapping[str, Any]) -> str | None:
    """What a checkpoint of ModelOpt or LLM Compressor says in ``quantization_config`` or, for the
    latter, in ``compression_config``; None if that is nothing, or nothing that vLLM takes."""
    config = values.get("quantization_config") or values.get("compression_config")
    if not isinstance(config, Mapping):
        return None
    producer = config.get("producer")
    name = producer.get("name") if isinstance(producer, Mapping) else None
    method = str(name or config.get("quant_method")).lower().replace("_", "-")
    if method.startswith("modelopt"):
        return _of_model_opt(config)
    has_scheme = isinstance(config.get("kv_cache_scheme"), Mapping)
    return _FP8 if method == "compressed-tensors" and has_scheme else None


def _of_model_opt(config: Mapping[str, Any]) -> str | None:
    inner = config.get("quantization")
    parts = [inner, config] if isinstance(inner, Mapping) else [config]
    said = [part.get(field) for field in _MODEL_OPT_FIELDS for part in parts]
    scheme = next((each for each in said if each), None)
    if isinstance(scheme, Mapping):
        wanted = {"dynamic": False, "num_bits": 8, "type": "float"}
        return _FP8 if all(scheme.get(name) == value for name, value in wanted.items()) else None
    return _FP8 if str(scheme).lower() in ("fp8", "fp8_e4m3") else None

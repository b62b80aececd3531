"""The precision of the KV cache that a quantized checkpoint was made for, as vLLM 0.33.0 finds it:
``quantization_config`` of ``config.json``, else ``hf_quant_config.json`` beside it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kvoxide._core import ConfigError
from kvoxide.model.folder import read_beside

FP8: Final = "fp8"
NVFP4: Final = "nvfp4"
_BESIDE: Final = "hf_quant_config.json"
_MODEL_OPT: Final = "modelopt"
_LLM_COMPRESSOR: Final = "compressed-tensors"
# Where ModelOpt writes down how a KV cache is quantized; the first that is there counts.
_MODEL_OPT_FIELDS: Final = ("kv_cache_scheme", "kv_cache_quant_algo")
# How ModelOpt's older files name weights whose checkpoints vLLM loads.
_MODEL_OPT_ALGORITHMS: Final = (
    "FP8",
    "FP8_PER_CHANNEL_PER_TOKEN",
    "FP8_PB_WO",
    "NVFP4",
    "MIXED_PRECISION",
)
_STRATEGIES: Final = ("tensor", "attn_head")


@dataclass(frozen=True)
class Quantization:
    """``cache_dtype`` is None where the cache has the model's precision. ``source`` is the file
    that was read, ``note`` what was found and is not used."""

    cache_dtype: str | None
    source: str = ""
    note: str = ""


def read_quantization(config: Path, values: Mapping[str, Any]) -> Quantization:
    """What the checkpoint says whose configuration ``values`` stand in the file ``config``.

    Raises :class:`~kvoxide.ConfigError` for a cache that vLLM refuses, and for files that
    contradict each other.
    """
    beside = read_beside(config, _BESIDE)
    said = _in_config(values)
    if said is not None:
        return _checked(Quantization(_cache_dtype(str(config), said), config.name), config, beside)
    if beside is None:
        return Quantization(None)
    source = str(config.parent / _BESIDE)
    if not _method(source, beside):
        return Quantization(
            None, note=f"vLLM knows no quantization in {_BESIDE}: nothing of it counts"
        )
    return Quantization(_cache_dtype(source, beside), _BESIDE)


def _in_config(values: Mapping[str, Any]) -> Mapping[str, Any] | None:
    found = [values.get("quantization_config"), values.get("compression_config")]
    text = values.get("text_config")
    if isinstance(text, Mapping):
        found.insert(1, text.get("quantization_config"))
    return next((each for each in found if isinstance(each, Mapping)), None)


def _checked(read: Quantization, config: Path, beside: Mapping[str, Any] | None) -> Quantization:
    """As vLLM reads it: what is beside the configuration does not count."""
    other = None if beside is None else _cache_dtype(str(config.parent / _BESIDE), beside)
    if other is None or other == read.cache_dtype:
        return read
    if read.cache_dtype is not None:
        raise ConfigError(
            f"{config} has a KV cache in {read.cache_dtype}, {_BESIDE} beside it in {other};"
            " remove one of them"
        )
    note = f"{_BESIDE} has a KV cache in {other}; vLLM reads quantization_config alone"
    return Quantization(None, read.source, note)


def _cache_dtype(source: str, config: Mapping[str, Any]) -> str | None:
    method = _method(source, config)
    if method.startswith(_MODEL_OPT):
        return _of_model_opt(config)
    if method == _LLM_COMPRESSOR:
        return _of_llm_compressor(source, config.get("kv_cache_scheme"))
    return None


def _method(source: str, config: Mapping[str, Any]) -> str:
    inner, producer = config.get("quantization"), config.get("producer")
    inner = inner if isinstance(inner, Mapping) else {}
    name = producer.get("name") if isinstance(producer, Mapping) else None
    algorithm = inner.get("quant_algo")
    if algorithm is not None and (name == _MODEL_OPT or "modelopt_quant_config" in inner):
        if str(algorithm).upper() not in _MODEL_OPT_ALGORITHMS:
            raise ConfigError(
                f"{source}: vLLM refuses it: Unknown ModelOpt quant algo: {algorithm}"
            )
        return _MODEL_OPT
    return str(config.get("quant_method") or "").lower().replace("_", "-")


def _of_model_opt(config: Mapping[str, Any]) -> str | None:
    inner = config.get("quantization")
    parts = [inner, config] if isinstance(inner, Mapping) else [config]
    said = [part.get(field) for field in _MODEL_OPT_FIELDS for part in parts]
    scheme = next((each for each in said if each), None)
    if not isinstance(scheme, Mapping):
        name = str(scheme).lower()
        return name if name in (FP8, NVFP4) else None
    bits, is_float = scheme.get("num_bits"), scheme.get("type") == "float"
    if is_float and bits == 8 and scheme.get("dynamic") is False:
        return FP8
    return NVFP4 if is_float and bits == 4 else None


def _of_llm_compressor(source: str, scheme: Any) -> str | None:  # noqa: ANN401
    if not isinstance(scheme, Mapping):
        return None
    bits, kind = scheme.get("num_bits"), scheme.get("type")
    if (bits, kind) != (8, "float"):
        raise ConfigError(
            f"{source}: vLLM refuses the KV cache: Currently supported kv cache quantization is"
            f" num_bits=8, type=float, however received num_bits={bits}, type={kind}"
        )
    strategy = scheme.get("strategy")
    if strategy not in _STRATEGIES or not scheme.get("symmetric"):
        raise ConfigError(
            f"{source}: vLLM refuses the KV cache: strategy {strategy}, symmetric"
            f" {scheme.get('symmetric')}; it takes symmetric scales of {' or '.join(_STRATEGIES)}"
        )
    return FP8

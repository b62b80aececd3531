"""Reads the precision of the KV cache of a quantized checkpoint, as vLLM does. It is in
``quantization_config`` of ``config.json``, or else in ``hf_quant_config.json`` next to it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kvoxide._core import ConfigError
from kvoxide.lab.model.folder import read_beside
from kvoxide.lab.model.release import RELEASE

FP8: Final = "fp8"
NVFP4: Final = "nvfp4"
_BESIDE: Final = "hf_quant_config.json"
_MODEL_OPT: Final = "modelopt"
_LLM_COMPRESSOR: Final = "compressed-tensors"
# Fields in which ModelOpt stores how a KV cache is quantized. The first one that exists counts.
_MODEL_OPT_FIELDS: Final = ("kv_cache_scheme", "kv_cache_quant_algo")
# The names of weights in ModelOpt's older files whose checkpoints vLLM loads.
_MODEL_OPT_ALGORITHMS: Final = (
    "FP8",
    "FP8_PER_CHANNEL_PER_TOKEN",
    "FP8_PB_WO",
    "NVFP4",
    "MIXED_PRECISION",
)
# Where the fields of the language model are, if it is a part of its own.
_PARTS: Final = ("text_config", "llm_config")
# Types whose class uses the quantization of its language model as its own.
_LIFTING: Final = ("kimi_k3",)
_STRATEGIES: Final = ("tensor", "attn_head")
# Methods that a checkpoint can name and that vLLM loads.
_KNOWN_NAMES: Final = """
    auto-awq auto-gptq auto-round awq awq-marlin compressed-tensors deepseek-v4-fp8
    experts-int8 fp8 gpt-oss-mxfp4 gptq gptq-marlin humming inc modelopt modelopt-fp4
    modelopt-mixed modelopt-mxfp8 moe-wna16 mxfp4 mxfp8 quark torchao
"""
_KNOWN: Final = frozenset(_KNOWN_NAMES.split())
_DEPRECATED: Final = ("fbgemm-fp8", "fp-quant")


@dataclass(frozen=True)
class Quantization:
    """``cache_dtype`` is None if the cache has the model's precision. ``source`` is the file that
    was read. ``note`` says what was found and is not used. ``is_scheme`` marks a scheme of LLM
    Compressor, which the layers apply. ModelOpt's scheme applies to the whole cache. ``method`` is
    how the weights are quantized, empty if that is not known."""

    cache_dtype: str | None
    source: str = ""
    note: str = ""
    is_scheme: bool = False
    method: str = ""

    def without_scheme(self, architecture: str) -> "Quantization":
        """Return the same for a class whose layers apply no scheme."""
        if self.cache_dtype is None or not self.is_scheme:
            return self
        note = (
            f"the checkpoint has a KV cache in {self.cache_dtype}; vLLM does not apply this scheme"
            f" to a {architecture}"
        )
        return Quantization(None, self.source, note)


def read_quantization(config: Path, values: Mapping[str, Any]) -> Quantization:
    """Read the quantization of a checkpoint, whose configuration ``values`` are in the file
    ``config``.

    Raises :class:`~kvoxide.ConfigError` for a cache that vLLM refuses, and for files that
    contradict each other.
    """
    source = str(config)
    text = next((part for name in _PARTS if (part := _object(values, name)) is not None), {})
    beside = read_beside(config, _BESIDE)
    own = _object(values, "quantization_config")
    if own is not None:
        return _checked(_read(source, config.name, own), config, beside)
    if beside is not None:
        return _of_file_beside(config, beside)
    inner = _object(text, "quantization_config")
    if inner is not None:
        is_lifted = values.get("model_type") in _LIFTING
        return _of_text(source, config.name, inner, is_lifted=is_lifted)
    older = _object(values, "compression_config")
    if older is not None:
        return _read(source, config.name, older)
    if _object(text, "compression_config") is not None:
        raise ConfigError(
            f"{source}: text_config has a compression_config, which kvoxide does not know. Rename"
            " it to quantization_config, or install vLLM so that kvoxide can ask it"
        )
    return Quantization(None)


def _object(values: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    found = values.get(name)
    return found if isinstance(found, Mapping) else None


def _of_file_beside(config: Path, beside: Mapping[str, Any]) -> Quantization:
    source = str(config.parent / _BESIDE)
    if not _method(source, beside):
        return Quantization(
            None, note=f"vLLM knows no quantization in {_BESIDE} and ignores the file"
        )
    return _read(source, _BESIDE, beside)


def _of_text(source: str, name: str, inner: Mapping[str, Any], *, is_lifted: bool) -> Quantization:
    found = _read(source, name, inner)
    if found.cache_dtype is None or is_lifted or found.is_scheme:
        return found
    note = (
        f"text_config has a KV cache in {found.cache_dtype}; vLLM reads ModelOpt's scheme only from"
        " the outer quantization_config"
    )
    return Quantization(None, name, note)


def _checked(read: Quantization, config: Path, beside: Mapping[str, Any] | None) -> Quantization:
    """Return the quantization as vLLM reads it: the file next to the configuration does not
    count."""
    other = None if beside is None else _cache_dtype(str(config.parent / _BESIDE), beside)
    if other is None or other == read.cache_dtype:
        return read
    if read.cache_dtype is not None:
        raise ConfigError(
            f"{config} has a KV cache in {read.cache_dtype}, but {_BESIDE} has one in {other};"
            " remove one of them"
        )
    note = f"{_BESIDE} has a KV cache in {other}; vLLM reads only quantization_config"
    return Quantization(None, read.source, note)


def _read(source: str, name: str, config: Mapping[str, Any]) -> Quantization:
    method = _method(source, config)
    cache_dtype = _cache_dtype(source, config)
    return Quantization(cache_dtype, name, is_scheme=method == _LLM_COMPRESSOR, method=method)


def require_known_method(source: str, quantization: Quantization) -> None:
    """Raise :class:`~kvoxide.ConfigError` for weights that vLLM does not load by itself."""
    method = quantization.method
    if method in _DEPRECATED:
        raise ConfigError(
            f"{source}: quant_method is {method!r}. vLLM {RELEASE} refuses it without"
            " --allow-deprecated-quantization. To plan for that, remove quantization_config"
        )
    if method and method not in _KNOWN:
        raise ConfigError(
            f"{source}: quant_method is {method!r}, which vLLM {RELEASE} does not know. To plan for"
            " a server with a plugin for it, remove quantization_config. The KV cache does not"
            " depend on the quantization of weights"
        )


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
            f" {scheme.get('symmetric')}; it accepts symmetric scales of {' or '.join(_STRATEGIES)}"
        )
    return FP8

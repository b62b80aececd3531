"""Precisions, by the names that configurations and servers use, and their bytes per element."""

from typing import Final

from kvoxide._core import ConfigError

AUTO: Final = "auto"

_BYTES: Final = {
    "bfloat16": 2,
    "float16": 2,
    "float32": 4,
    "fp8": 1,
    "fp8_e4m3": 1,
}
# The values of --kv-cache-dtype. vLLM's other precisions have their own layouts.
CACHE_DTYPES: Final = (AUTO, "bfloat16", "float16", "fp8", "fp8_e4m3")
_BFLOAT16: Final = "bfloat16"
_FLOAT16: Final = ("float16", "half")
# Precisions of weights that vLLM stores and does not compute in.
_STORED: Final = ("float", "double", "float32", "float64", "uint8", "int8", "int16", "int32")
# Types for which vLLM does not compute in float16.
_NOT_IN_FLOAT16: Final = ("gemma2", "gemma3", "gemma3_text", "glm4")


def model_dtype(
    source: str, named: str | None, model_type: str, *, is_pooling: bool = False
) -> str:
    """Return the precision that vLLM computes in on a Hopper GPU.

    It is bfloat16 if none is ``named``, or if vLLM does not compute in the precision of the stored
    weights. For embeddings (``is_pooling``) it is then float16. Raises
    :class:`~kvoxide.ConfigError` for an unknown name.
    """
    float16 = _BFLOAT16 if model_type in _NOT_IN_FLOAT16 else _FLOAT16[0]
    if named is None:
        return float16 if is_pooling else _BFLOAT16
    name = named.removeprefix("torch.")
    if name in _FLOAT16:
        return float16
    if name == _BFLOAT16:
        return _BFLOAT16
    if name in _STORED or name.startswith("float8_"):
        return float16 if is_pooling else _BFLOAT16
    raise unknown_dtype(source, name)


def unknown_dtype(source: str, name: str) -> ConfigError:
    """Return the error for a dtype that PyTorch does not have."""
    return ConfigError(
        f"{source}: dtype is {name!r}, which PyTorch does not have. Correct dtype, or torch_dtype,"
        " in the file; it can be bfloat16, for example"
    )


def element_bytes(name: str) -> int:
    """Return the bytes of one element. Raises :class:`~kvoxide.ConfigError` for an unknown name."""
    if name not in _BYTES:
        raise ConfigError(f"precision {name!r} is unknown; it can be {', '.join(_BYTES)}")
    return _BYTES[name]


def is_quantized(cache_dtype: str) -> bool:
    """Return whether a KV cache of this precision is quantized."""
    return cache_dtype.startswith("fp8")

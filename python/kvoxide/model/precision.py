"""Precisions by the names that configurations and servers use, as bytes of one element."""

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
# What --kv-cache-dtype may be; vLLM's other precisions have layouts of their own.
CACHE_DTYPES: Final = (AUTO, "bfloat16", "float16", "fp8", "fp8_e4m3")


def element_bytes(name: str) -> int:
    """The bytes of one element. Raises :class:`~kvoxide.ConfigError` for an unknown name."""
    if name not in _BYTES:
        raise ConfigError(f"precision {name!r} is unknown; known are {', '.join(_BYTES)}")
    return _BYTES[name]


def is_quantized(cache_dtype: str) -> bool:
    """Whether a KV cache of this precision is quantized."""
    return cache_dtype.startswith("fp8")

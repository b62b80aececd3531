"""Kinds of KV cache groups by the engine's names, without vLLM and without the compiled module."""

from typing import Final

NATIVE_KINDS: Final = (
    "full_attention",
    "mla_attention",
    "sliding_window",
    "sliding_window_mla",
    "chunked_local_attention",
)
"""The kinds that kvoxide manages (``kvoxide.GroupKind``); every other kind is vLLM's."""

"""kvoxide inside vLLM. The layers from top to bottom are the doctor, the plugin, the metrics, the
recording, the shadow, the host tier, the adapter and the environment. Each layer uses only layers
that come after it in this list.

Nothing here imports vLLM or torch before it is used. vLLM calls
:func:`kvoxide.vllm.plugin.register`. Its scheduler then gets ``kvoxide.vllm.KVCacheManager``.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "KVCacheManager":
        from kvoxide.vllm.adapter import native_class

        return native_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""kvoxide inside vLLM, in layers: the commands, the doctor, the verification, the plugin, the
recording, the shadow, the host tier, the adapter and the environment, each using only what stands
behind it in this list.

Nothing here imports vLLM or torch before it is used; :func:`kvoxide.vllm.plugin.register` is what
vLLM calls. ``kvoxide.vllm.KVCacheManager`` is the manager that its scheduler then gets.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "KVCacheManager":
        from kvoxide.vllm.adapter import native_class

        return native_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""The managers that are compared, behind the harness's interface.

:mod:`.vllm` is vLLM's own, :mod:`.adapter` the one that takes its place, :mod:`.kvoxide` the
standalone one, :mod:`.planted` and :mod:`.planted_states` are vLLM's with a fault each.
:mod:`.adaptive` are the second and the third with adaptive retention, for want of vLLM's.
:mod:`.common` asks for what all of them are asked alike. They need vLLM.
"""

from .adapter import AdapterDriver
from .adaptive import AdaptiveAdapterDriver, AdaptiveKvoxideDriver
from .kvoxide import KvoxideDriver, make_group
from .planted import FAULTS
from .planted_states import STATE_FAULTS
from .vllm import VllmDriver

__all__ = [
    "FAULTS",
    "STATE_FAULTS",
    "AdapterDriver",
    "AdaptiveAdapterDriver",
    "AdaptiveKvoxideDriver",
    "KvoxideDriver",
    "VllmDriver",
    "make_group",
]

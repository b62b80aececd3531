"""vLLM's own plan of a model's KV cache, asked of the vLLM that is installed.

:func:`ask_vllm` is the door: ``question`` is what is asked, ``cache`` keeps answers, ``process``
answers in a process of its own, in which ``stand_in`` is the GPU and ``building`` lets vLLM build
the model without weights; ``plan`` is an answer in the place of a
:class:`~kvoxide.model.ModelPlan`.
"""

from kvoxide.model.from_vllm.asking import NotAskedError, ask_vllm, is_installed
from kvoxide.model.from_vllm.plan import VllmPlan

__all__ = ["NotAskedError", "VllmPlan", "ask_vllm", "is_installed"]

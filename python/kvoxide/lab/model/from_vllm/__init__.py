"""Asks the installed vLLM for its own plan of a model's KV cache.

Start at :func:`ask_vllm`. ``asking`` puts the question, and ``cache`` stores answers. ``process``
answers in a process of its own. There, ``stand_in`` imitates the GPU, and ``building`` lets vLLM
build the model without weights. ``plan`` turns an answer into a plan that takes the place of a
:class:`~kvoxide.lab.model.ModelPlan`.
"""

from kvoxide.lab.model.from_vllm.asking import NotAskedError, ask_vllm, is_installed
from kvoxide.lab.model.from_vllm.plan import VllmPlan

__all__ = ["NotAskedError", "VllmPlan", "ask_vllm", "is_installed"]

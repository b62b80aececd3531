"""The managers that are compared, behind the harness's interface.

:mod:`~kvoxide.vllm.verify.managers.sides.vllm` is vLLM's own,
:mod:`~kvoxide.vllm.verify.managers.sides.adapter` the one that takes its place.
:mod:`~kvoxide.vllm.verify.managers.sides.common` asks for what they are asked alike. They need
vLLM.
"""

from kvoxide.vllm.verify.managers.sides.adapter import AdapterDriver
from kvoxide.vllm.verify.managers.sides.common import CommonDriver
from kvoxide.vllm.verify.managers.sides.vllm import VllmDriver

__all__ = ["AdapterDriver", "CommonDriver", "VllmDriver"]

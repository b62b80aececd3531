"""The compared managers, each with the harness's interface.

:mod:`~kvoxide.lab.verify.managers.sides.vllm` has vLLM's own manager,
:mod:`~kvoxide.lab.verify.managers.sides.adapter` the one that takes its place.
:mod:`~kvoxide.lab.verify.managers.sides.common` has the calls that are the same for both. They
need vLLM.
"""

from kvoxide.lab.verify.managers.sides.adapter import AdapterDriver
from kvoxide.lab.verify.managers.sides.common import CommonDriver
from kvoxide.lab.verify.managers.sides.vllm import VllmDriver

__all__ = ["AdapterDriver", "CommonDriver", "VllmDriver"]

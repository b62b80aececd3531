"""How kvoxide gets into a vLLM process: what vLLM calls, and what is decided then.

:mod:`~kvoxide.vllm.plugin.entry_point` is vLLM's way in; it waits for vLLM's modules
(:mod:`~kvoxide.vllm.plugin.on_import`) and takes over the manager's construction, which
:mod:`~kvoxide.vllm.plugin.decision` decides and :mod:`~kvoxide.vllm.plugin.announcement` announces,
the host tier's (:mod:`~kvoxide.vllm.plugin.host`) and the hasher of requests
(:mod:`~kvoxide.vllm.plugin.hashing`). It loads without vLLM and without
the compiled module.
"""

from kvoxide.vllm.environment import UnsupportedError
from kvoxide.vllm.plugin.entry_point import foreign_manager_reason, foreign_reason, register

__all__ = ["UnsupportedError", "foreign_manager_reason", "foreign_reason", "register"]

"""How kvoxide gets into a vLLM process: the functions that vLLM calls, and their decisions.

vLLM calls :mod:`~kvoxide.vllm.plugin.entry_point`. It waits for vLLM's modules
(:mod:`~kvoxide.vllm.plugin.on_import`) and then takes over three constructions:

- The manager's: :mod:`~kvoxide.vllm.plugin.decision` decides, and
  :mod:`~kvoxide.vllm.plugin.announcement` announces the result.
- The host tier's (:mod:`~kvoxide.vllm.plugin.host`).
- The request hasher's (:mod:`~kvoxide.vllm.plugin.hashing`).

This package loads without vLLM and without the compiled module.
"""

from kvoxide.vllm.environment import UnsupportedError
from kvoxide.vllm.plugin.entry_point import foreign_manager_reason, foreign_reason, register

__all__ = ["UnsupportedError", "foreign_manager_reason", "foreign_reason", "register"]

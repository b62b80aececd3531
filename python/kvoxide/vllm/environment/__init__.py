"""What the process runs in, for everybody above: nothing here imports vLLM, torch or the compiled
module before it is asked for something that needs it.

:mod:`~kvoxide.vllm.environment.settings` are the variables that kvoxide reads,
:mod:`~kvoxide.vllm.environment.releases` the vLLM releases that it knows, with what it relies on in
each (:mod:`~kvoxide.vllm.environment.surface`), :mod:`~kvoxide.vllm.environment.kinds` the kinds of
groups that it manages, :mod:`~kvoxide.vllm.environment.reasons` what stands in the way here, and
:mod:`~kvoxide.vllm.environment.log` is where it says so.
"""

from kvoxide.vllm.environment import releases, settings
from kvoxide.vllm.environment.kinds import native_kinds
from kvoxide.vllm.environment.log import logger
from kvoxide.vllm.environment.reasons import compiled_module_problem, environment_reasons
from kvoxide.vllm.environment.releases import Release
from kvoxide.vllm.environment.settings import Mode, Settings, SettingsError

__all__ = [
    "Mode",
    "Release",
    "Settings",
    "SettingsError",
    "compiled_module_problem",
    "environment_reasons",
    "logger",
    "native_kinds",
    "releases",
    "settings",
]

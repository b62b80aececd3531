"""What the process runs in, for everybody above: nothing here imports vLLM, torch or the compiled
module before it is asked for something that needs it.

:mod:`~kvoxide.vllm.environment.settings` are the variables that kvoxide reads,
:mod:`~kvoxide.vllm.environment.kinds` the kinds of groups that it manages and
:mod:`~kvoxide.vllm.environment.releases` the vLLM releases that it knows. Whether the installed
vLLM has the code of one of them says :mod:`~kvoxide.vllm.environment.recognition`, from the parts
(:mod:`~kvoxide.vllm.environment.definitions`, :mod:`~kvoxide.vllm.environment.syntax`) of its
:mod:`~kvoxide.vllm.environment.sources` that :mod:`~kvoxide.vllm.environment.tracked_code` names,
and the committed :mod:`~kvoxide.vllm.environment.fingerprints`;
:mod:`~kvoxide.vllm.environment.runtime_patches` says whether that code is what runs, and
:mod:`~kvoxide.vllm.environment.schedulers` whether a scheduler class gets on with it.
Where it has the code of none, :mod:`~kvoxide.vllm.environment.certificates` may say that it was
verified. :mod:`~kvoxide.vllm.environment.reasons` says what stands in the way here,
:mod:`~kvoxide.vllm.environment.log` is where.
"""

from kvoxide.vllm.environment import counters, releases, settings
from kvoxide.vllm.environment.certificates import Certificate, CertificateError
from kvoxide.vllm.environment.kinds import native_kinds
from kvoxide.vllm.environment.log import (
    log_active,
    log_not_active,
    log_recording_off,
    log_shadow_difference,
    log_shadow_on,
    log_switched,
    logger,
)
from kvoxide.vllm.environment.reasons import (
    accepted_certificate,
    compiled_module_problem,
    connector_reasons,
    environment_reasons,
    host_reasons,
    shadow_reasons,
    takeover_reasons,
)
from kvoxide.vllm.environment.recognition import (
    Recognition,
    recognise,
    recognise_connector,
    recognise_host,
)
from kvoxide.vllm.environment.releases import Release
from kvoxide.vllm.environment.settings import Mode, Settings, SettingsError
from kvoxide.vllm.environment.sources import UnreadableSourcesError
from kvoxide.vllm.environment.unsupported import UnsupportedError

__all__ = [
    "Certificate",
    "CertificateError",
    "Mode",
    "Recognition",
    "Release",
    "Settings",
    "SettingsError",
    "UnreadableSourcesError",
    "UnsupportedError",
    "accepted_certificate",
    "compiled_module_problem",
    "connector_reasons",
    "counters",
    "environment_reasons",
    "host_reasons",
    "log_active",
    "log_not_active",
    "log_recording_off",
    "log_shadow_difference",
    "log_shadow_on",
    "log_switched",
    "logger",
    "native_kinds",
    "recognise",
    "recognise_connector",
    "recognise_host",
    "releases",
    "settings",
    "shadow_reasons",
    "takeover_reasons",
]

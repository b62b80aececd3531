"""Reads the environment of the server process: settings, the installed vLLM, and its log.

No module here imports vLLM, torch or the compiled module until a caller needs it. The modules:

- :mod:`~kvoxide.vllm.environment.settings`: the environment variables that kvoxide reads
- :mod:`~kvoxide.vllm.environment.kinds`: the kinds of groups that it manages
- :mod:`~kvoxide.vllm.environment.releases`: the vLLM releases that it knows
- :mod:`~kvoxide.vllm.environment.recognition`: finds the release whose code the installed vLLM has.
  It compares :mod:`~kvoxide.vllm.environment.sources` with the committed
  :mod:`~kvoxide.vllm.environment.fingerprints`. :mod:`~kvoxide.vllm.environment.tracked_code` names
  the parts; :mod:`~kvoxide.vllm.environment.definitions` and
  :mod:`~kvoxide.vllm.environment.syntax` extract them.
- :mod:`~kvoxide.vllm.environment.runtime_patches`: finds code that was replaced in this process
- :mod:`~kvoxide.vllm.environment.schedulers`: finds scheduler classes that kvoxide cannot serve
- :mod:`~kvoxide.vllm.environment.certificates`: results of ``kvoxide verify`` for a vLLM that has
  the code of no known release
- :mod:`~kvoxide.vllm.environment.reasons`: says why kvoxide cannot be active here
- :mod:`~kvoxide.vllm.environment.log`: the log messages of more than one module
- :mod:`~kvoxide.vllm.environment.observed_engine`: finds the engine of a scheduler
"""

from kvoxide.vllm.environment import counters, releases, settings
from kvoxide.vllm.environment.certificates import Certificate, CertificateError
from kvoxide.vllm.environment.fallbacks import FallbackKind, Reason, count_fallback, kind_of
from kvoxide.vllm.environment.host_mode import HostMode, host_mode
from kvoxide.vllm.environment.kinds import native_kinds
from kvoxide.vllm.environment.log import (
    SHADOW_PARTS,
    log_active,
    log_metrics_off,
    log_not_active,
    log_recording_off,
    log_shadow_agreed,
    log_shadow_agreed_until_killed,
    log_shadow_agrees,
    log_shadow_difference,
    log_shadow_on,
    log_switched,
    logger,
)
from kvoxide.vllm.environment.observed_engine import observed_engine
from kvoxide.vllm.environment.reasons import (
    accepted_certificate,
    compiled_module_problem,
    connector_reasons,
    environment_reasons,
    host_reasons,
    primary_tier_reasons,
    shadow_reasons,
    takeover_reasons,
)
from kvoxide.vllm.environment.recognition import (
    Recognition,
    recognise,
    recognise_connector,
    recognise_host,
    recognise_primary_tier,
)
from kvoxide.vllm.environment.releases import Release
from kvoxide.vllm.environment.settings import Mode, Settings, SettingsError
from kvoxide.vllm.environment.sources import UnreadableSourcesError
from kvoxide.vllm.environment.unsupported import UnsupportedError

__all__ = [
    "SHADOW_PARTS",
    "Certificate",
    "CertificateError",
    "FallbackKind",
    "HostMode",
    "Mode",
    "Reason",
    "Recognition",
    "Release",
    "Settings",
    "SettingsError",
    "UnreadableSourcesError",
    "UnsupportedError",
    "accepted_certificate",
    "compiled_module_problem",
    "connector_reasons",
    "count_fallback",
    "counters",
    "environment_reasons",
    "host_mode",
    "host_reasons",
    "kind_of",
    "log_active",
    "log_metrics_off",
    "log_not_active",
    "log_recording_off",
    "log_shadow_agreed",
    "log_shadow_agreed_until_killed",
    "log_shadow_agrees",
    "log_shadow_difference",
    "log_shadow_on",
    "log_switched",
    "logger",
    "native_kinds",
    "observed_engine",
    "primary_tier_reasons",
    "recognise",
    "recognise_connector",
    "recognise_host",
    "recognise_primary_tier",
    "releases",
    "settings",
    "shadow_reasons",
    "takeover_reasons",
]

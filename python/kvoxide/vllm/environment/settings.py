"""Reads the environment variables that configure the adapter.

- ``KVOXIDE``: ``auto`` (default), ``require``, ``off`` or ``shadow``.
- ``KVOXIDE_ACCEPT``: with ``verified``, a vLLM that is not a known release is accepted if a
  certificate of ``kvoxide verify`` is valid for it. Default: only known releases are accepted.
- ``KVOXIDE_HOST``: the same modes for vLLM's host tier. Default: the key ``kvoxide`` of
  the connector's ``kv_connector_extra_config``, else ``shadow`` if ``KVOXIDE`` is ``shadow``, else
  ``auto``. With ``KVOXIDE=off``, the host tier is vLLM's own. With
  ``KVOXIDE=shadow`` it is too, and only ``shadow`` compares it.
- ``KVOXIDE_HOST_POLICY``: ``vllm`` (default), the policy that vLLM is configured with for CPU
  memory; or ``adaptive``, which decides over GPU and CPU memory together.
- ``KVOXIDE_POLICY``: ``adaptive``, or ``adaptive,share=S``, where S is the share of the pool that
  priorities protect, from 0 to 1. If it is unset or ``standard``, the next variables are used.
- ``VLLM_PREFIX_CACHE_RETENTION_INTERVAL``: tokens, 0 or more, or ``auto``. Default: vLLM's own
  configuration.
- ``VLLM_PIN_SWA_TOKENS``: ``1``, ``0`` (default), ``true`` or ``false``.
- ``VLLM_PIN_MIN_DROP_SIZE``: blocks, 1 or more; ``kvoxide.DEFAULT_PIN_MIN_DROP_SIZE`` if unset.
- ``KVOXIDE_RECORD``: the folder for the recording, in every mode. Default: no recording.
- ``KVOXIDE_RECORD_LIMIT``: the most bytes that a recording takes, with a unit such as ``10GiB``;
  0 for no limit.
- ``KVOXIDE_PRIORITY``: the highest ``kvoxide_priority`` that a request may claim, from 50 to 100
  (default). ``off`` ignores the priorities and hints of all requests.
- ``KVOXIDE_CHECK``: the number of calls between two checks of all invariants; 0 (default) for no
  checks.

An empty value counts as unset. Letter case matters only in a folder.
"""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias, TypeVar, get_args

Mode: TypeAlias = Literal["auto", "require", "off", "shadow"]
Retention: TypeAlias = Literal["standard", "adaptive"]
HostPolicy: TypeAlias = Literal["vllm", "adaptive"]

MODES: Final[tuple[Mode, ...]] = ("auto", "require", "off", "shadow")
RETENTIONS: Final[tuple[Retention, ...]] = get_args(Retention)
HOST_POLICIES: Final[tuple[HostPolicy, ...]] = get_args(HostPolicy)
BASELINES: Final = ("session-lru", "t-lru", "s3-fifo", "arc")
"""Simple policies that only a replay has, to compare with."""
AUTO_RETENTION_INTERVAL: Final = 32_768
"""Tokens that a retention interval of ``auto`` stands for (vllm-ascend PR 9684)."""

MODE_VARIABLE: Final = "KVOXIDE"
HOST_VARIABLE: Final = "KVOXIDE_HOST"
HOST_POLICY_VARIABLE: Final = "KVOXIDE_HOST_POLICY"
ACCEPT_VARIABLE: Final = "KVOXIDE_ACCEPT"
CHECK_VARIABLE: Final = "KVOXIDE_CHECK"
PRIORITY_VARIABLE: Final = "KVOXIDE_PRIORITY"
RECORD_VARIABLE: Final = "KVOXIDE_RECORD"
RECORD_LIMIT_VARIABLE: Final = "KVOXIDE_RECORD_LIMIT"
POLICY_VARIABLE: Final = "KVOXIDE_POLICY"
INTERVAL_VARIABLE: Final = "VLLM_PREFIX_CACHE_RETENTION_INTERVAL"
PIN_VARIABLE: Final = "VLLM_PIN_SWA_TOKENS"
PIN_MIN_DROP_VARIABLE: Final = "VLLM_PIN_MIN_DROP_SIZE"
POLICY_VARIABLES: Final = (
    POLICY_VARIABLE,
    INTERVAL_VARIABLE,
    PIN_VARIABLE,
    PIN_MIN_DROP_VARIABLE,
)

_Choice = TypeVar("_Choice", bound=str)

# What the engine counts with has 64 bits.
_MAX_DIGITS: Final = 18
MAX_CHECK_EVERY: Final = 2**63 - 1

DEFAULT_PRIORITY: Final = 50
"""The priority of requests that claim none (``RetentionPriority::DEFAULT_PRIORITY``)."""
MAX_PRIORITY: Final = 100
"""The highest priority (``RetentionPriority::MAX_PRIORITY``)."""

MIN_RECORDING_BYTES: Final = 1 << 20
_BYTES: Final = {
    unit + suffix: base**power
    for power, unit in enumerate(("", "k", "m", "g", "t"))
    for suffix, base in (("b", 1_000), ("ib", 1_024))
}

_SWITCH: Final = {"1": True, "true": True, "0": False, "false": False}


class SettingsError(ValueError):
    """An environment variable has a value that the adapter does not know; says what is allowed.

    ``variable`` is the name of the variable at fault, or of the entry of a connector's
    configuration.
    """

    def __init__(self, variable: str, value: object, allowed: str) -> None:
        """Name the variable, its value and what is allowed."""
        super().__init__(f"{variable}={value!r} is not valid; allowed: {allowed}")
        self.variable = variable


@dataclass(frozen=True)
class Settings:
    """The adapter's settings.

    ``retention_interval`` is in tokens, None to follow vLLM's own configuration;
    ``pin_min_drop_size`` is in blocks, None for no pinned tier; with ``retention`` adaptive,
    neither is set. ``protected_share`` (0 to 1) goes with adaptive, None for its default.
    ``check_every`` is in calls that change the manager, 0 for no check of
    invariants. With ``accepts_verified``, a vLLM that was verified is as good as a known one.
    ``max_priority`` is the highest priority that a request may claim; 0 ignores all claims.
    ``host_policy`` is the policy of CPU memory.
    """

    mode: Mode = "auto"
    retention: Retention = "standard"
    retention_interval: int | None = None
    pin_min_drop_size: int | None = None
    check_every: int = 0
    protected_share: float | None = None
    accepts_verified: bool = False
    host_mode: Mode = "auto"
    max_priority: int = MAX_PRIORITY
    host_policy: HostPolicy = "vllm"

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] | None = None) -> "Settings":
        """Parse ``environ``, the process's own by default.

        Raises :class:`SettingsError` for a value that is not allowed.
        """
        environ = os.environ if environ is None else environ
        retention, protected_share = _parse_retention(environ)
        settings = cls(
            mode=parse_mode(environ),
            host_mode=parse_host_mode(environ),
            accepts_verified=_parse_accept(environ),
            retention=retention,
            protected_share=protected_share,
            retention_interval=_parse_interval(environ),
            pin_min_drop_size=_parse_pinning(environ),
            check_every=_parse_check(environ),
            max_priority=parse_max_priority(environ),
            host_policy=parse_host_policy(environ),
        )
        if settings.retention == "adaptive" and settings.thins_out:
            raise SettingsError(
                POLICY_VARIABLE,
                environ[POLICY_VARIABLE],
                f"adaptive without {INTERVAL_VARIABLE} and {PIN_VARIABLE}, or standard with them",
            )
        return settings

    @property
    def policy(self) -> str:
        """The retention policy, in the form of ``kvoxide replay --policy``. ``vllm`` is the policy
        of vLLM's own configuration."""
        if self.retention == "adaptive":
            share = self.protected_share
            return "adaptive" if share is None else f"adaptive,share={share:g}"
        named = {"interval": self.retention_interval, "pin": self.pin_min_drop_size}
        return ",".join(
            f"{name}={value}" for name, value in named.items() if value is not None
        ) or ("vllm")

    @property
    def changes_policy(self) -> bool:
        """Whether anything but the release's own behaviour is asked for."""
        return self.retention != "standard" or self.thins_out

    @property
    def thins_out(self) -> bool:
        """Whether an interval or the pinned tier is asked for."""
        return self.retention_interval is not None or self.pin_min_drop_size is not None


def current() -> Settings:
    """The settings of a manager that is constructed now.

    Raises :class:`SettingsError` for a value that is not allowed.
    """
    return _override.get() or Settings.from_environ()


def current_mode() -> Mode:
    """The mode that ``KVOXIDE`` chooses; ``auto`` if its value is none of them."""
    try:
        return current().mode
    except (ImportError, SettingsError):
        pass
    try:
        return parse_mode(os.environ)
    except SettingsError:
        return "auto"


@contextmanager
def using(settings: Settings) -> Iterator[None]:
    """Managers constructed inside take ``settings`` instead of the environment's."""
    token = _override.set(settings)
    try:
        yield
    finally:
        _override.reset(token)


def are_overridden() -> bool:
    """Whether this is inside of :func:`using`."""
    return _override.get() is not None


def parse_mode(environ: Mapping[str, str]) -> Mode:
    """The mode alone; :class:`SettingsError` if it is not one of :data:`MODES`."""
    return _choice(environ, MODE_VARIABLE, MODES)


def parse_host_mode(environ: Mapping[str, str]) -> Mode:
    """The mode of the host tier alone; :class:`SettingsError` if it is not one of :data:`MODES`."""
    if _value(environ, HOST_VARIABLE) is None and _value(environ, MODE_VARIABLE) == "shadow":
        return "shadow"
    return _choice(environ, HOST_VARIABLE, MODES)


def parse_host_policy(environ: Mapping[str, str]) -> HostPolicy:
    """The policy of CPU memory alone; :class:`SettingsError` if it is not one of
    :data:`HOST_POLICIES`."""
    return _choice(environ, HOST_POLICY_VARIABLE, HOST_POLICIES)


def parse_max_priority(environ: Mapping[str, str]) -> int:
    """Return the highest priority that requests may claim, 0 to ignore all claims. A lower limit
    than the default would give requests less than if they claimed nothing.

    Raises :class:`SettingsError` for a value that is not allowed.
    """
    value = _value(environ, PRIORITY_VARIABLE) or str(MAX_PRIORITY)
    if value in ("off", "0"):
        return 0
    if not _is_decimal(value) or not DEFAULT_PRIORITY <= int(value) <= MAX_PRIORITY:
        raise SettingsError(
            PRIORITY_VARIABLE,
            environ[PRIORITY_VARIABLE],
            f"off (ignore kvoxide_priority), or the highest priority that a request may claim, "
            f"from {DEFAULT_PRIORITY} to {MAX_PRIORITY}",
        )
    return int(value)


def is_set(environ: Mapping[str, str], variable: str) -> bool:
    """Whether a variable has a value. An empty value counts as unset."""
    return _value(environ, variable) is not None


def recording_folder() -> Path | None:
    """The folder that the traffic of a server is recorded to; None where it is not."""
    value = os.environ.get(RECORD_VARIABLE, "").strip()
    return Path(value) if value else None


def recording_limit() -> int | None:
    """The most bytes of a recording, 0 for no limit; None where the environment says nothing.

    Raises :class:`SettingsError` for a value that is no size.
    """
    value = _value(os.environ, RECORD_LIMIT_VARIABLE)
    if value is None:
        return None
    found = re.fullmatch(r"(\d{1,15}(?:\.\d{1,6})?) *([kmgt]i?b|b)?", value)
    size = 0 if found is None else int(float(found[1]) * _BYTES[found[2] or "b"])
    if found is None or 0 < size < MIN_RECORDING_BYTES:
        raise SettingsError(
            RECORD_LIMIT_VARIABLE,
            os.environ[RECORD_LIMIT_VARIABLE],
            "a size of 1 MiB or more, such as 10GiB, or 0 for no limit",
        )
    return size


def lost_policies() -> str:
    """A remark on retention variables that are set, for where vLLM's own manager decides."""
    names = [name for name in POLICY_VARIABLES if os.environ.get(name)]
    return (
        f" ({', '.join(names)} {'has' if len(names) == 1 else 'have'} no effect)" if names else ""
    )


def _parse_retention(environ: Mapping[str, str]) -> tuple[Retention, float | None]:
    value = _value(environ, POLICY_VARIABLE) or RETENTIONS[0]
    name, has_option, option = (part.strip() for part in value.partition(","))
    for retention in RETENTIONS:
        if retention == name and not has_option:
            return retention, None
    share = _parse_share(option)
    if name != "adaptive" or share is None:
        allowed = f"{', '.join(RETENTIONS)}, or adaptive,share=SHARE with a share from 0 to 1"
        if name in BASELINES:
            allowed += f". {name} is only in kvoxide replay, to compare with"
        raise SettingsError(POLICY_VARIABLE, environ[POLICY_VARIABLE], allowed)
    return "adaptive", share


def _parse_share(option: str) -> float | None:
    """The share of ``share=SHARE``; None for anything else."""
    name, _, value = (part.strip() for part in option.partition("="))
    try:
        share = float(value)
    except ValueError:
        return None
    return share if name == "share" and 0 <= share <= 1 else None


def _parse_accept(environ: Mapping[str, str]) -> bool:
    value = _value(environ, ACCEPT_VARIABLE)
    if value not in (None, "verified"):
        raise SettingsError(ACCEPT_VARIABLE, environ[ACCEPT_VARIABLE], "verified, or unset")
    return value is not None


def _choice(environ: Mapping[str, str], variable: str, allowed: tuple[_Choice, ...]) -> _Choice:
    """One of ``allowed``, the first if the variable is unset."""
    value = _value(environ, variable)
    if value is None:
        return allowed[0]
    for choice in allowed:
        if choice == value:
            return choice
    raise SettingsError(variable, environ[variable], ", ".join(allowed))


def _parse_interval(environ: Mapping[str, str]) -> int | None:
    value = _value(environ, INTERVAL_VARIABLE)
    if value is None:
        return None
    if value == "auto":
        return AUTO_RETENTION_INTERVAL
    if not _is_decimal(value):
        raise SettingsError(
            INTERVAL_VARIABLE,
            environ[INTERVAL_VARIABLE],
            f"unset (vLLM's own configuration), 0, auto ({AUTO_RETENTION_INTERVAL}), or a multiple "
            "of the scheduler's block size in tokens",
        )
    return int(value)


def _parse_pinning(environ: Mapping[str, str]) -> int | None:
    min_drop_size = _parse_min_drop_size(environ)
    value = _value(environ, PIN_VARIABLE) or "0"
    if value not in _SWITCH:
        raise SettingsError(PIN_VARIABLE, environ[PIN_VARIABLE], ", ".join(_SWITCH))
    if not _SWITCH[value]:
        return None
    return _default_min_drop_size() if min_drop_size is None else min_drop_size


def _parse_min_drop_size(environ: Mapping[str, str]) -> int | None:
    value = _value(environ, PIN_MIN_DROP_VARIABLE)
    if value is None:
        return None
    if not _is_decimal(value) or int(value) == 0:
        raise SettingsError(
            PIN_MIN_DROP_VARIABLE, environ[PIN_MIN_DROP_VARIABLE], "a number of blocks, 1 or more"
        )
    return int(value)


def _parse_check(environ: Mapping[str, str]) -> int:
    value = _value(environ, CHECK_VARIABLE) or "0"
    if not _is_decimal(value) or int(value) > MAX_CHECK_EVERY:
        raise SettingsError(
            CHECK_VARIABLE,
            environ[CHECK_VARIABLE],
            "0 (no check), 1 (after every call), or a number n of calls (after every n-th)",
        )
    return int(value)


def _default_min_drop_size() -> int:
    # Only here: the mode must be readable where the compiled module is missing.
    from kvoxide._core import DEFAULT_PIN_MIN_DROP_SIZE

    return DEFAULT_PIN_MIN_DROP_SIZE


def _value(environ: Mapping[str, str], variable: str) -> str | None:
    return environ.get(variable, "").strip().lower() or None


def _is_decimal(value: str) -> bool:
    return value.isascii() and value.isdigit() and len(value) <= _MAX_DIGITS


_override: ContextVar[Settings | None] = ContextVar("kvoxide_settings", default=None)

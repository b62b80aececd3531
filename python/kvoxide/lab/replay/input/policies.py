"""Retention policies as text: ``vllm``, ``fifo``, ``uncached-first,interval=8192``, ``pin=32``."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypedDict

from kvoxide._core import DEFAULT_PIN_MIN_DROP_SIZE, ConfigError, Policy
from kvoxide.vllm.environment.releases import RELEASES, Release
from kvoxide.vllm.environment.settings import BASELINES

if TYPE_CHECKING:
    from kvoxide._core import RecycleOrder, RetentionName

UNLIMITED: Final = "unlimited"
CLAIRVOYANT: Final = "clairvoyant"
VLLM: Final = "vllm"
DEFAULT_POLICY: Final = VLLM
EVERY_TAIL: Final = "uncached-first"
"""vLLM's order of eviction, with the tail of every aligned boundary kept."""

_ALLOWED: Final = (
    "write vllm or vllm=RELEASE, adaptive or adaptive,share=SHARE, or one of"
    f" {', '.join(BASELINES)}. Or join by commas: fifo or"
    " uncached-first, interval=TOKENS or interval=auto, pin or pin=MIN_DROP_BLOCKS"
)


@dataclass(frozen=True)
class NamedPolicy:
    """A policy and the name it has in tables: what the user wrote.

    ``release`` is the vLLM release whose rules are played. None means the recorded server's release
    or, without a recording, the newest one. ``baseline`` is a simple policy that orders evictions
    instead of ``policy``.
    """

    name: str
    policy: Policy
    release: Release | None = None
    baseline: str | None = None


class _Values(TypedDict, total=False):
    retention: "RetentionName"
    recycle_order: "RecycleOrder"
    retention_interval: int | Literal["auto"] | None
    pin_min_drop_size: int
    protected_share: float


def parse_policy(text: str) -> NamedPolicy:
    """Read one policy: tokens joined by commas.

    ``vllm`` is alone, and is what a server of vLLM does by default. All releases that kvoxide
    supports have the same default retention; ``vllm=RELEASE`` also plays the other rules of that
    release. A name in :data:`BASELINES` is alone, too. ``fifo`` or ``uncached-first`` is the
    recycle order, ``interval=N`` (tokens) or ``interval=auto`` the retention interval, ``pin`` or
    ``pin=N`` (blocks) the pinned tier; ``adaptive`` is alone, or with ``share=S``, the protected
    share from 0 to 1. Without an interval, every tail is kept, except with ``vllm``. Other values
    that are left out have :class:`~kvoxide._core.Policy`'s default.
    Raises :class:`~kvoxide._core.ConfigError` that names the token at fault and what is allowed.
    """
    name, has_release, version = text.strip().partition("=")
    if name == VLLM and "," not in text:
        return NamedPolicy(text, Policy(), _release(text, version) if has_release else None)
    if text.strip() in BASELINES:
        return NamedPolicy(text, Policy(), baseline=text.strip())
    values: _Values = {}
    for token in text.split(","):
        value = _parse_token(text, token.strip())
        for key in value.keys() & values.keys():
            raise ConfigError(f"{text!r} says {key} twice; {_ALLOWED}")
        values.update(value)
    try:
        values.setdefault("retention_interval", None)
        return NamedPolicy(text, Policy(**values))
    except (ConfigError, OverflowError) as error:
        raise ConfigError(f"{text!r}: {error}") from error


def check_names_differ(policies: tuple[NamedPolicy, ...]) -> None:
    """Raise :class:`~kvoxide._core.ConfigError` if two policies have the same name."""
    names = [policy.name for policy in policies]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"the policy {name!r} is given twice")


def _parse_token(text: str, token: str) -> _Values:
    name, has_value, value = token.partition("=")
    match name, bool(has_value):
        case ("adaptive", False):
            return {"retention": "adaptive"}
        case ("fifo", False):
            return {"recycle_order": "fifo"}
        case ("uncached-first", False):
            return {"recycle_order": "uncached-first"}
        case ("interval", True):
            return {"retention_interval": "auto" if value == "auto" else _number(token, value)}
        case ("pin", True):
            return {"pin_min_drop_size": _number(token, value)}
        case ("share", True):
            return {"protected_share": _share(token, value)}
        case ("pin", False):
            return {"pin_min_drop_size": DEFAULT_PIN_MIN_DROP_SIZE}
        case (name, _) if name == VLLM:
            raise ConfigError(f"{text!r} joins vllm with others, but vllm is alone; {_ALLOWED}")
        case (name, _) if name in BASELINES:
            raise ConfigError(f"{text!r} joins {name} with others, but {name} is alone; {_ALLOWED}")
        case (name, _) if name == UNLIMITED:
            raise ConfigError(f"the line {UNLIMITED!r} is in every table by itself; {_ALLOWED}")
        case (name, _) if name == CLAIRVOYANT:
            raise ConfigError(f"the line {CLAIRVOYANT!r} comes with --bound; {_ALLOWED}")
    raise ConfigError(f"cannot read {token!r} in the policy {text!r}; {_ALLOWED}")


def _release(text: str, version: str) -> Release:
    release = RELEASES.get(version)
    if release is None:
        raise ConfigError(
            f"{text!r} names the vLLM release {version!r}; kvoxide plays {', '.join(RELEASES)}"
        )
    return release


def _share(token: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise ConfigError(f"{token!r}: {value!r} is not a number; {_ALLOWED}") from None


def _number(token: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise ConfigError(f"{token!r}: {value!r} is not a whole number; {_ALLOWED}") from None

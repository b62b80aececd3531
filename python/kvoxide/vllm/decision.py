"""Whose manager vLLM gets, and the one line that says so."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from kvoxide.vllm import releases, settings
from kvoxide.vllm.settings import Mode, Settings, SettingsError, parse_mode


class UnsupportedError(RuntimeError):
    """``KVOXIDE=require``, and this vLLM or this configuration is beyond what kvoxide supports."""


class _LazyLogger:
    """vLLM's logger, which must not be imported with this module."""

    def __getattr__(self, name: str) -> Any:
        from vllm.logger import init_logger

        # vLLM shows what is logged below its own name.
        return getattr(init_logger("vllm.kvoxide"), name)


logger = _LazyLogger()


def choose(stock: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What ``stock(*args, **kwargs)`` is to construct: kvoxide's manager, the shadow, or its own.

    Raises :class:`UnsupportedError` in mode ``require`` instead of giving vLLM's own, and
    :class:`~kvoxide.vllm.settings.SettingsError` for a retention or pinning value that this model
    cannot have.
    """
    if mode() == "off":
        return object.__new__(stock)
    try:
        return _ours(stock, args, kwargs)
    except SettingsError as error:
        if error.variable != settings.MODE_VARIABLE:
            raise
        refuse([str(error)])
    except UnsupportedError:
        raise
    except _NotOurs as error:
        refuse(error.reasons)
    except Exception as error:
        refuse([f"unexpected {type(error).__name__}: {error}"], cause=error)
    return object.__new__(stock)


def mode() -> Mode:
    """The mode that ``KVOXIDE`` chooses; ``auto`` if its value is none of them."""
    try:
        return settings.current().mode
    except (ImportError, SettingsError):
        pass
    try:
        return parse_mode(os.environ)
    except SettingsError:
        return "auto"


def refuse(
    reasons: Sequence[str], keeps: str = "vLLM's own manager", cause: Exception | None = None
) -> None:
    """Stand aside: an error in mode ``require``, one line otherwise."""
    text = "; ".join(reasons)
    if mode() == "require":
        raise UnsupportedError(
            f"KVOXIDE=require, but kvoxide cannot manage the KV cache: {text}"
        ) from cause
    logger.warning(
        "kvoxide stands aside, %s manages the KV cache: %s%s", keeps, text, lost_policies()
    )


def lost_policies() -> str:
    """A remark on retention variables that are set, for where vLLM's own manager decides."""
    names = [name for name in settings.POLICY_VARIABLES if os.environ.get(name)]
    return (
        f" ({', '.join(names)} {'has' if len(names) == 1 else 'have'} no effect)" if names else ""
    )


class _NotOurs(Exception):
    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__(*reasons)
        self.reasons = reasons


def _ours(stock: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if reasons := environment_reasons():
        raise _NotOurs(reasons)
    wanted = settings.current()
    if wanted.mode == "shadow":
        # vLLM's manager decides, and it has no other policy.
        wanted = Settings("shadow", check_every=wanted.check_every)
    from kvoxide.vllm import manager

    try:
        arguments = manager.bound_arguments(args, kwargs)
    except TypeError:
        return object.__new__(stock)  # not vLLM's arguments: its own constructor says so
    _check_support(arguments, wanted)
    if wanted.mode == "shadow":
        from kvoxide.vllm.shadow import ShadowManager

        return object.__new__(ShadowManager)
    made = _constructed(manager.native_class(), args, kwargs)
    from kvoxide.vllm.announcement import describe

    logger.info("%s", describe(arguments, wanted))
    return made


def environment_reasons() -> list[str]:
    """Why no manager of this environment can be kvoxide's; empty if one can."""
    if problem := compiled_module_problem():
        return [problem]
    release = releases.current()
    if release is None:
        return [
            f"vLLM {releases.installed_version()} is not a release that it was written for "
            f"({', '.join(releases.RELEASES)})"
        ]
    if drift := releases.drift(release):
        return [f"this vLLM {release.version} is not as released: {_shortened(drift)}"]
    return []


def _shortened(drift: Sequence[str]) -> str:
    shown, rest = drift[:2], len(drift) - 2
    return ", ".join(shown) + (f", and {rest} more (kvoxide doctor lists them)" if rest > 0 else "")


def compiled_module_problem() -> str | None:
    """Why ``kvoxide._core`` cannot be used; None if it can."""
    try:
        import kvoxide._core  # noqa: F401
    except ImportError as error:
        return f"the compiled module kvoxide._core cannot be imported ({error}); reinstall kvoxide"
    return None


def _check_support(arguments: Mapping[str, Any], wanted: Settings) -> None:
    from kvoxide.vllm.support import reasons_against

    reasons = reasons_against(arguments, wanted)
    if not reasons:
        return
    if wanted.changes_policy and not reasons_against(arguments, Settings(wanted.mode)):
        variable = _variable_at_fault(arguments, wanted)
        raise SettingsError(variable, os.environ.get(variable, ""), "; ".join(reasons))
    raise _NotOurs(reasons)


def _variable_at_fault(arguments: Mapping[str, Any], wanted: Settings) -> str:
    from kvoxide.vllm.support import reasons_against

    pinning_alone = Settings(wanted.mode, pin_min_drop_size=wanted.pin_min_drop_size)
    if reasons_against(arguments, pinning_alone):
        return settings.PIN_VARIABLE
    return settings.INTERVAL_VARIABLE


def _constructed(native: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An instance of ``native``, constructed here, where what its constructor raises can still
    lead to vLLM's own manager. Python calls ``__init__`` on what ``__new__`` returns once more,
    so the instance has a class without one until then."""

    def done(self: Any, *args: Any, **kwargs: Any) -> None:
        self.__class__ = native

    ready = type(native.__name__, (native,), {"__init__": done})
    made: Any = object.__new__(ready)
    native.__init__(made, *args, **kwargs)  # type: ignore[misc]
    return made

"""Decides which manager vLLM gets, and logs one line about it.

To fall back is to construct vLLM's own class. A manager that is serving does not fall back. It
switches to vLLM's own objects: see :mod:`kvoxide.vllm.adapter.switch`.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any

from kvoxide.vllm.environment import (
    Reason,
    Settings,
    SettingsError,
    UnsupportedError,
    accepted_certificate,
    compiled_module_problem,
    count_fallback,
    kind_of,
    log_active,
    log_not_active,
    settings,
    shadow_reasons,
    takeover_reasons,
)
from kvoxide.vllm.environment.schedulers import scheduler_reasons


def build_manager(stock: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the instance to construct for ``stock(*args, **kwargs)``: kvoxide's manager, the
    shadow, or vLLM's own.

    In mode ``require``, raises :class:`UnsupportedError` instead of returning vLLM's own. Raises
    :class:`~kvoxide.vllm.environment.SettingsError` for a retention or pinning value that this
    model cannot have.
    """
    if settings.current_mode() == "off":
        return object.__new__(stock)
    try:
        return _build_native(stock, args, kwargs)
    except SettingsError as error:
        if error.variable != settings.MODE_VARIABLE:
            raise
        fall_back([Reason(str(error), "settings")])
    except UnsupportedError:
        raise
    except FallBack as error:
        fall_back(error.reasons)
    except Exception as error:
        fall_back([f"unexpected {type(error).__name__}: {error}; please report it"], cause=error)
    return object.__new__(stock)


def fall_back(
    reasons: Sequence[str], keeps: str = "vLLM's own manager", cause: Exception | None = None
) -> None:
    """Leave the KV cache to vLLM: raise in mode ``require``, log one line otherwise."""
    text = "; ".join(reasons)
    if settings.current_mode() == "require":
        raise UnsupportedError(
            f"kvoxide cannot manage the KV cache: {text}. KVOXIDE=require forbids vLLM's own "
            "manager; set KVOXIDE=auto to use it"
        ) from cause
    count_fallback(kind_of(reasons))
    log_not_active("the KV cache", keeps, text + settings.lost_policies())


class FallBack(Exception):
    """Carries the reasons why vLLM's own class is constructed. It has none if vLLM's constructor
    will raise."""

    def __init__(self, reasons: Sequence[str] = ()) -> None:
        """Take the reasons."""
        super().__init__(*reasons)
        self.reasons = list(reasons)


def _build_native(stock: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if problem := compiled_module_problem():
        raise FallBack([problem])
    wanted = settings.current()
    if wanted.mode == "shadow":
        # vLLM's manager decides, and it has no other policy.
        wanted = Settings("shadow", check_every=wanted.check_every)
        reasons = shadow_reasons()
    else:
        reasons = takeover_reasons() or _scheduler_reasons()
    if reasons:
        raise FallBack(reasons)
    from kvoxide.vllm import adapter

    try:
        arguments = adapter.bound_arguments(args, kwargs)
    except TypeError:
        return object.__new__(stock)  # these are not vLLM's arguments; its own constructor says so
    _check_support(arguments, wanted)
    _check_verified(arguments, wanted)
    if wanted.mode == "shadow":
        from kvoxide.vllm.shadow import shadow_class

        return object.__new__(shadow_class())
    made = constructed(adapter.native_class(), args, kwargs)
    from kvoxide.vllm.plugin.announcement import describe

    log_active("the KV cache", describe(arguments, wanted))
    return made


def _scheduler_reasons() -> list[str]:
    """Return the reasons against the scheduler class whose method constructs the manager."""
    constructing = _constructing_class()
    reasons = () if constructing is None else scheduler_reasons(constructing)
    return [Reason(reason, "scheduler") for reason in reasons]


def _constructing_class() -> type | None:
    """Return the class whose method constructs the manager, or None for a function. The class need
    not derive from vLLM's scheduler."""
    constructing = constructing_object()
    return None if constructing is None else type(constructing)


def constructing_object() -> object | None:
    """Return the object whose method called kvoxide, or None for a function."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and _is_ours(frame):
        frame = frame.f_back
    if frame is None or frame.f_code.co_argcount == 0:
        return None
    first = frame.f_code.co_varnames[0]
    found: object | None = frame.f_locals.get(first) if first == "self" else None
    return found


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith("kvoxide.")


def _check_support(arguments: Mapping[str, Any], wanted: Settings) -> None:
    from kvoxide.vllm.adapter import reasons_against

    reasons = reasons_against(arguments, wanted)
    if not reasons:
        return
    if wanted.changes_policy and not reasons_against(arguments, Settings(wanted.mode)):
        variable = _variable_at_fault(arguments, wanted)
        raise SettingsError(variable, os.environ.get(variable, ""), "; ".join(reasons))
    raise FallBack([Reason(reason, "unsupported_model") for reason in reasons])


def _check_verified(arguments: Mapping[str, Any], wanted: Settings) -> None:
    """Raise unless the certificate covers all kinds of groups."""
    certificate = None if wanted.mode == "shadow" else accepted_certificate()
    if certificate is None:
        return
    from kvoxide.vllm.adapter import group_specs

    kinds = {group.kind for group in group_specs(arguments["kv_cache_config"].kv_cache_groups)}
    if uncovered := sorted(kinds - certificate.kinds.keys()):
        covered = ", ".join(certificate.kinds)
        raise FallBack(
            [
                Reason(
                    f"the certificate of `kvoxide verify` covers groups of {covered}, but not of "
                    f"{', '.join(uncovered)}; run `kvoxide verify` with more --seconds",
                    "changed_vllm",
                )
            ]
        )


def _variable_at_fault(arguments: Mapping[str, Any], wanted: Settings) -> str:
    from kvoxide.vllm.adapter import reasons_against

    pinning_alone = Settings(wanted.mode, pin_min_drop_size=wanted.pin_min_drop_size)
    if reasons_against(arguments, pinning_alone):
        return settings.PIN_VARIABLE
    return settings.INTERVAL_VARIABLE


def constructed(native: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Construct an instance of ``native`` here, so that an exception of its constructor can still
    lead to vLLM's own manager. Python calls ``__init__`` again on the result of ``__new__``.
    Therefore the instance has a class without ``__init__`` until then."""

    def done(self: Any, *args: Any, **kwargs: Any) -> None:
        # The manager must not notice this as a change.
        object.__setattr__(self, "__class__", native)

    ready = type(native.__name__, (native,), {"__init__": done})
    made: Any = object.__new__(ready)
    native.__init__(made, *args, **kwargs)  # type: ignore[misc]
    return made

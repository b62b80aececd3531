"""Whose host tier vLLM's offloading connector gets, and the one line that says so.

As for the manager, vLLM's class stays the object that everybody has imported, and its ``__new__``
decides for each construction. Classes that derive from it are left alone.
"""

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, Final

from kvoxide.vllm.environment import (
    SettingsError,
    compiled_module_problem,
    host_reasons,
    logger,
    settings,
)
from kvoxide.vllm.plugin.decision import UnsupportedError, constructed

MODULE: Final = "vllm.v1.kv_offload.cpu.manager"


def take_over(module: ModuleType) -> None:
    """Decide from now on what ``CPUOffloadingManager(...)`` constructs."""
    stock = getattr(module, "CPUOffloadingManager", None)
    if stock is not None and stock.__module__ == MODULE and "__new__" not in vars(stock):
        stock.__new__ = _DISPATCHER


def _dispatch(cls: type, *args: Any, **kwargs: Any) -> Any:
    if vars(cls).get("__new__") is not _DISPATCHER:
        return object.__new__(cls)
    return _choose(cls, args, kwargs)


_DISPATCHER: Final = staticmethod(_dispatch)


def _choose(stock: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What ``stock(*args, **kwargs)`` is to construct. Raises :class:`UnsupportedError` where
    ``KVOXIDE_HOST`` is ``require`` instead of giving vLLM's own."""
    wanted = settings.current()
    if wanted.host_mode == "off" or wanted.mode == "off":
        return object.__new__(stock)
    cause = None
    try:
        if reasons := _reasons(wanted.mode):
            return _stand_aside(stock, reasons)
        from kvoxide.vllm import host

        try:
            arguments = host.bound_arguments(args, kwargs)
        except TypeError:
            return object.__new__(stock)  # not vLLM's arguments: its own constructor says so
        reasons = host.reasons_against(arguments)
        if not reasons:
            made = constructed(host.native_class(), args, kwargs)
            logger.info("%s", _describe(arguments))
            return made
    except (SettingsError, UnsupportedError):
        raise
    except Exception as error:
        reasons, cause = [f"unexpected {type(error).__name__}: {error}"], error
    return _stand_aside(stock, reasons, cause)


def _reasons(mode: str) -> list[str]:
    if problem := compiled_module_problem():
        return [problem]
    if mode == "shadow":
        return ["with KVOXIDE=shadow, vLLM's own classes decide"]
    return host_reasons()


def _stand_aside(stock: type, reasons: Sequence[str], cause: Exception | None = None) -> Any:
    text = "; ".join(reasons)
    if settings.current().host_mode == "require":
        raise UnsupportedError(
            f"{settings.HOST_VARIABLE}=require, but kvoxide cannot manage the host tier: {text}"
        ) from cause
    logger.warning("kvoxide stands aside, vLLM's own manager manages the host tier: %s", text)
    return object.__new__(stock)


def _describe(arguments: Mapping[str, Any]) -> str:
    from kvoxide import __version__

    line = (
        f"kvoxide {__version__} manages the host tier: {arguments['num_chunks']} chunks, "
        f"{arguments['cache_policy']}"
    )
    if arguments["store_threshold"] >= 2:
        line += f", stores what was offered {arguments['store_threshold']} times"
    return line

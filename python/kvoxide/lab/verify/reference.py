"""Checks that kvoxide is compared with the code of the installed vLLM."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

from kvoxide.lab.verify.suite import NotVerifiedError
from kvoxide.vllm.environment.runtime_patches import replacements
from kvoxide.vllm.environment.sources import package_folder


class NotVllmsOwnError(NotVerifiedError):
    """Other code than the installed vLLM's runs in this process. The message says which."""


def require_vllms_code() -> None:
    """Raise :class:`NotVllmsOwnError` unless vLLM's scheduler runs vLLM's own code in this process.
    The code must not be another plugin's or kvoxide's."""
    if found := [*replacements(), *_takeovers()]:
        raise NotVllmsOwnError(
            f"another plugin changed vLLM's code: {'; '.join(found)}; remove it from VLLM_PLUGINS"
        )


def require_vllms_manager(manager: Any) -> None:
    """Raise :class:`NotVllmsOwnError` unless a manager, its coordinator, its pool and the managers
    of its groups are exactly of the classes in vLLM's modules."""
    coordinator, pool = manager.coordinator, manager.block_pool
    parts = (coordinator, pool, pool.free_block_queue, *coordinator.single_type_managers)
    for part in (manager, *parts):
        cls = type(part)
        module = sys.modules.get(cls.__module__)
        if getattr(module, cls.__qualname__, None) is not cls or not _is_vllms_file(module):
            raise NotVllmsOwnError(
                f"{cls.__module__}.{cls.__qualname__} was constructed instead of vLLM's manager"
            )


def _takeovers() -> Iterator[str]:
    """Yield each object that is in a place that plugins take over, and is not the module's own
    function."""
    from vllm.v1.core import kv_cache_manager, kv_cache_utils
    from vllm.v1.core.sched import async_scheduler, scheduler

    new = vars(kv_cache_manager.KVCacheManager).get("__new__")
    if new is not None:
        yield f"KVCacheManager.__new__ is {getattr(new, '__func__', new)!r}"
    if scheduler.KVCacheManager is not kv_cache_manager.KVCacheManager:
        yield f"vLLM's scheduler constructs {scheduler.KVCacheManager!r}"
    hasher = kv_cache_utils.get_request_block_hasher
    if _file_of(hasher) != kv_cache_utils.__file__:
        yield f"kv_cache_utils.get_request_block_hasher is {hasher!r}"
    for module, name in ((scheduler, "Scheduler"), (async_scheduler, "AsyncScheduler")):
        for attribute, value in vars(getattr(module, name)).items():
            if isinstance(value, FunctionType) and _file_of(value) != module.__file__:
                yield f"{name}.{attribute} is {value!r}"


def _file_of(function: Any) -> str | None:
    code = getattr(function, "__code__", None)
    return None if code is None else str(code.co_filename)


def _is_vllms_file(module: Any) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and Path(file).is_relative_to(package_folder())

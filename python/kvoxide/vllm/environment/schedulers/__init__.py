"""Finds uses of the KV cache manager in a scheduler class that kvoxide's manager does not support.

The scheduler's own code runs unchanged, vLLM's too. Nearly all uses of the manager and its objects
are supported. :mod:`~kvoxide.vllm.environment.schedulers.roles` lists the others, and
:mod:`~kvoxide.vllm.environment.schedulers.uses` finds them in a source file.

If the source of a class cannot be read (:mod:`~kvoxide.vllm.environment.schedulers.bytecode`), the
class is accepted only if its code names no object of the manager. A server on vLLM's manager is
better than a server that stops while it serves.
"""

import hashlib
import inspect
import sys
from abc import ABC
from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import Final, Generic, Protocol

from kvoxide.vllm.environment import fingerprints
from kvoxide.vllm.environment.releases import RELEASES
from kvoxide.vllm.environment.schedulers.bytecode import names_in_code
from kvoxide.vllm.environment.schedulers.roles import Role
from kvoxide.vllm.environment.schedulers.uses import unserved_uses
from kvoxide.vllm.environment.tracked_code import SCHEDULERS

_WITHOUT_MANAGER: Final = (ABC, Generic, Protocol, object)


POOL_BINDERS: Final = MappingProxyType[str, Role](
    {"bind_gpu_block_pool": "pool", "bind_kv_cache_manager": "manager"}
)
"""Methods by which vLLM hands living objects to a connector."""


def pool_access(connector: type) -> tuple[list[str], list[str]]:
    """Returns the methods by which a connector class gets the living pool or manager, and a line
    for each change that it makes to them and that kvoxide's manager does not serve."""
    own = [cls for cls in connector.__mro__ if not _is_base_connector(cls)]
    defined = sorted({name for cls in own for name in POOL_BINDERS if name in vars(cls)})
    changes = [
        f"{cls.__module__}.{cls.__qualname__} {use}"
        for cls in own
        for use in _uses(_source_of(cls), cls.__qualname__, POOL_BINDERS) or ()
    ]
    return defined, list(dict.fromkeys(changes))


def _is_base_connector(cls: type) -> bool:
    return cls in _WITHOUT_MANAGER or cls.__module__.endswith("kv_connector.v1.base")


@cache
def scheduler_reasons(scheduler: type) -> tuple[str, ...]:
    """Returns a line for each use of a manager by a scheduler class, or by a class that it
    inherits from, that kvoxide's manager does not serve.
    """
    return tuple(dict.fromkeys(reason for cls in scheduler.__mro__ for reason in _reasons(cls)))


def _reasons(cls: type) -> Iterator[str]:
    source = _source_of(cls)
    if cls in _WITHOUT_MANAGER or _is_known(source):
        return
    name = f"{cls.__module__}.{cls.__qualname__}"
    uses = _uses(source, cls.__qualname__)
    if uses is not None:
        for use in uses:
            yield f"the scheduler class {name} {use}, which kvoxide does not support"
    elif named := names_in_code(cls):
        yield (
            f"the scheduler class {name} has no readable source, and its code uses "
            f"{', '.join(named)}"
        )


def _source_of(cls: type) -> str:
    """Returns the source of a class's module, empty if there is none."""
    module = sys.modules.get(cls.__module__)
    try:
        return "" if module is None else inspect.getsource(module)
    except (OSError, TypeError):
        return ""


def _uses(
    source: str, class_name: str, binders: Mapping[str, Role] = MappingProxyType({})
) -> list[str] | None:
    try:
        return unserved_uses(source, class_name, binders)
    except (SyntaxError, ValueError):
        return None


@cache
def _is_known(source: str) -> bool:
    digest = hashlib.sha256(source.encode()).hexdigest()
    known = (fingerprints.load(version) for version in RELEASES)
    return any(code[path].sha256 == digest for code in known for path in SCHEDULERS if path in code)

"""What a scheduler class does with its KV cache manager that kvoxide's cannot serve as vLLM's does.

A scheduler's code runs as it is, vLLM's own too. Most of what one can do to a manager and what
hangs on it is served; :mod:`~kvoxide.vllm.environment.schedulers.roles` says what is not, and
:mod:`~kvoxide.vllm.environment.schedulers.uses` finds it in a source file. A class whose source
cannot be read (:mod:`~kvoxide.vllm.environment.schedulers.unread`) is taken only if its code does
not name what hangs on a manager: a server that stops in the middle is worse than one on vLLM's
manager.
"""

import hashlib
import inspect
import sys
from collections.abc import Iterator
from functools import cache

from kvoxide.vllm.environment import fingerprints
from kvoxide.vllm.environment.releases import RELEASES
from kvoxide.vllm.environment.relevance import SCHEDULERS
from kvoxide.vllm.environment.schedulers.unread import names_in_code
from kvoxide.vllm.environment.schedulers.uses import unserved_uses

_WITHOUT_MANAGER = ("abc", "builtins", "typing")


@cache
def scheduler_reasons(scheduler: type) -> tuple[str, ...]:
    """Returns a line for each use of a manager by a scheduler class, or by a class that it
    inherits from, that kvoxide's manager does not serve.
    """
    return tuple(dict.fromkeys(reason for cls in scheduler.__mro__ for reason in _reasons(cls)))


def _reasons(cls: type) -> Iterator[str]:
    if cls.__module__ in _WITHOUT_MANAGER:
        return
    module = sys.modules.get(cls.__module__)
    try:
        source = "" if module is None else inspect.getsource(module)
    except (OSError, TypeError):
        source = ""
    whose = f"{cls.__module__}.{cls.__qualname__}"
    if source:
        if not _is_known(source):
            try:
                uses = unserved_uses(source, cls.__qualname__)
            except (SyntaxError, ValueError) as error:
                uses = [f"has a source that cannot be parsed here: {error}"]
            yield from (
                f"the scheduler class {whose} {use}, which kvoxide's manager does not serve"
                for use in uses
            )
    elif named := names_in_code(cls):
        yield (
            f"the scheduler class {whose} has no source that can be read, and its code "
            f"names {', '.join(named)}"
        )


@cache
def _is_known(source: str) -> bool:
    digest = hashlib.sha256(source.encode()).hexdigest()
    known = (fingerprints.load(version) for version in RELEASES)
    return any(code[path].sha256 == digest for code in known for path in SCHEDULERS if path in code)

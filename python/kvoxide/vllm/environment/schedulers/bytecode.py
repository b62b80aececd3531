"""Find the names that the compiled code of a class uses. It is for classes without sources."""

from collections.abc import Iterator
from types import CodeType

from kvoxide.vllm.environment.schedulers.roles import INSIDE


def names_in_code(cls: type) -> list[str]:
    """Returns the names in a class's code by which it reaches what hangs on a KV cache manager;
    for machine code, which tells nothing, the methods themselves."""
    found: set[str] = set()
    for name, value in vars(cls).items():
        function = getattr(value, "__func__", getattr(value, "fget", value))
        if not callable(function) or isinstance(function, type):
            continue
        code = getattr(function, "__code__", None)
        if isinstance(code, CodeType):
            found |= INSIDE.intersection(_names(code))
        elif type(function).__module__ != "builtins":
            found.add(f"{name} (machine code)")
    return sorted(found)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, CodeType):
            yield from _names(constant)

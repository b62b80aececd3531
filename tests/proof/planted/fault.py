"""An error in vLLM's code, and the way to plant it."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

Around = Callable[..., Any]


class Plant:
    """Replaces functions of vLLM's, until the end of a fault."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def put(self, owner: Any, name: str, value: Any) -> None:
        self._stack.enter_context(mock.patch.object(owner, name, value, create=True))

    def around(self, owner: Any, name: str, function: Around) -> None:
        """Replace a function. ``function`` gets the original, and then the arguments of the
        call."""
        found = inspect.getattr_static(owner, name)
        original = getattr(found, "__func__", found)

        def changed(*args: Any, **kwargs: Any) -> Any:
            return function(original, *args, **kwargs)

        is_classmethod = isinstance(found, classmethod)
        self.put(owner, name, classmethod(changed) if is_classmethod else changed)

    def after_init(self, owner: Any, change: Callable[[Any], None]) -> None:
        def init(original: Around, self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            change(self)

        self.around(owner, "__init__", init)


@dataclass(frozen=True)
class Fault:
    """A fault. ``area`` is the part of vLLM that it is in."""

    name: str
    area: str
    plant: Callable[[Plant], None]

    @contextmanager
    def planted(self) -> Iterator[None]:
        with ExitStack() as stack:
            self.plant(Plant(stack))
            yield


class Faults:
    """Collects the faults of one area."""

    def __init__(self, area: str) -> None:
        self.area = area
        self.all: list[Fault] = []

    def __call__(self, plant: Callable[[Plant], None]) -> Callable[[Plant], None]:
        self.all.append(Fault(plant.__name__, self.area, plant))
        return plant

    def lose(self, owner: Any, method: str, name: str, result: Any = None) -> None:
        """Add a fault with a method that does nothing."""
        fault = Fault(name, self.area, lambda plant: plant.put(owner, method, _doing(result)))
        self.all.append(fault)


def _doing(result: Any) -> Around:
    return lambda *_, **__: result

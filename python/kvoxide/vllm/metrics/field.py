"""The field of vLLM's statistics that holds kvoxide's values.

vLLM's scheduler sends a ``SchedulerStats`` with msgpack, which reads and writes the declared fields
of the class. A process without this field ignores the value.
"""

import dataclasses
from types import ModuleType
from typing import Any, Final

NAME: Final = "kvoxide"


def add_field(stats: ModuleType) -> None:
    """Declare the field in vLLM's module. It is no argument of the constructor, so all of vLLM's
    calls of the class remain the same."""
    cls = getattr(stats, "SchedulerStats", None)
    if cls is None or not dataclasses.is_dataclass(cls) or NAME in cls.__dataclass_fields__:
        return
    declared: Any = dataclasses.field(default=None, init=False, repr=False, compare=False)
    declared.name = NAME
    declared.type = Any
    # dataclasses marks fields when it creates a class, and has no function to add one later.
    other: Any = next(iter(cls.__dataclass_fields__.values()))
    declared._field_type = other._field_type
    cls.__annotations__[NAME] = Any
    cls.__dataclass_fields__[NAME] = declared
    setattr(cls, NAME, None)

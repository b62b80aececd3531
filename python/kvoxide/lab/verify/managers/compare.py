"""Decides when two sides' results are the same."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from kvoxide.lab.verify.managers.driver import Driver, Event, Events
from kvoxide.lab.verify.suite import require_fit

T = TypeVar("T")

INTERNAL_CHECKS = ("AssertionError", "IndexError", "KeyError", "RuntimeError")
BREAKDOWNS = ("PanicException", "InternalError", "PoisonedError")


@dataclass(frozen=True)
class Raised:
    """An exception: its own class, its built-in base classes, and its message."""

    own_class: str
    classes: tuple[str, ...]
    message: str


class Difference(Exception):
    """The two sides disagree on ``aspect`` of ``call``."""

    def __init__(self, call: str, aspect: str, reference: object, other: object) -> None:
        super().__init__(f"{call}: {aspect} differs")
        self.call = call
        self.aspect = aspect
        self.reference = reference
        self.other = other


def outcomes_of(
    action: Callable[[Driver], T], sides: tuple[Driver, Driver]
) -> tuple[T | Raised, T | Raised]:
    """Return the results of an action on both sides. Raises HarnessError if vLLM has no such
    call."""
    reference, other = sides
    return outcome_of(action, reference, is_reference=True), outcome_of(action, other)


def outcome_of(
    action: Callable[[Driver], T], side: Driver, *, is_reference: bool = False
) -> T | Raised:
    """Return the result of an action, or its exception. This includes BaseException, because a
    panic in Rust is one."""
    try:
        return action(side)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        if is_reference:
            require_fit(error)
        own_class = type(error).__name__
        return Raised(own_class, _builtin_classes(type(error)), f"{own_class}: {error}")


def _builtin_classes(error_class: type[BaseException]) -> tuple[str, ...]:
    shared_by_all = (object, BaseException, Exception)
    return tuple(
        cls.__name__
        for cls in error_class.__mro__
        if cls.__module__ == "builtins" and cls not in shared_by_all
    )


def require_same(call: str, reference: object, other: object, *, own_classes: bool = False) -> None:
    """Raise Difference unless both results are the same. With ``own_classes``, exceptions must be
    of the same class; otherwise one common base class is enough."""
    if isinstance(reference, Raised) and isinstance(other, Raised):
        is_same = _same_own_class if own_classes else _same_class
        if not is_same(reference, other):
            raise Difference(call, "exception class", reference, other)
    elif isinstance(reference, Events) and isinstance(other, Events):
        _require_same_events(call, reference, other)
    elif reference != other:
        raise Difference(call, _first_unequal_field(reference, other), reference, other)


def _same_own_class(reference: Raised, other: Raised) -> bool:
    return reference.own_class == other.own_class


def _same_class(reference: Raised, other: Raised) -> bool:
    """Return whether both are of the same class. vLLM's internal checks are not a contract, and
    kvoxide raises its own classes for them."""
    if other.message.startswith(BREAKDOWNS):
        return False
    if reference.classes and reference.classes[0] in INTERNAL_CHECKS:
        return True
    return bool(set(reference.classes) & set(other.classes))


def _require_same_events(call: str, reference: Events, other: Events) -> None:
    ordered = _in_some_order(reference.events, reference.unordered)
    other_ordered = _in_some_order(other.events, reference.unordered)
    if ordered != other_ordered:
        raise Difference(call, "events", ordered, other_ordered)


def _in_some_order(events: list[Event], unordered: list[tuple[int, int]]) -> list[Event]:
    ordered = list(events)
    for start, end in unordered:
        ordered[start:end] = sorted(ordered[start:end], key=repr)
    return ordered


def _first_unequal_field(reference: object, other: object) -> str:
    if not dataclasses.is_dataclass(reference) or type(reference) is not type(other):
        return "result"
    for field in dataclasses.fields(reference):
        if getattr(reference, field.name) != getattr(other, field.name):
            return field.name
    return "result"

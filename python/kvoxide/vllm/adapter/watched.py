"""Objects of kvoxide's manager that notice when other code changes them.

vLLM's code reads its methods and fields at each call, the engine does not. A change that the engine
would not see is reported to the object's :class:`Watcher` before it is made.
"""

import dis
import functools
from abc import ABCMeta
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FunctionType
from typing import Any, ClassVar, Final, Protocol
from weakref import WeakSet

from kvoxide._core import BusyError

BUSY: Final = (
    "another call of the manager is running; call it from one thread at a time, and not from its "
    "callbacks"
)


class Watcher(Protocol):
    """Decides what happens before an object is changed."""

    def before_change(self, what: str) -> None:
        """Prepare for ``what``, or raise an error that refuses it."""


PYTHONS: Final = ("__", "_abc_")
"""How names begin that Python itself sets on classes."""

WATCHERS: Final[WeakSet[Any]] = WeakSet()
"""The watchers of all living managers."""


class WatchedMeta(ABCMeta):
    """The type of classes that replace a class of vLLM's.

    A method that is set on such a class or deleted from it is set on vLLM's class or deleted from
    it, and reported to all watchers.
    """

    def __setattr__(cls, name: str, value: Any) -> None:
        stock = cls._reporting(name, "set on")
        if stock is None:
            super().__setattr__(name, value)
        else:
            setattr(stock, name, getattr(value, "_in_vllm", value))

    def __delattr__(cls, name: str) -> None:
        stock = cls._reporting(name, "deleted from")
        if stock is None:
            super().__delattr__(name)
        else:
            delattr(stock, name)

    def _reporting(cls, name: str, how: str) -> Any:
        """Report a change. Returns vLLM's class if the change is to be made there."""
        stock = vars(cls).get("_stock")
        served = getattr(cls, "_settable_on_class", ())
        if stock is None or name in served or name not in stock_names(stock):
            return None
        for watcher in list(WATCHERS):
            watcher.before_change(f"{stock.__name__}.{name} is {how} the class")
        return stock


class Watched:
    """An object whose vLLM attributes are watched once :func:`watch` was called."""

    __slots__ = ()

    _stock: ClassVar[type]
    """vLLM's class."""
    _name_in_messages: str
    """How messages name the object."""
    _settable: ClassVar[frozenset[str]] = frozenset()
    """Attributes of vLLM's that take effect when they are set on the object."""

    def __setattr__(self, name: str, value: Any) -> None:
        self._before_change(name, "set")
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        self._before_change(name, "deleted")
        object.__delattr__(self, name)

    def _before_change(self, name: str, how: str) -> None:
        watcher: Watcher | None = vars(self).get("_watcher")
        if watcher is None or name in self._settable:
            return
        if name != "__class__" and name not in stock_names(self._stock):
            return
        # A property of vLLM's refuses the change itself; one of kvoxide's passes it on.
        if not isinstance(getattr(type(self), name, None), property):
            watcher.before_change(f"{self._name_in_messages}.{name} is {how}")


def fields_of(thing: object) -> dict[str, Any]:
    """The attributes of ``thing``, to be changed without a report."""
    return vars(thing)


def watch(thing: Watched, watcher: Watcher) -> None:
    """Report changes of ``thing`` to ``watcher`` from now on."""
    fields_of(thing)["_watcher"] = watcher


@functools.cache
def stock_names(stock: type) -> frozenset[str]:
    """The attributes of vLLM's class: its methods, and the fields that its code sets."""
    classes = [cls for cls in stock.__mro__ if cls.__module__.startswith("vllm.")]
    names = {name for cls in classes for name in vars(cls) if not name.startswith(PYTHONS)}
    for cls in classes:
        for function in map(_function_of, vars(cls).values()):
            if function is not None:
                names.update(_stored_names(function.__code__))
    return frozenset(names)


def _function_of(value: Any) -> FunctionType | None:
    function = getattr(value, "__func__", getattr(value, "fget", value))
    return function if isinstance(function, FunctionType) else None


def _stored_names(code: CodeType) -> Iterator[str]:
    return (i.argval for i in dis.get_instructions(code) if i.opname == "STORE_ATTR")


def preferring(stock: Any, *parts: type) -> Any:
    """A class of ``stock`` and ``parts`` in which the methods of ``parts`` come first.

    ``stock`` is the first base: only then can an instance become one of ``stock``.
    """
    return type(stock)(stock.__name__, (stock, *parts), _methods_of(*parts))


def replacing_class(native: type, stock: Any, in_vllm: Iterable[str] = ()) -> Any:
    """Return a class that inherits from ``native`` and ``stock``, under the name of ``stock``.

    Once vLLM's own object has replaced an instance, its methods call the methods of ``stock``. This
    also holds for methods that other code took before. Calling a method of ``in_vllm`` lets vLLM's
    own object replace the instance.
    """
    attributes = _methods_of(native)
    for name, value in attributes.items():
        if isinstance(value, FunctionType) and name[:2] != "__" and hasattr(stock, name):
            attributes[name] = _forwarded(value, getattr(stock, name), native)
    for name in in_vllm:
        if hasattr(stock, name):
            attributes[name] = _called_in_vllm(name, getattr(stock, name), native)
    attributes["__module__"] = stock.__module__
    attributes["__qualname__"] = stock.__qualname__
    attributes["_stock"] = stock
    bases = (native,) if issubclass(native, stock) else (stock, native)
    return WatchedMeta(stock.__name__, bases, attributes)


def _methods_of(*classes: type) -> dict[str, Any]:
    """Return the attributes that kvoxide's classes define. The first class that has one wins."""
    own = [c for cls in classes for c in cls.__mro__ if c.__module__.startswith("kvoxide.")]
    return {
        name: value
        for cls in reversed(own)
        for name, value in vars(cls).items()
        if name not in _OF_EACH_CLASS
    }


_OF_EACH_CLASS: Final = frozenset(
    {"__annotations__", "__dict__", "__doc__", "__module__", "__qualname__", "__slots__"}
    | {"__static_attributes__", "__firstlineno__", "__weakref__", "__annotate_func__"}
)


def _forwarded(
    own: Callable[..., Any], stocks: Callable[..., Any], native: type
) -> Callable[..., Any]:
    @functools.wraps(own)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return (own if isinstance(self, native) else stocks)(self, *args, **kwargs)

    # Code that sets a method on the class and later sets the one before again restores vLLM's.
    method._in_vllm = stocks  # type: ignore[attr-defined]
    return method


def _called_in_vllm(name: str, stocks: Callable[..., Any], native: type) -> Callable[..., Any]:
    @functools.wraps(stocks)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(self, native):
            let_vllm_continue(self, f"{name}() is called")
        return stocks(self, *args, **kwargs)

    return method


def let_vllm_continue(thing: Any, what: str) -> None:
    """Let vLLM's own object replace ``thing`` because of ``what``. Raises
    :class:`~kvoxide.BusyError` while observers are notified of a call."""
    native = type(thing)
    fields_of(thing)["_watcher"].before_change(f"{thing._name_in_messages}.{what}")
    if type(thing) is native:
        raise BusyError(BUSY)

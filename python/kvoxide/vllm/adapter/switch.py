"""Switches a manager that is serving to vLLM's own objects, in the same state and under the same
identity. It does so when other code changes something that the engine does not read.

For example, other code wraps a method of the pool, the queue, the coordinator or a group. vLLM's
objects then call the wrapper for each block, with the block's state at that moment. The wrapper may
do something else.

A server that does not start with kvoxide's manager falls back instead: see
:mod:`kvoxide.vllm.plugin.decision`.
"""

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import repeat
from typing import Any, Final

from vllm.v1.core.kv_cache_manager import KVCacheManager as StockManager
from vllm.v1.core.kv_cache_utils import KVCacheBlock

from kvoxide.vllm.adapter.replaced import ReplacedEngine
from kvoxide.vllm.adapter.state import State
from kvoxide.vllm.adapter.watched import PYTHONS, WATCHERS, watch
from kvoxide.vllm.environment import UnsupportedError, count_fallback, log_switched, settings

_KEPT: Final = ("empty_kv_cache_blocks", "kv_event_queue", "_reuse_watchers")
"""Fields that have the same object afterwards."""


class Switch:
    """Replaces the objects of one manager with vLLM's own before a change that needs them."""

    def __init__(self, manager: Any, arguments: Mapping[str, Any]) -> None:
        """Watch ``manager``, which was constructed with these arguments of vLLM's."""
        self._manager = manager
        self._arguments = {name: value for name, value in arguments.items() if name != "self"}
        self._pending_change: str | None = None
        self._objects = _objects_of(manager)
        self._names = [frozenset(vars(thing)) for thing in self._objects]
        stock = {cls for thing in self._objects for cls in type(thing)._stock.__mro__}
        stock.add(KVCacheBlock)
        self._classes = {cls: dict(vars(cls)) for cls in stock if cls.__module__[:5] == "vllm."}
        for thing in self._objects:
            watch(thing, self)
        WATCHERS.add(self)

    def before_change(self, what: str) -> None:
        """Let vLLM's own objects continue because of ``what``, at the latest when observers know
        what the running call did.

        Raises :class:`~kvoxide.vllm.environment.UnsupportedError` in mode ``require``.
        """
        if settings.current_mode() == "require":
            raise UnsupportedError(
                f"kvoxide does not support this use by other code: {what}. KVOXIDE=require forbids "
                "vLLM's own manager; set KVOXIDE=auto to switch to it, or KVOXIDE=off"
            )
        if self._manager.block_pool.is_notifying:
            self._pending_change = what
        else:
            self._replace(what)

    def replace_if_pending(self) -> None:
        """Make the change that had to wait for observers."""
        if self._pending_change is not None:
            self._replace(self._pending_change)

    def check_classes(self) -> None:
        """Look whether other code changed vLLM's classes since the last look."""
        for cls, before in self._classes.items():
            if vars(cls) == before:
                continue
            now = self._classes[cls] = dict(vars(cls))
            names = sorted(name for name in {*before, *now} if not name.startswith(PYTHONS))
            changed = [name for name in names if before.get(name) is not now.get(name)]
            if changed:
                self.before_change(f"{cls.__name__}.{changed[0]} is set on the class")
                return

    def _replace(self, what: str) -> None:
        manager = self._manager
        manager.block_pool.notify_observers()
        closer = manager.block_pool._closer
        with _garbage_kept():
            state = State(manager.engine, len(manager.coordinator.single_type_managers))
            fresh: Any = object.__new__(StockManager)
            fresh.__init__(**self._arguments)
            manager.release_calls()
            state.fill(fresh, manager)
            self._replace_instances(fresh)
        vars(manager).update(
            engine=ReplacedEngine(manager),
            _closer=closer,
            _class_checks=repeat(False),
            # Methods that other code took ask the engine's successor, also where there are none.
            _has_states=True,
        )
        WATCHERS.discard(self)
        count_fallback("poked")
        log_switched("the KV cache", what, settings.MODE_VARIABLE, settings.lost_policies())

    def _replace_instances(self, fresh: Any) -> None:
        """Give each object vLLM's class and the fields of its counterpart in ``fresh``."""
        counterparts = _objects_of(fresh)
        own = {id(new): old for old, new in zip(self._objects, counterparts, strict=True)}
        for thing, new, names in zip(self._objects, counterparts, self._names, strict=True):
            fields = {name: _counterpart(value, own) for name, value in vars(new).items()}
            kept = {
                name: value
                for name, value in vars(thing).items()
                if name in _KEPT
                or name in thing._settable
                or (name not in names and name not in fields and name != "_watcher")
                # Methods that other code took from the manager use these.
                or (thing is self._manager and name in names and name not in fields)
            }
            vars(thing).clear()
            object.__setattr__(thing, "__class__", type(new))
            vars(thing).update(fields | kept)


@contextmanager
def _garbage_kept() -> Iterator[None]:
    """Collect no garbage: while an object is made for each block, that takes two thirds of the
    time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _objects_of(manager: Any) -> list[Any]:
    pool, coordinator = manager.block_pool, manager.coordinator
    index = pool.cached_block_hash_to_block
    groups = coordinator.single_type_managers
    return [manager, coordinator, pool, pool.free_block_queue, index, *groups]


def _counterpart(value: Any, own: Mapping[int, Any]) -> Any:
    """The object that takes the place of ``value``, also in a tuple."""
    if isinstance(value, tuple) and any(id(part) in own for part in value):
        return tuple(own.get(id(part), part) for part in value)
    return own.get(id(value), value)

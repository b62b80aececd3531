"""Makes one call on vLLM's manager and then on kvoxide's, and returns the first difference."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kvoxide._core import InternalError
from kvoxide.vllm.shadow.description import (
    Json,
    describe,
    events_digest,
    exception_name,
    outcome_digest,
)
from kvoxide.vllm.shadow.recorder import Recorder

# These change nothing. They are compared, but a replay does not need them.
QUERIES: Final = {
    "estimate_cached_tokens",
    "find_longest_cache_hit",
    "find_longest_cache_hit_per_group",
    "get_block_ids",
    "get_block_ids_for_computed_tokens",
    "get_blocks",
    "get_cached_block",
    "get_num_blocks_to_allocate",
    "get_num_cacheable_tokens",
    "is_block_writable",
    "truncate_computed_blocks",
}
FORGETTING: Final = {"free", "pop_blocks_for_free"}


@dataclass
class Pair:
    """vLLM's manager and kvoxide's."""

    stock: Any
    native: Any
    _num_events_compared: int = 0

    def new_events(self) -> tuple[Json, Json]:
        """Take the events of the last call from both: vLLM's and kvoxide's."""
        if not self.stock.enable_kv_cache_events:
            return [], []
        self.native.block_pool.notify_observers()
        queues = (self.stock.block_pool.kv_event_queue, self.native.block_pool.kv_event_queue)
        first = min(self._num_events_compared, *map(len, queues))
        self._num_events_compared = len(queues[0])
        return tuple([describe(event) for event in queue[first:]] for queue in queues)  # type: ignore[return-value]


class Step:
    """One call, on vLLM's manager and then on kvoxide's."""

    def __init__(
        self,
        pair: Pair,
        recorder: Recorder,
        role: str,
        name: str,
        method: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> None:
        """Prepare a call of ``method``, which is called ``name`` on the manager's ``role``."""
        self._pair = pair
        self._recorder = recorder
        self._role = role
        self._name = name
        self._method = method
        self._reused: tuple[list[int], list[int]] = ([], [])
        self._args = [self._usable_twice(value) for value in args]
        self._kwargs = {key: self._usable_twice(value) for key, value in kwargs.items()}
        self._outcome: Json = None

    def _usable_twice(self, value: Any) -> Any:
        """Return the argument in a form for two calls: an iterator as a list, a callback with a
        watcher."""
        if isinstance(value, Iterator):
            return list(value)
        if inspect.isroutine(value):
            return self._noting_reuse(value)
        return value

    def _noting_reuse(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        def on_reuse(block: Any) -> Any:
            self._reused[0].append(block.block_id)
            return callback(block)

        return on_reuse

    def run_stock(self) -> Any:
        """Make the call on vLLM's manager, with its result or its exception."""
        try:
            result = self._method(*self._args, **self._kwargs)
        except Exception as error:
            self._outcome = {"raises": exception_name(error)}
            raise
        self._outcome = {"result": self._described(result)}
        return result

    def compare(self) -> Json:
        """Return the first difference of kvoxide's call, or None."""
        call = self._call()
        stock, native = dict(self._outcome), self._run_native()
        stock["free_blocks"] = self._pair.stock.block_pool.get_num_free_blocks()
        native["free_blocks"] = self._pair.native.block_pool.get_num_free_blocks()
        stock["usage"], native["usage"] = self._pair.stock.usage, self._pair.native.usage
        stock["events"], native["events"] = self._pair.new_events()
        stock["reused"], native["reused"] = self._reused
        differing = [key for key in stock if stock[key] != native.get(key)]
        if differing or self._name not in QUERIES:
            digests = {"outcome": outcome_digest(stock), "events": events_digest(stock)}
            self._recorder.add({**call, **digests})
        if not differing:
            return None
        what = differing[0]
        return {
            "what": what.replace("_", " "),
            "vllm": stock[what],
            "kvoxide": native.get(what, native.get("raises", native.get("result"))),
            "call": call,
        }

    def _call(self) -> Json:
        recorder = self._recorder
        bound = inspect.signature(self._method).bind(*self._args, **self._kwargs)
        request = bound.arguments.get("request")
        request_id = bound.arguments.get("request_id", getattr(request, "request_id", ""))
        arguments = {key: self._described(value) for key, value in bound.arguments.items()}
        if "request_id" in arguments:
            arguments["request_id"] = {"request_id": recorder.name_of(request_id)}
        call = {"call": f"{self._role}.{self._name}", "arguments": arguments}
        if request is not None:
            call["state"] = recorder.state_of(request)
        if self._name in FORGETTING:
            recorder.forget(request_id)
        return call

    def _run_native(self) -> Json:
        native = self._pair.native
        target = native if self._role == "manager" else getattr(native, self._role)
        try:
            args = [self._for_native(value) for value in self._args]
            kwargs = {key: self._for_native(value) for key, value in self._kwargs.items()}
            result = getattr(target, self._name)(*args, **kwargs)
        except Exception as error:
            is_broken = isinstance(error, InternalError)
            if self._outcome == {"raises": exception_name(error)} and not is_broken:
                return dict(self._outcome)
            return {"raises": raised(error)}
        return {"result": self._described(result)}

    def _for_native(self, value: Any) -> Any:
        native = self._pair.native
        if hasattr(value, "get_block_ids"):
            return native.create_kv_cache_blocks(tuple(map(self._for_native, value.blocks)))
        if hasattr(value, "block_id"):
            return native.block_pool.blocks[value.block_id]
        if isinstance(value, list | tuple) and value and not isinstance(value[0], bytes | int):
            return type(value)(self._for_native(v) for v in value if self._is_shadowed(v))
        if inspect.isroutine(value):
            return lambda block: self._reused[1].append(block.block_id)
        return value

    def _is_shadowed(self, value: Any) -> bool:
        """Return whether this is not a block of another pool. Deferred frees may hold some."""
        own = self._pair.stock.block_pool
        pool = getattr(value, "pool", None)
        return pool is None or pool is own

    def _described(self, value: Any) -> Json:
        return describe(value, self._recorder.name_of)


def raised(error: BaseException) -> str:
    """Return the name under which an exception of kvoxide is reported."""
    return f"raised {type(error).__name__}: {error}"

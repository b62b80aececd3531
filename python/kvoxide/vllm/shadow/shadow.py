"""``KVOXIDE=shadow``: vLLM's manager decides, kvoxide's runs beside it on the same calls.

The first difference is logged with the call, both results and a file that ``kvoxide shadow``
replays. From then on there is only vLLM's manager.
"""

import inspect
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Final

from vllm.v1.core.kv_cache_manager import KVCacheManager as StockManager

from kvoxide._core import InternalError, __version__
from kvoxide.vllm.adapter import manager
from kvoxide.vllm.adapter.support import group_specs
from kvoxide.vllm.environment import Settings, logger, releases, settings
from kvoxide.vllm.shadow.recording import (
    Json,
    Recorder,
    describe,
    events_digest,
    exception_name,
    outcome_digest,
)

# Pure functions of their arguments, and numbers that are compared after every call.
UNWATCHED: Final = {
    "create_kv_cache_blocks",
    "get_num_common_prefix_blocks",
    "get_num_free_blocks",
    "get_usage",
    "new_step_starts",
    "prefix_cache_lookup_enabled",
}
# They change nothing: compared, but not needed to replay.
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
_MAX_LOGGED: Final = 400


class ShadowManager(StockManager):  # type: ignore[misc]
    """vLLM's manager, with a :class:`Shadow` that sees every call from outside."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take vLLM's arguments."""
        super().__init__(*args, **kwargs)
        self.shadow: Shadow | None = None
        try:
            self.shadow = Shadow(self, manager.bound_arguments(args, kwargs))
        except Exception as error:
            logger.warning("kvoxide shadow: not started, vLLM's manager runs alone: %r", error)

    def stop_shadow(self) -> None:
        """Drop the shadow; vLLM's manager goes on as if there had been none."""
        self.shadow = None
        for target in (self.block_pool, self.coordinator):
            for name in watched_methods(type(target)):
                target.__dict__.pop(name, None)


def _watched_method(name: str) -> Callable[..., Any]:
    stock = getattr(StockManager, name)

    @wraps(stock)
    def call(self: ShadowManager, *args: Any, **kwargs: Any) -> Any:
        shadow = vars(self).get("shadow")
        if shadow is None:
            return stock(self, *args, **kwargs)
        bound = stock.__get__(self)
        return shadow.call("manager", name, bound, args, kwargs)

    return call


def watched_methods(cls: type) -> tuple[str, ...]:
    """Public methods of one of vLLM's classes that its callers use."""
    return tuple(
        name
        for name, value in inspect.getmembers(cls, inspect.isfunction)
        if not name.startswith("_") and name not in UNWATCHED and name != "stop_shadow"
    )


for _name in watched_methods(StockManager):
    setattr(ShadowManager, _name, _watched_method(_name))


class Shadow:
    """kvoxide's manager beside vLLM's, and the record of what was called."""

    def __init__(
        self, stock: ShadowManager, arguments: Mapping[str, Any], native: type | None = None
    ) -> None:
        """Shadow ``stock``, which was made with ``arguments`` and has not been called yet.

        ``native`` is the class to run beside it. The release's own policy applies to both.
        """
        native = native or manager.native_class()
        # vLLM's own manager counts for the collector.
        own = {k: v for k, v in arguments.items() if k not in ("self", "metrics_collector")}
        with settings.using(Settings("shadow", check_every=settings.current().check_every)):
            self.native: Any = native(**own)
        self.stock = stock
        self.recorder = Recorder(configuration_of(arguments))
        self._depth = 0
        self._num_events_compared = 0
        self._watch(stock.block_pool, "block_pool")
        self._watch(stock.coordinator, "coordinator")
        logger.info(
            "kvoxide %s shadows vLLM's KV cache manager%s", __version__, settings.lost_policies()
        )

    def _watch(self, target: Any, role: str) -> None:
        for name in watched_methods(type(target)):
            target.__dict__[name] = self._watched(role, name, getattr(target, name))

    def _watched(self, role: str, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            return self.call(role, name, method, args, kwargs)

        return call

    def call(
        self,
        role: str,
        name: str,
        method: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> Any:
        """Call vLLM's ``method``; then, if it came from outside, ours, and compare."""
        if self._depth or self.stock.shadow is not self:
            return method(*args, **kwargs)
        step = _Step(self, role, name, method, args, kwargs)
        self._depth += 1
        try:
            return step.run_stock()
        finally:
            self._depth -= 1
            self._guarded(step.compare)

    def _guarded(self, compare: Callable[[], Json]) -> None:
        try:
            difference = compare()
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # nothing may reach the server
            difference = {"what": "shadow", "vllm": None, "kvoxide": _raised(error), "call": None}
        if difference is not None:
            self.stock.stop_shadow()
            self._report(difference)

    def _report(self, difference: Json) -> None:
        try:
            path: Path | str = self.recorder.write(difference)
        except OSError as error:
            path = f"FILE (it could not be written: {error})"
        logger.error(
            "kvoxide shadow: first difference, in the %s of %s: vLLM %s, kvoxide %s. Show it with: "
            "kvoxide shadow %s  Serving goes on with vLLM's manager alone.",
            difference["what"],
            _shortened(difference["call"]),
            _shortened(difference["vllm"]),
            _shortened(difference["kvoxide"]),
            path,
        )

    def new_events(self) -> tuple[Json, Json]:
        """Events of the last call that nobody has taken yet: vLLM's and ours."""
        if not self.stock.enable_kv_cache_events:
            return [], []
        self.native.block_pool.settle()
        queues = (self.stock.block_pool.kv_event_queue, self.native.block_pool.kv_event_queue)
        first = min(self._num_events_compared, *map(len, queues))
        self._num_events_compared = len(queues[0])
        return tuple([describe(event) for event in queue[first:]] for queue in queues)  # type: ignore[return-value]


class _Step:
    """One call, on vLLM's manager and then on ours."""

    def __init__(
        self,
        shadow: Shadow,
        role: str,
        name: str,
        method: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> None:
        self._shadow = shadow
        self._role = role
        self._name = name
        self._method = method
        self._reused: tuple[list[int], list[int]] = ([], [])
        self._args = [self._once(value) for value in args]
        self._kwargs = {key: self._once(value) for key, value in kwargs.items()}
        self._outcome: Json = None

    def _once(self, value: Any) -> Any:
        """Iterators are read twice, callbacks are watched."""
        if isinstance(value, Iterator):
            return list(value)
        if inspect.isroutine(value):
            return self._noting(value)
        return value

    def _noting(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        def on_reuse(block: Any) -> Any:
            self._reused[0].append(block.block_id)
            return callback(block)

        return on_reuse

    def run_stock(self) -> Any:
        try:
            result = self._method(*self._args, **self._kwargs)
        except Exception as error:
            self._outcome = {"raises": exception_name(error)}
            raise
        self._outcome = {"result": self._described(result)}
        return result

    def compare(self) -> Json:
        """None, or the first thing in which ours differs."""
        call = self._call()
        stock, native = dict(self._outcome), self._run_native()
        stock["free_blocks"] = self._shadow.stock.block_pool.get_num_free_blocks()
        native["free_blocks"] = self._shadow.native.block_pool.get_num_free_blocks()
        stock["usage"], native["usage"] = self._shadow.stock.usage, self._shadow.native.usage
        stock["events"], native["events"] = self._shadow.new_events()
        stock["reused"], native["reused"] = self._reused
        differing = [key for key in stock if stock[key] != native.get(key)]
        if differing or self._name not in QUERIES:
            digests = {"outcome": outcome_digest(stock), "events": events_digest(stock)}
            self._shadow.recorder.add({**call, **digests})
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
        recorder = self._shadow.recorder
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
        native = self._shadow.native
        target = native if self._role == "manager" else getattr(native, self._role)
        try:
            args = [self._for_native(value) for value in self._args]
            kwargs = {key: self._for_native(value) for key, value in self._kwargs.items()}
            result = getattr(target, self._name)(*args, **kwargs)
        except Exception as error:
            is_broken = isinstance(error, InternalError)
            if self._outcome == {"raises": exception_name(error)} and not is_broken:
                return dict(self._outcome)
            return {"raises": _raised(error)}
        return {"result": self._described(result)}

    def _for_native(self, value: Any) -> Any:
        native = self._shadow.native
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
        """Whether this is no block of another pool; deferred frees may hold some."""
        own = self._shadow.stock.block_pool
        pool = getattr(value, "pool", None)
        return pool is None or pool is own

    def _described(self, value: Any) -> Json:
        return describe(value, self._shadow.recorder.name_of)


def configuration_of(arguments: Mapping[str, Any]) -> Json:
    """vLLM's constructor arguments, as ``kvoxide shadow`` rebuilds them."""
    config = arguments["kv_cache_config"]
    objects = ("self", "kv_cache_config", "metrics_collector")
    return {
        "kvoxide": __version__,
        "vllm": releases.installed_version(),
        "python": platform.python_version(),
        "arguments": {k: v for k, v in arguments.items() if k not in objects},
        "num_blocks": config.num_blocks,
        "retention_interval": config.prefix_cache_retention_interval,
        "needs_kv_cache_zeroing": config.needs_kv_cache_zeroing,
        "groups": [
            {
                "kind": group.kind,
                "block_size": group.block_size,
                "sliding_window": group.sliding_window,
                "attention_chunk_size": group.attention_chunk_size,
                "extra_retained_tokens": group.extra_retained_tokens,
                "is_eagle_group": group.is_eagle_group,
                "prefix_cacheable": group.prefix_cacheable,
                "layout": group.layout,
            }
            for group in group_specs(config.kv_cache_groups)
        ],
    }


def _raised(error: BaseException) -> str:
    return f"raised {type(error).__name__}: {error}"


def _shortened(value: Json) -> str:
    text = str(value)
    return text if len(text) <= _MAX_LOGGED else text[:_MAX_LOGGED] + " ..."

"""``KVOXIDE_HOST=shadow``: vLLM's offloading connector decides over vLLM's own host tier, and
kvoxide's gets each call after it.

The first difference is logged with the call and both values. From then on only vLLM's connector
runs.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import is_dataclass
from functools import partial, wraps
from itertools import groupby
from typing import Any, Final

import numpy as np
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import OffloadingConnectorStats
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler import (
    OffloadingConnectorScheduler as StockScheduler,
)
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler import _ConnectorMetricName
from vllm.v1.kv_offload.base import LoadStoreSpec
from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager as StockManager

from kvoxide._core import InternalError
from kvoxide.vllm import offload
from kvoxide.vllm.environment import (
    SHADOW_PARTS,
    Settings,
    log_not_active,
    log_shadow_difference,
    log_shadow_on,
    settings,
)
from kvoxide.vllm.shadow.agreement import Agreement
from kvoxide.vllm.shadow.description import describe_event, exception_name, is_event, shortened
from kvoxide.vllm.shadow.step import raised

_MIN_CALLS_BETWEEN_CHECKS: Final = 1_000
_TIMES: Final = (_ConnectorMetricName.LOOKUP_SYNC_DELAY, _ConnectorMetricName.LOOKUP_ASYNC_DELAY)

Difference = tuple[str, Any, Any]


class ShadowConnectorScheduler(StockScheduler):  # type: ignore[misc]
    """The scheduler's side of vLLM's offloading connector, with a :class:`HostShadow` that gets
    each call after it."""

    shadow: "HostShadow | None" = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take vLLM's arguments."""
        super().__init__(*args, **kwargs)
        try:
            self.shadow = HostShadow(self.manager, args, kwargs)
        except Exception as error:
            log_not_active(
                "shadow mode of the offloading connector", "vLLM's own connector", repr(error)
            )
        else:
            log_shadow_on(SHADOW_PARTS["host"], "")

    def shutdown(self) -> None:
        """Log that there was no difference, and shut down as vLLM's."""
        if self.shadow is not None:
            self.shadow.agreement.end()
        super().shutdown()

    def _compare(self, name: str, outcome: Any, args: Sequence[Any], kwargs: Any) -> None:
        if self.shadow is None:
            return
        try:
            difference = self.shadow.difference(name, outcome, args, kwargs)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # no error may reach the server
            difference = "shadow", None, raised(error)
        agreement = self.shadow.agreement
        if difference is None:
            agreement.count_equal()
            return
        agreement.count_different()
        self.shadow = None
        what, stock, native = difference
        log_shadow_difference(
            "the offloading connector",
            f"call {agreement.num_calls}, {name}: {what}",
            (shortened(stock), shortened(native)),
            "Please report this line.",
        )

    def _compare_when_read(self, compare: Callable[[Any], None], told: Iterator[Any]) -> Any:
        read = list(told)
        compare(read)
        yield from read


def _compared(name: str) -> Callable[..., Any]:
    stock = getattr(StockScheduler, name)

    @wraps(stock)
    def call(self: ShadowConnectorScheduler, *args: Any, **kwargs: Any) -> Any:
        compare = partial(self._compare, name, args=args, kwargs=kwargs)
        try:
            answer = stock(self, *args, **kwargs)
        except Exception as error:
            compare(error)
            raise
        if isinstance(answer, Iterator):
            return self._compare_when_read(compare, answer)
        compare(answer)
        return answer

    return call


for _name, _ in inspect.getmembers(StockScheduler, inspect.isfunction):
    if not _name.startswith("_") and _name != "shutdown":
        setattr(ShadowConnectorScheduler, _name, _compared(_name))


class HostShadow:
    """kvoxide's connector over kvoxide's tier, compared with vLLM's."""

    def __init__(self, manager: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Shadow vLLM's connector and its ``manager``. The connector was constructed with these
        arguments and has not been called yet. Raises ``ValueError`` if the manager is not vLLM's
        own."""
        if type(manager) is not StockManager:
            raise ValueError(
                f"the offload manager is {type(manager).__qualname__}, not vLLM's "
                "CPUOffloadingManager"
            )
        bound = inspect.signature(StockScheduler.__init__).bind(None, *args, **kwargs)
        spec = bound.arguments["spec"] = copy(bound.arguments["spec"])
        spec._manager = None  # the shadow keeps its own manager
        with settings.using(Settings(host_mode="require")):
            self.native: Any = offload.connector_class()(*bound.args[1:], **bound.kwargs)
        self.agreement = Agreement("host")
        self._manager = manager
        least = max(_MIN_CALLS_BETWEEN_CHECKS, self.native.manager.tier.num_chunks)
        self._check_every = settings.current().check_every or least

    def difference(
        self, name: str, outcome: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Difference | None:
        """Make a call on kvoxide's connector. ``outcome`` is vLLM's result or exception. Return the
        first difference."""
        found = first_difference(
            "result", comparable_form(outcome), self._outcome(name, args, kwargs)
        )
        if found is None and (self.agreement.num_calls + 1) % self._check_every == 0:
            sides = self._manager, self.native.manager
            found = first_difference("state of the tier afterwards", *map(state_of, sides))
        return found

    def _outcome(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        try:
            answer = getattr(self.native, name)(*args, **kwargs)
            return comparable_form(list(answer) if isinstance(answer, Iterator) else answer)
        except InternalError:
            raise
        except Exception as error:
            return comparable_form(error)


def comparable_form(value: Any) -> Any:
    """Return a connector's result in a comparable form: arrays as lists, without times, and without
    the order of sets and of the events of one kind."""
    if isinstance(value, Exception):
        return {"raises": exception_name(value)}
    if isinstance(value, np.ndarray):
        return [str(value.dtype), value.tolist()]
    if isinstance(value, OffloadingConnectorStats):
        return {"stats": {name: _values(part) for name, part in value.data.items()}}
    if is_dataclass(value) or isinstance(value, LoadStoreSpec):
        return {type(value).__name__: comparable_form(vars(value))}
    if isinstance(value, Mapping):
        return {key: comparable_form(each) for key, each in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, list | tuple):
        are_events = value and all(map(is_event, value))
        return _events(value) if are_events else list(map(comparable_form, value))
    return value


def _values(metrics: Any) -> Any:
    """Return metrics with the number of observed times in place of the times."""
    if not isinstance(metrics, Mapping):
        return metrics
    seen = dict(sorted(metrics.items()))
    for name in seen.keys() & set(_TIMES):
        if isinstance(seen[name], Mapping):
            seen[name] = {labels: len(times) for labels, times in seen[name].items()}
    return seen


def _events(events: Iterable[Any]) -> Any:
    # vLLM reports the keys of one store in the order of a set of bytes.
    described = map(describe_event, events)
    runs = groupby(described, lambda event: event["event"])
    return [sorted(run, key=repr) for _, run in runs]


def state_of(manager: Any) -> dict[str, Any]:
    """Return the state of a tier, vLLM's or kvoxide's: its chunks and their order of eviction."""
    policy, seen = manager._policy, {"free chunks": manager._get_num_free_chunks()}
    seen["evictable chunks"] = manager._num_evictable_cache_chunks
    seen["pending chunks"] = manager._num_write_pending_chunks
    seen["counts of offers"] = list((manager.counts or {}).items())
    if hasattr(policy, "chunks"):
        seen["chunks"] = _chunks(policy.chunks)
        seen["order"] = _lru_order(manager, policy)
        return seen
    for name in ("t1", "t2"):
        chunks = _chunks(getattr(policy, name))
        seen[name], seen[f"keys of {name}"] = chunks, list(chunks)
    return seen | {
        "b1": list(policy.b1),
        "b2": list(policy.b2),
        "target of t1": policy.target_t1_size,
    }


def _chunks(chunks: Mapping[bytes, Any]) -> dict[bytes, tuple[int, int]]:
    return {key: (chunk.chunk_id, chunk.ref_cnt) for key, chunk in chunks.items()}


def _lru_order(manager: Any, policy: Any) -> Any:
    if tier := getattr(manager, "tier", None):
        return tier.get_lru_order()
    return sorted(policy._evictable, key=lambda key: (policy._ranks[key], key))


def first_difference(path: str, stock: Any, native: Any) -> Difference | None:
    """Return the path at which two values begin to differ, with both values there."""
    if stock == native:
        return None
    parts: Any = ()
    if isinstance(stock, dict) and isinstance(native, dict) and stock.keys() == native.keys():
        parts = ((key, stock[key], native[key]) for key in stock)
    elif isinstance(stock, list) and isinstance(native, list) and len(stock) == len(native):
        parts = zip(range(len(stock)), stock, native, strict=True)
    found = (first_difference(f"{path}, {_named(at)}", *sides) for at, *sides in parts)
    return next(filter(None, found), (path, stock, native))


def _named(part: Any) -> str:
    return part.hex() if isinstance(part, bytes) else str(part)

"""``KVOXIDE=shadow``: vLLM's manager decides, and kvoxide's gets the same calls.

The first difference is logged with the call, both results and a file that ``kvoxide shadow``
replays. From then on only vLLM's manager runs.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, Final

from vllm.v1.core.kv_cache_manager import KVCacheManager as StockManager

from kvoxide.vllm import adapter
from kvoxide.vllm.environment import (
    Settings,
    log_not_active,
    log_shadow_difference,
    log_shadow_on,
    recognise,
    settings,
    takeover_reasons,
)
from kvoxide.vllm.shadow.agreement import Agreement
from kvoxide.vllm.shadow.configuration import configuration_of
from kvoxide.vllm.shadow.description import Json, shortened
from kvoxide.vllm.shadow.recorder import Recorder
from kvoxide.vllm.shadow.step import Pair, Step, raised

# Pure functions of their arguments, and numbers that are compared after every call anyway.
UNWATCHED: Final = {
    "create_kv_cache_blocks",
    "get_num_common_prefix_blocks",
    "get_num_free_blocks",
    "get_usage",
    "prefix_cache_lookup_enabled",
}


class ShadowManager(StockManager):  # type: ignore[misc]
    """vLLM's manager, with a :class:`Shadow` that gets every call from outside."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take vLLM's arguments."""
        super().__init__(*args, **kwargs)
        self.shadow: Shadow | None = None
        try:
            self.shadow = Shadow(self, adapter.bound_arguments(args, kwargs))
        except Exception as error:
            log_not_active("shadow mode of the KV cache", "vLLM's own manager", repr(error))

    def end_shadow(self) -> None:
        """Log that there was no difference, when the server ends."""
        if self.shadow is not None:
            self.shadow.agreement.end()

    def stop_shadow(self) -> None:
        """Drop the shadow. vLLM's manager continues as if there had been none."""
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
    """Return the public methods of one of vLLM's classes that its callers use."""
    return tuple(
        name
        for name, value in inspect.getmembers(cls, inspect.isfunction)
        if not name.startswith("_") and name not in UNWATCHED
    )


for _name in watched_methods(StockManager):
    setattr(ShadowManager, _name, _watched_method(_name))


class Shadow:
    """kvoxide's manager as a shadow of vLLM's, and the record of the calls."""

    def __init__(
        self, stock: ShadowManager, arguments: Mapping[str, Any], native: type | None = None
    ) -> None:
        """Shadow ``stock``, which was constructed with ``arguments`` and has not been called yet.

        ``native`` is the class of the shadow. The release's own policy applies to both.
        """
        native = native or adapter.native_class()
        # vLLM's own manager reports to the collector.
        own = {k: v for k, v in arguments.items() if k not in ("self", "metrics_collector")}
        with settings.using(Settings("shadow", check_every=settings.current().check_every)):
            self.native: Any = native(**own)
        self.stock = stock
        self.recorder = Recorder(configuration_of(arguments))
        self.agreement = Agreement("manager")
        self._pair = Pair(stock, self.native)
        self._depth = 0
        self._watch(stock.block_pool, "block_pool")
        self._watch(stock.coordinator, "coordinator")
        log_shadow_on("the KV cache", settings.lost_policies() + _remark())

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
        """Call vLLM's ``method``. If the call came from outside, call kvoxide's too and compare."""
        if self._depth or self.stock.shadow is not self:
            return method(*args, **kwargs)
        step = Step(self._pair, self.recorder, role, name, method, args, kwargs)
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
        except BaseException as error:  # no error may reach the server
            difference = {"what": "shadow", "vllm": None, "kvoxide": raised(error), "call": None}
        if difference is None:
            self.agreement.count_equal()
        else:
            self.agreement.count_different()
            self.stock.stop_shadow()
            self._report(difference)

    def _report(self, difference: Json) -> None:
        try:
            path = self.recorder.write(difference)
            next_step = f"To show the call, run: kvoxide shadow {path}"
        except OSError as error:
            next_step = f"The calls could not be written: {error}. Please report this line."
        log_shadow_difference(
            "the KV cache",
            f"{difference['what']} of {shortened(difference['call'])}",
            (shortened(difference["vllm"]), shortened(difference["kvoxide"])),
            next_step,
        )


def _remark() -> str:
    """Return whose rules kvoxide's manager follows and why differences are possible. Return an
    empty text for a known vLLM."""
    reasons = "; ".join(takeover_reasons())
    rules = recognise().release.version
    return (
        f" kvoxide follows the rules of vLLM {rules}, so differences are expected. Reason: "
        f"{reasons}."
        if reasons
        else ""
    )

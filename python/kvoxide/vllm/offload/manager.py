"""vLLM's ``CPUOffloadingManager`` over :class:`kvoxide.HostTier`."""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, ClassVar, Final, cast

from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import OffloadingConnectorStats
from vllm.v1.kv_offload.base import (
    LookupResult,
    Medium,
    OffloadingEvent,
    PrepareStoreOutput,
    ReqContext,
    RequestOffloadingContext,
)
from vllm.v1.kv_offload.cpu.common import CPULoadStoreSpec, CPUOffloadingMetrics

from kvoxide import HostRequest, HostTier, RequestError
from kvoxide._core_vllm import VllmChunkKeys
from kvoxide.vllm.environment import recognise_host, settings
from kvoxide.vllm.offload.attributes import ChunkKeySet, ViewedState, in_rust
from kvoxide.vllm.offload.compatibility import bound_arguments
from kvoxide.vllm.offload.safe_tier import SafeTier
from kvoxide.vllm.offload.switch import SwitchedManager, switch_to_vllm

ANSWERS: Final = {
    "miss": LookupResult.MISS,
    "hit": LookupResult.HIT,
    "hit_pending": LookupResult.HIT_PENDING,
}

_OWN_POSITION: Final = ReqContext.get_offload_key_position

# What vLLM's manager keeps and a tier does not tell.
_ONLY_IN_VLLM: Final = frozenset(("events", "_free_list", "_cache_generation"))


class CPUOffloadingManager(ViewedState):
    """The manager of vLLM's offloading connector, with its state in Rust.

    Made with the arguments of vLLM's class. Only for those that
    :func:`~kvoxide.vllm.offload.reasons_against` has nothing against. What vLLM asserts is an
    ``AssertionError`` here too, and changes nothing.
    """

    switched: ClassVar[type] = SwitchedManager
    """The class that it becomes if other code changes it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take vLLM's arguments."""
        arguments = bound_arguments(self.stock, args, kwargs)
        ViewedState.__init__(self, arguments)
        release = recognise_host().release
        info = arguments.get("info")
        self.medium = Medium.CPU
        self._config_info = {} if info is None else info.as_config_info()
        tier = HostTier(
            arguments["num_chunks"],
            arguments["cache_policy"],
            store_threshold=self.store_threshold,
            max_tracker_size=self.max_tracker_size,
            enable_kv_cache_events=bool(arguments["enable_events"]),
            log_stats=True,
            vllm_release=release.version,  # type: ignore[arg-type]
        )
        # A shadow reports a fault, and serves no request after it.
        self.tier = tier if settings.are_overridden() else cast(HostTier, SafeTier(tier))
        # Nothing else depends on where a key is before its request ends.
        self._reads_positions = self.tier.policy == "lru" and release.ranks_running_requests
        self._reports_failures = release.ranks_running_requests
        self.keeps_events = bool(arguments["enable_events"])
        self._pending: list[OffloadingEvent] = []
        self._end_transfer: Callable[[Any, bool, bool], None] | None = None

    def serve_connector(self, end: Callable[[Any, bool, bool], None]) -> None:
        """Stay over the tier, which a connector reads itself.

        ``end`` ends a transfer of keys in Rust. It takes whether it was a store, and whether it
        succeeded.
        """
        self._end_transfer = end

    def switch_to_vllm(self, why: str) -> None:
        """Become vLLM's own manager, in the state that the tier is in. Raises ``AttributeError``
        where a connector reads the tier."""
        if self._end_transfer is not None:
            raise AttributeError(
                f"kvoxide's offloading connector does not support this use by other code: {why}. "
                "Set KVOXIDE_HOST=off to use vLLM's own connector"
            )
        switch_to_vllm(self, self._policy, why)

    def __setattr__(self, name: str, value: object) -> None:
        """Set what is this class's own; for a method or a value of vLLM's, become vLLM's first."""
        if hasattr(type(self), name) and not name.startswith("__"):
            self.switch_to_vllm(f"{name} is set")
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        """Return what only vLLM's manager has."""
        if name not in _ONLY_IN_VLLM:
            raise AttributeError(f"{type(self).__name__} has no {name}")
        self.switch_to_vllm(f"{name} is read")
        return getattr(self, name)

    def on_new_request(self, req_context: Any) -> RequestOffloadingContext:
        self.tier.start_request(request_of(req_context))
        return RequestOffloadingContext()

    def lookup(self, key: Any, req_context: Any) -> LookupResult:
        return ANSWERS[self.tier.lookup(key)]

    def prepare_load(self, keys: Collection[Any], req_context: Any) -> CPULoadStoreSpec:
        positions = self._positions(keys, req_context)
        try:
            chunks = self.tier.prepare_load(request_of(req_context), keys, positions)
        except RequestError as error:
            raise AssertionError(str(error)) from None
        return CPULoadStoreSpec(chunks)

    def touch(self, keys: Collection[Any], req_context: Any) -> None:
        self.tier.touch(keys)

    def complete_load(self, keys: Collection[Any], req_context: Any) -> None:
        if type(keys) is ChunkKeySet and self._end_transfer is not None:
            self._end_transfer(keys.chunks, False, True)
            return
        try:
            self.tier.complete_load(in_rust(keys))
        except RequestError as error:
            raise AssertionError(str(error)) from None

    def prepare_store(self, keys: Collection[Any], req_context: Any) -> PrepareStoreOutput | None:
        positions = self._positions(keys, req_context)
        try:
            plan = self.tier.prepare_store(request_of(req_context), keys, positions)
        except RequestError as error:
            raise AssertionError(str(error)) from None
        if plan is None:
            return None
        return PrepareStoreOutput(
            keys_to_store=plan.keys,
            store_spec=CPULoadStoreSpec(plan.chunk_ids),
            evicted_keys=plan.evicted_keys,
        )

    def complete_store(self, keys: Collection[Any], req_context: Any, success: bool = True) -> None:
        if type(keys) is ChunkKeySet and self._end_transfer is not None:
            self._end_transfer(keys.chunks, True, bool(success))
            return
        self.tier.complete_store(in_rust(keys), bool(success))

    def on_request_finished(self, req_context: Any) -> None:
        request = req_context.get_state(HostRequest)
        if request is not None:
            positions = req_context._offload_key_positions
            self.tier.finish_request(request, getattr(positions, "boundaries", positions))

    def reset_cache(self) -> None:
        self.tier.reset()

    def take_events(self) -> Iterator[OffloadingEvent]:
        # Nothing is taken before somebody asks for the first one.
        self._pending = self.pending_events(self.tier.take_events())
        if self._reports_failures:
            pending, self._pending = self._pending, []
            yield from pending
            return
        yield from self._pending
        self._pending.clear()

    def pending_events(self, events: Iterable[Any]) -> list[OffloadingEvent]:
        """Return the events that are not read yet, then ``events`` of the tier."""
        return [*self._pending, *map(self._event, events)]

    def _event(self, event: Any) -> OffloadingEvent:
        made = OffloadingEvent(keys=event.keys, medium=self.medium, removed=event.kind != "stored")
        if event.kind == "failed":
            made.metadata_only = True
        return made

    def get_stats(self) -> OffloadingConnectorStats:
        stats, metrics, tier = OffloadingConnectorStats(), CPUOffloadingMetrics, self.tier
        num_used = self._num_chunks - tier.num_free_chunks - tier.num_evictable_chunks
        usage = self._share(num_used)
        stats.set_gauge(metrics.CPU_CACHE_USAGE_PERC, usage)
        for size in self.allocation_sizes_in_current_batch:
            stats.observe_histogram(metrics.CPU_ALLOCATION_SIZE, size)
        self._store_sizes.clear()
        writes = self._share(tier.num_pending_chunks)
        stats.set_gauge(metrics.CPU_CACHE_WRITE_USAGE_PERC, writes)
        stats.set_gauge(metrics.CPU_CACHE_READ_USAGE_PERC, max(usage - writes, 0.0))
        if self.store_threshold >= 2:
            stats.increase_counter(metrics.STORES_SKIPPED, self.stores_skipped_in_current_batch)
            self._num_skipped = 0
        return stats

    def _positions(self, keys: Any, req_context: Any) -> dict[bytes, int] | None:
        """The positions of keys that do not bring their own."""
        positions = req_context._offload_key_positions
        if type(req_context).get_offload_key_position is not _OWN_POSITION:
            given = ((key, req_context.get_offload_key_position(key)) for key in keys)
            return {key: position for key, position in given if position is not None}
        if type(positions) is dict:
            return positions if self._reads_positions else None
        if type(keys) is VllmChunkKeys:
            return None
        # A request with keys in Rust tells no positions at its end.
        found = ((key, positions.get(key)) for key in keys)
        return {key: position for key, position in found if position is not None}

    def _share(self, num_chunks: int) -> float:
        return num_chunks / self._num_chunks if self._num_chunks else 0.0


def request_of(req_context: Any) -> HostRequest:
    """Return what a request saw, which its context keeps."""
    request = req_context.get_state(HostRequest)
    if request is None:
        request = HostRequest()
        req_context.set_state(request)
    return request  # type: ignore[no-any-return]

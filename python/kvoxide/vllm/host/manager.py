"""vLLM's ``CPUOffloadingManager`` over :class:`kvoxide.HostTier`."""

from collections.abc import Collection, Iterator
from typing import Any, Final, cast

from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import OffloadingConnectorStats
from vllm.v1.kv_offload.base import (
    LookupResult,
    Medium,
    OffloadingEvent,
    PrepareStoreOutput,
    RequestOffloadingContext,
)
from vllm.v1.kv_offload.cpu.common import CPULoadStoreSpec, CPUOffloadingMetrics
from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager as StockManager

from kvoxide import HostRequest, HostTier, RequestError
from kvoxide._core_vllm import VllmChunkKeys
from kvoxide.vllm.environment import recognise_host, settings
from kvoxide.vllm.host.keys import in_rust
from kvoxide.vllm.host.safe_tier import SafeTier
from kvoxide.vllm.host.support import bound_arguments
from kvoxide.vllm.host.views import ViewedState

ANSWERS: Final = {
    "miss": LookupResult.MISS,
    "hit": LookupResult.HIT,
    "hit_pending": LookupResult.HIT_PENDING,
}


class CPUOffloadingManager(ViewedState, StockManager):  # type: ignore[misc]
    """The manager of vLLM's offloading connector, with its state in Rust.

    Made with the arguments of vLLM's class. Only for those that
    :func:`~kvoxide.vllm.host.reasons_against` has nothing against. What vLLM asserts is an
    ``AssertionError`` here too, and changes nothing.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take vLLM's arguments."""
        ViewedState.__init__(self)
        arguments = bound_arguments(args, kwargs)
        release = recognise_host().release
        info = arguments.get("info")
        self.medium = Medium.CPU
        self._num_chunks = arguments["num_chunks"]
        self._config_info = {} if info is None else info.as_config_info()
        self.store_threshold = arguments["store_threshold"]
        self.max_tracker_size = arguments["max_tracker_size"]
        tier = HostTier(
            self._num_chunks,
            arguments["cache_policy"],
            store_threshold=self.store_threshold,
            max_tracker_size=self.max_tracker_size,
            enable_kv_cache_events=bool(arguments["enable_events"]),
            log_stats=True,
            vllm_release=release.version,  # type: ignore[arg-type]
        )
        # A shadow reports a fault, and nobody is served by what is left.
        self.tier = tier if settings.are_overridden() else cast(HostTier, SafeTier(tier))
        # Nothing else depends on where a key is before its request ends.
        self._reads_positions = self.tier.policy == "lru" and release.ranks_running_requests
        self._tells_failures = release.ranks_running_requests
        self.keeps_events = bool(arguments["enable_events"])
        self._told: list[OffloadingEvent] = []

    def on_new_request(self, req_context: Any) -> RequestOffloadingContext:
        self.tier.start_request(_request(req_context))
        return RequestOffloadingContext()

    def lookup(self, key: Any, req_context: Any) -> LookupResult:
        return ANSWERS[self.tier.lookup(key)]

    def prepare_load(self, keys: Collection[Any], req_context: Any) -> CPULoadStoreSpec:
        positions = self._positions(keys, req_context)
        try:
            chunks = self.tier.prepare_load(_request(req_context), keys, positions)
        except RequestError as error:
            raise AssertionError(str(error)) from None
        return CPULoadStoreSpec(chunks)

    def touch(self, keys: Collection[Any], req_context: Any) -> None:
        self.tier.touch(keys)

    def complete_load(self, keys: Collection[Any], req_context: Any) -> None:
        try:
            self.tier.complete_load(in_rust(keys))
        except RequestError as error:
            raise AssertionError(str(error)) from None

    def prepare_store(self, keys: Collection[Any], req_context: Any) -> PrepareStoreOutput | None:
        positions = self._positions(keys, req_context)
        try:
            plan = self.tier.prepare_store(_request(req_context), keys, positions)
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
        self._told += map(self._event, self.tier.take_events())
        if self._tells_failures:
            told, self._told = self._told, []
            yield from told
            return
        yield from self._told
        self._told.clear()

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
        if type(positions) is dict:
            return positions if self._reads_positions else None
        if type(keys) is VllmChunkKeys:
            return None
        # A request with keys in Rust tells no positions at its end.
        return {key: positions[key] for key in keys if key in positions}

    def _share(self, num_chunks: int) -> float:
        return num_chunks / self._num_chunks if self._num_chunks else 0.0


def _request(req_context: Any) -> HostRequest:
    """What a request saw, which its context keeps."""
    request = req_context.get_state(HostRequest)
    if request is None:
        request = HostRequest()
        req_context.set_state(request)
    return request  # type: ignore[no-any-return]

"""vLLM's ``KVCacheManager`` over the engine: one Python frame and one crossing per call."""

from itertools import cycle
from typing import Any, Final

from vllm.distributed.kv_events import MEDIUM_GPU
from vllm.v1.core.kv_cache_manager import KVCacheManager as StockManager
from vllm.v1.core.kv_cache_utils import KVCacheBlockCopy
from vllm.v1.kv_cache_interface import get_kv_cache_spec_kind, get_kv_cache_spec_sliding_window
from vllm.v1.metrics.stats import PrefixCacheStats

from kvoxide.vllm.adapter import lost_hits_log, retention_log
from kvoxide.vllm.adapter.arguments import bound_arguments
from kvoxide.vllm.adapter.calls import ManagerCalls
from kvoxide.vllm.adapter.coordinator import make_coordinator
from kvoxide.vllm.adapter.events import add_kinds
from kvoxide.vllm.adapter.periodic_tasks import PeriodicTask, with_tasks
from kvoxide.vllm.adapter.pool import make_pool
from kvoxide.vllm.adapter.support import engine_for
from kvoxide.vllm.adapter.switch import Switch
from kvoxide.vllm.adapter.watched import Watched, WatchedMeta, fields_of, preferring
from kvoxide.vllm.environment import recognise, settings

_OBSERVED = ("allocate_slots", "get_computed_blocks")
_ENGINE_METHODS = (*_OBSERVED, "get_block_ids", "get_block_ids_for_computed_tokens")


_STEPS_PER_CLASS_CHECK: Final = 32
"""Scheduler steps between two looks at vLLM's classes, which other code may have changed."""

_SETTABLE_METHODS: Final = frozenset(
    {
        "cache_blocks",
        "estimate_cached_tokens",
        "evict_blocks",
        "finalize_partial_tail_offloads",
        "free",
        "get_computed_blocks_for_connector",
        "get_num_common_prefix_blocks",
        "make_prefix_cache_stats",
        "new_step_starts",
        "pop_blocks_for_free",
        "record_blocks_for_zeroing",
        "record_prefix_cache_stats",
        "remove_skipped_blocks",
        "reset_prefix_cache",
        "take_boundary_state_offloads",
        "take_events",
        "take_kv_cache_block_copies",
        "take_new_block_ids",
        "truncate_computed_blocks",
    }
)
"""Methods that no other method of vLLM's manager calls: one that is set is called all the same."""

_SETTABLE_FIELDS: Final = frozenset(
    {
        "kv_cache_event_metadata",
        "log_stats",
        "mamba_shared_prefix_checkpoint",
        "metrics_collector",
        "num_kv_cache_groups",
        "prefix_cache_stats",
        "use_eagle",
    }
)
"""Fields that are read at each call, or by the scheduler alone."""


class KVCacheManager(preferring(StockManager, ManagerCalls, Watched), metaclass=WatchedMeta):  # type: ignore[misc]
    """The manager of vLLM's scheduler, with its state in Rust.

    Made with the arguments of vLLM's class. Only for configurations that
    :func:`~kvoxide.vllm.adapter.reasons_against` has nothing against.
    """

    _stock = StockManager
    _name_in_messages = "kv_cache_manager"
    _settable = (
        _SETTABLE_METHODS | _SETTABLE_FIELDS | {*_OBSERVED, "get_block_ids_for_computed_tokens"}
    )
    _settable_on_class = _SETTABLE_METHODS
    _watcher: Switch

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take vLLM's arguments; retention settings of the environment apply."""
        arguments = bound_arguments(args, kwargs)
        config = arguments["kv_cache_config"]
        wanted = settings.current()
        self.engine = engine_for(arguments, wanted)
        self.kv_cache_config = config
        self.max_model_len = arguments["max_model_len"]
        self.enable_caching = arguments["enable_caching"]
        self.enable_kv_cache_events = arguments["enable_kv_cache_events"]
        self.use_eagle = arguments["use_eagle"]
        self.log_stats = arguments["log_stats"]
        self.metrics_collector = arguments["metrics_collector"]
        self.prefix_cache_stats = PrefixCacheStats() if self.log_stats else None
        self.block_pool = make_pool(self.engine, arguments, MEDIUM_GPU)
        self.coordinator = make_coordinator(self.engine, self.block_pool, arguments)
        self._tables = tuple(m.req_to_blocks for m in self.coordinator.single_type_managers)
        self.num_kv_cache_groups = len(config.kv_cache_groups)
        self.mamba_shared_prefix_checkpoint = self.engine.mamba_shared_prefix_checkpoint
        self.retained_hit_group_ids = ()
        self._has_states = config.has_mamba_layers
        self._counts_common_prefixes = recognise().release.counts_common_prefixes
        self.watermark_blocks = self.engine.watermark_blocks
        self.kv_cache_event_metadata = tuple(
            (
                get_kv_cache_spec_kind(g.kv_cache_spec).value,
                get_kv_cache_spec_sliding_window(g.kv_cache_spec),
            )
            for g in config.kv_cache_groups
        )
        self.empty_kv_cache_blocks = self.engine.empty_blocks()
        self._has_observers = self.enable_kv_cache_events or bool(self.metrics_collector)
        self.block_pool.on_first_watcher = self._start_notifying
        self.coordinator.repeated_blocks.call_at_first(self._guard_repeated_blocks)
        self._class_checks = cycle((True, *[False] * (_STEPS_PER_CLASS_CHECK - 1)))
        self._bound: dict[str, Any] = {}
        self._bind_calls()
        warning = lost_hits_log.LostHitsLog(self.engine)
        tasks = [PeriodicTask(lost_hits_log.HOUR, warning.end_period)]
        if wanted.retention == "adaptive":
            log = retention_log.MinuteLog(self.engine)
            tasks.append(PeriodicTask(retention_log.SECONDS, log.end_minute))
        self._bind("new_step_starts", with_tasks(self.new_step_starts, tasks))
        Switch(self, arguments)

    def _bind_calls(self) -> None:
        """Make the engine's methods the methods of this object. There is no Python frame between
        them, unless observers are to be notified of a call."""
        for name in _ENGINE_METHODS:
            call = getattr(self.engine, name)
            if name in _OBSERVED and self._has_observers:
                call = self.block_pool.with_notification(call)
            if name in _OBSERVED and self.coordinator.repeated_blocks:
                call = self._guarded(name, call)
            self._bind(name, call)

    def _guarded(self, name: str, call: Any) -> Any:
        """Return ``call``, which lets vLLM's own objects continue first for a request with a block
        more than once in a table."""
        repeated_blocks = self.coordinator.repeated_blocks

        def guarded(request: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(self, KVCacheManager):
                repeated_blocks.switch_if_repeated(self, name, request.request_id)
                if not repeated_blocks:
                    self._bind_calls()
            return call(request, *args, **kwargs)

        return guarded

    def _bind(self, name: str, call: Any) -> None:
        """Make ``call`` a method of this object, unless other code set one."""
        if vars(self).get(name) is self._bound.get(name):
            fields_of(self)[name] = self._bound[name] = call

    def __delattr__(self, name: str) -> None:
        """Take away what other code set. The engine's own method serves again; as in vLLM, an
        object that nothing was set on has none to delete."""
        own = vars(self).get("_bound", {}).get(name)
        if own is not None and vars(self).get(name) is own:
            raise AttributeError(name)
        super().__delattr__(name)
        if own is not None and isinstance(self, KVCacheManager):
            fields_of(self)[name] = own

    def _start_notifying(self) -> None:
        fields_of(self)["_has_observers"] = True
        self._rebind_calls("unpin_blocks is called")

    def _guard_repeated_blocks(self) -> None:
        self._rebind_calls("a block is in a table more than once")

    def _rebind_calls(self, why: str) -> None:
        self._bind_calls()
        for name in _OBSERVED:
            # A hook may call the engine's method as it was before.
            if vars(self).get(name) is not self._bound[name]:
                self._watcher.before_change(f"{self._name_in_messages}.{name} is set, {why}")
                return

    def release_calls(self) -> None:
        """Leave the methods to the class, but those that other code set."""
        for name, call in self._bound.items():
            if vars(self).get(name) is call:
                del fields_of(self)[name]

    @property
    def usage(self) -> float:
        return self.engine.usage

    def make_prefix_cache_stats(self) -> PrefixCacheStats | None:
        if not self.log_stats:
            return None
        stats = self.prefix_cache_stats
        # Once per step: not worth the look at who sets it.
        fields_of(self)["prefix_cache_stats"] = PrefixCacheStats()
        return stats

    def take_events(self) -> list[Any]:
        events: list[Any] = self.block_pool.take_events()
        if add_kinds(events, self.kv_cache_event_metadata):
            return events
        # vLLM's own method warns of an event of an unknown group.
        self.block_pool.kv_event_queue = events
        return StockManager.take_events(self)  # type: ignore[no-any-return]

    def get_blocks(self, request_id: str) -> Any:
        return self.engine.get_blocks(request_id, self._tables)

    def truncate_computed_blocks(self, blocks: Any, num_computed_tokens: int) -> Any:
        return self.engine.truncate_computed_blocks(blocks, num_computed_tokens)

    def get_num_common_prefix_blocks(self, running_request_id: str) -> list[int]:
        if not self._counts_common_prefixes:
            return [0] * self.num_kv_cache_groups
        return self.engine.num_common_prefix_blocks(running_request_id)

    def take_new_block_ids(self) -> list[int]:
        return self.engine.take_new_block_ids()

    def record_blocks_for_zeroing(self, request_id: str, start_token: int) -> None:
        self.engine.record_blocks_for_zeroing(request_id, start_token)

    def take_kv_cache_block_copies(self) -> tuple[list[KVCacheBlockCopy], list[Any]]:
        pairs, blocks = self.engine.take_kv_cache_block_copies()
        copies = [KVCacheBlockCopy(pair.src_block_id, pair.dst_block_id) for pair in pairs]
        for manager in self.coordinator.single_type_managers:
            # The engine's are in no list; others may put theirs into vLLM's.
            if manager._pending_cow_copies:
                for pair in manager._pending_cow_copies:
                    copies.append(KVCacheBlockCopy(pair[0].block_id, pair[1].block_id))
                    blocks += pair
                fields_of(manager)["_pending_cow_copies"] = []
        return copies, blocks

    def take_boundary_state_offloads(self) -> dict[str, list[tuple[int, int, int]]]:
        return self.engine.take_boundary_state_offloads() if self._has_states else {}

    def finalize_partial_tail_offloads(self, request: Any) -> list[tuple[int, int, int]]:
        if not self._has_states:
            return []
        return self.engine.finalize_partial_tail_offloads(request, request.request_id)

    def new_step_starts(self) -> None:
        if next(self._class_checks):
            self._watcher.check_classes()
        if self._has_states:
            self.engine.new_step_starts()

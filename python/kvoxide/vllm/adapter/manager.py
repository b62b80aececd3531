"""vLLM's ``KVCacheManager`` over the engine: one Python frame and one crossing per call."""

import inspect
from collections.abc import Callable
from typing import Any

from vllm.distributed.kv_events import MEDIUM_GPU
from vllm.v1.core.kv_cache_manager import KVCacheManager as StockManager
from vllm.v1.core.kv_cache_utils import KVCacheBlockCopy
from vllm.v1.kv_cache_interface import get_kv_cache_spec_kind, get_kv_cache_spec_sliding_window
from vllm.v1.metrics.stats import PrefixCacheStats

from kvoxide.vllm.adapter.arguments import bound_arguments
from kvoxide.vllm.adapter.calls import ManagerCalls
from kvoxide.vllm.adapter.coordinator import make_coordinator
from kvoxide.vllm.adapter.events import add_kinds
from kvoxide.vllm.adapter.minutes import telling_each_minute
from kvoxide.vllm.adapter.pool import make_pool
from kvoxide.vllm.adapter.support import engine_for
from kvoxide.vllm.environment import settings

_OBSERVED = ("allocate_slots", "get_computed_blocks")
_DIRECT = (*_OBSERVED, "get_block_ids", "get_block_ids_for_computed_tokens")


class KVCacheManager(ManagerCalls, StockManager):  # type: ignore[misc]
    """The manager of vLLM's scheduler, with its state in Rust.

    Made with the arguments of vLLM's class. Only for configurations that
    :func:`~kvoxide.vllm.adapter.reasons_against` has nothing against.
    """

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
        self.block_pool.on_first_watcher = self._tell_observers
        self.coordinator.on_watched_caching = self._bind_calls
        self._bind_calls()
        if wanted.retention == "adaptive":
            telling = telling_each_minute(self.engine, self.new_step_starts)
            self.__dict__["new_step_starts"] = telling

    def _bind_calls(self) -> None:
        """The engine's methods are this object's: no Python frame between, unless somebody is to
        be told what they did."""
        for name in _DIRECT:
            self.__dict__[name] = getattr(self.engine, name)
        if self._has_observers:
            for name in _OBSERVED:
                self.__dict__[name] = self.block_pool.observing(self.__dict__[name])
        if self.coordinator.is_caching_watched:
            self.__dict__["allocate_slots"] = self._telling_of_caching(self.allocate_slots)

    def _tell_observers(self) -> None:
        self._has_observers = True
        self._bind_calls()

    def _telling_of_caching(self, allocate_slots: Callable[..., Any]) -> Callable[..., Any]:
        """``allocate_slots`` for code that put itself in place of a group's ``cache_blocks``."""
        signature = inspect.signature(StockManager.allocate_slots)

        def telling(*args: Any, **kwargs: Any) -> Any:
            new_blocks = allocate_slots(*args, **kwargs)
            given = signature.bind(self, *args, **kwargs)
            given.apply_defaults()
            asked = given.arguments
            request = asked["request"]
            if new_blocks is not None and self.enable_caching and not asked["delay_cache_blocks"]:
                computed = request.num_computed_tokens + asked["num_new_computed_tokens"]
                computed += asked["num_external_computed_tokens"]
                num_tokens = min(computed + asked["num_new_tokens"], request.num_tokens)
                self.coordinator.tell_of_caching(request, num_tokens)
            return new_blocks

        return telling

    @property
    def usage(self) -> float:
        return self.engine.usage

    def take_events(self) -> list[Any]:
        events: list[Any] = self.block_pool.take_events()
        if add_kinds(events, self.kv_cache_event_metadata):
            return events
        # vLLM's own method warns of an event of an unknown group.
        self.block_pool.kv_event_queue = events
        return super().take_events()  # type: ignore[no-any-return]

    def get_blocks(self, request_id: str) -> Any:
        return self.engine.get_blocks(request_id, self._tables)

    def truncate_computed_blocks(self, blocks: Any, num_computed_tokens: int) -> Any:
        return self.engine.truncate_computed_blocks(blocks, num_computed_tokens)

    def take_new_block_ids(self) -> list[int]:
        return self.engine.take_new_block_ids()

    def record_blocks_for_zeroing(self, request_id: str, start_token: int) -> None:
        self.engine.record_blocks_for_zeroing(request_id, start_token)

    def take_kv_cache_block_copies(self) -> tuple[list[KVCacheBlockCopy], list[Any]]:
        copies, blocks = self.engine.take_kv_cache_block_copies()
        for manager in self.coordinator.single_type_managers:
            # The engine's are in no list; others may put theirs into vLLM's.
            if manager._pending_cow_copies:
                for pair in manager.take_pending_cow_copies():
                    copies.append((pair[0].block_id, pair[1].block_id))
                    blocks += pair
        return [KVCacheBlockCopy(*copy) for copy in copies], blocks

    def take_boundary_state_offloads(self) -> dict[str, list[tuple[int, int, int]]]:
        return self.engine.take_boundary_state_offloads() if self._has_states else {}

    def finalize_partial_tail_offloads(self, request: Any) -> list[tuple[int, int, int]]:
        if not self._has_states:
            return []
        return self.engine.finalize_partial_tail_offloads(request, request.request_id)

    def new_step_starts(self) -> None:
        if self._has_states:
            self.engine.new_step_starts()

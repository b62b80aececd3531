"""vLLM's block pool over the engine: the same calls and attributes, an object for each block that
Python code asked for."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from threading import Lock
from typing import Any, TypeVar

from vllm.v1.core.block_pool import BlockPool

from kvoxide._core import BusyError
from kvoxide._core_vllm import VllmBlock, VllmEvents, VllmManager
from kvoxide.vllm.adapter.events import EVENT_CLASSES
from kvoxide.vllm.adapter.keys import ExtraKeysByBlock, HashToBlock
from kvoxide.vllm.adapter.queue import FreeQueue
from kvoxide.vllm.adapter.watched import (
    BUSY,
    Watched,
    fields_of,
    let_vllm_continue,
    replacing_class,
)
from kvoxide.vllm.environment import logger

T = TypeVar("T")


class NativeBlockPool(BlockPool, Watched):  # type: ignore[misc]
    """The pool of an engine. Blocks are views; what is written to them goes through."""

    _name_in_messages = "block_pool"
    _settable = frozenset(
        {
            "evict_blocks",
            "kv_event_queue",
            "medium",
            "reset_prefix_cache",
            "take_events",
            "unpin_blocks",
        }
    )

    def __init__(self, engine: VllmManager, arguments: Mapping[str, Any], medium: str) -> None:
        """Take over ``engine``; ``arguments`` are vLLM's for its manager, by name."""
        self._closer = engine.set_facade(self)
        self.engine = engine
        self.num_gpu_blocks = engine.num_blocks
        self.medium = medium
        self.enable_caching = arguments["enable_caching"]
        self.hash_block_size = arguments["hash_block_size"]
        self.num_hash_lookahead_tokens = arguments.get("num_hash_lookahead_tokens", 0)
        self.enable_kv_cache_events = arguments["enable_kv_cache_events"]
        self.metrics_collector = arguments["metrics_collector"]
        self.null_block = engine.block(0)
        self.blocks = engine.blocks()
        self.free_block_queue = FreeQueue(engine)
        self.cached_block_hash_to_block = HashToBlock(engine)
        if not isinstance(self, PoolOfManyKeys):
            self.cached_block_hashes_by_block = ExtraKeysByBlock(engine)
        self.kv_event_queue: list[Any] = []
        self._reuse_watchers: dict[int, Callable[[Any], None]] = {}
        self._observes = self.metrics_collector is not None
        self.on_first_watcher: Callable[[], None] = lambda: None
        self._call_lock = Lock()

    def get_cached_block(self, block_hash: bytes, kv_cache_group_ids: list[int]) -> Any:
        return self.engine.get_cached_block(block_hash, kv_cache_group_ids)

    def get_new_blocks(self, num_blocks: int) -> list[Any]:
        return self._call_and_notify(self.engine.get_new_blocks, num_blocks)

    def touch(self, blocks: Sequence[Any]) -> None:
        self._call_and_notify(self.engine.touch, blocks)

    def free_blocks(self, ordered_blocks: Iterable[Any]) -> None:
        own: list[Any] = []
        elsewhere: dict[Any, list[Any]] = {}
        for block in ordered_blocks:
            if type(block) is VllmBlock:
                own.append(block)
            elif not block.is_null:
                pool = block.pool
                (own if pool is self else elsewhere.setdefault(pool, [])).append(block)
        self.engine.free_blocks(own)
        for pool, blocks in elsewhere.items():
            pool.free_blocks(blocks)

    def unpin_blocks(self, blocks: Iterable[Any], on_reuse: Callable[[Any], None]) -> None:
        self.on_first_watcher()
        if not isinstance(self, NativeBlockPool):
            self.unpin_blocks(blocks, on_reuse)
            return
        blocks = list(blocks)
        watchers = [(block.block_id, on_reuse) for block in blocks]
        self.engine.unpin_blocks(blocks)
        self.engine.observe()
        fields_of(self)["_observes"] = True
        self._reuse_watchers.update(watchers)

    def evict_blocks(self, block_ids: Iterable[int]) -> None:
        self._call_and_notify(self.engine.evict_blocks, list(block_ids))

    def reset_prefix_cache(self) -> bool:
        if not self._call_and_notify(self._reset):
            in_use = self.num_gpu_blocks - 1 - self.get_num_free_blocks()
            logger.warning(
                "kvoxide: the prefix cache was not reset, because %d blocks are in use. Reset it "
                "again when no request runs.",
                in_use,
            )
            return False
        logger.info("kvoxide: the prefix cache was reset.")
        return True

    def _reset(self) -> bool:
        if not self.engine.reset_prefix_cache():
            return False
        self._or_poison(self._notify_of_reset)
        return True

    def _notify_of_reset(self) -> None:
        watchers, fields_of(self)["_reuse_watchers"] = self._reuse_watchers, {}
        for block_id, on_reuse in watchers.items():
            on_reuse(self.engine.block(block_id))
        if self.metrics_collector:
            self.metrics_collector.reset()

    def get_num_free_blocks(self) -> int:
        return self.engine.get_num_free_blocks()

    def get_usage(self) -> float:
        return self.engine.usage

    def take_events(self) -> list[Any]:
        if not self.enable_kv_cache_events:
            return []
        self.notify_observers()
        events, fields_of(self)["kv_event_queue"] = self.kv_event_queue, []
        return events

    @property
    def is_notifying(self) -> bool:
        """Whether observers are being notified of what a call did."""
        return self._call_lock.locked()

    def with_notification(self, call: Callable[..., T]) -> Callable[..., T]:
        """Return ``call``, a call of the engine whose first argument is a request, with
        notifications: it reports to vLLM's events, metrics and callbacks before the next call.

        The call raises an observer's error. The engine is then poisoned, because the other
        observers were not notified and the answer is lost.
        """

        call_lock = self._call_lock

        def call_and_notify(request: Any, *args: Any, **kwargs: Any) -> T:
            if not isinstance(self, NativeBlockPool):
                return call(request, *args, **kwargs)
            if not call_lock.acquire(False):
                raise BusyError(BUSY)
            try:
                result = call(request, *args, **kwargs)
                self._notify(request)
                return result
            finally:
                call_lock.release()
                self._watcher.replace_if_pending()

        return call_and_notify

    def _call_and_notify(self, call: Callable[..., T], *args: Any) -> T:
        return self.with_notification(lambda _: call(*args))(None)

    def notify_observers(self) -> None:
        """Tell what the engine did since the last call."""
        if not self._call_lock.acquire(False):
            raise BusyError(BUSY)
        try:
            self._notify(None)
        finally:
            self._call_lock.release()

    def _notify(self, request: Any) -> None:
        if self.enable_kv_cache_events:
            events = self.engine.take_events()
            if events is not None:
                self._or_poison(self._queue_events, events, request)
        if self._observes:
            self._or_poison(self._notify_of_observations)

    def _or_poison(self, notify: Callable[..., None], *args: Any) -> None:
        try:
            notify(*args)
        except BaseException as error:
            self.engine.poison(
                f"an observer of the block pool raised {type(error).__name__}: {error}"
            )
            raise

    def _queue_events(self, events: VllmEvents, request: Any) -> None:
        self.kv_event_queue.extend(
            events.as_vllm(EVENT_CLASSES, request, self.medium, self.num_hash_lookahead_tokens)
        )

    def _notify_of_observations(self) -> None:
        observations = self.engine.take_observations()
        for index, (what, number) in enumerate(observations):
            if what == "taking":
                # vLLM tells the watchers of all of them before it looks at the first.
                taken = observations[index + 1 : index + 1 + number]
                self._notify_watchers(block_id for _, block_id in taken)
            elif self.metrics_collector:
                self._notify_collector(what, self.engine.block(number))

    def _notify_watchers(self, block_ids: Iterable[int]) -> None:
        if not self._reuse_watchers:
            return
        for block_id in block_ids:
            watcher = self._reuse_watchers.pop(block_id, None)
            if watcher is not None:
                watcher(self.engine.block(block_id))

    def _notify_collector(self, what: str, block: Any) -> None:
        collector = self.metrics_collector
        if what == "touched":
            collector.on_block_accessed(block)
        elif what == "evicted" or self.enable_caching:
            collector.on_block_evicted(block)
        if what == "taken":
            collector.on_block_allocated(block)

    def _insert_block_hash(
        self, block_hash_with_group_id: bytes, block: Any, num_tokens: int | None
    ) -> None:
        self.engine.insert_key(block.block_id, block_hash_with_group_id, num_tokens)

    def _remove_cached_block_hashes(self, block: Any) -> list[bytes]:
        return self.engine.remove_keys(block.block_id)

    def _maybe_evict_cached_block(self, block: Any) -> bool:
        was_cached = block.block_hash is not None
        self._call_and_notify(self.engine.evict_blocks, [block.block_id])
        return was_cached

    def _replace_for_block(self, name: str) -> None:
        """Let vLLM's own objects continue, because ``name`` of a block is set."""
        let_vllm_continue(self, f"blocks[...].{name} is set")


class PoolOfManyKeys(NativeBlockPool):
    """A pool where blocks often have alias keys: a dictionary has them once code asks for it."""

    @cached_property
    def cached_block_hashes_by_block(self) -> ExtraKeysByBlock:  # type: ignore[override]
        """The alias keys of blocks."""
        return ExtraKeysByBlock(self.engine)


def make_pool(engine: VllmManager, arguments: Mapping[str, Any], medium: str) -> NativeBlockPool:
    """Return the pool of an engine; ``arguments`` are vLLM's for its manager, by name."""
    has_states = arguments["kv_cache_config"].has_mamba_layers
    has_many = has_states or engine.enable_partial_hash_hits
    made: NativeBlockPool = (_POOL_OF_MANY_KEYS if has_many else _POOL)(engine, arguments, medium)
    return made


_POOL: Any = replacing_class(NativeBlockPool, BlockPool)
_POOL_OF_MANY_KEYS: Any = replacing_class(PoolOfManyKeys, BlockPool)

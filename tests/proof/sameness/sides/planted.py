"""vLLM's manager with one fault each, to show that the harness would find it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ..driver import Allocation, BlockIds, Event, Events, Hit, MakeDriver, NewRequest, Progress
from ..scenarios import WINDOW_KINDS, Scenario
from .vllm import VllmDriver


class FaultyDriver(VllmDriver):
    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self.scenario = scenario
        self.plant()

    def plant(self) -> None:
        """Change the manager that was just made."""

    @property
    def window_managers(self) -> list[Any]:
        managers = self.manager.coordinator.single_type_managers
        return [
            manager
            for manager, group in zip(managers, self.scenario.groups, strict=True)
            if group.kind in WINDOW_KINDS
        ]


class FifoQueue(FaultyDriver):
    def plant(self) -> None:
        queue = self._pool.free_block_queue
        queue.prepend_n = queue.append_n


class ForwardFree(FaultyDriver):
    def return_popped(self) -> None:
        self._pool.free_blocks(self._popped.popleft())


class NoReachableMask(FaultyDriver):
    def plant(self) -> None:
        for manager in self.window_managers:
            manager.reachable_block_mask = lambda **_: None


class NoJunctionTail(FaultyDriver):
    def plant(self) -> None:
        for manager in self.window_managers:
            manager.reachable_block_mask = _without_last_boundary(manager.reachable_block_mask)


def _without_last_boundary(mask: Callable[..., object]) -> Callable[..., object]:
    def shorter_mask(*, reachable_boundaries: Sequence[int], **rest: object) -> object:
        kept = reachable_boundaries[: max(1, len(reachable_boundaries) - 1)]
        return mask(reachable_boundaries=kept, **rest)

    return shorter_mask


class NoPartialTail(FaultyDriver):
    def plant(self) -> None:
        for manager in self.manager.coordinator.single_type_managers:
            manager._cache_partial_tail_block = lambda *_: None


class LongHit(FaultyDriver):
    """Leaves two tokens to compute instead of one."""

    def look_up(self, request_id: str, max_hit: int | None, for_connector: bool) -> Hit:
        num_tokens = self._requests[request_id].num_tokens
        bound = max(0, num_tokens - 2) if max_hit is None else max_hit
        return super().look_up(request_id, bound, for_connector)


class NoBoundary(FaultyDriver):
    def look_up(self, request_id: str, max_hit: int | None, for_connector: bool) -> Hit:
        hit = super().look_up(request_id, max_hit, for_connector)
        return replace(hit, shared_prefix_boundary=0)


class NewestDuplicate(FaultyDriver):
    def plant(self) -> None:
        index = self._pool.cached_block_hash_to_block
        first = index.get_one_block

        def newest(key: bytes) -> object:
            blocks = index._cache.get(key)
            return next(reversed(blocks.values())) if isinstance(blocks, dict) else first(key)

        index.get_one_block = newest


class NoEagleDrop(FaultyDriver):
    def plant(self) -> None:
        coordinator = self.manager.coordinator
        coordinator.drop_eagle_group_ids = set()
        groups = getattr(coordinator, "attention_groups", [])
        groups[:] = [group._replace(use_eagle=False) for group in groups]


class ChangedEvent(FaultyDriver):
    """``field`` of every stored event is lost."""

    field: str

    def take_events(self) -> Events:
        events = super().take_events()
        return Events([self._lost(event) for event in events.events], events.unordered)

    def _lost(self, event: Event) -> Event:
        return event if event["type"] != "stored" else {**event, self.field: None}


class NoParentHash(ChangedEvent):
    field = "parent_block_hash"


class NoExtraKeys(ChangedEvent):
    field = "extra_keys"


class NoLoraId(ChangedEvent):
    field = "lora_id"


class NoWindowInEvent(ChangedEvent):
    field = "kv_cache_spec_sliding_window"


class NoRemovedEvents(FaultyDriver):
    def plant(self) -> None:
        self._pool._emit_block_removed_events = lambda _: None


class ReversedZeroing(FaultyDriver):
    def take_new_block_ids(self) -> list[int]:
        return super().take_new_block_ids()[::-1]


class ZeroesLoadedBlocks(FaultyDriver):
    def allocate(self, request_id: str, allocation: Allocation) -> BlockIds | None:
        return super().allocate(request_id, replace(allocation, skip_zeroing_group_ids=()))


class NoWatermark(FaultyDriver):
    def plant(self) -> None:
        self.manager.watermark_blocks = 0


class NoAdmissionCap(FaultyDriver):
    def plant(self) -> None:
        for manager in self.window_managers:
            manager.max_admission_blocks_per_request = None


class NoReservation(FaultyDriver):
    def allocate(self, request_id: str, allocation: Allocation) -> BlockIds | None:
        return super().allocate(request_id, replace(allocation, reserved_blocks=0))


class IgnoresInFlight(FaultyDriver):
    def set_progress(self, request_id: str, progress: Progress) -> None:
        super().set_progress(request_id, replace(progress, num_in_flight_tokens=0))


class EarlyCaching(FaultyDriver):
    def allocate(self, request_id: str, allocation: Allocation) -> BlockIds | None:
        return super().allocate(request_id, replace(allocation, delay_cache_blocks=False))


class NoExtraRetention(FaultyDriver):
    def plant(self) -> None:
        for manager in self.window_managers:
            manager.extra_retained_tokens = 0


class UnsaltedHashes(FaultyDriver):
    def new_request(self, request: NewRequest) -> list[bytes]:
        return super().new_request(replace(request, cache_salt=None))


class ForgetsPreemption(FaultyDriver):
    def set_progress(self, request_id: str, progress: Progress) -> None:
        super().set_progress(request_id, replace(progress, num_preemptions=0))


class SilentOnNothing(FaultyDriver):
    def allocate(self, request_id: str, allocation: Allocation) -> BlockIds | None:
        try:
            return super().allocate(request_id, allocation)
        except ValueError:
            return None


class LateWatchers(FaultyDriver):
    """Tells the watchers of reused blocks after the metrics collector."""

    def plant(self) -> None:
        take = self._pool.get_new_blocks
        watch = self._pool._notify_reuse
        self._pool._notify_reuse = lambda _: None

        def take_then_watch(num_blocks: int) -> object:
            blocks = take(num_blocks)
            watch(blocks)
            return blocks

        self._pool.get_new_blocks = take_then_watch


class OtherError(FaultyDriver):
    def take_blocks(self, num_blocks: int) -> list[int]:
        try:
            return super().take_blocks(num_blocks)
        except ValueError as error:
            raise RuntimeError(*error.args) from None


FAULTS: dict[str, MakeDriver] = {
    fault.__name__: fault
    for fault in (
        FifoQueue,
        ForwardFree,
        NoReachableMask,
        NoJunctionTail,
        NoPartialTail,
        LongHit,
        NoBoundary,
        NewestDuplicate,
        NoEagleDrop,
        NoParentHash,
        NoExtraKeys,
        NoLoraId,
        NoWindowInEvent,
        NoRemovedEvents,
        ReversedZeroing,
        ZeroesLoadedBlocks,
        NoWatermark,
        NoAdmissionCap,
        NoReservation,
        IgnoresInFlight,
        EarlyCaching,
        NoExtraRetention,
        UnsaltedHashes,
        ForgetsPreemption,
        SilentOnNothing,
        LateWatchers,
        OtherError,
    )
}

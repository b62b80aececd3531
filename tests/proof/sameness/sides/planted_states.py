"""vLLM's manager with one fault each in what it does with recurrent states."""

from typing import Any

from ..driver import Copies, MakeDriver, Offloads
from .planted import FaultyDriver


class StateFault(FaultyDriver):
    @property
    def state_managers(self) -> list[Any]:
        managers = self.manager.coordinator.single_type_managers
        return [
            manager
            for manager, group in zip(managers, self.scenario.groups, strict=True)
            if group.kind == "mamba"
        ]


class NoNotes(set[bytes]):
    def add(self, _: bytes) -> None:
        return


class HitsInTheSameStep(StateFault):
    def plant(self) -> None:
        for manager in self.state_managers:
            manager.cached_blocks_this_step = NoNotes()


class StepsNeverStart(StateFault):
    def start_step(self) -> None:
        return


class NoInternalCheckpoint(StateFault):
    def plant(self) -> None:
        for manager in self.state_managers:
            manager._needs_internal_checkpoint = lambda *_: False


class CheckpointInEveryChunk(StateFault):
    """Reserves blocks where retention keeps only the end of the prefill."""

    def plant(self) -> None:
        coordinator = self.manager.coordinator
        demand = coordinator.get_num_blocks_to_allocate
        coordinator.get_num_blocks_to_allocate = lambda *args, **kwargs: demand(
            *args, **{**kwargs, "prefill_end": 0}
        )


class NoCheckpointDrop(StateFault):
    def plant(self) -> None:
        for manager in self.state_managers:
            manager.drop_eagle_checkpoint_block = False


class NoJunctionState(StateFault):
    def plant(self) -> None:
        for manager in self.state_managers:
            manager.shared_prefix_checkpoint = False


class KeepsEveryState(StateFault):
    def plant(self) -> None:
        for manager in self.state_managers:
            manager.reachable_block_mask = lambda *_, **__: None


class FreesNoState(StateFault):
    def plant(self) -> None:
        for manager in self.state_managers:
            manager._remove_blocks_in_range = lambda *_: None


class NoPartialState(StateFault):
    def plant(self) -> None:
        for manager in self.state_managers:
            manager._cache_partial_tail_block = lambda *_, **__: None


class NoPartialHits(StateFault):
    def plant(self) -> None:
        self.manager.coordinator.enable_partial_hash_hits = False


class CopiesBackwards(StateFault):
    def take_copies(self) -> Copies:
        copies = super().take_copies()
        return Copies([(target, source) for source, target in copies.pairs], copies.kept)


class CopiesNotKept(StateFault):
    def take_copies(self) -> Copies:
        copies = super().take_copies()
        if copies.kept:
            self._pool.free_blocks(self._copied[-1])
            self._copied[-1] = []
        return copies


class NoStateOffered(StateFault):
    def take_offloads(self) -> Offloads:
        return {request_id: offers[1:] for request_id, offers in super().take_offloads().items()}


class NoTailOffered(StateFault):
    def finalize_tails(self, request_id: str) -> list[tuple[int, int, int]]:
        super().finalize_tails(request_id)
        return []


STATE_FAULTS: dict[str, MakeDriver] = {
    fault.__name__: fault
    for fault in (
        HitsInTheSameStep,
        StepsNeverStart,
        NoInternalCheckpoint,
        CheckpointInEveryChunk,
        NoCheckpointDrop,
        NoJunctionState,
        KeepsEveryState,
        FreesNoState,
        NoPartialState,
        NoPartialHits,
        CopiesBackwards,
        CopiesNotKept,
        NoStateOffered,
        NoTailOffered,
    )
}

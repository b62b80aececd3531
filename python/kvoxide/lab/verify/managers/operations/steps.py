"""The scheduler's work between steps: it passes copies and offloads to the worker."""

from dataclasses import dataclass

from kvoxide.lab.verify.managers.operations.operation import OfRequest, Operation
from kvoxide.lab.verify.managers.world import RequestModel, World


@dataclass(frozen=True)
class NextStep(Operation):
    """Takes a step's copies and offloads, and begins the next step. Kept blocks are released then,
    or later by ReleaseCopied."""

    deferred: bool = False
    without_taking: bool = False

    def run(self, world: World) -> None:
        if not self.without_taking:
            self._take(world)
        world.scheduled.clear()
        world.call("new_step_starts", lambda d: d.start_step())

    def _take(self, world: World) -> None:
        offloads = world.call("take_boundary_state_offloads", lambda d: d.take_offloads())
        world.coverage.seen["states offered"] += sum(map(len, offloads.values()))
        copies = world.call("take_kv_cache_block_copies", lambda d: d.take_copies())
        world.coverage.seen["blocks copied"] += len(copies.pairs)
        if copies.kept:
            world.num_copied += 1
            if not self.deferred:
                release_copied(world)


@dataclass(frozen=True)
class ReleaseCopied(Operation):
    def applies(self, world: World) -> bool:
        return world.num_copied > 0

    def run(self, world: World) -> None:
        release_copied(world)


@dataclass(frozen=True)
class FinalizeTails(OfRequest):
    def run_for(self, world: World, model: RequestModel) -> None:
        finalize_tails(world, model)


def release_copied(world: World) -> None:
    world.num_copied -= 1
    world.call("free_blocks (copied)", lambda d: d.release_copied())


def finalize_tails(world: World, model: RequestModel) -> None:
    tails = world.call_for(
        model,
        "finalize_partial_tail_offloads",
        lambda d: d.finalize_tails(model.request_id),
    )
    world.coverage.seen["tails offered at the end"] += len(tails)

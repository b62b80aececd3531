"""Draws writes to a manager's own queue and tables."""

import random

from kvoxide.lab.verify.managers.operations import Operation
from kvoxide.lab.verify.managers.operations.written import (
    CutAndRegrow,
    CutDrafts,
    HoldByHand,
    PreemptByHand,
    ReleaseByHand,
    ReplaceBlock,
    Requeue,
    RotateOwn,
    TakeByHand,
)
from kvoxide.lab.verify.managers.scenarios import Scenario
from kvoxide.lab.verify.managers.world import World


class WritingTraffic:
    def __init__(self, rng: random.Random, scenario: Scenario) -> None:
        self._rng = rng
        self._scenario = scenario

    def write(self, world: World) -> Operation | None:
        return self._write_queue(world) if self._rng.random() < 0.5 else self._write_table(world)

    def _write_queue(self, world: World) -> Operation:
        flips = [self._rng.random() < 0.5 for _ in range(2)]
        if world.num_held >= 3:
            return ReleaseByHand(*flips)
        block_id = self._rng.randrange(self._scenario.num_blocks)
        drawn: tuple[Operation, ...] = (
            TakeByHand(self._rng.randint(0, 4), flips[0]),
            HoldByHand(block_id, flips[0]),
            Requeue(self._rng.randint(0, 6), flips[0]),
            ReleaseByHand(*flips),
        )
        return self._rng.choice(drawn)

    def _write_table(self, world: World) -> Operation | None:
        holders = world.holders
        if not holders:
            return None
        request_id = self._rng.choice(holders).request_id
        if self._rng.random() < 0.1:
            return PreemptByHand(request_id)
        kind = self._rng.choice((CutAndRegrow, CutDrafts, ReplaceBlock, RotateOwn))
        return kind(request_id, self._rng.randrange(8), self._rng.randrange(1000))

"""Draws misuses, and calls that only managers with vLLM's interface have."""

import random
from collections.abc import Iterable

from kvoxide.lab.verify.managers.operations import Operation
from kvoxide.lab.verify.managers.operations.inside import (
    CacheBeyondBlocks,
    EvictBeyond,
    FreeIdsAfter,
    GroupUnknown,
    HashesMissing,
    HashOfOtherLength,
    HitFromHeld,
    HitOfHashes,
    HitViewed,
    HitWhileHolding,
    SetHashTwice,
    TruncateFewerGroups,
    TruncateUnaligned,
    UnhashedIds,
    UnpinNotHeld,
    UnpinTwice,
    ZeroUnaligned,
)
from kvoxide.lab.verify.managers.operations.pool import (
    AllocateNothing,
    EvictOutside,
    TakeTooMany,
    TruncateTooLong,
)
from kvoxide.lab.verify.managers.operations.surface import IndexViewed, Starve
from kvoxide.lab.verify.managers.scenarios import Scenario
from kvoxide.lab.verify.managers.world import RequestModel, World


class InsideTraffic:
    def __init__(self, rng: random.Random, scenario: Scenario) -> None:
        self._rng = rng
        self._scenario = scenario

    def misuse(self, world: World) -> Operation | None:
        model = self._pick(world.requests.values())
        if model is None or self._chance(0.3):
            return self._rng.choice((TakeTooMany, EvictOutside))()
        return self._rng.choice((AllocateNothing, TruncateTooLong))(model.request_id)

    def look_inside(self, world: World) -> Operation | None:
        model = self._pick(world.requests.values())
        if model is None:
            return self._rng.choice((FreeIdsAfter(None), HashOfOtherLength(40)))
        if self._chance(0.3):
            return FreeIdsAfter(self._rng.randrange(self._scenario.num_blocks))
        kind = self._rng.choice((HitViewed, HitOfHashes))
        if kind is HitViewed:
            return HitViewed(model.request_id)
        num_hashes = self._rng.randint(0, len(model.block_hashes))
        length = self._rng.randint(0, num_hashes * self._scenario.hash_block_size)
        return HitOfHashes(model.request_id, num_hashes, length, self._chance(0.4))

    def misuse_inside(self, world: World) -> Operation | None:
        model = self._pick(world.requests.values())
        if model is None or self._chance(0.3):
            return self._rng.choice((UnpinNotHeld, SetHashTwice))()
        misuses = (TruncateUnaligned, TruncateFewerGroups, HashesMissing, UnhashedIds, GroupUnknown)
        return self._rng.choice(misuses)(model.request_id)

    def misuse_for_good(self, world: World) -> Operation | None:
        """Draw a call at which vLLM raises halfway through its work. It ends a scenario."""
        model = self._pick(world.requests.values())
        if model is None or self._chance(0.3):
            return self._rng.choice((EvictBeyond, UnpinTwice))()
        misuses = (HitWhileHolding, HitFromHeld, ZeroUnaligned, CacheBeyondBlocks)
        return self._rng.choice(misuses)(model.request_id)

    def poke(self, world: World) -> Operation | None:
        model = self._pick(world.requests.values())
        if model is None:
            return None
        if self._chance(0.5):
            return IndexViewed(model.request_id, self._rng.randrange(64))
        return Starve(model.request_id, self._rng.randint(0, 2))

    def _chance(self, share: float) -> bool:
        return self._rng.random() < share

    def _pick(self, models: Iterable[RequestModel]) -> RequestModel | None:
        candidates = list(models)
        return self._rng.choice(candidates) if candidates else None

"""Further calls of a manager and its pool, and a few misuses of them."""

from dataclasses import dataclass

from kvoxide.lab.verify.managers.driver import Allocation
from kvoxide.lab.verify.managers.operations.calls import (
    blocks_still_needed,
    cache,
    known_groups,
    look_up,
    record_for_zeroing,
    remove_skipped,
    show_table,
)
from kvoxide.lab.verify.managers.operations.operation import OfRequest, Operation
from kvoxide.lab.verify.managers.world import RequestModel, World


@dataclass(frozen=True)
class ReturnDeferred(Operation):
    def applies(self, world: World) -> bool:
        return world.num_popped > 0

    def run(self, world: World) -> None:
        world.num_popped -= 1
        world.call("free_blocks (deferred)", lambda d: d.return_popped())


@dataclass(frozen=True)
class RemoveSkipped(OfRequest):
    def run_for(self, world: World, model: RequestModel) -> None:
        remove_skipped(world, model)


@dataclass(frozen=True)
class CacheBlocks(OfRequest):
    def fits(self, world: World, model: RequestModel) -> bool:
        return model.holds_blocks and not model.is_loading

    def run_for(self, world: World, model: RequestModel) -> None:
        cache(world, model, min(model.num_processed_tokens, model.num_tokens))


@dataclass(frozen=True)
class Inspect(OfRequest):
    """Calls every method that only shows something of a request. If states are aligned, it leaves
    out the uncapped demand, which also reserves a checkpoint."""

    def run_for(self, world: World, model: RequestModel) -> None:
        show_table(world, model)
        request_id = model.request_id
        world.call_for(
            model, "estimate_cached_tokens", lambda d: d.estimate_cached_tokens(request_id)
        )
        if model.holds_blocks:
            # Older releases of vLLM count a request from then on that is asked for without blocks.
            world.call("num_common_prefix_blocks", lambda d: d.num_common_prefix_blocks(request_id))
        for capped in (True,) if world.scenario.aligns_states else (False, True):
            blocks_still_needed(world, model, capped)


@dataclass(frozen=True)
class RecordForZeroing(OfRequest):
    start_block: int = 0

    def fits(self, world: World, model: RequestModel) -> bool:
        return model.holds_blocks

    def run_for(self, world: World, model: RequestModel) -> None:
        record_for_zeroing(world, model, self.start_block * world.scenario.scheduler_block_size)


@dataclass(frozen=True)
class CachedBlock(OfRequest):
    """Reads from the pool the block of one of the request's hashes, and sometimes holds it."""

    hash_index: int = 0
    group_ids: tuple[int, ...] = (0,)
    hold: bool = False

    def fits(self, world: World, model: RequestModel) -> bool:
        return bool(model.block_hashes) and bool(known_groups(world, self.group_ids))

    def run_for(self, world: World, model: RequestModel) -> None:
        block_hash = model.block_hashes[self.hash_index % len(model.block_hashes)]
        group_ids = known_groups(world, self.group_ids)
        if not self.hold:
            world.call("get_cached_block", lambda d: d.cached_block(block_hash, group_ids))
        elif world.call("touch", lambda d: d.hold_cached(block_hash, group_ids)) is not None:
            world.num_held += 1


@dataclass(frozen=True)
class TakeBlocks(Operation):
    num_blocks: int

    def run(self, world: World) -> None:
        if self.num_blocks > world.num_free_blocks():
            return
        world.call("get_new_blocks", lambda d: d.take_blocks(self.num_blocks))
        world.num_held += 1


@dataclass(frozen=True)
class ReleaseHeld(Operation):
    def applies(self, world: World) -> bool:
        return world.num_held > 0

    def run(self, world: World) -> None:
        world.num_held -= 1
        world.call("free_blocks (held)", lambda d: d.release_held())


@dataclass(frozen=True)
class Evict(Operation):
    block_ids: tuple[int, ...]

    def run(self, world: World) -> None:
        world.call("evict_blocks", lambda d: d.evict(list(self.block_ids)))


@dataclass(frozen=True)
class ResetPrefixCache(Operation):
    def run(self, world: World) -> None:
        done = world.call("reset_prefix_cache", lambda d: d.reset_prefix_cache())
        world.coverage.seen[f"reset {'done' if done else 'refused'}"] += 1


@dataclass(frozen=True)
class TakeEvents(Operation):
    def run(self, world: World) -> None:
        events = world.call("take_events", lambda d: d.take_events())
        for event in events.events:
            world.coverage.seen[f"event {event['type']}"] += 1
        world.coverage.seen["removals in no order"] += len(events.unordered)


@dataclass(frozen=True)
class TakeNewBlockIds(Operation):
    def run(self, world: World) -> None:
        ids = world.call("take_new_block_ids", lambda d: d.take_new_block_ids())
        world.coverage.seen["blocks to zero"] += len(ids)


@dataclass(frozen=True)
class TakeStats(Operation):
    def run(self, world: World) -> None:
        world.call("make_prefix_cache_stats", lambda d: d.take_stats())


@dataclass(frozen=True)
class AllocateNothing(OfRequest):
    """Misuse: allocate with no new tokens and no computed tokens."""

    def run_for(self, world: World, model: RequestModel) -> None:
        nothing = Allocation(num_new_tokens=0)
        world.call_refused("allocate_slots of nothing", lambda d: d.allocate(self.request, nothing))


@dataclass(frozen=True)
class TakeTooMany(Operation):
    """Misuse: take more blocks than are free."""

    def run(self, world: World) -> None:
        too_many = world.num_free_blocks() + 1
        world.call_refused("get_new_blocks of too many", lambda d: d.take_blocks(too_many))


@dataclass(frozen=True)
class EvictOutside(Operation):
    """Misuse: evict a block id beyond the pool."""

    def run(self, world: World) -> None:
        outside = world.scenario.num_blocks
        world.call_refused("evict_blocks outside the pool", lambda d: d.evict([outside]))


@dataclass(frozen=True)
class TruncateTooLong(OfRequest):
    """Misuse: truncate a look-up result to more than it has."""

    def fits(self, world: World, model: RequestModel) -> bool:
        return not model.is_stopped

    def run_for(self, world: World, model: RequestModel) -> None:
        hit = look_up(world, model, None, False)
        longer = hit.num_tokens + world.scenario.scheduler_block_size
        world.call_refused(
            "truncate_computed_blocks to more", lambda d: d.truncate_hit(self.request, longer)
        )

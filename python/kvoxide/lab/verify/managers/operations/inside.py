"""Calls that only managers with vLLM's interface have, and misuses for which vLLM raises."""

from dataclasses import dataclass

from kvoxide.lab.verify.managers.driver import Allocation
from kvoxide.lab.verify.managers.operations.calls import look_up
from kvoxide.lab.verify.managers.operations.operation import OfRequest, Operation
from kvoxide.lab.verify.managers.world import RequestModel, World


class Inside(Operation):
    def applies(self, world: World) -> bool:
        return world.has_vllm_interface and self.is_possible(world)

    def is_possible(self, world: World) -> bool:
        return True


class InsideOfRequest(OfRequest):
    def applies(self, world: World) -> bool:
        return world.has_vllm_interface and super().applies(world)

    def fits(self, world: World, model: RequestModel) -> bool:
        return not model.is_stopped


@dataclass(frozen=True)
class HitViewed(InsideOfRequest):
    """A look-up, and its blocks as every method shows them."""

    def run_for(self, world: World, model: RequestModel) -> None:
        look_up(world, model, None, False)
        world.call_inside("blocks of a hit", lambda d: d.hit_views(self.request))


@dataclass(frozen=True)
class HitOfHashes(InsideOfRequest):
    """The coordinator's own look-ups of the first hashes of a request."""

    num_hashes: int = 0
    max_length: int = 0
    per_group: bool = False

    def run_for(self, world: World, model: RequestModel) -> None:
        arguments = (self.request, self.num_hashes, self.max_length)
        world.call_inside("find_longest_cache_hit", lambda d: d.find_hit(*arguments))
        if self.per_group and world.scenario.enable_caching and len(world.scenario.groups) > 1:
            world.call_inside(
                "find_longest_cache_hit_per_group", lambda d: d.find_hit_per_group(*arguments)
            )


@dataclass(frozen=True)
class FreeIdsAfter(Inside):
    block_id: int | None = None

    def run(self, world: World) -> None:
        world.call_inside("iter_blocks_after", lambda d: d.free_ids_after(self.block_id))


@dataclass(frozen=True)
class HashOfOtherLength(Inside):
    """A look-up of tokens that cannot be cached."""

    num_bytes: int = 1

    def run(self, world: World) -> None:
        world.call(
            "get_cached_block of another length",
            lambda d: d.cached_block(bytes(self.num_bytes), [0]),
        )


@dataclass(frozen=True)
class UnpinHeld(Inside):
    def is_possible(self, world: World) -> bool:
        return world.num_held > 0

    def run(self, world: World) -> None:
        world.num_held -= 1
        world.call_inside("unpin_blocks", lambda d: d.unpin_held(1))


@dataclass(frozen=True)
class UnpinTwice(Inside):
    """Misuse: unpin each block once more than it is referenced."""

    def is_possible(self, world: World) -> bool:
        return world.num_held > 0

    def run(self, world: World) -> None:
        world.call_refused_inside("unpin_blocks twice", lambda d: d.unpin_held(1000))


@dataclass(frozen=True)
class UnpinNotHeld(Inside):
    """Misuse: unpin the null block."""

    def run(self, world: World) -> None:
        world.call_refused_inside("unpin_blocks of the null block", lambda d: d.unpin([0]))


@dataclass(frozen=True)
class EvictBeyond(Inside):
    """Misuse: evict a block id beyond the pool, after one inside it."""

    def run(self, world: World) -> None:
        ids = [world.scenario.num_blocks - 1, world.scenario.num_blocks]
        world.call_refused("evict_blocks inside and outside the pool", lambda d: d.evict(ids))


@dataclass(frozen=True)
class SetHashTwice(Inside):
    """Misuse: give a hash to a block that has one."""

    def run(self, world: World) -> None:
        world.check_state("nothing")
        block_id = world.some_cached_block
        if block_id is not None:
            world.call_refused_inside("set_block_hash", lambda d: d.set_hash(block_id, bytes(36)))


@dataclass(frozen=True)
class HitWhileHolding(InsideOfRequest):
    """Misuse: a hit for a request that has blocks. If there is no room for the hit either, vLLM may
    report that first."""

    def fits(self, world: World, model: RequestModel) -> bool:
        return model.holds_blocks and not model.is_stopped

    def run_for(self, world: World, model: RequestModel) -> None:
        hit = look_up(world, model, None, False)
        allocation = Allocation(
            num_new_tokens=1, num_new_computed_tokens=hit.num_tokens, hit_form="hit"
        )
        room = sum(len(group) + 2 for group in hit.block_ids)
        if hit.num_tokens > 0 and world.num_free_blocks() - world.watermark_blocks >= room:
            world.call_refused(
                "allocate_slots with a hit while holding blocks",
                lambda d: d.allocate(self.request, allocation),
            )


@dataclass(frozen=True)
class HitFromHeld(InsideOfRequest):
    """Misuse: pass blocks as a hit although caching is off, or for too few groups."""

    def fits(self, world: World, model: RequestModel) -> bool:
        return world.num_held > 0 and not model.holds_blocks and not model.is_stopped

    def run_for(self, world: World, model: RequestModel) -> None:
        num_groups = len(world.scenario.groups)
        if world.scenario.enable_caching:
            num_groups -= 1
        world.call_refused_inside(
            "allocate_slots with blocks that are no hit",
            lambda d: d.allocate_with_held(self.request, num_groups),
        )


@dataclass(frozen=True)
class TruncateUnaligned(InsideOfRequest):
    """Misuse: cut a look-up result inside a block."""

    def run_for(self, world: World, model: RequestModel) -> None:
        look_up(world, model, None, False)
        world.call_refused(
            "truncate_computed_blocks inside a block", lambda d: d.truncate_hit(self.request, 1)
        )


@dataclass(frozen=True)
class TruncateFewerGroups(InsideOfRequest):
    """Misuse: cut a look-up result that lacks its last group."""

    def run_for(self, world: World, model: RequestModel) -> None:
        look_up(world, model, None, False)
        num_groups = len(world.scenario.groups) - 1
        world.call_refused_inside(
            "truncate_computed_blocks of fewer groups",
            lambda d: d.truncate_groups(self.request, num_groups),
        )


@dataclass(frozen=True)
class ZeroUnaligned(InsideOfRequest):
    """Misuse: begin zeroing inside a block."""

    def fits(self, world: World, model: RequestModel) -> bool:
        # Every token begins a block of one token, so vLLM refuses none.
        has_inside = all(group.block_size > 1 for group in world.scenario.groups)
        return has_inside and super().fits(world, model)

    def run_for(self, world: World, model: RequestModel) -> None:
        inside = world.scenario.scheduler_block_size + 1
        world.call_refused(
            "record_blocks_for_zeroing inside a block",
            lambda d: d.record_for_zeroing(self.request, inside),
        )


@dataclass(frozen=True)
class HashesMissing(InsideOfRequest):
    """Misuse: look up more tokens than the hashes cover."""

    def run_for(self, world: World, model: RequestModel) -> None:
        num_hashes = len(model.block_hashes) // 2
        longer = 2 * world.scenario.max_model_len
        world.call_refused_inside(
            "find_longest_cache_hit past the hashes",
            lambda d: d.find_hit(self.request, num_hashes, longer),
        )


@dataclass(frozen=True)
class CacheBeyondBlocks(InsideOfRequest):
    """Misuse: cache more tokens than the request has blocks for. Without events, vLLM sometimes
    accepts this; kvoxide refuses it."""

    def fits(self, world: World, model: RequestModel) -> bool:
        return world.scenario.enable_events and model.holds_blocks and not model.is_stopped

    def run_for(self, world: World, model: RequestModel) -> None:
        num_tokens = model.num_tokens
        world.call_refused(
            "cache_blocks past the blocks", lambda d: d.cache_blocks(self.request, num_tokens)
        )


@dataclass(frozen=True)
class UnhashedIds(InsideOfRequest):
    """Misuse if there are several groups."""

    def run_for(self, world: World, model: RequestModel) -> None:
        look_up(world, model, None, False)
        world.call_refused_inside("get_unhashed_block_ids", lambda d: d.unhashed_ids(self.request))


@dataclass(frozen=True)
class GroupUnknown(InsideOfRequest):
    """Misuse: ask for ids of a group that does not exist, and of the last group by a negative
    index."""

    def run_for(self, world: World, model: RequestModel) -> None:
        look_up(world, model, None, False)
        for group_ids in ([-1], [len(world.scenario.groups)]):
            world.call_refused_inside(
                "get_block_ids of a group",
                lambda d, ids=group_ids: d.ids_of_groups(self.request, ids),  # type: ignore[misc]
            )

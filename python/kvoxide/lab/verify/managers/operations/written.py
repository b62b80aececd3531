"""Writes to a manager that code other than vLLM's scheduler makes: to the free queue, to block
tables, and to the number of a request's cached blocks."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kvoxide.lab.verify.managers.driver import InsideDriver
from kvoxide.lab.verify.managers.operations.inside import Inside, InsideOfRequest
from kvoxide.lab.verify.managers.world import RequestModel, World


@dataclass(frozen=True)
class TakeByHand(Inside):
    """Takes blocks as the pool does: out of the queue and out of the cache, with a reference."""

    num_blocks: int
    one_by_one: bool = False

    def run(self, world: World) -> None:
        if self.num_blocks > world.num_free_blocks():
            return
        world.call_inside("popleft by hand", lambda d: _take(d, self.num_blocks, self.one_by_one))
        world.num_held += 1


@dataclass(frozen=True)
class HoldByHand(Inside):
    """Takes a free block out of the middle of the queue, and references it before or after that."""

    block_id: int
    counts_first: bool = False

    def run(self, world: World) -> None:
        held = world.call_inside("remove by hand", lambda d: _hold(d, self.block_id, self))
        world.num_held += held is not None


@dataclass(frozen=True)
class ReleaseByHand(Inside):
    """Removes the references of blocks, and puts the blocks into the queue, at its end or its
    front."""

    to_front: bool = False
    one_by_one: bool = False

    def is_possible(self, world: World) -> bool:
        return world.num_held > 0

    def run(self, world: World) -> None:
        world.num_held -= 1
        world.call_inside("append by hand", lambda d: _release(d, self.to_front, self.one_by_one))


@dataclass(frozen=True)
class Requeue(Inside):
    """Takes blocks out of the queue and puts them back."""

    num_blocks: int
    to_front: bool = False

    def run(self, world: World) -> None:
        if self.num_blocks <= world.num_free_blocks():
            world.call_inside("requeue", lambda d: _requeue(d, self.num_blocks, self.to_front))


@dataclass(frozen=True)
class _OfTable(InsideOfRequest):
    """A write to the table of a request in one group."""

    group: int
    index: int

    def fits(self, world: World, model: RequestModel) -> bool:
        return model.holds_blocks and not model.is_stopped and not model.is_loading

    def run_for(self, world: World, model: RequestModel) -> None:
        name = f"{type(self).__name__} by hand"
        group = self.group % len(world.scenario.groups)
        world.call_inside(name, lambda d: self.write(d, model, group))

    def write(self, driver: InsideDriver, model: RequestModel, group: int) -> object:
        raise NotImplementedError


@dataclass(frozen=True)
class CutAndRegrow(_OfTable):
    """Releases the end of a table, and puts as many new blocks in its place."""

    def write(self, driver: InsideDriver, model: RequestModel, group: int) -> object:
        table = _Table(driver, model.request_id, group)
        keep = self.index % (len(table.row) + 1)
        tail = table.row[keep:]
        del table.row[keep:]
        if table.num_cached is not None:
            table.counts[table.request_id] = min(keep, table.num_cached)
        table.pool.free_blocks(reversed(tail))
        table.row.extend(table.pool.get_new_blocks(len(tail)))
        return table.shown()


@dataclass(frozen=True)
class CutDrafts(_OfTable):
    """Releases blocks after the computed tokens, without replacement."""

    def write(self, driver: InsideDriver, model: RequestModel, group: int) -> object:
        table = _Table(driver, model.request_id, group)
        block_size = driver.manager.coordinator.single_type_managers[group].block_size  # type: ignore[attr-defined]
        keep = max(-(-model.num_computed_tokens // block_size), table.num_cached or 0)
        tail = [table.row.pop() for _ in range(len(table.row) - keep)]
        table.pool.free_blocks(tail)
        return table.shown()


@dataclass(frozen=True)
class ReplaceBlock(_OfTable):
    """Puts another block in the place of one that the request writes to."""

    def write(self, driver: InsideDriver, model: RequestModel, group: int) -> object:
        table = _Table(driver, model.request_id, group)
        own = range(table.num_cached or 0, len(table.row))
        if own and table.pool.get_num_free_blocks():
            at = own[self.index % len(own)]
            before = table.row[at]
            if not before.is_null:
                table.row[at] = table.pool.get_new_blocks(1)[0]
                table.pool.free_blocks([before])
        return table.shown()


@dataclass(frozen=True)
class RotateOwn(_OfTable):
    """Exchanges the positions of blocks that the request writes to."""

    def write(self, driver: InsideDriver, model: RequestModel, group: int) -> object:
        table = _Table(driver, model.request_id, group)
        first = table.num_cached or 0
        if len(table.row) > first and not table.row[first].is_null:
            block = table.row.pop(first)
            table.row.append(block)
            if self.index % 2:
                table.row.remove(block)
                table.row.insert(first, block)
        return table.shown()


@dataclass(frozen=True)
class PreemptByHand(InsideOfRequest):
    """Removes a request's tables and its count of cached blocks, and releases its blocks later."""

    def fits(self, world: World, model: RequestModel) -> bool:
        return model.holds_blocks and model.status == "RUNNING" and not model.is_stopped

    def run_for(self, world: World, model: RequestModel) -> None:
        world.call_inside("req_to_blocks.pop", lambda d: _pop_tables(d, model.request_id))
        world.num_popped += 1
        model.holds_blocks = False
        model.preempt(drops_output=False)


class _Table:
    def __init__(self, driver: Any, request_id: str, group: int) -> None:
        manager = driver.manager.coordinator.single_type_managers[group]
        self.pool = driver.manager.block_pool
        self.request_id = request_id
        self.row = manager.req_to_blocks[request_id]
        self.counts = manager.num_cached_block
        self.num_cached = self.counts.get(request_id)

    def shown(self) -> object:
        return [block.block_id for block in self.row], self.counts.get(self.request_id)


def _take(driver: Any, num_blocks: int, one_by_one: bool) -> list[int]:
    pool = driver.manager.block_pool
    queue = pool.free_block_queue
    blocks = [queue.popleft() for _ in range(num_blocks)] if one_by_one else []
    blocks = blocks or queue.popleft_n(num_blocks)
    for block in blocks:
        pool._maybe_evict_cached_block(block)
        block.ref_cnt += 1
    driver._held.append(blocks)
    return [block.block_id for block in blocks]


def _hold(driver: Any, block_id: int, how: HoldByHand) -> int | None:
    pool = driver.manager.block_pool
    block = pool.blocks[block_id]
    if block.next_free_block is None:
        return None
    for do in _in_order(
        how.counts_first,
        lambda: setattr(block, "ref_cnt", block.ref_cnt + 1),
        lambda: pool.free_block_queue.remove(block),
    ):
        do()
    driver._held.append([block])
    return block_id


def _in_order(
    is_in_order: bool, first: Callable[[], None], second: Callable[[], None]
) -> tuple[Callable[[], None], ...]:
    return (first, second) if is_in_order else (second, first)


def _release(driver: Any, to_front: bool, one_by_one: bool) -> list[int]:
    queue = driver.manager.block_pool.free_block_queue
    freed = []
    for block in driver._held.popleft():
        block.ref_cnt -= 1
        if block.ref_cnt == 0:
            freed.append(block)
    if to_front:
        queue.prepend_n(freed)
    elif one_by_one:
        for block in freed:
            queue.append(block)
    else:
        queue.append_n(freed)
    return [block.block_id for block in freed]


def _requeue(driver: Any, num_blocks: int, to_front: bool) -> tuple[list[int], list[int]]:
    queue = driver.manager.block_pool.free_block_queue
    blocks = queue.popleft_n(num_blocks)
    refs = [block.ref_cnt for block in blocks]
    (queue.prepend_n if to_front else queue.append_n)(blocks[::-1])
    return [block.block_id for block in blocks], refs


def _pop_tables(driver: Any, request_id: str) -> list[list[int]]:
    popped: list[Any] = []
    shown = []
    for manager in driver.manager.coordinator.single_type_managers:
        row = manager.req_to_blocks.pop(request_id, [])
        manager.num_cached_block.pop(request_id, None)
        popped += row
        shown.append([block.block_id for block in row])
    driver._popped.append(popped)
    return shown

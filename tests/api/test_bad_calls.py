"""Bad calls: an error of a documented class that names the value and what is allowed, and a manager
that is as it was."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from kvoxide import (
    BlockError,
    BlockHashError,
    DuplicateRequestError,
    KVCacheConfig,
    KVCacheManager,
    KvoxideError,
    Policy,
    Request,
    RequestError,
    UnknownRequestError,
)

from .small import admit, assert_names, decode, full, make_manager, make_request, serve, window


class World:
    """A manager in the middle of its work, and another one."""

    def __init__(self) -> None:
        self.manager: Any = make_manager(
            full(4),
            window(4, 8),
            num_blocks=61,
            policy=Policy(pin_min_drop_size=2),
            enable_kv_cache_events=True,
            log_stats=True,
            needs_kv_cache_zeroing=True,
        )
        self.freed = serve(self.manager, "freed", range(100, 130))
        self.running: Any = make_request(self.manager, "running", range(30))
        admit(self.manager, self.running, chunk=16)
        decode(self.manager, self.running, range(200, 203))
        self.new: Any = make_request(self.manager, "new", range(40))
        self.pool: Any = self.manager.block_pool
        self.elsewhere = make_manager(full(4), window(4, 8))
        serve(self.elsewhere, "a", range(40))

    def hit(self) -> Any:
        return self.manager.get_computed_blocks(self.new)

    def request(self, request_id: str, *, num_computed_tokens: int = 0) -> Request:
        request = make_request(self.manager, request_id, range(10))
        request.num_computed_tokens = num_computed_tokens
        return request

    def running_again(self) -> Request:
        self.running.num_computed_tokens = 0
        return self.running  # type: ignore[no-any-return]

    def unused(self) -> Any:
        return self.pool.blocks[60]


ASKED_WRONG: dict[str, tuple[Callable[[World], Any], type[KvoxideError], list[str]]] = {
    # request ids
    "free what was never there": (
        lambda w: w.manager.free(w.request("nobody")),
        UnknownRequestError,
        ["nobody"],
    ),
    "free twice": (lambda w: w.manager.free(w.freed), UnknownRequestError, ["freed"]),
    "pop what was freed": (
        lambda w: w.manager.pop_blocks_for_free(w.freed),
        UnknownRequestError,
        ["freed"],
    ),
    "blocks of nobody": (
        lambda w: w.manager.get_blocks("nobody"),
        UnknownRequestError,
        ["nobody"],
    ),
    "block ids of nobody": (
        lambda w: w.manager.get_block_ids("nobody"),
        UnknownRequestError,
        ["nobody"],
    ),
    "computed blocks of nobody": (
        lambda w: w.manager.get_block_ids_for_computed_tokens("nobody", 4),
        UnknownRequestError,
        ["nobody"],
    ),
    "skipped blocks of nobody": (
        lambda w: w.manager.remove_skipped_blocks("nobody", 4),
        UnknownRequestError,
        ["nobody"],
    ),
    "zeroing for nobody": (
        lambda w: w.manager.record_blocks_for_zeroing("nobody", 0),
        UnknownRequestError,
        ["nobody"],
    ),
    "cache for nobody": (
        lambda w: w.manager.cache_blocks(w.request("nobody"), 8),
        UnknownRequestError,
        ["nobody"],
    ),
    "estimate for nobody": (
        lambda w: w.manager.estimate_cached_tokens(w.request("nobody")),
        UnknownRequestError,
        ["nobody"],
    ),
    "slots for a second one of the same id": (
        lambda w: w.manager.allocate_slots(w.request("running"), 4),
        DuplicateRequestError,
        ["running"],
    ),
    "free a second one of the same id": (
        lambda w: w.manager.free(w.request("running")),
        DuplicateRequestError,
        ["running"],
    ),
    # token counts
    "slots for nothing": (
        lambda w: w.manager.allocate_slots(w.running, 0),
        RequestError,
        ["num_new_tokens", "0"],
    ),
    "slots for fewer than nothing": (
        lambda w: w.manager.allocate_slots(w.running, -3),
        RequestError,
        ["num_new_tokens", "-3"],
    ),
    "more computed tokens than tokens": (
        lambda w: w.manager.allocate_slots(w.request("x", num_computed_tokens=11), 1),
        RequestError,
        ["11", "10"],
    ),
    "computed tokens of a request without blocks": (
        lambda w: w.manager.allocate_slots(w.request("x", num_computed_tokens=8), 2),
        RequestError,
        ["8", "'x'"],
    ),
    "hit tokens without their blocks": (
        lambda w: w.manager.allocate_slots(w.new, 4, 36),
        RequestError,
        ["num_new_computed_tokens", "36"],
    ),
    "a request longer than the model": (
        lambda w: w.manager.allocate_slots(make_request(w.manager, "long", range(1025)), 1025),
        RequestError,
        ["1025", "1024"],
    ),
    "more hit tokens than tokens": (
        lambda w: w.manager.allocate_slots(w.new, 1, 44, w.hit()[0]),
        RequestError,
        ["44", "40"],
    ),
    "more external tokens than tokens": (
        lambda w: w.manager.allocate_slots(w.new, 1, num_external_computed_tokens=44),
        RequestError,
        ["44", "40"],
    ),
    "more cached tokens than tokens": (
        lambda w: w.manager.cache_blocks(w.running, 99),
        RequestError,
        ["99", "33"],
    ),
    "a new hit for a running request": (
        lambda w: w.manager.allocate_slots(w.running_again(), 1, 28, w.hit()[0]),
        RequestError,
        ["blocks", "free it first"],
    ),
    "lookahead below 0": (
        lambda w: w.manager.allocate_slots(w.new, 1, num_lookahead_tokens=-1),
        RequestError,
        ["num_lookahead_tokens", "-1"],
    ),
    "reserved blocks below 0": (
        lambda w: w.manager.allocate_slots(w.new, 1, reserved_blocks=-1),
        RequestError,
        ["reserved_blocks", "-1"],
    ),
    "zeroing in the middle of a block": (
        lambda w: w.manager.record_blocks_for_zeroing("running", 6),
        RequestError,
        ["6", "4"],
    ),
    "a cut in the middle of a block": (
        lambda w: w.manager.truncate_computed_blocks(w.hit()[0], 6),
        RequestError,
        ["6", "4"],
    ),
    "a cut beyond the end": (
        lambda w: w.manager.truncate_computed_blocks(w.hit()[0], 400),
        RequestError,
        ["400"],
    ),
    "computed tokens below 0": (
        lambda w: setattr(w.running, "num_computed_tokens", -1),
        RequestError,
        ["num_computed_tokens", "-1"],
    ),
    "output of a wrong dtype": (
        lambda w: w.running.append_output_token_ids(np.zeros(2)),
        RequestError,
        ["float64", "int32"],
    ),
    "hashes for a request of tokens": (
        lambda w: w.running.append_block_hashes([bytes(32)], 4),
        RequestError,
        ["append_output_token_ids"],
    ),
    # hashes
    "tokens for a request of hashes": (
        lambda w: Request(
            "x", block_hashes=[bytes(32)], num_prompt_tokens=4
        ).append_output_token_ids(1),
        RequestError,
        ["append_block_hashes"],
    ),
    "a later hash of another length": (
        lambda w: Request("x", block_hashes=[bytes(32)], num_prompt_tokens=4).append_block_hashes(
            [bytes(16)], 4
        ),
        BlockHashError,
        ["16", "32"],
    ),
    # blocks
    "evict an id outside the pool": (
        lambda w: w.manager.evict_blocks([1, 61]),
        BlockError,
        ["61", "60"],
    ),
    "evict an id below 0": (lambda w: w.manager.evict_blocks([1, -1]), BlockError, ["-1"]),
    "the pool evicts an id outside": (
        lambda w: w.pool.evict_blocks([10**12]),
        BlockError,
        ["1000000000000", "60"],
    ),
    "more blocks than are free": (lambda w: w.pool.get_new_blocks(61), BlockError, ["61"]),
    "fewer blocks than none": (lambda w: w.pool.get_new_blocks(-1), BlockError, ["-1"]),
    "free a free block": (lambda w: w.pool.free_blocks([w.unused()]), BlockError, ["60"]),
    "free a block more often than it is held": (
        lambda w: w.pool.free_blocks(2 * [w.manager.get_blocks("running").blocks[0][-1]]),
        BlockError,
        [],
    ),
    "free a block of another pool": (
        lambda w: w.pool.free_blocks([w.elsewhere.block_pool.blocks[1]]),
        BlockError,
        ["pool"],
    ),
    "touch a block of another pool": (
        lambda w: w.pool.touch([w.elsewhere.block_pool.blocks[1]]),
        BlockError,
        ["pool"],
    ),
    "a hit of another manager": (
        lambda w: w.manager.allocate_slots(
            w.new,
            4,
            36,
            w.elsewhere.get_computed_blocks(make_request(w.elsewhere, "b", range(40)))[0],
        ),
        BlockError,
        [],
    ),
    "blocks for another number of groups": (
        lambda w: w.manager.create_kv_cache_blocks([[w.unused()]]),
        RequestError,
        ["1", "2"],
    ),
    "a hash of another length": (
        lambda w: w.pool.get_cached_block(bytes(33), [0]),
        BlockHashError,
        ["33", "32"],
    ),
    "a group that is not there": (
        lambda w: w.pool.get_cached_block(bytes(32), [2]),
        RequestError,
        ["2"],
    ),
    "ids of a group that is not there": (
        lambda w: w.manager.get_blocks("running").get_block_ids(group_ids=[2]),
        RequestError,
        ["2"],
    ),
    "ids without a hash of several groups at once": (
        lambda w: w.manager.get_blocks("running").get_unhashed_block_ids(),
        RequestError,
        ["get_unhashed_block_ids_all_groups"],
    ),
}


@pytest.mark.parametrize("case", ASKED_WRONG)
def test_asked_wrong(case: str) -> None:
    ask, error, named = ASKED_WRONG[case]
    world = World()
    before = world.manager.state_digest()
    with pytest.raises(error) as raised:
        ask(world)
    assert_names(raised.value, named)
    assert world.manager.state_digest() == before
    world.manager.check_invariants()


def test_work_goes_on_after_every_error() -> None:
    world = World()
    before = world.manager.state_digest()
    for ask, error, _ in ASKED_WRONG.values():
        with pytest.raises(error):
            ask(world)
    assert world.manager.state_digest() == before

    untouched = World()
    for each in (world, untouched):
        each.running.num_computed_tokens = 33
        decode(each.manager, each.running, [1, 2, 3, 4])
        each.manager.free(each.running)
        admit(each.manager, each.new)
    assert world.manager.get_block_ids("new") == untouched.manager.get_block_ids("new")


def test_a_window_needs_the_hashes_of_the_whole_look_up() -> None:
    manager = make_manager(window(4, 8))
    request = Request("few", block_hashes=[bytes(32)] * 2, num_prompt_tokens=100)
    before = manager.state_digest()
    with pytest.raises(BlockHashError) as raised:
        manager.get_computed_blocks(request)
    assert_names(raised.value, ["24", "2"])  # 99 tokens are 24 blocks
    assert manager.state_digest() == before


@pytest.mark.parametrize(
    "ask",
    [
        lambda w: w.pool.blocks[61],
        lambda w: w.pool.blocks[-62],
    ],
)
def test_the_blocks_of_a_pool_end_like_a_list(ask: Callable[[World], Any]) -> None:
    with pytest.raises(IndexError):
        ask(World())


@pytest.mark.parametrize(
    "ask",
    [
        lambda w: w.manager.allocate_slots("running", 1),
        lambda w: w.manager.allocate_slots(w.running, "1"),
        lambda w: w.manager.get_block_ids(7),
        lambda w: w.manager.free(None),
        lambda w: w.pool.touch([1]),
        lambda w: KVCacheManager("config", 100),  # type: ignore[arg-type]
        lambda w: KVCacheConfig(10, ["full"]),  # type: ignore[list-item]
    ],
)
def test_values_of_another_type_are_type_errors(ask: Callable[[World], Any]) -> None:
    world = World()
    before = world.manager.state_digest()
    with pytest.raises(TypeError):
        ask(world)
    assert world.manager.state_digest() == before

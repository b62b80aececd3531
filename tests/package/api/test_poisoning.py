"""Tests that after a panic of the engine, the call raises and the manager refuses every further
call."""

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from kvoxide import InternalError, KVCacheManager, PoisonedError

from tests.testing.small import admit, full, make_manager, make_request, window

PLANTED = "_panic_for_tests panicked at rust/python/src/ffi/panics.rs:"


class World:
    """A manager with two requests, and the objects that it returned before the panic."""

    def __init__(self) -> None:
        self.manager: Any = make_manager(full(4), window(4, 8), log_stats=True)
        self.manager.observe_outcomes(per_request=True)
        self.running = make_request(self.manager, "running", range(30))
        admit(self.manager, self.running)
        self.new = make_request(self.manager, "new", range(40))
        self.hit: Any = self.manager.get_computed_blocks(self.new)[0]
        self.pool = self.manager.block_pool
        self.blocks = self.hit.blocks[0]

    def panic(self) -> None:
        with pytest.raises(PoisonedError):
            self.manager._panic_for_tests()


CALLS: dict[str, Callable[[World], Any]] = {
    "look up": lambda w: w.manager.get_computed_blocks(w.new),
    "look up for a connector": lambda w: w.manager.get_computed_blocks_for_connector(w.new),
    "allocate": lambda w: w.manager.allocate_slots(w.new, 4),
    "free": lambda w: w.manager.free(w.running),
    "pop": lambda w: w.manager.pop_blocks_for_free(w.running),
    "skip": lambda w: w.manager.remove_skipped_blocks("running", 8),
    "cache": lambda w: w.manager.cache_blocks(w.running, 8),
    "evict": lambda w: w.manager.evict_blocks([1]),
    "reset": lambda w: w.manager.reset_prefix_cache(),
    "step": lambda w: w.manager.new_step_starts(),
    "retention": lambda w: w.manager.retention_report(),
    "observe": lambda w: w.manager.observe_outcomes(),
    "outcomes": lambda w: w.manager.outcome_report(),
    "take outcomes": lambda w: w.manager.take_outcomes(),
    "copies": lambda w: w.manager.take_kv_cache_block_copies(),
    "states": lambda w: w.manager.take_boundary_state_offloads(),
    "tails": lambda w: w.manager.finalize_partial_tail_offloads(w.running),
    "partial hits": lambda w: w.manager.enable_partial_hash_hits,
    "junctions": lambda w: w.manager.mamba_shared_prefix_checkpoint,
    "events": lambda w: w.manager.take_events(),
    "zeroing": lambda w: w.manager.take_new_block_ids(),
    "zero again": lambda w: w.manager.record_blocks_for_zeroing("running", 0),
    "blocks": lambda w: w.manager.get_blocks("running"),
    "block ids": lambda w: w.manager.get_block_ids("running"),
    "computed ids": lambda w: w.manager.get_block_ids_for_computed_tokens("running", 4),
    "demand": lambda w: w.manager.get_num_blocks_to_allocate(w.new, 4),
    "estimate": lambda w: w.manager.estimate_cached_tokens(w.running),
    "common prefix": lambda w: w.manager.get_num_common_prefix_blocks("running"),
    "make blocks": lambda w: w.manager.create_kv_cache_blocks([w.blocks, []]),
    "cut": lambda w: w.manager.truncate_computed_blocks(w.hit, 4),
    "stats": lambda w: w.manager.make_prefix_cache_stats(),
    "record": lambda w: w.manager.record_prefix_cache_stats(w.new, 4),
    "enabled": lambda w: w.manager.prefix_cache_lookup_enabled(w.new),
    "usage": lambda w: w.manager.usage,
    "policy": lambda w: w.manager.policy,
    "empty blocks": lambda w: w.manager.empty_kv_cache_blocks,
    "digest": lambda w: w.manager.state_digest(),
    "invariants": lambda w: w.manager.check_invariants(),
    "pool: new": lambda w: w.pool.get_new_blocks(1),
    "pool: touch": lambda w: w.pool.touch(w.blocks),
    "pool: free": lambda w: w.pool.free_blocks(w.blocks),
    "pool: evict": lambda w: w.pool.evict_blocks([1]),
    "pool: reset": lambda w: w.pool.reset_prefix_cache(),
    "pool: find": lambda w: w.pool.get_cached_block(w.new.block_hashes[0], [0]),
    "pool: free ids": lambda w: w.pool.get_free_block_ids(),
    "pool: pinned ids": lambda w: w.pool.get_pinned_block_ids(),
    "pool: numbers": lambda w: w.pool.get_num_free_blocks(),
    "view: references": lambda w: w.blocks[0].ref_cnt,
    "view: hash": lambda w: w.blocks[0].block_hash,
    "view: unhashed": lambda w: w.hit.get_unhashed_block_ids_all_groups(),
}


def test_a_panic_is_an_exception_that_says_what_and_where() -> None:
    world = World()
    with pytest.raises(PoisonedError) as caught:
        world.manager._panic_for_tests()
    assert PLANTED in str(caught.value)
    assert "planted by a test" in str(caught.value)
    assert isinstance(caught.value, InternalError)


@pytest.mark.parametrize("call", CALLS)
def test_every_call_works_before_and_is_refused_after(call: str) -> None:
    CALLS[call](World())
    world = World()
    world.panic()
    with pytest.raises(PoisonedError) as caught:
        CALLS[call](world)
    assert PLANTED in str(caught.value)


def test_no_method_is_left_out() -> None:
    """If you add a method, add a line to the table, or say here why it needs none."""
    tested = {name for call in CALLS.values() for name in call.__code__.co_names}
    never_reads = {
        "block_pool",  # the pool's own calls are refused
        "kv_cache_config",  # an argument of the constructor
        # These are read in the same way as `policy`.
        "enable_caching",
        "hash_block_size",
        "max_model_len",
        "num_kv_cache_groups",
        "scheduler_block_size",
        "watermark_blocks",
    }
    public = {name for name in dir(KVCacheManager) if not name.startswith("_")}
    assert public - tested == never_reads


def test_what_was_handed_out_can_still_be_read() -> None:
    world = World()
    ids = world.hit.get_block_ids()
    world.panic()
    assert world.hit.get_block_ids() == ids
    assert [block.block_id for block in world.blocks] == ids[0]


def test_other_managers_go_on() -> None:
    World().panic()
    other = World()
    other.manager.check_invariants()
    assert admit(other.manager, other.new) > 0


def test_a_panic_is_one_line_on_stderr() -> None:
    script = (
        "from tests.package.api.test_poisoning import World\n"
        "world = World()\n"
        "for _ in range(3): world.panic()\n"
        "print('alive')\n"
    )
    env = {name: value for name, value in os.environ.items() if name != "RUST_BACKTRACE"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout == "alive\n"
    (line,) = done.stderr.splitlines()
    assert line.startswith("kvoxide panicked at rust/python/src/ffi/panics.rs:")
    assert line.endswith(": planted by a test")

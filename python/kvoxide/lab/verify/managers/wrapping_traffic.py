"""Draws wrappers around methods of a manager's objects, and values of their fields."""

import random
from typing import Final

from kvoxide.lab.verify.managers.operations import Operation
from kvoxide.lab.verify.managers.operations.wrapped import SetField, WrapMethod
from kvoxide.lab.verify.managers.scenarios import Scenario
from kvoxide.lab.verify.managers.world import World

METHODS: Final = {
    "manager": (
        "allocate_slots",
        "cache_blocks",
        "create_kv_cache_blocks",
        "free",
        "get_block_ids",
        "get_blocks",
        "get_computed_blocks",
        "new_step_starts",
        "take_events",
    ),
    "coordinator": (
        "allocate_new_blocks",
        "allocate_new_computed_blocks",
        "cache_blocks",
        "find_longest_cache_hit",
        "free",
        "get_blocks",
        "get_num_blocks_to_allocate",
        "new_step_starts",
        "pop_blocks_for_free",
        "remove_skipped_blocks",
        "reset_prefix_cache",
    ),
    "group": (
        "add_local_computed_blocks",
        "allocate_new_blocks",
        "cache_blocks",
        "free",
        "get_num_blocks_to_allocate",
        "get_num_skipped_tokens",
        "pop_blocks_for_free",
        "remove_skipped_blocks",
        "take_new_block_ids",
    ),
    "pool": (
        "_insert_block_hash",
        "_maybe_evict_cached_block",
        "_remove_cached_block_hashes",
        "cache_full_blocks",
        "cache_partial_block",
        "evict_blocks",
        "free_blocks",
        "get_cached_block",
        "get_new_blocks",
        "get_usage",
        "is_block_writable",
        "reset_prefix_cache",
        "take_events",
        "touch",
        "unpin_blocks",
    ),
    "queue": ("append_n", "popleft_n", "prepend_n", "remove"),
    "index": ("get_one_block", "insert", "pop"),
}
"""Methods that connectors, schedulers and probes wrap."""


class WrappingTraffic:
    def __init__(self, rng: random.Random, scenario: Scenario) -> None:
        self._rng = rng
        self._scenario = scenario

    def wrap(self, world: World) -> Operation | None:
        if self._rng.random() < 0.25:
            return self._set_field()
        owner = self._rng.choice(tuple(METHODS))
        return WrapMethod(owner, self._rng.choice(METHODS[owner]))

    def _set_field(self) -> Operation:
        scenario = self._scenario
        fields = (
            ("manager", "enable_caching", False),
            ("manager", "max_model_len", scenario.max_model_len - 1),
            ("manager", "watermark_blocks", scenario.num_blocks // 4),
            ("pool", "num_gpu_blocks", scenario.num_blocks + 5),
            ("pool", "enable_kv_cache_events", scenario.enable_events),
            ("coordinator", "num_reprefillable_tokens", 0),
        )
        return SetField(*self._rng.choice(fields))

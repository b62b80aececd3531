"""The objects and attributes of a KV cache manager, and the uses that kvoxide does not support."""

from typing import Final, Literal, TypeAlias

Role: TypeAlias = Literal[
    "manager",
    "coordinator",
    "group",
    "groups",
    "tables",
    "row",
    "counts",
    "pool",
    "queue",
    "index",
    "blocks",
    "block",
]

BY_NAME: Final[dict[str, Role]] = {
    "kv_cache_manager": "manager",
    "single_type_managers": "groups",
    "req_to_blocks": "tables",
    "num_cached_block": "counts",
    "block_pool": "pool",
    "free_block_queue": "queue",
    "cached_block_hash_to_block": "index",
}
"""Attributes that have the same role on every object."""

CHILDREN: Final[dict[Role, dict[str, Role]]] = {
    "manager": {"coordinator": "coordinator"},
    "pool": {"blocks": "blocks", "null_block": "block"},
    "queue": {"fake_free_list_head": "block", "fake_free_list_tail": "block"},
    "block": {"next_free_block": "block", "prev_free_block": "block"},
}
"""Attributes whose role depends on the object that they are read from."""

ELEMENTS: Final[dict[Role, Role]] = {"groups": "group", "row": "block", "blocks": "block"}
"""The role of the elements of each."""

SHOWN: Final[dict[Role, str]] = {
    "manager": "kv_cache_manager",
    "coordinator": "coordinator",
    "group": "single_type_managers[...]",
    "groups": "single_type_managers",
    "tables": "req_to_blocks",
    "row": "req_to_blocks[...]",
    "counts": "num_cached_block",
    "pool": "block_pool",
    "queue": "free_block_queue",
    "index": "cached_block_hash_to_block",
    "blocks": "block_pool.blocks",
    "block": "KVCacheBlock",
}

WRITABLE: Final[dict[Role, frozenset[str]]] = {
    "manager": frozenset({"prefix_cache_stats"}),
    "coordinator": frozenset({"retention_interval"}),
    "pool": frozenset({"kv_event_queue"}),
    "queue": frozenset({"num_free_blocks"}),
    "block": frozenset({"ref_cnt"}),
}
"""Attributes of vLLM's that take effect when they are set."""

UNSERVED: Final[dict[Role, frozenset[str]]] = {
    "coordinator": frozenset({"allocate_new_blocks", "allocate_new_computed_blocks"}),
    "group": frozenset(
        {
            "_allocated_block_reqs",
            "_cache_partial_tail_block",
            "_num_retired_blocks",
            "_partial_hit_reqs",
            "_pending_boundary_state_offloads",
            "_producer_partial_tail_reqs",
            "_remove_blocks_in_range",
            "add_local_computed_blocks",
            "allocate_external_computed_blocks",
            "allocate_new_blocks",
            "cache_blocks",
            "cached_blocks_this_step",
            "finalize_partial_tail_offload",
            "free",
            "last_state_block_idx",
            "new_block_ids",
            "new_step_starts",
            "pop_blocks_for_free",
            "remove_skipped_blocks",
            "take_new_block_ids",
            "take_pending_boundary_state_offloads",
            "take_pending_cow_copies",
        }
    ),
    "blocks": frozenset(
        {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"}
    ),
}
"""Attributes that kvoxide's does not have, and calls of single groups, which the engine makes for
all of them."""

OTHER_TYPES: Final[dict[Role, frozenset[str]]] = {
    "tables": frozenset({"defaultdict"}),
    "blocks": frozenset({"list"}),
}
"""Types that vLLM's objects are instances of and kvoxide's are not."""

OWN_TYPES: Final = frozenset(
    {"manager", "coordinator", "group", "tables", "row", "counts", "pool", "queue", "index"}
    | {"blocks", "block"}
)
"""Objects whose own type is a class of kvoxide's, so that ``type(...) is`` differs."""

INSIDE: Final = frozenset({*BY_NAME, "coordinator"} - {"kv_cache_manager"})
"""Names by which code reaches what hangs on a manager."""

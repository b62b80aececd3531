"""vLLM's managers of single groups as views of the engine, for code that looks into them."""

from collections.abc import Mapping
from functools import cache, cached_property
from typing import Any, Final

from vllm.v1.core.single_type_kv_cache_manager import (
    MambaManager,
    get_manager_for_kv_cache_spec,
)

from kvoxide.vllm.adapter.arguments import max_in_flight_tokens
from kvoxide.vllm.adapter.tables import CachedCounts, Checkpoints, RequestTables
from kvoxide.vllm.adapter.watched import Watched, let_vllm_continue, replacing_class

_IN_VLLM: Final = (
    "_cache_partial_tail_block",
    "_claim_ring_block",
    "_relocate_speculative_block",
    "_remove_blocks_in_range",
    "add_local_computed_blocks",
    "allocate_external_computed_blocks",
    "allocate_new_blocks",
    "cache_blocks",
    "finalize_partial_tail_offload",
    "free",
    "new_step_starts",
    "pop_blocks_for_free",
    "remove_skipped_blocks",
    "take_new_block_ids",
    "take_pending_boundary_state_offloads",
    "take_pending_cow_copies",
)
"""Methods that change a single group. The engine changes all groups at once, so vLLM's own objects
continue when one of these is called."""

_UNSHOWN: Final = (
    "_allocated_block_reqs",
    "_num_retired_blocks",
    "_partial_hit_reqs",
    "_pending_boundary_state_offloads",
    "_producer_partial_tail_reqs",
    "cached_blocks_this_step",
    "last_state_block_idx",
    "new_block_ids",
)
"""Fields that the engine does not show: vLLM's own objects continue when one of these is read."""


def group_view(coordinator: Any, group_id: int, arguments: Mapping[str, Any]) -> Any:
    """A manager of vLLM's class for the group's spec, whose tables are the engine's."""
    group = coordinator.kv_cache_config.kv_cache_groups[group_id]
    manager = get_manager_for_kv_cache_spec(
        kv_cache_spec=group.kv_cache_spec,
        max_in_flight_tokens=max_in_flight_tokens(arguments),
        max_model_len=arguments["max_model_len"],
        block_pool=coordinator.block_pool,
        role=group.role,
        enable_caching=arguments["enable_caching"],
        kv_cache_group_id=group_id,
        dcp_world_size=arguments.get("dcp_world_size", 1),
        scheduler_block_size=coordinator.scheduler_block_size,
        needs_kv_cache_zeroing=coordinator.kv_cache_config.needs_kv_cache_zeroing,
    )
    engine = coordinator.engine
    if coordinator.enable_partial_hash_hits:
        manager.cache_hit_alignment_tokens = coordinator.hash_block_size
    if isinstance(manager, MambaManager):
        manager.drop_eagle_checkpoint_block = arguments["use_eagle"]
        manager.shared_prefix_checkpoint = engine.mamba_shared_prefix_checkpoint
    manager.req_to_blocks = RequestTables(engine, group_id, coordinator.repeated_blocks)
    stock: Any = type(manager)
    cls = _view_class(stock)
    view = cls.__new__(cls)
    hidden = (*_UNSHOWN, "num_cached_block", "_checkpoints")
    shown = {name: value for name, value in vars(manager).items() if name not in hidden}
    of_states = hasattr(manager, "_checkpoints")
    vars(view).update(
        shown,
        _engine=engine,
        _has_states=of_states,
        _name_in_messages=f"single_type_managers[{group_id}]",
        _hidden=frozenset(vars(manager)).intersection(_UNSHOWN),
    )
    return view


@cache
def _view_class(stock: type) -> Any:
    return replacing_class(GroupView, stock, _IN_VLLM)


class GroupView(Watched):
    """Overrides attributes of a vLLM manager whose group the engine manages."""

    __slots__ = ()

    kv_cache_group_id: int

    @cached_property
    def num_cached_block(self) -> CachedCounts:
        """The leading blocks of each request that count as cached."""
        return CachedCounts(vars(self)["_engine"], self.kv_cache_group_id)

    def __getattr__(self, name: str) -> Any:
        own = vars(self)
        if name == "_checkpoints" and own.get("_has_states"):
            checkpoints = Checkpoints(
                own["_engine"], self.kv_cache_group_id, lambda what: let_vllm_continue(self, what)
            )
            own[name] = checkpoints
            return checkpoints
        if name in own.get("_hidden", ()):
            let_vllm_continue(self, f"{name} is read")
            return getattr(self, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

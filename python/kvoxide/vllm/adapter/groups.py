"""vLLM's managers of single groups as views of the engine, for code that looks into them."""

from collections.abc import Mapping
from typing import Any

from vllm.v1.core.single_type_kv_cache_manager import (
    MambaManager,
    get_manager_for_kv_cache_spec,
)

from kvoxide.vllm.adapter.arguments import max_in_flight_tokens
from kvoxide.vllm.adapter.tables import CachedCounts, RequestFacts, RequestTables


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
        manager._checkpoints = RequestFacts(engine.checkpoints, group_id)
    manager.req_to_blocks = RequestTables(engine, group_id)
    manager.num_cached_block = CachedCounts(engine, group_id)
    native: Any = type(type(manager).__name__, (GroupView, type(manager)), {})
    view = native.__new__(native)
    view.__dict__.update(manager.__dict__, coordinator=coordinator)
    return view


class GroupView:
    """What differs in a manager whose group the engine manages."""

    coordinator: Any

    def cache_blocks(self, request: Any, num_tokens: int, **kwargs: Any) -> None:
        """Nothing: the engine has cached. What is put in place of this is called all the same."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "cache_blocks":
            self.coordinator.is_caching_watched = True
            self.coordinator.on_watched_caching()

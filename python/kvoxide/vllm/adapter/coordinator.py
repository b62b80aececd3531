"""vLLM's coordinator and its managers of single groups, as views of the engine."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

from vllm.v1.core import kv_cache_coordinator as stock

from kvoxide._core_vllm import VllmBlocks, VllmManager
from kvoxide.vllm.adapter.calls import CoordinatorCalls
from kvoxide.vllm.adapter.groups import group_view
from kvoxide.vllm.adapter.pool import NativeBlockPool
from kvoxide.vllm.adapter.repeated_blocks import RepeatedBlocks
from kvoxide.vllm.adapter.watched import (
    Watched,
    fields_of,
    let_vllm_continue,
    replacing_class,
)
from kvoxide.vllm.environment import Release, recognise


def make_coordinator(
    engine: VllmManager, pool: NativeBlockPool, arguments: Mapping[str, Any]
) -> Any:
    """A coordinator of the class that vLLM would choose for these arguments of its manager."""
    if not arguments["enable_caching"]:
        base = stock.KVCacheCoordinatorNoPrefixCache
    elif len(arguments["kv_cache_config"].kv_cache_groups) == 1:
        base = stock.UnitaryKVCacheCoordinator
    else:
        base = stock.HybridKVCacheCoordinator
    return _coordinator_class(base)(engine, pool, arguments)


@cache
def _coordinator_class(base: type) -> Any:
    return replacing_class(NativeCoordinator, base, _IN_VLLM)


_IN_VLLM: Final = ("allocate_new_blocks", "allocate_new_computed_blocks")
"""Parts of a step, which the engine makes as a whole: vLLM's own objects continue when one of
these is called."""


class NativeCoordinator(CoordinatorCalls, Watched):
    """Answers for all groups from the engine; keeps no state of its own."""

    __slots__ = ()

    _name_in_messages = "coordinator"

    kv_cache_config: Any
    single_type_managers: tuple[Any, ...]

    def __init__(
        self, engine: VllmManager, pool: NativeBlockPool, arguments: Mapping[str, Any]
    ) -> None:
        """A view of ``engine``, made with vLLM's ``arguments``."""
        self.engine = engine
        self.block_pool = pool
        self.repeated_blocks = RepeatedBlocks()
        self._cache_blocks = pool.with_notification(engine.cache_blocks)
        self.kv_cache_config = arguments["kv_cache_config"]
        self.scheduler_block_size = arguments["scheduler_block_size"]
        self.hash_block_size = arguments["hash_block_size"]
        self.num_reprefillable_tokens = max(0, arguments["num_prefill_lookahead"] - 1)
        self._has_checkpoints = any(
            getattr(group.kv_cache_spec, "num_prefill_checkpoint_blocks", 0)
            for group in self.kv_cache_config.kv_cache_groups
        )
        self.enable_partial_hash_hits = engine.enable_partial_hash_hits
        self._retention_interval: int | None = self.kv_cache_config.prefix_cache_retention_interval
        self.dcp_world_size = arguments.get("dcp_world_size", 1)
        self.pcp_world_size = 1
        release = recognise().release
        self.pops_null_heads = release.pops_null_heads
        self._flag_eagle_groups(arguments["use_eagle"], release)
        self.single_type_managers = tuple(
            group_view(self, group_id, arguments) for group_id in range(self._num_groups)
        )
        self.num_single_type_manager = self._num_groups
        self.group_block_sizes = tuple(m.block_size for m in self.single_type_managers)
        if isinstance(self, stock.UnitaryKVCacheCoordinator):
            self.kv_cache_spec = self.kv_cache_config.kv_cache_groups[0].kv_cache_spec
            self.dcp_world_size = self.single_type_managers[0].dcp_world_size
            self.block_size = self.single_type_managers[0].block_size
            self.single_type_managers[0].use_eagle = 0 in self.drop_eagle_group_ids
        elif isinstance(self, stock.HybridKVCacheCoordinator):
            self.verify_and_split_kv_cache_groups()

    @property
    def retention_interval(self) -> int | None:
        """Tokens between the boundaries whose windows and states are kept; can be set."""
        return self._retention_interval

    @retention_interval.setter
    def retention_interval(self, interval: int | None) -> None:
        self.engine.set_retention_interval(interval)
        fields_of(self)["_retention_interval"] = interval

    @property
    def _num_groups(self) -> int:
        return len(self.kv_cache_config.kv_cache_groups)

    def _flag_eagle_groups(self, use_eagle: bool, release: Release) -> None:
        groups = self.kv_cache_config.kv_cache_groups
        flagged = {i for i, group in enumerate(groups) if group.is_eagle_group}
        if use_eagle and not flagged:
            flagged = set(range(len(groups)))
        drops = use_eagle or release.drops_flagged_groups
        self.eagle_group_ids = flagged
        self.drop_eagle_group_ids = flagged if drops else set()

    def find_longest_cache_hit(
        self, block_hashes: Any, max_cache_hit_length: int
    ) -> tuple[tuple[list[Any], ...], int, int]:
        blocks, length, uncached = self.engine.find_longest_cache_hit(
            block_hashes, max_cache_hit_length
        )
        return _lists(blocks), length, uncached

    def find_longest_cache_hit_per_group(
        self, block_hashes: Any, max_cache_hit_length: int
    ) -> tuple[tuple[list[Any], ...], tuple[int, ...]]:
        blocks, lengths = self.engine.find_longest_cache_hit_per_group(
            block_hashes, max_cache_hit_length
        )
        return _lists(blocks), tuple(lengths)

    def get_num_blocks_to_allocate(
        self,
        request_id: str,
        num_tokens: int,
        new_computed_blocks: Sequence[Sequence[Any]],
        num_encoder_tokens: int,
        total_computed_tokens: int,
        num_local_computed_tokens: int,
        num_tokens_main_model: int,
        apply_admission_cap: bool = False,
        prefill_end: int = 0,
    ) -> int:
        arguments = (
            request_id,
            num_tokens,
            new_computed_blocks,
            num_encoder_tokens,
            total_computed_tokens,
            num_local_computed_tokens,
            num_tokens_main_model,
            apply_admission_cap,
            prefill_end,
        )
        is_noted = self._has_checkpoints and not apply_admission_cap
        if is_noted and self.engine.table_len(request_id, 0) is None:
            # vLLM's method notes where a new request will have a state inside its chunk. An
            # allocation that vLLM's methods make needs the note.
            let_vllm_continue(
                self,
                "get_num_blocks_to_allocate() is called without apply_admission_cap for "
                f"{request_id!r}, which has no blocks",
            )
            return self.get_num_blocks_to_allocate(*arguments)
        return self.engine.get_num_blocks_to_allocate(*arguments)

    def cache_blocks(self, request: Any, num_computed_tokens: int) -> None:
        if self.repeated_blocks:
            self.repeated_blocks.switch_if_repeated(self, "cache_blocks", request.request_id)
            if not isinstance(self, NativeCoordinator):
                self.cache_blocks(request, num_computed_tokens)
                return
        # Late outputs of a request whose id is used again leave fewer than none computed.
        self._cache_blocks(request, max(0, num_computed_tokens))

    def get_blocks(self, request_id: str) -> tuple[list[Any], ...]:
        managers = self.single_type_managers
        return tuple(manager.req_to_blocks.get(request_id) or [] for manager in managers)

    def reset_prefix_cache(self) -> bool:
        return not self.single_type_managers or self.block_pool.reset_prefix_cache()

    def new_step_starts(self) -> None:
        self.engine.new_step_starts()


def _lists(blocks: VllmBlocks) -> tuple[list[Any], ...]:
    return tuple(list(group) for group in blocks.blocks)

"""Errors in the coordinators of several groups and of one."""

from typing import Any

from vllm.v1.core.kv_cache_coordinator import (
    HybridKVCacheCoordinator,
    KVCacheCoordinator,
    UnitaryKVCacheCoordinator,
)

from ..fault import Faults, Plant

coordinator = Faults("coordinator")
AREAS = (coordinator,)


@coordinator
def no_drop_for_drafts(plant: Plant) -> None:
    def change(self: Any) -> None:
        self.drop_eagle_group_ids = set()
        groups = getattr(self, "attention_groups", [])
        groups[:] = [group._replace(use_eagle=False) for group in groups]

    for owner in (HybridKVCacheCoordinator, UnitaryKVCacheCoordinator):
        plant.after_init(owner, change)


@coordinator
def hits_end_at_blocks_only(plant: Plant) -> None:
    plant.after_init(
        HybridKVCacheCoordinator, lambda self: setattr(self, "enable_partial_hash_hits", False)
    )


@coordinator
def one_group_hits_a_block_less(plant: Plant) -> None:
    def find(original: Any, self: Any, block_hashes: Any, max_length: int, **rest: Any) -> Any:
        return original(self, block_hashes, max(max_length - 1, 0), **rest)

    plant.around(UnitaryKVCacheCoordinator, "find_longest_cache_hit", find)


@coordinator
def groups_hit_a_block_less(plant: Plant) -> None:
    def find(original: Any, self: Any, block_hashes: Any, max_length: int, **rest: Any) -> Any:
        return original(self, block_hashes, max(max_length - 1, 0), **rest)

    plant.around(HybridKVCacheCoordinator, "find_longest_cache_hit", find)


@coordinator
def no_admission_cap(plant: Plant) -> None:
    def get_num_blocks(original: Any, *args: Any, **kwargs: Any) -> Any:
        return original(*args, **{**kwargs, "apply_admission_cap": False})

    plant.around(KVCacheCoordinator, "get_num_blocks_to_allocate", get_num_blocks)


@coordinator
def checkpoints_in_every_chunk(plant: Plant) -> None:
    def get_num_blocks(original: Any, *args: Any, **kwargs: Any) -> Any:
        return original(*args, **{**kwargs, "prefill_end": 0})

    plant.around(KVCacheCoordinator, "get_num_blocks_to_allocate", get_num_blocks)


@coordinator
def retention_interval_ignored(plant: Plant) -> None:
    plant.after_init(KVCacheCoordinator, lambda self: setattr(self, "retention_interval", None))

"""The managers that serve, one after the other: their KV cache groups, and whether they publish
events."""

from collections.abc import Callable
from dataclasses import dataclass
from math import gcd, lcm
from typing import Any

import torch
from kvoxide.vllm import KVCacheManager, plugin
from vllm import envs
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core import kv_cache_utils
from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheSpec,
    MambaSpec,
    SlidingWindowSpec,
)

HASH_ALGORITHM = "sha256"
WINDOW = 64
HEAD: dict[str, Any] = {"num_kv_heads": 1, "head_size": 64, "dtype": torch.float16}

plugin.register()
# As in an engine. Otherwise vLLM would spend half of an event's time in reading the environment.
envs.enable_envs_cache()
register_all_kvcache_specs(None)


@dataclass(frozen=True)
class Layout:
    groups: tuple[KVCacheSpec, ...]
    num_blocks: int
    with_events: bool

    def make_manager(self, max_model_len: int, max_in_flight_tokens: int) -> Any:
        block_sizes = [spec.block_size for spec in self.groups]
        return KVCacheManager(
            kv_cache_config=KVCacheConfig(
                num_blocks=self.num_blocks,
                kv_cache_tensors=[],
                kv_cache_groups=[
                    KVCacheGroupSpec([f"layer.{index}"], spec)
                    for index, spec in enumerate(self.groups)
                ],
            ),
            max_model_len=max_model_len,
            scheduler_block_size=lcm(*block_sizes),
            hash_block_size=gcd(*block_sizes),
            max_in_flight_tokens=max_in_flight_tokens,
            enable_kv_cache_events=self.with_events,
            log_stats=True,
        )

    def make_hasher(self) -> Callable[[Any], list[bytes]]:
        """Return vLLM's block hasher, which is kvoxide's because of the plugin."""
        function = get_hash_fn_by_name(HASH_ALGORITHM)
        kv_cache_utils.init_none_hash(function)
        hash_block_size = gcd(*(spec.block_size for spec in self.groups))
        hasher: Callable[[Any], list[bytes]] = kv_cache_utils.get_request_block_hasher(
            hash_block_size, function
        )
        return hasher


def full(block_size: int) -> KVCacheSpec:
    return FullAttentionSpec(block_size=block_size, **HEAD)


def window(block_size: int) -> KVCacheSpec:
    return SlidingWindowSpec(block_size=block_size, sliding_window=WINDOW, **HEAD)


def states(block_size: int) -> KVCacheSpec:
    return MambaSpec(
        block_size=block_size,
        shapes=((8,),),
        dtypes=(torch.float16,),
        mamba_cache_mode="align",
        num_speculative_blocks=1,
    )


# With events, calls of a manager take another path, and most of the time goes to vLLM's events.
LAYOUTS = (
    Layout((full(16),), 180, with_events=True),
    Layout((full(16), window(16), window(16)), 450, with_events=False),
    Layout((full(16),), 180, with_events=False),
    Layout((full(32), window(16)), 240, with_events=False),
    Layout((full(16), states(48), states(48)), 420, with_events=False),
)

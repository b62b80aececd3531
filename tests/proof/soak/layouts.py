"""The managers that serve, one after the other: their KV cache groups, and whether they tell."""

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
    SlidingWindowSpec,
)

HASH_ALGORITHM = "sha256"
WINDOW = 64

plugin.register()
# As in an engine; vLLM's part of an event would spend half its time in the environment.
envs.enable_envs_cache()
register_all_kvcache_specs(None)


@dataclass(frozen=True)
class Layout:
    """Groups as pairs of a block size and a window, None for full attention; sizes in tokens."""

    groups: tuple[tuple[int, int | None], ...]
    num_blocks: int
    with_events: bool

    def make_manager(self, max_model_len: int, max_in_flight_tokens: int) -> Any:
        block_sizes = [block_size for block_size, _ in self.groups]
        return KVCacheManager(
            kv_cache_config=KVCacheConfig(
                num_blocks=self.num_blocks,
                kv_cache_tensors=[],
                kv_cache_groups=[
                    KVCacheGroupSpec([f"layer.{index}"], _spec(*group))
                    for index, group in enumerate(self.groups)
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
        """vLLM's block hasher, which is kvoxide's as the plugin leaves it."""
        function = get_hash_fn_by_name(HASH_ALGORITHM)
        kv_cache_utils.init_none_hash(function)
        hash_block_size = gcd(*(block_size for block_size, _ in self.groups))
        hasher: Callable[[Any], list[bytes]] = kv_cache_utils.get_request_block_hasher(
            hash_block_size, function
        )
        return hasher


def _spec(block_size: int, window: int | None) -> KVCacheSpec:
    shape = {
        "block_size": block_size,
        "num_kv_heads": 1,
        "head_size": 64,
        "dtype": torch.float16,
    }
    if window is None:
        return FullAttentionSpec(**shape)
    return SlidingWindowSpec(**shape, sliding_window=window)


FULL = ((16, None),)
WINDOWS = ((16, None), (16, WINDOW), (16, WINDOW))
UNLIKE_BLOCKS = ((32, None), (16, WINDOW))

# With events, calls of a manager take another way, and most of the time goes to vLLM's events.
LAYOUTS = (
    Layout(FULL, 180, with_events=True),
    Layout(WINDOWS, 450, with_events=False),
    Layout(FULL, 180, with_events=False),
    Layout(UNLIKE_BLOCKS, 240, with_events=False),
)

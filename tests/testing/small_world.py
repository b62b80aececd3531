"""Small managers of vLLM and requests for them. This module needs vLLM."""

import random
from typing import Any

import torch
from kvoxide.vllm.environment import settings
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256_cbor
from vllm.v1.core import kv_cache_manager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    HiSparseResidentSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    MambaSpec,
    SlidingWindowSpec,
)
from vllm.v1.request import Request, RequestStatus

BLOCK_SIZE = 16
MAX_MODEL_LEN = 800

register_all_kvcache_specs(None)
init_none_hash(sha256_cbor)
_hasher = get_request_block_hasher(BLOCK_SIZE, sha256_cbor)


def config(*specs: Any, num_blocks: int = 100, interval: int | None = None) -> KVCacheConfig:
    """Return a pool for groups with these specs, by default full attention and a sliding window.

    ``interval`` is the retention interval in vLLM's configuration.
    """
    groups = [
        KVCacheGroupSpec([f"layer.{i}"], spec) for i, spec in enumerate(specs or (full(), window()))
    ]
    return KVCacheConfig(
        num_blocks=num_blocks,
        kv_cache_tensors=[],
        kv_cache_groups=groups,
        prefix_cache_retention_interval=interval,
    )


def full() -> Any:
    return FullAttentionSpec(
        block_size=BLOCK_SIZE, num_kv_heads=1, head_size=8, dtype=torch.float16
    )


def window() -> Any:
    return SlidingWindowSpec(
        block_size=BLOCK_SIZE, num_kv_heads=1, head_size=8, dtype=torch.float16, sliding_window=64
    )


def states() -> Any:
    """Return recurrent states in blocks of three hashes, so that hits can end inside a block."""
    return MambaSpec(
        block_size=3 * BLOCK_SIZE,
        shapes=((8,),),
        dtypes=(torch.float16,),
        mamba_cache_mode="align",
        num_speculative_blocks=1,
    )


def hisparse() -> Any:
    """Return a group of a kind that the engine leaves to vLLM."""
    return HiSparseResidentSpec(block_size=BLOCK_SIZE, page_size=256)


def make_manager(*specs: Any, **arguments: Any) -> Any:
    """Return the manager that the scheduler gets: the class is the present one in vLLM's module."""
    sizes = {"scheduler_block_size": BLOCK_SIZE, "hash_block_size": BLOCK_SIZE}
    arguments = {"max_model_len": MAX_MODEL_LEN, "log_stats": True, **sizes, **arguments}
    arguments.setdefault("kv_cache_config", config(*specs))
    return kv_cache_manager.KVCacheManager(**arguments)


def stock_manager(*specs: Any, **arguments: Any) -> Any:
    """Return a manager of vLLM's own class, like :func:`make_manager`. Fail if kvoxide's would be
    constructed."""
    with settings.using(settings.Settings(mode="off")):
        manager = make_manager(*specs, **arguments)
    assert type(manager) is kv_cache_manager.KVCacheManager
    return manager


def make_request(name: object, tokens: list[int]) -> Any:
    sampling = SamplingParams(max_tokens=100)
    return Request(f"secret-{name}", tokens, sampling, None, block_hasher=_hasher)


def traffic(manager: Any, num_requests: int = 120, seed: int = 0) -> list[Any]:
    """Play random traffic with shared prefixes. Return everything that a server would see of it."""
    rng = random.Random(seed)
    prompts = [_tokens(rng, rng.randrange(20, 400)) for _ in range(8)]
    seen: list[Any] = []
    running: list[Any] = []
    deferred: list[list[Any]] = []
    for index in range(num_requests):
        prompt = rng.choice(prompts)
        prompt = prompt[: rng.randrange(10, len(prompt))] + _tokens(rng, rng.randrange(1, 50))
        request = make_request(index, prompt)
        manager.new_step_starts()
        if _admit(manager, request, seen):
            running.append(request)
        else:
            while running:
                manager.free(running.pop(0))
        for other in running:
            _decode(manager, other, rng, seen)
        seen.append([type(event).__name__ for event in manager.take_events()])
        seen.append(manager.take_new_block_ids())
        _take_orders(manager, seen)
        _finish_some(manager, running, deferred, rng)
    for request in running:
        manager.free(request)
    for blocks in deferred:
        manager.block_pool.free_blocks(reversed(blocks))
    seen.append(manager.make_prefix_cache_stats())
    seen.append(manager.reset_prefix_cache())
    return seen


def _tokens(rng: random.Random, length: int) -> list[int]:
    return [rng.randrange(7_000_000, 8_000_000) for _ in range(length)]


def _admit(manager: Any, request: Any, seen: list[Any]) -> bool:
    blocks, num_hit = manager.get_computed_blocks(request)[:2]
    manager.record_prefix_cache_stats(request, num_hit)
    # A chunk that ends with a hash leaves a state that can be hit.
    end = max((request.num_tokens - 1) // BLOCK_SIZE * BLOCK_SIZE, num_hit + 1)
    num_new = end - num_hit
    new = manager.allocate_slots(request, num_new, num_hit, blocks, full_sequence_must_fit=True)
    seen.append((num_hit, new and new.get_block_ids()))
    if new is None:
        return False
    request.num_computed_tokens = end
    request.status = RequestStatus.RUNNING
    seen.append(manager.get_block_ids(request.request_id))
    return True


def _decode(manager: Any, request: Any, rng: random.Random, seen: list[Any]) -> None:
    request.append_output_token_ids(rng.randrange(1000))
    new = manager.allocate_slots(request, request.num_tokens - request.num_computed_tokens)
    seen.append(new and new.get_block_ids())
    if new is not None:
        request.num_computed_tokens = request.num_tokens


def _take_orders(manager: Any, seen: list[Any]) -> None:
    copies, blocks = manager.take_kv_cache_block_copies()
    manager.block_pool.free_blocks(blocks)
    seen.append((copies, manager.take_boundary_state_offloads()))


def _finish_some(
    manager: Any, running: list[Any], deferred: list[list[Any]], rng: random.Random
) -> None:
    if running and rng.random() < 0.4:
        manager.free(running.pop(rng.randrange(len(running))))
    elif running and rng.random() < 0.2:
        deferred.append(manager.pop_blocks_for_free(running.pop(0)))
    if deferred and rng.random() < 0.5:
        manager.block_pool.free_blocks(reversed(deferred.pop(0)))
    if rng.random() < 0.05:
        manager.evict_blocks({rng.randrange(1, 100) for _ in range(3)})

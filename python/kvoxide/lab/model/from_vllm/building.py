"""vLLM's plan of a model's KV cache: it builds the model without weights, and groups its layers.
The process must first install :mod:`~kvoxide.lab.model.from_vllm.stand_in`."""

from collections.abc import Mapping
from typing import Any

import torch

from kvoxide.lab.model.from_vllm import planning, stand_in


def vllm_config(folder: str, options: Mapping[str, Any]) -> Any:
    """Return vLLM's configuration of a server of the model in ``folder``."""
    from vllm.engine.arg_utils import EngineArgs

    stand_in.look_at_classes_here()
    stand_in.read_unknown_types_as_they_are(folder)
    return EngineArgs(
        model=folder,
        skip_tokenizer_init=True,
        load_format="dummy",
        enforce_eager=True,
        **options,
    ).create_engine_config()


def answer(config: Any) -> dict[str, Any]:
    """Return the groups, where hits end, and the bytes of a block and of the longest request on the
    rank that has most."""
    build(config)
    layers = planning.layers_of_ranks(config)
    planning.require_causal_caching(config, layers)
    groups = planning.groups_of(config, layers)
    blocks, requests = planning.sizes(config, layers, groups)
    made = planning.scheduler_config(config, layers, groups, 2 * max(requests) + max(blocks))
    hash_tokens, hit_tokens = planning.hashing(config, made)
    return {
        "architecture": config.model_config.architecture,
        "dtype": str(config.model_config.dtype).removeprefix("torch."),
        "cache_dtype": config.cache_config.cache_dtype,
        "has_prefix_caching": bool(config.cache_config.enable_prefix_caching),
        "max_model_len": config.model_config.max_model_len,
        "groups": planning.group_rows(made.kv_cache_groups),
        "block_bytes": max(blocks),
        "request_bytes": max(requests),
        "hash_tokens": hash_tokens,
        "hit_tokens": hit_tokens,
    }


def build(config: Any) -> None:
    """Build the model without weights, and set the block sizes that its kernels require."""
    from vllm.distributed import parallel_state
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.platforms import current_platform
    from vllm.utils.torch_utils import set_default_torch_dtype
    from vllm.v1.worker.workspace import init_workspace_manager

    ranks = config.parallel_config.tensor_parallel_size
    for name in ("_WORLD", "_TP", "_EP", "_EPLB"):
        setattr(parallel_state, name, _Ranks(ranks))
    for name in ("_PP", "_DP", "_DCP", "_PCP"):
        setattr(parallel_state, name, _Ranks(1))
    init_workspace_manager(torch.device("meta"))
    stand_in.name_all_kernels()
    dtype = set_default_torch_dtype(config.model_config.dtype)
    with dtype, torch.device("meta"), stand_in.NoCuda():
        initialize_model(config)
    current_platform.update_block_size_for_backend(config)


class _Ranks:
    """A group of ranks without processes. Its only present rank is both the first and the last."""

    is_first_rank = is_last_rank = True
    rank = rank_in_group = local_rank = 0
    use_device_communicator = False
    device_communicator = None

    def __init__(self, world_size: int) -> None:
        self.world_size = world_size
        self.ranks = list(range(world_size))
        self.device_group = self.cpu_group = self

    def size(self) -> int:
        """Return how many ranks there are."""
        return self.world_size

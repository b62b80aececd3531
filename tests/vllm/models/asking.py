"""vLLM's own plan of a model's KV cache. A process has to ask :func:`hopper.pretend` first."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import torch

from . import hopper
from .cases import MAX_BATCHED_TOKENS, MEMORIES, Case


def answer(case: Case) -> dict[str, Any]:
    """Groups, bytes per block, bytes of the longest request, and the blocks of each memory."""
    with _vllm_config(case) as config:
        _build(config)
        return _plan(config)


@contextmanager
def _vllm_config(case: Case) -> Iterator[Any]:
    from vllm.engine.arg_utils import EngineArgs

    with tempfile.TemporaryDirectory() as folder:
        if case.config.is_dir():
            shutil.copytree(case.config, folder, dirs_exist_ok=True)
        else:
            is_params = "n_layers" in json.loads(case.config.read_text())
            shutil.copy(case.config, Path(folder) / ("params.json" if is_params else "config.json"))
        is_mistral = (Path(folder) / "params.json").exists()
        yield EngineArgs(
            model=folder,
            config_format="mistral" if is_mistral else "auto",
            skip_tokenizer_init=True,
            load_format="dummy",
            enforce_eager=True,
            max_num_batched_tokens=MAX_BATCHED_TOKENS,
            tensor_parallel_size=case.tensor_parallel,
            pipeline_parallel_size=case.pipeline_parallel,
            kv_cache_dtype=case.cache_dtype,
            block_size=case.block_size,
        ).create_engine_config()


class _Ranks:
    """A group of ranks without processes, of which this is the first and the last."""

    is_first_rank = is_last_rank = True
    rank = rank_in_group = local_rank = 0
    use_device_communicator = False
    device_communicator = None

    def __init__(self, world_size: int) -> None:
        self.world_size = world_size
        self.ranks = list(range(world_size))
        self.device_group = self.cpu_group = self

    def __getattr__(self, name: str) -> Any:
        return {"size": lambda: self.world_size}[name]


def _build(config: Any) -> None:
    """The model without weights, and the block sizes that its kernels ask for."""
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
    hopper.name_all_kernels()
    with set_default_torch_dtype(config.model_config.dtype), torch.device("meta"):
        initialize_model(config)
    current_platform.update_block_size_for_backend(config)


def _plan(config: Any) -> dict[str, Any]:
    from vllm.v1.attention.backends.utils import (
        get_supported_kv_cache_layouts,
        resolve_kv_cache_layout,
    )
    from vllm.v1.core import kv_cache_planning as planning
    from vllm.v1.core.kv_cache_config_builder import get_kv_cache_config_builder
    from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs

    register_all_kvcache_specs(config)
    workers = _specs_of_workers(config)
    specs = [spec for worker in workers for spec in worker.values()]
    layouts = [layout.name for layout in get_supported_kv_cache_layouts(_backends(config))]
    resolve_kv_cache_layout(config, [layouts], specs)
    groups = planning.get_global_kv_cache_groups(config, workers)
    builder = get_kv_cache_config_builder(config)
    projected = [planning._project_kv_cache_groups_to_worker(groups, each) for each in workers]
    block_bytes = [
        planning._pool_bytes_per_block_from_builder(builder, config, each) for each in projected
    ]
    needed = [
        planning._max_memory_usage_bytes_from_groups(builder, config, each) for each in projected
    ]
    return {
        "groups": _group_rows(groups),
        "block_bytes": max(block_bytes),
        "request_bytes": max(needed),
        "max_model_len": config.model_config.max_model_len,
        "blocks": [_num_blocks(config, workers, groups, memory) for memory in MEMORIES],
        **_hashing(config, workers, groups, 2 * max(needed)),
    }


def _specs_of_workers(config: Any) -> list[dict[str, Any]]:
    from vllm.config import set_current_vllm_config
    from vllm.distributed.utils import get_pp_indices
    from vllm.v1.worker.gpu.attn_utils import get_kv_cache_spec

    with set_current_vllm_config(config):
        specs = get_kv_cache_spec(config)
    ranks = config.parallel_config.pipeline_parallel_size
    layers = config.model_config.hf_text_config.num_hidden_layers
    bounds = [range(*get_pp_indices(layers, rank, ranks)) for rank in range(ranks)]
    return [
        {name: spec for name, spec in specs.items() if _layer(name, layers) in each}
        for each in bounds
    ]


def _layer(name: str, layers: int) -> int:
    """The layer's number: the first in its name. Falcon-H1 counts states on from attention."""
    return next(int(part) for part in name.split(".") if part.isdigit()) % layers


def _backends(config: Any) -> list[Any]:
    from vllm.config.vllm import get_layers_from_vllm_config
    from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase

    layers = get_layers_from_vllm_config(config, AttentionLayerBase)
    return list(dict.fromkeys(layer.get_attn_backend() for layer in layers.values()))


def _group_rows(groups: Any) -> list[list[Any]]:
    rows = [_group_row(group) for group in groups]
    return [[len(list(run)), *row] for row, run in groupby(rows)]


def _group_row(group: Any) -> list[Any]:
    from vllm.v1.kv_cache_interface import get_kv_cache_spec_kind, iter_layer_specs

    spec = next(iter(iter_layer_specs(group.kv_cache_spec)))
    window = getattr(spec, "sliding_window", None) or getattr(spec, "attention_chunk_size", None)
    exports = getattr(spec, "num_prefill_checkpoint_blocks", 0)
    alignment = getattr(spec, "prefill_checkpoint_alignment", None)
    kind = get_kv_cache_spec_kind(spec).value
    layers = len(group.layer_names)
    return [kind, spec.block_size, layers, window, spec.page_size_bytes, exports, alignment]


def _num_blocks(config: Any, workers: Any, groups: Any, memory: int) -> int | None:
    """The blocks that vLLM would make, None where it refuses."""
    from vllm.v1.core.kv_cache_planning import get_kv_cache_configs

    try:
        configs = get_kv_cache_configs(config, workers, [memory] * len(workers), groups)
    except ValueError:
        return None
    return int(configs[0].num_blocks)


def _hashing(config: Any, workers: Any, groups: Any, memory: int) -> dict[str, int]:
    """The tokens of a block hash, and those that hits are multiples of."""
    from vllm.v1.core import kv_cache_utils
    from vllm.v1.core.kv_cache_planning import get_kv_cache_configs

    configs = get_kv_cache_configs(config, workers, [memory] * len(workers), groups)
    made = kv_cache_utils.generate_scheduler_kv_cache_config(configs)
    config.cache_config.block_size = min(
        group.kv_cache_spec.block_size for group in made.kv_cache_groups
    )
    sizes = kv_cache_utils.resolve_kv_cache_block_sizes(made, config)
    hits = kv_cache_utils.resolve_cache_hit_alignment_tokens(made, config, *sizes)
    return {"hash_tokens": sizes[1], "hit_tokens": hits}

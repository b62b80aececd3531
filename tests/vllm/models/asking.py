"""vLLM's own plan of a model's KV cache. The process must install the imitation of a GPU first."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

from kvoxide.lab.model.from_vllm import building, planning

from .cases import MAX_BATCHED_TOKENS, MEMORIES, Case


def answer(case: Case) -> dict[str, Any]:
    """Return groups, bytes per block, bytes of the longest request, and the blocks of each
    memory."""
    with _vllm_config(case) as config:
        building.build(config)
        return plan(config)


@contextmanager
def _vllm_config(case: Case) -> Iterator[Any]:
    with tempfile.TemporaryDirectory() as folder:
        if case.config.is_dir():
            shutil.copytree(case.config, folder, dirs_exist_ok=True)
        else:
            is_params = "n_layers" in json.loads(case.config.read_text())
            shutil.copy(case.config, Path(folder) / ("params.json" if is_params else "config.json"))
        is_mistral = (Path(folder) / "params.json").exists()
        options = {
            "config_format": "mistral" if is_mistral else "auto",
            "max_num_batched_tokens": MAX_BATCHED_TOKENS,
            "tensor_parallel_size": case.tensor_parallel,
            "pipeline_parallel_size": case.pipeline_parallel,
            "kv_cache_dtype": case.cache_dtype,
            "block_size": case.block_size,
        }
        yield building.vllm_config(folder, options)


def plan(config: Any) -> dict[str, Any]:
    layers = planning.layers_of_ranks(config)
    groups = planning.groups_of(config, layers)
    blocks, requests = planning.sizes(config, layers, groups)
    counts = [_num_blocks(config, layers, groups, memory) for memory in MEMORIES]
    made = planning.scheduler_config(config, layers, groups, 2 * max(requests))
    hash_tokens, hit_tokens = planning.hashing(config, made)
    return {
        "groups": _group_rows(groups),
        "block_bytes": max(blocks),
        "request_bytes": max(requests),
        "max_model_len": config.model_config.max_model_len,
        "blocks": counts,
        "hash_tokens": hash_tokens,
        "hit_tokens": hit_tokens,
    }


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


def _num_blocks(config: Any, layers: Any, groups: Any, memory: int) -> int | None:
    """Return how many blocks vLLM would create, or None if it refuses."""
    try:
        configs = planning.kv_cache_configs(config, layers, groups, memory)
    except ValueError:
        return None
    return int(configs[0].num_blocks)

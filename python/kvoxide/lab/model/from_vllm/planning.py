"""Calls vLLM's code that plans a KV cache. Supported releases have it in different
modules."""

from collections.abc import Sequence
from typing import Any

Layers = dict[str, Any]


def layers_of_ranks(config: Any) -> list[Layers]:
    """Return vLLM's description of the cache of each layer, by the layer's name, for each pipeline
    rank.

    Also choose the layout of the caches in memory, because pages depend on it.
    """
    from vllm.config import set_current_vllm_config
    from vllm.v1.attention.backends.utils import (
        get_supported_kv_cache_layouts,
        resolve_kv_cache_layout,
    )
    from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs
    from vllm.v1.worker.gpu.attn_utils import get_kv_cache_spec

    register_all_kvcache_specs(config)
    with set_current_vllm_config(config):
        layers = get_kv_cache_spec(config)
    layouts = [layout.name for layout in get_supported_kv_cache_layouts(_backends(config))]
    resolve_kv_cache_layout(config, [layouts], list(layers.values()))
    return _shared(config, layers)


def require_causal_caching(config: Any, layers: Sequence[Layers]) -> None:
    """Switch prefix caching off where a layer attends to later tokens too, as the engine does."""
    if any(getattr(spec, "non_causal", False) for each in layers for spec in each.values()):
        config.cache_config.enable_prefix_caching = False


def _shared(config: Any, layers: Layers) -> list[Layers]:
    """Return the layers of each pipeline rank."""
    from vllm.distributed.utils import get_pp_indices

    ranks = config.parallel_config.pipeline_parallel_size
    if ranks == 1:
        return [layers]
    count = config.model_config.hf_text_config.num_hidden_layers
    bounds = [range(*get_pp_indices(count, rank, ranks)) for rank in range(ranks)]
    return [
        {name: spec for name, spec in layers.items() if _number(name, count) in each}
        for each in bounds
    ]


def _number(name: str, count: int) -> int:
    """Return the layer's number: the first number in its name. Falcon-H1 numbers states after
    attention."""
    return next(int(part) for part in name.split(".") if part.isdigit()) % count


def _backends(config: Any) -> list[Any]:
    from vllm.config.vllm import get_layers_from_vllm_config
    from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase

    layers = get_layers_from_vllm_config(config, AttentionLayerBase)
    return list(dict.fromkeys(layer.get_attn_backend() for layer in layers.values()))


def _module() -> Any:
    try:
        from vllm.v1.core import kv_cache_planning
    except ImportError:
        from vllm.v1.core import kv_cache_utils

        return kv_cache_utils
    return kv_cache_planning


def _builder(config: Any) -> list[Any]:
    """Return the first argument of the newest release's functions for sizes."""
    try:
        from vllm.v1.core.kv_cache_config_builder import get_kv_cache_config_builder
    except ImportError:
        return []
    return [get_kv_cache_config_builder(config)]


def groups_of(config: Any, layers: Sequence[Layers]) -> list[Any]:
    """Return vLLM's groups of all layers."""
    module = _module()
    if hasattr(module, "get_global_kv_cache_groups"):
        return list(module.get_global_kv_cache_groups(config, list(layers)))
    merged = {name: spec for each in layers for name, spec in each.items()}
    return list(module.get_kv_cache_groups(config, merged))


def sizes(
    config: Any,
    layers: Sequence[Layers],
    groups: Sequence[Any],
) -> tuple[list[int], list[int]]:
    """Return for each rank the bytes of a block, and the most bytes that the longest request
    takes."""
    module, builder = _module(), _builder(config)
    name = "_pool_bytes_per_block_from_builder" if builder else "_pool_bytes_per_block"
    projected = [module._project_kv_cache_groups_to_worker(groups, each) for each in layers]
    return (
        [getattr(module, name)(*builder, config, each) for each in projected],
        [module._max_memory_usage_bytes_from_groups(*builder, config, each) for each in projected],
    )


def kv_cache_configs(
    config: Any,
    layers: Sequence[Layers],
    groups: Sequence[Any],
    memory: int,
) -> list[Any]:
    """Return vLLM's configuration of the cache of each rank. Each rank has the same number of bytes
    for it."""
    module = _module()
    given = [config, list(layers), [memory] * len(layers)]
    if hasattr(module, "get_global_kv_cache_groups"):
        given.append(groups)
    return list(module.get_kv_cache_configs(*given))


def scheduler_config(
    config: Any,
    layers: Sequence[Layers],
    groups: Sequence[Any],
    memory: int,
) -> Any:
    """Return vLLM's configuration of the scheduler's manager."""
    from vllm.v1.core import kv_cache_utils

    made = kv_cache_utils.generate_scheduler_kv_cache_config(
        kv_cache_configs(config, layers, groups, memory)
    )
    config.cache_config.block_size = min(
        group.kv_cache_spec.block_size for group in made.kv_cache_groups
    )
    return made


def hashing(config: Any, made: Any) -> tuple[int, int]:
    """Return the tokens of a block hash, and the number of tokens that hits are multiples of."""
    from vllm.v1.core import kv_cache_utils

    block, hashed = kv_cache_utils.resolve_kv_cache_block_sizes(made, config)
    resolve = kv_cache_utils.resolve_cache_hit_alignment_tokens
    return hashed, resolve(made, config, block, hashed)


def group_rows(groups: Sequence[Any]) -> list[dict[str, Any]]:
    """Return each group as kvoxide's manager describes it. ``is_native`` is false if kvoxide has no
    such kind."""
    from kvoxide.vllm.adapter.support import native_kind

    return [_row(group, native_kind(group.kv_cache_spec)) for group in groups]


def _row(group: Any, native: Any) -> dict[str, Any]:
    spec = group.kv_cache_spec
    names = (*native.required_sizes, *native.optional_sizes) if native else ()
    is_optional = native is not None and native.prefix_caching == "optional"
    return {
        "kind": native.name if native else type(spec).__name__,
        "is_native": native is not None,
        "block_size": spec.block_size,
        "sizes": {name: getattr(spec, name) for name in names},
        "prefix_cacheable": spec.prefix_cacheable if is_optional else None,
        "page_bytes": spec.page_size_bytes,
        "layers": len(group.layer_names),
    }

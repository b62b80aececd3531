"""What the adapter replaces or relies on in vLLM, and how it looks in the vLLM that is installed.

A surface is a mapping from a name, ``module:Class.method`` below the package ``vllm``, to one line
of text: a signature, the fields of a class, the members of an enumeration.
"""

import enum
import importlib
import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any, Final

MISSING: Final = "missing"

# Every public method of these classes.
CLASSES: Final = {
    "v1.core.kv_cache_manager": ("KVCacheManager", "KVCacheBlocks"),
    "v1.core.block_pool": ("BlockPool", "BlockHashToBlockMap"),
    "v1.core.kv_cache_coordinator": (
        "KVCacheCoordinator",
        "KVCacheCoordinatorNoPrefixCache",
        "UnitaryKVCacheCoordinator",
        "HybridKVCacheCoordinator",
    ),
    "v1.core.single_type_kv_cache_manager": (
        "SingleTypeKVCacheManager",
        "FullAttentionManager",
        "SlidingWindowManager",
        "ChunkedLocalAttentionManager",
        "RSWAManager",
        "CircularBufferManager",
        "MambaManager",
        "CrossAttentionManager",
    ),
    "v1.core.kv_cache_utils": ("KVCacheBlock",),
    "v1.core.kv_cache_metrics": ("KVCacheMetricsCollector",),
    "v1.metrics.stats": ("PrefixCacheStats",),
}

# These methods.
METHODS: Final = {
    "v1.core.sched.scheduler": {
        "Scheduler": (
            "_free_request",
            "finish_requests",
            "has_unfinished_requests",
            "schedule",
            "shutdown",
            "update_from_output",
        ),
    },
}

# Of these, the fields that are read.
FIELDS: Final = {
    "v1.core.sched.output": {
        "CachedRequestData": ("num_computed_tokens",),
        "NewRequestData": ("num_computed_tokens",),
        "SchedulerOutput": (
            "num_scheduled_tokens",
            "scheduled_cached_reqs",
            "scheduled_new_reqs",
            "scheduled_spec_decode_tokens",
            "total_num_scheduled_tokens",
        ),
    },
}

# The fields of these, as their constructors take them, or the members of an enumeration.
RECORDS: Final = {
    "v1.core.kv_cache_manager": ("KVCacheBlocks",),
    "v1.core.kv_cache_utils": ("KVCacheBlock", "KVCacheBlockCopy"),
    "v1.kv_cache_interface": (
        "KVCacheConfig",
        "KVCacheGroupSpec",
        "KVCacheGroupRole",
        "KVCacheSpecKind",
        "KVCacheSpec",
        "AttentionSpec",
        "FullAttentionSpec",
        "MLAAttentionSpec",
        "SlidingWindowSpec",
        "SlidingWindowMLASpec",
        "ChunkedLocalAttentionSpec",
        "RSWASpec",
        "CircularBufferSpec",
        "HiddenStateCacheSpec",
        "MambaSpec",
        "CrossAttentionSpec",
        "UniformTypeKVCacheSpecs",
    ),
    "v1.metrics.stats": ("PrefixCacheStats",),
    "v1.request": ("RequestStatus",),
    "distributed.kv_events": ("BlockStored", "BlockRemoved", "AllBlocksCleared"),
}

FUNCTIONS: Final = {
    "v1.core.kv_cache_coordinator": ("get_kv_cache_coordinator",),
    "v1.core.kv_cache_utils": (
        "generate_block_hash_extra_keys",
        "generate_lookahead_block_hash_extra_keys",
        "get_mm_features_in_window",
        "get_request_block_hasher",
        "hash_block_tokens",
        "make_block_hash_with_group_id",
        "maybe_convert_block_hash",
    ),
    "v1.core.single_type_kv_cache_manager": ("get_manager_for_kv_cache_spec",),
    "v1.kv_cache_interface": ("get_kv_cache_spec_kind", "get_kv_cache_spec_sliding_window"),
}

REQUEST_ATTRIBUTES: Final = (
    "all_token_ids",
    "arrival_time",
    "block_hashes",
    "cache_salt",
    "kv_cache_report_mode",
    "lora_request",
    "mm_features",
    "num_computed_tokens",
    "num_in_flight_tokens",
    "num_preemptions",
    "num_prompt_tokens",
    "num_tokens",
    "prompt_embeds",
    "request_id",
    "sampling_params",
    "session_id",
    "shared_prefix_boundary",
    "skip_reading_prefix_cache",
    "status",
)


def installed_surface() -> dict[str, str]:
    """The surface of the vLLM that ``import vllm`` finds; imports its modules."""
    surface: dict[str, str] = {}
    for module, names in CLASSES.items():
        for name in names:
            surface.update(_methods(module, name))
    for module, classes in METHODS.items():
        for name, methods in classes.items():
            cls = _find(module, name)
            for method in methods:
                surface[f"{module}:{name}.{method}"] = _signature(getattr(cls, method, None))
    for module, records in FIELDS.items():
        for name, fields in records.items():
            found = getattr(_find(module, name), "__dataclass_fields__", {})
            surface[f"{module}:{name}"] = ", ".join(f for f in fields if f in found) or MISSING
    for module, names in RECORDS.items():
        for name in names:
            surface[f"{module}:{name}"] = _record(_find(module, name))
    for module, names in FUNCTIONS.items():
        for name in names:
            surface[f"{module}:{name}"] = _signature(_find(module, name))
    surface["v1.request:Request"] = _request_attributes(_find("v1.request", "Request"))
    return surface


def format_surface(surface: Mapping[str, str]) -> str:
    """One entry per line, sorted by name; :func:`parse_surface` reads it."""
    return "".join(f"{name} {surface[name]}\n" for name in sorted(surface))


def parse_surface(text: str) -> dict[str, str]:
    """The reverse of :func:`format_surface`."""
    return dict(line.split(" ", 1) for line in text.splitlines())


def _find(module: str, name: str) -> Any:
    try:
        return getattr(importlib.import_module(f"vllm.{module}"), name, None)
    except ImportError:
        return None


def _methods(module: str, name: str) -> Iterator[tuple[str, str]]:
    cls = _find(module, name)
    if not isinstance(cls, type):
        yield f"{module}:{name}.__init__", MISSING
        return
    for attribute, value in vars(cls).items():
        if attribute.startswith("_") and (attribute != "__init__" or is_dataclass(cls)):
            continue
        if isinstance(value, property):
            yield f"{module}:{name}.{attribute}", "property"
        elif callable(value) or isinstance(value, classmethod | staticmethod):
            yield f"{module}:{name}.{attribute}", _signature(getattr(cls, attribute))


def _record(cls: Any) -> str:
    if isinstance(cls, type) and issubclass(cls, enum.Enum):
        return ", ".join(cls.__members__)
    if fields := getattr(cls, "_fields", None):
        return ", ".join(fields)
    return _signature(cls)


def _signature(target: Any) -> str:
    if target is None:
        return MISSING
    try:
        return _without_spelling(str(inspect.signature(target)))
    except (TypeError, ValueError):
        return "no signature"


def _without_spelling(signature: str) -> str:
    # Quotes, and where a type's name comes from, differ between Python versions.
    signature = re.sub(r"ForwardRef\('([^']*)'\)", r"\1", signature.replace('"', "'"))
    return re.sub(r"'|\b(?:[a-z_]\w*\.)+(?=[A-Za-z_])", "", signature)


def _request_attributes(cls: Any) -> str:
    if not isinstance(cls, type):
        return MISSING
    names = set(dir(cls)) | set(inspect.unwrap(cls.__init__).__code__.co_names)  # type: ignore[misc]
    return ", ".join(name for name in REQUEST_ATTRIBUTES if name in names)

"""Which of vLLM's configurations the engine manages, and how it describes them.

A new kind of group is one new module in the engine's core and one line in :data:`NATIVE_SPECS`.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from kvoxide._core import ConfigError, KVCacheConfig, KVCacheGroupSpec
from kvoxide._core_vllm import VllmManager
from kvoxide.vllm.adapter.engine import make_engine
from kvoxide.vllm.environment import Release, Settings, releases


def _full(spec: Any) -> dict[str, Any]:
    return {}


def _sliding_window(spec: Any) -> dict[str, Any]:
    return {
        "sliding_window": spec.sliding_window,
        "extra_retained_tokens": spec.extra_retained_tokens,
        "prefix_cacheable": spec.prefix_cacheable,
    }


def _chunked_local(spec: Any) -> dict[str, Any]:
    return {"attention_chunk_size": spec.attention_chunk_size}


NATIVE_SPECS: Final[Mapping[str, tuple[str, str, Callable[[Any], dict[str, Any]]]]] = {
    "FullAttentionSpec": ("full_attention", "FullAttentionManager", _full),
    "MLAAttentionSpec": ("mla_attention", "FullAttentionManager", _full),
    "SlidingWindowSpec": ("sliding_window", "SlidingWindowManager", _sliding_window),
    "SlidingWindowMLASpec": ("sliding_window_mla", "SlidingWindowManager", _sliding_window),
    "ChunkedLocalAttentionSpec": (
        "chunked_local_attention",
        "ChunkedLocalAttentionManager",
        _chunked_local,
    ),
}
"""vLLM's spec class -> the engine's kind, vLLM's manager class, and what else describes it."""


def reasons_against(arguments: Mapping[str, Any], settings: Settings) -> list[str]:
    """Why a manager made with ``arguments`` (vLLM's, by name) has to be vLLM's own.

    Empty if the engine can take over.
    """
    config = arguments["kv_cache_config"]
    reasons = [
        f"{name} is {arguments.get(name, 1)}; context parallelism is not supported"
        for name in ("dcp_world_size", "pcp_world_size")
        if arguments.get(name, 1) != 1
    ]
    for index, group in enumerate(config.kv_cache_groups):
        reasons += [f"KV cache group {index}: {why}" for why in _reasons_against_group(group)]
    if reasons:
        return reasons
    try:
        engine_for({**arguments, "num_blocks": len(config.kv_cache_groups) + 1}, settings)
    except (ConfigError, ValueError) as error:
        return [str(error)]
    return []


def _reasons_against_group(group: Any) -> list[str]:
    spec = group.kv_cache_spec
    name = type(spec).__name__
    native = NATIVE_SPECS.get(name)
    if native is None or not type(spec).__module__.startswith("vllm."):
        return [f"{name} is not among the native kinds ({', '.join(NATIVE_SPECS)})"]
    manager = _manager_class(spec, group.role)
    if manager is None or manager.__name__ != native[1]:
        other = None if manager is None else manager.__name__
        return [f"{name} is managed by {other} here, not by vLLM's {native[1]}"]
    if group.host_resident:
        return [f"{name} is resident on the host"]
    return []


def _manager_class(spec: Any, role: Any) -> Any:
    from vllm.v1.kv_cache_spec_registry import KVCacheSpecRegistry

    return KVCacheSpecRegistry.get_manager_class(spec, role)


def group_specs(groups: Any) -> list[KVCacheGroupSpec]:
    """The engine's description of vLLM's groups. Equal specs share a layout and are looked up
    together, as in vLLM."""
    specs = [group.kv_cache_spec for group in groups]
    described = []
    for group, spec in zip(groups, specs, strict=True):
        kind, _, details = NATIVE_SPECS[type(spec).__name__]
        described.append(
            KVCacheGroupSpec(
                kind,  # type: ignore[arg-type]
                spec.block_size,
                is_eagle_group=group.is_eagle_group,
                layout=specs.index(spec),
                **details(spec),
            )
        )
    return described


def known_release() -> Release:
    """The installed vLLM release. Raises :class:`RuntimeError` for one that is not known."""
    release = releases.current()
    if release is None:
        known = ", ".join(releases.RELEASES)
        raise RuntimeError(
            f"vLLM {releases.installed_version()} is not supported; supported are {known}"
        )
    return release


def engine_for(arguments: Mapping[str, Any], settings: Settings) -> VllmManager:
    """The engine for vLLM's constructor arguments; ``num_blocks`` among them overrides the pool.
    The release's own retention interval holds, unless the environment overrides it.

    Raises :class:`~kvoxide.ConfigError` for a configuration that cannot work.
    """
    from vllm.v1.request import RequestStatus

    release = known_release()
    config = arguments["kv_cache_config"]
    interval = settings.retention_interval
    return make_engine(
        KVCacheConfig(
            arguments.get("num_blocks", config.num_blocks),
            group_specs(config.kv_cache_groups),
            needs_kv_cache_zeroing=config.needs_kv_cache_zeroing,
        ),
        arguments,
        release,
        retention_interval=(
            config.prefix_cache_retention_interval if interval is None else interval
        ),
        waiting_states=[RequestStatus.WAITING, RequestStatus.PREEMPTED],
        pin_min_drop_size=settings.pin_min_drop_size,
        enable_kv_cache_events=arguments["enable_kv_cache_events"],
        observe=arguments["metrics_collector"] is not None,
        check_every=settings.check_every,
    )

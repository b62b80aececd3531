"""Decides which of vLLM's configurations the engine manages, and describes their groups to it."""

from collections.abc import Mapping
from typing import Any, Final, assert_never

from kvoxide._core import (
    ConfigError,
    GroupDeclaration,
    KVCacheConfig,
    KVCacheGroupSpec,
    group_kinds,
)
from kvoxide._core_vllm import VllmManager
from kvoxide.vllm.adapter.engine import make_engine
from kvoxide.vllm.environment import Settings, recognise

NATIVE_SPECS: Final = tuple(dict.fromkeys(kind.vllm_spec for kind in group_kinds()))
"""vLLM's classes of specs of the groups that the engine manages."""


def native_kind(spec: Any) -> GroupDeclaration | None:
    """Return the engine's declaration of the kind of a vLLM spec; None for other kinds."""
    from vllm.v1 import kv_cache_interface

    for kind in group_kinds():
        attributes = kind.vllm_attributes.items()
        if type(spec) is getattr(kv_cache_interface, kind.vllm_spec, None) and all(
            getattr(spec, name) == value for name, value in attributes
        ):
            return kind
    return None


def reasons_against(arguments: Mapping[str, Any], settings: Settings) -> list[str]:
    """Return why the manager for ``arguments`` (vLLM's, by name) must be vLLM's own. The list is
    empty if the engine can take over."""
    config = arguments["kv_cache_config"]
    reasons = []
    if (pcp := arguments.get("pcp_world_size", 1)) != 1:
        reasons.append(
            f"pcp_world_size is {pcp}; kvoxide does not support prefill context parallelism"
        )
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
    native = native_kind(spec)
    if native is None:
        return [
            f"kvoxide does not support {_described(spec)}; supported: {', '.join(NATIVE_SPECS)}"
        ]
    from vllm.v1.core import single_type_kv_cache_manager as managers

    manager = _manager_class(spec, group.role)
    if manager is not getattr(managers, native.vllm_manager):
        other = "no class" if manager is None else f"{manager.__module__}.{manager.__qualname__}"
        return [f"{other} manages {name} here instead of vLLM's {native.vllm_manager}"]
    if group.host_resident:
        return [f"{name} is resident in CPU memory, which kvoxide does not support"]
    return []


def _described(spec: Any) -> str:
    """Return the class of a spec, with the attributes by which kvoxide tells its kinds apart."""
    name = type(spec).__name__
    kinds = [kind for kind in group_kinds() if kind.vllm_spec == name]
    told = dict.fromkeys(attribute for kind in kinds for attribute in kind.vllm_attributes)
    values = ", ".join(f"{attribute}={getattr(spec, attribute)!r}" for attribute in told)
    return f"{name} with {values}" if values else name


def _manager_class(spec: Any, role: Any) -> Any:
    from vllm.v1.kv_cache_spec_registry import KVCacheSpecRegistry

    return KVCacheSpecRegistry.get_manager_class(spec, role)


def group_specs(groups: Any) -> list[KVCacheGroupSpec]:
    """The engine's description of vLLM's groups. Equal specs share a layout and are looked up
    together, as in vLLM."""
    specs = [group.kv_cache_spec for group in groups]
    described = []
    for group, spec in zip(groups, specs, strict=True):
        kind = native_kind(spec)
        if kind is None:
            raise ValueError(f"kvoxide does not support {type(spec).__name__}")
        sizes = (*kind.required_sizes, *kind.optional_sizes)
        described.append(
            KVCacheGroupSpec(
                kind.name,
                spec.block_size,
                is_eagle_group=group.is_eagle_group,
                prefix_cacheable=(
                    spec.prefix_cacheable if kind.prefix_caching == "optional" else None
                ),
                dcp_sharded=spec.dcp_sharded,
                layout=specs.index(spec),
                **{size: getattr(spec, size) for size in sizes},
            )
        )
    return described


def engine_for(arguments: Mapping[str, Any], settings: Settings) -> VllmManager:
    """The engine for vLLM's constructor arguments; ``num_blocks`` among them overrides the pool.
    The release's own retention interval holds, unless the environment overrides it.

    Raises :class:`~kvoxide.ConfigError` for a configuration that cannot work.
    """
    from vllm.v1.request import Request, RequestStatus

    config = arguments["kv_cache_config"]
    return make_engine(
        KVCacheConfig(
            arguments.get("num_blocks", config.num_blocks),
            group_specs(config.kv_cache_groups),
            needs_kv_cache_zeroing=config.needs_kv_cache_zeroing,
        ),
        arguments,
        recognise().release,
        retention=settings.retention,
        retention_interval=_interval(settings, config.prefix_cache_retention_interval),
        waiting_states=[RequestStatus.WAITING, RequestStatus.PREEMPTED],
        num_tokens=_length_of_a_list(Request, "num_tokens"),
        pin_min_drop_size=settings.pin_min_drop_size,
        protected_share=settings.protected_share,
        enable_kv_cache_events=arguments["enable_kv_cache_events"],
        observe=arguments["metrics_collector"] is not None,
        max_priority=settings.max_priority,
        check_every=settings.check_every,
    )


def _interval(settings: Settings, configured: int | None) -> int | None:
    """The environment overrides vLLM's own; adaptive retention has none."""
    match settings.retention:
        case "adaptive":
            return None
        case "standard":
            own = settings.retention_interval
            return configured if own is None else own
        case other:
            assert_never(other)


def _length_of_a_list(owner: type, name: str) -> tuple[object, str] | None:
    """A property that does nothing but count what is in an attribute, and that attribute: the
    engine counts without calling it. ``None`` for any other."""
    own = getattr(owner, name)
    if not isinstance(own, property) or own.fget is None:
        return None
    code, pattern = own.fget.__code__, _count.__code__
    called, *counted = code.co_names or ("",)
    is_length = code.co_code == pattern.co_code and called == pattern.co_names[0]
    return (own, counted[0]) if is_length else None


def _count(self: Any) -> int:
    return len(self.counted)

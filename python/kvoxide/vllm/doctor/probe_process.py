"""The process of the probe. It does what a server does before it constructs its manager, and prints
its findings as one line of JSON."""

import json
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from kvoxide.vllm.doctor.connectors import connectors
from kvoxide.vllm.doctor.probe import MARK, NOTHING_FOUND
from kvoxide.vllm.environment import (
    accepted_certificate,
    connector_reasons,
    environment_reasons,
    host_reasons,
    primary_tier_reasons,
    recognise,
    shadow_reasons,
)
from kvoxide.vllm.environment.runtime_patches import replacements
from kvoxide.vllm.environment.schedulers import pool_access, scheduler_reasons


def probe(found: dict[str, Any], scheduler: str, transfer: str) -> None:
    """Load vLLM's plugins in this process, construct a small manager, and put the findings into
    ``found``. This changes the process."""
    try:
        import vllm
    except ModuleNotFoundError as error:
        if error.name != "vllm":
            found["error"] = f"vLLM cannot be imported: {error}"
        return
    found["vllm"] = vllm.__version__
    found["reasons"] = environment_reasons()
    is_readable = not shadow_reasons()
    if is_readable:
        recognition = recognise()
        found["release"] = recognition.release.version
        found["differences"] = recognition.differences
    if not found["reasons"] and (certificate := accepted_certificate()) is not None:
        found["verified"] = {"calls": certificate.num_calls, "kinds": list(certificate.kinds)}
    manager = _manager_of_a_server()
    if is_readable:
        found["replaced"] = replacements()
    found["host"] = host_reasons()
    found["primary_tier"] = primary_tier_reasons()
    found["connector"] = connector_reasons()
    if transfer:
        found["pool_access"] = [_pool_access(config) for config in connectors(json.loads(transfer))]
    if scheduler:
        found["scheduler"] = _scheduler_reasons(scheduler)
    found["manager"] = f"{type(manager).__module__}.{type(manager).__qualname__}"
    found["is_loaded"] = "kvoxide.vllm.plugin" in sys.modules
    if found["is_loaded"]:
        from kvoxide.vllm.plugin import foreign_manager_reason

        found["foreign"] = foreign_manager_reason(manager)


def _scheduler_reasons(name: str) -> list[str]:
    module, _, qualname = name.rpartition(".")
    try:
        found = getattr(import_module(module), qualname)
    except (ImportError, AttributeError, ValueError) as error:
        return [f"{name} cannot be imported: {error}"]
    if not isinstance(found, type):
        return [f"{name} is not a class"]
    return list(scheduler_reasons(found))


def _pool_access(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return how one connector class uses the living block pool."""
    from vllm.config import KVTransferConfig
    from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory

    names = ("kv_connector", "kv_connector_module_path")
    shown = config.get("kv_connector")
    try:
        given = KVTransferConfig(
            kv_role="kv_both", **{name: config[name] for name in names if name in config}
        )
        cls = KVConnectorFactory.get_connector_class(given)
    except Exception as error:
        return {"name": shown, "error": f"{type(error).__name__}: {error}"}
    methods, changes = pool_access(cls)
    name = f"{cls.__module__}.{cls.__qualname__}"
    return {"name": name, "error": None, "methods": methods, "changes": changes}


def _manager_of_a_server() -> object:
    """Construct the manager that vLLM's scheduler gets for a model with full attention."""
    import torch
    from vllm.plugins import load_general_plugins

    load_general_plugins()
    from vllm.v1.core.sched.scheduler import KVCacheManager
    from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec

    register_all_kvcache_specs(None)
    spec = FullAttentionSpec(block_size=16, num_kv_heads=1, head_size=64, dtype=torch.float16)
    config = KVCacheConfig(8, [], [KVCacheGroupSpec(["layer"], spec)])
    return KVCacheManager(config, 64, scheduler_block_size=16, hash_block_size=16)


def _main() -> None:
    found = dict(NOTHING_FOUND)
    try:
        probe(found, *sys.argv[1:])
    except Exception as error:
        found |= {"vllm": _version(), "error": f"{type(error).__name__}: {error}"}
    print(MARK + json.dumps(found))


def _version() -> str | None:
    return getattr(sys.modules.get("vllm"), "__version__", None)


if __name__ == "__main__":
    _main()

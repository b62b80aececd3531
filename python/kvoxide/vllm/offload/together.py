"""Lets GPU and CPU memory of a server decide together, if ``KVOXIDE_HOST_POLICY=adaptive`` asks for
it and the server's configuration allows it."""

from collections.abc import Iterator, Mapping
from typing import Any

from kvoxide import ConfigError
from kvoxide.vllm.environment import HostMode, UnsupportedError, host_mode, settings
from kvoxide.vllm.environment.log import log_decides_not_together, log_decides_together


def decide_together(scheduler: Any) -> None:
    """Let the memories of vLLM's ``scheduler``, which is new, decide together.

    If they cannot, CPU memory keeps the policy of vLLM's configuration, and the log says why. With
    ``KVOXIDE_HOST=require``, raises :class:`UnsupportedError` instead.
    """
    if settings.current().host_policy != "adaptive":
        return
    reason = next(_reasons_against(scheduler), None)
    if reason is None:
        connector = scheduler.connector.connector_scheduler
        try:
            connector.decide_with(scheduler.kv_cache_manager)
        except ConfigError as error:
            reason = str(error)
        except Exception as error:
            reason = f"unexpected {type(error).__name__}: {error}; please report it"
        else:
            log_decides_together(connector.manager.tier.num_chunks)
            return
    config = getattr(scheduler.vllm_config, "kv_transfer_config", None)
    if config is not None:
        host = host_mode(getattr(config, "kv_connector_extra_config", None) or {})
        if host.mode == "require":
            raise _unsupported(reason, host)
    log_decides_not_together(reason)


def refuse_other_tiers(extra_config: Mapping[str, Any]) -> None:
    """Raise :class:`UnsupportedError` if the memories of a server with other tiers have to decide
    together. Its connector has this ``kv_connector_extra_config``."""
    if settings.current().host_policy != "adaptive":
        return
    host = host_mode(extra_config)
    if host.mode == "require":
        raise _unsupported("TieringOffloadingSpec manages CPU memory", host)


def _unsupported(reason: str, host: HostMode) -> UnsupportedError:
    return UnsupportedError(
        f"kvoxide cannot follow KVOXIDE_HOST_POLICY=adaptive: {reason}. {host.source}=require "
        f"forbids another policy; set {host.source}=auto or unset KVOXIDE_HOST_POLICY"
    )


def _reasons_against(scheduler: Any) -> Iterator[str]:
    from kvoxide.vllm.adapter import native_class as manager_class
    from kvoxide.vllm.offload.connector import OffloadingConnectorScheduler

    connector = getattr(scheduler.connector, "connector_scheduler", None)
    if scheduler.connector is None:
        yield "the server does not offload to CPU memory; see --kv-offloading-size"
    elif connector is not None and type(connector) is not OffloadingConnectorScheduler:
        yield "kvoxide's offloading connector is not active"
    elif connector is None:
        yield (
            f"kvoxide's offloading connector does not serve {type(scheduler.connector).__name__}. "
            "Use OffloadingConnector alone"
        )
    else:
        if type(scheduler.kv_cache_manager) is not manager_class():
            yield "kvoxide does not manage the KV cache"
        if not scheduler.kv_cache_manager.enable_caching:
            yield "prefix caching is disabled"
        yield from _reasons_of_scheduler(scheduler)
        yield from _reasons_of_connector(connector)


def _reasons_of_scheduler(scheduler: Any) -> Iterator[str]:
    # These can shorten a hit after its look-up, or start a load in a later step.
    for name in ("aux_output_connector", "prefix_replay_tokens", "defer_async_loads"):
        if getattr(scheduler, name, None):
            yield f"the scheduler uses {name}"


def _reasons_of_connector(connector: Any) -> Iterator[str]:
    if not connector._planner.has_own_tier:
        yield f"CPU memory is managed by {type(connector.manager).__name__}, which kvoxide is not"
    elif not connector._planner.looks_up:
        yield "self_describing_kv_events is set"
    elif not connector._planner.keeps_keys:
        yield "the connector stores states inside of blocks"
    if connector.config.blocks_per_chunk != 1:
        yield "blocks_per_chunk is not 1"
    if getattr(connector.config, "sync_load_budget_bytes", 0):
        yield "sync_load_budget_bytes is set"

"""Reads the connectors in a server's ``--kv-transfer-config``."""

import json
from collections.abc import Mapping
from typing import Any


def connectors(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the configuration of a connector, or of each one inside a MultiConnector."""
    inner = None
    if config.get("kv_connector") == "MultiConnector":
        inner = extra_config(config).get("connectors")
    return [part for each in inner for part in connectors(each)] if inner else [config]


def extra_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the ``kv_connector_extra_config`` of a connector."""
    found = config.get("kv_connector_extra_config")
    return found if isinstance(found, Mapping) else {}


def has_other_tiers(config: Mapping[str, Any]) -> bool:
    """Return whether the connector with this ``kv_connector_extra_config`` copies chunks from CPU
    memory to other tiers."""
    return config.get("spec_name") == "TieringOffloadingSpec"


def extra_configs(transfer: str | None) -> list[Mapping[str, Any]]:
    """Return the ``kv_connector_extra_config`` of each connector that offloads to CPU memory.

    ``transfer`` is the value of ``--kv-transfer-config``.
    """
    if transfer is None:
        return []
    return [
        extra_config(each)
        for each in connectors(json.loads(transfer))
        if "Offload" in str(each.get("kv_connector"))
    ]

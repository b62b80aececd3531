"""The mode of CPU offloading: in the environment, or in ``kv_connector_extra_config`` of a
connector.

The variable wins if both are set. So an operator can switch kvoxide off without a change of the
connector's configuration, as the messages say.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kvoxide.vllm.environment import settings
from kvoxide.vllm.environment.settings import HOST_VARIABLE, MODES, Mode, SettingsError

KEY: Final = "kvoxide"
ENTRY: Final = f"kv_connector_extra_config.{KEY}"


@dataclass(frozen=True)
class HostMode:
    """The mode in force, and the variable or entry that sets it."""

    mode: Mode
    source: str


def host_mode(extra_config: Mapping[str, Any]) -> HostMode:
    """Return the mode for a connector with this ``kv_connector_extra_config``.

    Raises :class:`SettingsError` for a value that is not allowed, also if the other one wins.
    """
    wanted, entry = settings.current().host_mode, entry_of(extra_config)
    wins = settings.are_overridden() or settings.is_set(os.environ, HOST_VARIABLE)
    if wins or entry is None:
        return HostMode(wanted, HOST_VARIABLE)
    return HostMode(entry, ENTRY)


def entry_of(extra_config: Mapping[str, Any]) -> Mode | None:
    """Return the mode in ``kv_connector_extra_config``; None if it has none.

    Raises :class:`SettingsError` for a value that is not allowed.
    """
    value = extra_config.get(KEY)
    if value is None or value == "":
        return None
    # In YAML, off without quotes is false.
    name = "off" if value is False else str(value).strip().lower()
    for mode in MODES:
        if mode == name:
            return mode
    raise SettingsError(ENTRY, value, ", ".join(MODES))

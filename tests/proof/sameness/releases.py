"""What of the harness the installed vLLM release has no name for."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from kvoxide.vllm.environment.releases import installed_version

from .operations import Operation
from .scenarios import Scenario

T = TypeVar("T", Scenario, Operation)

MISSING: Final[Mapping[str, frozenset[str]]] = {
    "0.33.0": frozenset(),
    "0.32.0": frozenset({"num_hash_lookahead_tokens", "max_hit"}),
}
"""Release -> fields of scenarios and operations, and arguments, that it lacks."""

MISSING_HERE: Final = MISSING.get(installed_version() or "", frozenset())


def without_missing(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if name not in MISSING_HERE}


def fitted(instance: T) -> T:
    """``instance`` with the defaults of what the release lacks."""
    plain: Any = instance
    fields = dataclasses.fields(plain)
    defaults = {field.name: field.default for field in fields if field.name in MISSING_HERE}
    complete: T = dataclasses.replace(plain, **defaults)
    return complete

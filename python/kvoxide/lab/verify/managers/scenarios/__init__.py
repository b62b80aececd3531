"""Configurations of a manager: the scenario, families of random scenarios, and the style of their
traffic."""

from kvoxide.lab.verify.managers.scenarios.families import (
    DEFAULT_FAMILIES,
    EVERY_FAMILY,
    FAMILIES,
    random_scenario,
)
from kvoxide.lab.verify.managers.scenarios.scenario import (
    WINDOW_KINDS,
    Group,
    HashAlgorithm,
    Kind,
    Scenario,
)
from kvoxide.lab.verify.managers.scenarios.style import draw_style

__all__ = [
    "DEFAULT_FAMILIES",
    "EVERY_FAMILY",
    "FAMILIES",
    "WINDOW_KINDS",
    "Group",
    "HashAlgorithm",
    "Kind",
    "Scenario",
    "draw_style",
    "random_scenario",
]

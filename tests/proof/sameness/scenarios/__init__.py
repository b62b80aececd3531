"""Configurations of a manager: what a scenario is, families of random ones, and how one is used."""

from .families import DEFAULT_FAMILIES, EVERY_FAMILY, FAMILIES, random_scenario
from .scenario import WINDOW_KINDS, Group, HashAlgorithm, Kind, Scenario
from .style import draw_style

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

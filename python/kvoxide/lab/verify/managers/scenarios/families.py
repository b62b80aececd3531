"""A random generator of valid configurations, by the family of models that they belong to."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from kvoxide.lab.verify.managers.scenarios.attention import attention_scenario, local_scenario
from kvoxide.lab.verify.managers.scenarios.cross import cross_scenario
from kvoxide.lab.verify.managers.scenarios.parallel import (
    parallel_scenario,
    parallel_state_scenario,
)
from kvoxide.lab.verify.managers.scenarios.scenario import Scenario
from kvoxide.lab.verify.managers.scenarios.states import (
    hidden_state_scenario,
    partial_hit_scenario,
    state_scenario,
    uncached_state_scenario,
)


def surface_scenario(seed: int) -> Scenario:
    """Return a scenario whose traffic also reads and writes the pool's own attributes."""
    return replace(attention_scenario(seed), pokes_at_pool=True)


def junction_scenario(seed: int) -> Scenario:
    """Return a scenario in which states are also cached where prompts diverge."""
    return replace(partial_hit_scenario(seed), shared_prefix_checkpoint=True)


def written_scenario(seed: int) -> Scenario:
    """Return a scenario whose traffic also writes to the free queue and to block tables."""
    return replace(attention_scenario(seed), writes_by_hand=True)


_WRAPPED: Final = (
    attention_scenario,
    state_scenario,
    uncached_state_scenario,
    partial_hit_scenario,
    hidden_state_scenario,
    cross_scenario,
    parallel_scenario,
    parallel_state_scenario,
    local_scenario,
    junction_scenario,
    written_scenario,
)


def wrapped_scenario(seed: int) -> Scenario:
    """Return a scenario whose traffic also wraps methods of living objects and sets their
    fields."""
    scenario = random.Random(f"wrapped {seed}").choice(_WRAPPED)(seed)
    return replace(scenario, wraps_methods=True)


FAMILIES: Final[Mapping[str, Callable[[int], Scenario]]] = {
    "attention": attention_scenario,
    "states": state_scenario,
    "states-uncached": uncached_state_scenario,
    "partial-hits": partial_hit_scenario,
    "hidden-states": hidden_state_scenario,
    "cross": cross_scenario,
    "parallel": parallel_scenario,
    "parallel-states": parallel_state_scenario,
    "surfaces": surface_scenario,
    "local": local_scenario,
    "junctions": junction_scenario,
    "writes": written_scenario,
    "wrapped": wrapped_scenario,
}
DEFAULT_FAMILIES: Final = ("attention",)
EVERY_FAMILY: Final = "all"


def random_scenario(seed: int, families: Sequence[str] = DEFAULT_FAMILIES) -> Scenario:
    """Return a random scenario of one of the families. :data:`EVERY_FAMILY` means all of them."""
    names = tuple(FAMILIES) if EVERY_FAMILY in families else families
    family = random.Random(f"family {seed}").choice(names)
    return FAMILIES[family](seed)

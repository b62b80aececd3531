"""Scenarios of decode context parallelism: several ranks share blocks of attention."""

import math
import random
from dataclasses import replace

from kvoxide.lab.verify.managers.scenarios.attention import draw_hash_lookahead
from kvoxide.lab.verify.managers.scenarios.scenario import Group, Kind, Scenario
from kvoxide.lab.verify.managers.scenarios.states import (
    Sizes,
    draw_retention,
    draw_states,
    plain_scenario,
)

SHARDED: tuple[Kind, ...] = ("full_attention", "full_attention", "mla_attention")


def parallel_scenario(seed: int) -> Scenario:
    """Return a scenario of attention alone: one group, or several with a draft model's group that
    every rank has."""
    rng = random.Random(f"parallel {seed}")
    world_size = rng.choice((2, 4))
    size = rng.choice((1, 2, 4, 4, 8, 16))
    groups = [Group(rng.choice(SHARDED), size, layout=i) for i in range(rng.choice((1, 1, 2)))]
    groups += _draw_drafts(rng, size, world_size, share=0.5)
    return _scenario(rng, seed, groups, world_size)


def parallel_state_scenario(seed: int) -> Scenario:
    """Return a scenario with states. Every rank has the whole of a state."""
    rng = random.Random(f"parallel states {seed}")
    world_size = rng.choice((2, 4))
    size = rng.choice((2, 4, 4, 8))
    state = size * world_size * rng.choice((1, 1, 1, 2, 4))
    unit = rng.choice((size, size * world_size, 2))
    groups = [Group(rng.choice(SHARDED), size, layout=i) for i in range(rng.choice((1, 1, 2)))]
    groups += draw_states(rng, Sizes(size, state, unit))
    groups += _draw_drafts(rng, size, world_size, share=0.3)
    scenario = _scenario(rng, seed, groups, world_size)
    if scenario.hash_block_size % unit == 0:
        scenario = replace(scenario, hash_block_size=unit)
    return replace(
        scenario,
        retention_interval=draw_retention(rng, scenario.scheduler_block_size),
        shared_prefix_checkpoint=rng.random() < 0.4,
    )


def _draw_drafts(rng: random.Random, size: int, world_size: int, share: float) -> list[Group]:
    if rng.random() >= share:
        return []
    block_size = rng.choice((size, size * world_size))
    draft = Group("full_attention", block_size, is_replicated=True, is_eagle=True, layout=9)
    if rng.random() < 0.4:
        window = rng.randint(1, 4 * block_size)
        draft = replace(draft, kind="sliding_window", window=window)
    return [draft]


def _scenario(rng: random.Random, seed: int, groups: list[Group], world_size: int) -> Scenario:
    rng.shuffle(groups)
    spans = Scenario((), 0, 0, 0, 0, dcp_world_size=world_size)
    sizes = [spans.span_of(group) for group in groups]
    scheduler_block_size = math.lcm(*sizes)
    max_model_len = scheduler_block_size * rng.choice((2, 4, 8, 16)) + rng.randrange(sizes[0])
    plain = plain_scenario(rng, seed, tuple(groups), max_model_len, scheduler_block_size)
    use_eagle = rng.random() < 0.4
    num_hash_lookahead_tokens = min(1, draw_hash_lookahead(rng, use_eagle))
    return replace(
        plain,
        hash_block_size=math.gcd(*sizes),
        dcp_world_size=world_size,
        enable_caching=rng.random() < 0.9,
        use_eagle=use_eagle,
        num_hash_lookahead_tokens=num_hash_lookahead_tokens,
        ready_made_hashes=num_hash_lookahead_tokens > 0,
    )

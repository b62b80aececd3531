"""Scenarios of encoder-decoder models: cross attention together with full attention."""

import math
import random
from dataclasses import replace

from kvoxide.lab.verify.managers.scenarios.scenario import Group, Scenario
from kvoxide.lab.verify.managers.scenarios.states import draw_block_size, plain_scenario


def cross_scenario(seed: int) -> Scenario:
    """Return a scenario without prefix caching. With it, vLLM raises at the first look-up, and
    kvoxide at construction."""
    rng = random.Random(f"cross attention {seed}")
    size = draw_block_size(rng)
    groups = [Group("full_attention", size) for _ in range(rng.choice((1, 1, 2)))]
    groups += [
        Group("cross_attention", size * rng.choice((1, 1, 1, 2)))
        for _ in range(rng.choice((1, 1, 2)))
    ]
    rng.shuffle(groups)
    scheduler_block_size = math.lcm(*(group.block_size for group in groups))
    max_model_len = scheduler_block_size * rng.choice((3, 6, 12, 20)) + rng.randrange(size)
    scenario = plain_scenario(rng, seed, tuple(groups), max_model_len, scheduler_block_size)
    return replace(scenario, enable_caching=False, needs_zeroing=rng.random() < 0.5)

"""Scenarios of models with recurrent states: Mamba groups, alone or with attention."""

import math
import random
from dataclasses import dataclass, replace

from kvoxide.lab.verify.managers.scenarios.attention import (
    attention_scenario,
    draw_eagle,
    draw_hash_lookahead,
)
from kvoxide.lab.verify.managers.scenarios.scenario import LARGEST_POOL, Group, Kind, Scenario


@dataclass(frozen=True)
class Sizes:
    """Block sizes of the attention groups and of the Mamba groups, and the unit of hashes."""

    attention: int
    state: int
    hash_unit: int


def state_scenario(seed: int) -> Scenario:
    """Return a scenario in which hits end where blocks end, because hashes are as long as
    blocks."""
    rng = random.Random(f"states {seed}")
    size = draw_block_size(rng)
    return _scenario(rng, seed, Sizes(size, size, size), beside_windows=True)


def partial_hit_scenario(seed: int) -> Scenario:
    """Return a scenario in which hits may end inside a block of the Mamba groups, which is then
    copied."""
    rng = random.Random(f"partial hits {seed}")
    unit = rng.choice((1, 2, 4, 4, 8))
    attention = unit * rng.choice((1, 1, 2, 2, 4, 3))
    state = rng.choice((attention, attention * 2, attention * 4, unit * 4, unit * 3))
    hash_unit = rng.choice((unit, unit, math.gcd(attention, state)))
    return _scenario(rng, seed, Sizes(attention, state, hash_unit), beside_windows=False)


def uncached_state_scenario(seed: int) -> Scenario:
    """Return a scenario without prefix caching, in which a state is one block for the whole
    request."""
    rng = random.Random(f"uncached states {seed}")
    attention = draw_block_size(rng)
    if rng.random() < 0.2:
        return replace(
            _scenario(rng, seed, Sizes(attention, attention, attention), beside_windows=True),
            enable_caching=False,
            shared_prefix_checkpoint=False,
        )
    max_model_len = attention * rng.choice((8, 12, 20, 40)) + rng.randrange(attention)
    mamba = Group("mamba", max_model_len, num_speculative_blocks=rng.choice((0, 0, 1, 2, 3)))
    groups = [mamba] * rng.choice((1, 1, 2, 3))
    groups += _draw_attention(rng, attention, beside_windows=True)
    rng.shuffle(groups)
    scheduler_block_size = math.lcm(*(g.block_size for g in groups))
    return replace(
        plain_scenario(rng, seed, tuple(groups), max_model_len, scheduler_block_size),
        hash_block_size=scheduler_block_size,
        enable_caching=False,
    )


def hidden_state_scenario(seed: int) -> Scenario:
    """Return a scenario with a group for hidden states in addition to the layers' own groups."""
    rng = random.Random(f"hidden states {seed}")
    scenario = rng.choice((attention_scenario, state_scenario, partial_hit_scenario))(seed)
    (size, *_) = (g.block_size for g in scenario.groups if g.prefix_cacheable)
    group = Group("hidden_states", size, layout=7)
    groups = [*scenario.groups, group]
    rng.shuffle(groups)
    num_blocks = max(scenario.num_blocks, 1 + len(groups))
    return replace(scenario, groups=tuple(groups), num_blocks=num_blocks)


def _scenario(rng: random.Random, seed: int, sizes: Sizes, *, beside_windows: bool) -> Scenario:
    attention = _draw_attention(rng, sizes.attention, beside_windows=beside_windows)
    states = draw_states(rng, sizes)
    if not attention and sizes.hash_unit != sizes.state:
        attention = [Group("full_attention", sizes.attention)]
    if not attention:
        states = states[:1]
    groups = [*states, *attention]
    rng.shuffle(groups)
    scheduler_block_size = math.lcm(*(g.block_size for g in groups))
    use_eagle, flagged = draw_eagle(rng, tuple(groups))
    periods = rng.choice((2, 3, 4, 6, 10, 20))
    max_model_len = min(scheduler_block_size * periods, 1200) + rng.randrange(sizes.state)
    scenario = plain_scenario(rng, seed, flagged, max_model_len, scheduler_block_size)
    num_hash_lookahead_tokens = min(1, draw_hash_lookahead(rng, use_eagle))
    return replace(
        scenario,
        hash_block_size=sizes.hash_unit,
        use_eagle=use_eagle,
        num_prefill_lookahead=_draw_prefill_lookahead(rng, scheduler_block_size),
        num_hash_lookahead_tokens=num_hash_lookahead_tokens,
        ready_made_hashes=num_hash_lookahead_tokens > 0 or rng.random() < 0.1,
        retention_interval=draw_retention(rng, scheduler_block_size),
        shared_prefix_checkpoint=rng.random() < 0.4,
    )


def plain_scenario(
    rng: random.Random,
    seed: int,
    groups: tuple[Group, ...],
    max_model_len: int,
    scheduler_block_size: int,
) -> Scenario:
    return Scenario(
        groups=groups,
        num_blocks=_draw_num_blocks(rng, groups, max_model_len),
        max_model_len=max_model_len,
        scheduler_block_size=scheduler_block_size,
        hash_block_size=scheduler_block_size,
        seed=seed,
        max_in_flight_tokens=rng.choice((None, rng.randint(1, 2 * max_model_len))),
        log_stats=rng.random() < 0.5,
        enable_events=rng.random() < 0.6,
        needs_zeroing=True,
        watermark=rng.choice((0.0, 0.0, 0.0, 0.01, 0.1, 0.3)),
        hash_algorithm=rng.choice(("sha256_cbor", "sha256_cbor", "xxhash_cbor")),
        collects_metrics=rng.random() < 0.3,
    )


def draw_block_size(rng: random.Random) -> int:
    return rng.choice((1, 2, 3, 4, 4, 8, 8, 16, 16, 32, 48))


def _draw_attention(rng: random.Random, block_size: int, *, beside_windows: bool) -> list[Group]:
    """Draw attention groups. With windows, hits must end where blocks end."""
    count = rng.choices((0, 1, 2), weights=(15, 65, 20))[0]
    kinds: list[Kind] = ["full_attention", "full_attention", "mla_attention"]
    groups = [Group(rng.choice(kinds), block_size, layout=index) for index in range(count)]
    if groups and beside_windows and rng.random() < 0.2:
        groups.append(Group("sliding_window", block_size, rng.randint(1, 4 * block_size)))
    if groups and rng.random() < 0.1:
        groups.append(Group("circular_buffer", block_size, prefix_cacheable=False))
    return groups


def draw_states(rng: random.Random, sizes: Sizes) -> list[Group]:
    has_checkpoint = rng.random() < 0.5
    alignments = (sizes.hash_unit, sizes.hash_unit, 1, 2 * sizes.hash_unit, sizes.state)
    group = Group(
        "mamba",
        sizes.state,
        mamba_mode="align",
        num_speculative_blocks=min(rng.choice((0, 0, 1, 2, 3)), (sizes.state - 1) // 2),
        num_prefill_checkpoint_blocks=int(has_checkpoint),
        prefill_checkpoint_alignment=rng.choice(alignments) if has_checkpoint else None,
    )
    groups = [group] * rng.choice((1, 1, 2, 3))
    if len(groups) > 1 and rng.random() < 0.1:
        groups[-1] = replace(group, layout=1)
    return groups


def _draw_prefill_lookahead(rng: random.Random, scheduler_block_size: int) -> int:
    return min(rng.choice((0,) * 12 + (1, 2, 4)), scheduler_block_size)


def draw_retention(rng: random.Random, scheduler_block_size: int) -> int | None:
    if rng.random() < 0.5:
        return None
    return scheduler_block_size * rng.choice((0, 0, 1, 2, 3))


def _draw_num_blocks(rng: random.Random, groups: tuple[Group, ...], max_model_len: int) -> int:
    longest_request = sum(_num_blocks_at_most(group, max_model_len) for group in groups)
    share = rng.choice((0.6, 0.9, 1.1, 1.5, 2.0, 2.0, 3.0, 5.0, 10.0))
    return max(1 + len(groups), min(LARGEST_POOL, int(longest_request * share) + rng.randint(1, 6)))


def _num_blocks_at_most(group: Group, max_model_len: int) -> int:
    if group.kind == "mamba":
        return 2 + group.num_speculative_blocks + group.num_prefill_checkpoint_blocks
    return math.ceil(max_model_len / group.block_size)

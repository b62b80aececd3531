"""Scenarios of attention alone: the groups of models without recurrent states."""

import dataclasses
import math
import random

from kvoxide.lab.verify.managers.scenarios.scenario import (
    HUGE_POOLS,
    LARGEST_POOL,
    WINDOW_KINDS,
    Group,
    Kind,
    Scenario,
)

_KINDS: tuple[Kind, ...] = (
    "full_attention",
    "mla_attention",
    "sliding_window",
    "sliding_window_mla",
    "chunked_local_attention",
    "rswa",
)
_OFTEN = (22, 13, 31, 16, 9, 9)
_RARE_ONES_OFTEN = (10, 5, 5, 5, 35, 40)


def attention_scenario(seed: int) -> Scenario:
    return _scenario(random.Random(f"scenario {seed}"), seed, _OFTEN)


def local_scenario(seed: int) -> Scenario:
    """Return a scenario with kinds of groups that few models have."""
    return _scenario(random.Random(f"local {seed}"), seed, _RARE_ONES_OFTEN)


def _scenario(rng: random.Random, seed: int, weights: tuple[int, ...]) -> Scenario:
    enable_caching = rng.random() < 0.93
    groups = _draw_groups(rng, weights)
    scheduler_block_size = math.lcm(*(g.block_size for g in groups))
    if rng.random() < 0.08:
        scheduler_block_size *= 2
    groups = _fit_chunked_groups(groups, scheduler_block_size)
    use_eagle, groups = draw_eagle(rng, groups)
    has_eagle = use_eagle or any(g.is_eagle for g in groups)
    num_prefill_lookahead = rng.choice((0, 0, 0, 1, 2, 4))
    if has_eagle:
        num_prefill_lookahead = min(num_prefill_lookahead, scheduler_block_size)
    num_hash_lookahead_tokens = draw_hash_lookahead(rng, use_eagle)
    max_model_len = _draw_max_model_len(rng, groups, scheduler_block_size)
    return Scenario(
        groups=groups,
        num_blocks=draw_num_blocks(rng, groups, max_model_len),
        max_model_len=max_model_len,
        scheduler_block_size=scheduler_block_size,
        hash_block_size=_draw_hash_block_size(rng, groups),
        seed=seed,
        max_in_flight_tokens=rng.choice((None, rng.randint(1, 2 * max_model_len))),
        enable_caching=enable_caching,
        use_eagle=use_eagle,
        num_hash_lookahead_tokens=num_hash_lookahead_tokens,
        num_prefill_lookahead=num_prefill_lookahead,
        log_stats=rng.random() < 0.5,
        enable_events=rng.random() < 0.6,
        needs_zeroing=rng.random() < 0.4,
        watermark=rng.choice((0.0, 0.0, 0.0, 0.01, 0.1, 0.3)),
        retention_interval=_draw_retention(rng, groups, scheduler_block_size),
        hash_algorithm=rng.choice(("sha256_cbor", "sha256_cbor", "xxhash_cbor")),
        ready_made_hashes=num_hash_lookahead_tokens > 0 or rng.random() < 0.1,
        collects_metrics=rng.random() < 0.3,
    )


def _draw_groups(rng: random.Random, weights: tuple[int, ...]) -> tuple[Group, ...]:
    count = rng.choices((1, 2, 3, 4, 5, 6), weights=(18, 28, 20, 14, 10, 10))[0]
    block_sizes = _draw_block_sizes(rng)
    groups: list[Group] = []
    for index in range(count):
        if groups and rng.random() < 0.35:
            groups.append(_sibling(rng, rng.choice(groups)))
        else:
            is_full = index == 0 and rng.random() < 0.5
            kind = "full_attention" if is_full else rng.choices(_KINDS, weights)[0]
            groups.append(_draw_group(rng, kind, rng.choice(block_sizes)))
    groups = [*_with_bounded_replay(rng, groups), *_circular_buffers(rng, block_sizes)]
    rng.shuffle(groups)
    return tuple(groups)


def _draw_block_sizes(rng: random.Random) -> list[int]:
    if rng.random() < 0.15:
        return rng.choice(([3, 6], [6, 4], [12, 24], [5], [48, 16, 24]))
    smallest = rng.choice((1, 2, 4, 4, 8, 8, 16, 16, 32))
    factors = rng.choice(((1,), (1, 2), (1, 4), (1, 2, 4), (1, 8), (2, 4)))
    return [smallest * factor for factor in factors]


def _draw_group(rng: random.Random, kind: Kind, block_size: int) -> Group:
    if kind in WINDOW_KINDS:
        extra = rng.choice((0, 0, 0, 1, rng.randint(1, 2 * block_size)))
        return Group(kind, block_size, _draw_window(rng, block_size), extra)
    if kind == "chunked_local_attention":
        return Group(kind, block_size, block_size * rng.choice((1, 2, 3, 4)))
    if kind == "rswa":
        return Group(kind, block_size, _draw_window(rng, block_size))
    return Group(kind, block_size)


def _circular_buffers(rng: random.Random, block_sizes: list[int]) -> list[Group]:
    """Draw circular buffers in some scenarios, for models that have them in addition to
    attention."""
    count = rng.choices((0, 1, 2), weights=(86, 10, 4))[0]
    size = rng.choice(block_sizes)
    return [Group("circular_buffer", size, prefix_cacheable=False) for _ in range(count)]


def _draw_window(rng: random.Random, block_size: int) -> int:
    around = block_size * rng.choice((1, 1, 2, 3, 4, 8)) + rng.choice((-1, 0, 0, 1))
    anywhere = rng.randint(1, 4 * block_size)
    return max(1, rng.choice((around, around, around, anywhere, anywhere, 1)))


def _sibling(rng: random.Random, group: Group) -> Group:
    layout = rng.choice((group.layout, group.layout, group.layout + 1))
    return dataclasses.replace(group, layout=layout)


def _with_bounded_replay(rng: random.Random, groups: list[Group]) -> list[Group]:
    candidates = [i for i, g in enumerate(groups) if g.kind == "sliding_window_mla"]
    if not candidates or len(groups) == len(candidates) or rng.random() < 0.6:
        return groups
    window = groups[candidates[0]].window
    for index in rng.sample(candidates, rng.randint(1, len(candidates))):
        groups[index] = dataclasses.replace(groups[index], prefix_cacheable=False, window=window)
    return groups


def _fit_chunked_groups(groups: tuple[Group, ...], block_size: int) -> tuple[Group, ...]:
    """Return chunked local groups with the scheduler's own block size, the only one at which vLLM
    looks them up."""
    return tuple(
        dataclasses.replace(g, block_size=block_size, window=_round_up(g.window or 1, block_size))
        if g.kind == "chunked_local_attention"
        else g
        for g in groups
    )


def _round_up(tokens: int, multiple: int) -> int:
    return math.ceil(tokens / multiple) * multiple


def draw_eagle(rng: random.Random, groups: tuple[Group, ...]) -> tuple[bool, tuple[Group, ...]]:
    """Draw whether EAGLE is used. vLLM refuses the EAGLE drop in a chunked local group."""
    eligible = [i for i, g in enumerate(groups) if g.kind != "chunked_local_attention"]
    use_eagle = rng.random() < 0.4
    flag_some = rng.random() < 0.6 if use_eagle else rng.random() < 0.1
    if len(eligible) < len(groups):
        use_eagle = use_eagle and bool(eligible)
        flag_some = use_eagle or (flag_some and bool(eligible))
    flagged = rng.sample(eligible, rng.randint(1, len(eligible))) if flag_some else []
    return use_eagle, tuple(
        dataclasses.replace(g, is_eagle=i in flagged) for i, g in enumerate(groups)
    )


def draw_hash_lookahead(rng: random.Random, use_eagle: bool) -> int:
    """Draw the lookahead of hashes. vLLM's scheduler uses lookahead hashes instead of the EAGLE
    drop, never with it."""
    return 0 if use_eagle or rng.random() < 0.92 else rng.choice((1, 1, 1, 2, 3))


def _draw_max_model_len(rng: random.Random, groups: tuple[Group, ...], alignment: int) -> int:
    smallest = min(g.block_size for g in groups)
    longest = min(160 * smallest, 1200)
    periods = rng.choice((3, 4, 6, 8, 12, 20, 40))
    wanted = max(24, alignment * periods)
    return max(min(wanted, longest), 2 * alignment) + rng.randrange(alignment)


def draw_num_blocks(rng: random.Random, groups: tuple[Group, ...], max_model_len: int) -> int:
    longest_request = sum(math.ceil(max_model_len / g.block_size) for g in groups)
    if rng.random() < 0.02:
        return rng.randint(*HUGE_POOLS)
    share = rng.choice((0.3, 0.6, 0.9, 1.1, 1.5, 2.0, 2.0, 3.0, 5.0, 10.0))
    return max(1 + len(groups), min(LARGEST_POOL, int(longest_request * share) + rng.randint(1, 3)))


def _draw_hash_block_size(rng: random.Random, groups: tuple[Group, ...]) -> int:
    coarsest = math.gcd(*(g.block_size for g in groups if g.prefix_cacheable))
    if len(groups) == 1 or rng.random() < 0.8:
        return coarsest
    return rng.choice([d for d in range(1, coarsest + 1) if coarsest % d == 0][-3:])


def _draw_retention(
    rng: random.Random, groups: tuple[Group, ...], scheduler_block_size: int
) -> int | None:
    if not any(g.kind in WINDOW_KINDS for g in groups) or rng.random() < 0.35:
        return None
    return scheduler_block_size * rng.choice((0, 0, 1, 2, 3, 4))

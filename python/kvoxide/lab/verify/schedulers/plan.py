"""The input of one run of two schedulers: a model's groups and a server's settings."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from kvoxide.lab.verify import installed
from kvoxide.lab.verify.managers.scenarios import Scenario, random_scenario


@dataclass(frozen=True)
class Plan:
    """``scenario`` has the groups and the arguments of the manager."""

    seed: int
    scenario: Scenario
    max_num_seqs: int
    max_num_batched_tokens: int
    long_prefill_token_threshold: int
    policy: Literal["fcfs", "priority"]
    reserves_full_input: bool
    is_async: bool
    num_spec_tokens: int
    drafts_with_cache: bool
    uses_v2_runner: bool
    connector: bool
    connector_diverges: bool
    loads_asynchronously: float
    external_share: float
    delayed_free_share: float
    log_stats: bool
    request_share: float
    num_requests: int
    output_length: int

    @property
    def num_steps_ahead(self) -> int:
        return 2 if self.is_async else 1

    @property
    def num_lookahead_tokens(self) -> int:
        return self.num_spec_tokens if self.drafts_with_cache else 0


def random_plan(seed: int, families: Sequence[str]) -> Plan:
    scenario = installed.fitted(random_scenario(seed, families))
    rng = random.Random(f"plan {seed}")
    num_spec_tokens = _draw_spec_tokens(rng, scenario)
    has_drop = scenario.use_eagle and num_spec_tokens > 0
    scenario = replace(
        scenario,
        use_eagle=has_drop,
        num_hash_lookahead_tokens=min(1, scenario.num_hash_lookahead_tokens) * (not has_drop),
        num_prefill_lookahead=scenario.num_prefill_lookahead if has_drop else 0,
        collects_metrics=False,
    )
    connector = rng.random() < 0.5 and not scenario.has_cross_attention
    longest = scenario.max_model_len
    return Plan(
        seed=seed,
        scenario=scenario,
        max_num_seqs=rng.choice((1, 2, 4, 8, 16)),
        max_num_batched_tokens=max(
            1 + num_spec_tokens + scenario.num_prefill_lookahead,
            rng.choice((longest, 2 * longest, rng.randint(1, longest), rng.randint(1, longest))),
        ),
        long_prefill_token_threshold=rng.choice((0, 0, 0, rng.randint(1, longest))),
        policy=rng.choice(("fcfs", "fcfs", "fcfs", "priority")),
        reserves_full_input=rng.random() < 0.5,
        is_async=rng.random() < 0.5,
        num_spec_tokens=num_spec_tokens,
        drafts_with_cache=has_drop or rng.random() < 0.3,
        uses_v2_runner=rng.random() < 0.3,
        connector=connector,
        connector_diverges=rng.random() < 0.5,
        loads_asynchronously=rng.choice((0.0, 0.5, 1.0)),
        external_share=rng.choice((0.2, 0.6)) if connector else 0.0,
        delayed_free_share=rng.choice((0.0, 0.3, 0.8)),
        log_stats=rng.random() < 0.5,
        request_share=rng.choice((0.1, 0.3, 0.6)),
        num_requests=rng.choice((1, 2, 4, 8, 20)),
        output_length=rng.randint(1, max(1, longest // rng.choice((2, 4, 8)))),
    )


def _draw_spec_tokens(rng: random.Random, scenario: Scenario) -> int:
    if scenario.state_groups:
        return scenario.state_groups[0].num_speculative_blocks
    return rng.choice((0, 0, 1, 2, 3)) if scenario.max_model_len > 12 else 0

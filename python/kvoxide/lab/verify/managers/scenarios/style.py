"""Draws how a scenario's scheduler uses its manager."""

import random
from dataclasses import dataclass, replace

from kvoxide.lab.verify.managers.scenarios.scenario import Scenario


@dataclass(frozen=True)
class Style:
    """The settings of the traffic, drawn once per scenario."""

    num_requests: int
    num_steps_ahead: int
    num_draft_tokens: int
    num_lookahead_tokens: int
    chunk: int
    output_length: int
    external_share: float
    async_share: float
    deferred_share: float
    must_fit: bool
    salt_share: float
    lora_share: float
    full_report_share: float
    connector: bool
    echoes: bool
    image_share: float = 0.0
    step_share: float = 0.0
    misaligned_share: float = 0.0


def draw_style(rng: random.Random, scenario: Scenario) -> Style:
    with_connector = rng.random() < 0.5
    num_draft_tokens = rng.choice((0, 0, 0, 1, 3, 5))
    plain = Style(
        num_requests=rng.choice((1, 2, 3, 4, 6, 8, 12)),
        num_steps_ahead=rng.choice((1, 1, 2, 3)),
        num_draft_tokens=num_draft_tokens,
        num_lookahead_tokens=rng.choice((0, 0, num_draft_tokens, rng.randint(0, 8))),
        chunk=rng.choice((scenario.max_model_len, rng.randint(1, scenario.max_model_len))),
        output_length=rng.randint(1, max(1, scenario.max_model_len // rng.choice((2, 4, 8)))),
        external_share=rng.choice((0.2, 0.6)) if with_connector else 0.0,
        async_share=rng.choice((0.0, 0.5, 1.0)),
        deferred_share=rng.choice((0.0, 0.0, 0.3, 0.8)),
        must_fit=rng.random() < 0.5,
        salt_share=rng.choice((0.0, 0.0, 0.2)),
        lora_share=rng.choice((0.0, 0.0, 0.2)),
        full_report_share=rng.choice((0.0, 0.2, 0.5)),
        connector=with_connector,
        echoes=rng.random() < 0.25,
    )
    if scenario.dcp_world_size > 1:
        plain = replace(plain, full_report_share=0.0)
    return _with_states(rng, scenario, plain) if scenario.state_groups else plain


def _with_states(rng: random.Random, scenario: Scenario, style: Style) -> Style:
    """Return a style with as many drafts as there are blocks for, and with steps that end."""
    num_draft_tokens = max(group.num_speculative_blocks for group in scenario.state_groups)
    if not scenario.aligns_states:
        num_draft_tokens = rng.choice((num_draft_tokens, style.num_draft_tokens))
    has_blocks_per_hit = scenario.hash_block_size == scenario.scheduler_block_size
    return replace(
        style,
        num_draft_tokens=num_draft_tokens,
        num_lookahead_tokens=rng.choice((0, num_draft_tokens)),
        full_report_share=style.full_report_share if has_blocks_per_hit else 0.0,
        step_share=rng.choice((0.1, 0.3, 0.6)),
        misaligned_share=rng.choice((0.0, 0.0, 0.1)),
    )

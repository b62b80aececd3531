"""How a scheduler drives its manager."""

import random
from dataclasses import dataclass

from .scenario import Scenario


@dataclass(frozen=True)
class Style:
    """Drawn once per scenario."""

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


def draw_style(rng: random.Random, scenario: Scenario) -> Style:
    """A style that goes with the scenario's sizes."""
    with_connector = rng.random() < 0.5
    num_draft_tokens = rng.choice((0, 0, 0, 1, 3, 5))
    return Style(
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

"""The line of tables and plots that says what a policy which knows the future could hit."""

from collections.abc import Sequence
from dataclasses import replace

from kvoxide.lab.replay.input import CLAIRVOYANT, NamedPolicy
from kvoxide.lab.replay.run.outcome import Outcome


def clairvoyant_outcomes(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """For each pool size of runs with a bound, the highest of their bounds: it lies below none of
    them, although each is for the schedule of its own policy."""
    bounds: dict[tuple[int, int], list[Outcome]] = {}
    for outcome in outcomes:
        blocks, total = outcome.run.blocks, outcome.run.pool_blocks
        if blocks is not None and total is not None and outcome.result.bound_hit_tokens is not None:
            bounds.setdefault((total - blocks, blocks), []).append(_bound(outcome))
    return [max(found, key=lambda o: o.hit_share) for _, found in sorted(bounds.items())]


def _bound(outcome: Outcome) -> Outcome:
    policy = outcome.run.policy
    run = replace(outcome.run, policy=NamedPolicy(CLAIRVOYANT, policy.policy))
    return Outcome(run, outcome.result, schedule_of=policy.name)

"""The line of tables and plots that says what a policy which knows the future could hit."""

from collections.abc import Sequence
from dataclasses import replace

from kvoxide.lab.replay.input import CLAIRVOYANT, NamedPolicy
from kvoxide.lab.replay.run.outcome import Outcome


def clairvoyant_outcomes(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """For each pool size of runs with a bound, the highest of their bounds: it lies below none of
    them, although each is for the schedule of its own policy."""
    sizes = sorted({o.run.blocks for o in outcomes if o.run.blocks is not None})
    bounds = [_bound(outcome) for outcome in outcomes]
    return [
        max((bound for bound in bounds if bound.run.blocks == size), key=lambda o: o.hit_share)
        for size in sizes
    ]


def _bound(outcome: Outcome) -> Outcome:
    policy = outcome.run.policy
    run = replace(outcome.run, policy=NamedPolicy(CLAIRVOYANT, policy.policy))
    return Outcome(run, outcome.result, schedule_of=policy.name)
